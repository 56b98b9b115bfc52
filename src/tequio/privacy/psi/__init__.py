"""Private set intersection: which ids parties have in common, and nothing about the others."""
