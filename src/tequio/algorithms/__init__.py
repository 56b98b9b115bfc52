"""Algorithms, one file each, by family."""
