"""Sums of updates that nobody can read one by one."""
