"""Two algorithms, a stage, a selector and a partition that are no part of tequio."""
