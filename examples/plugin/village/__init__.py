"""An algorithm, a selector and a partition that are no part of tequio."""
