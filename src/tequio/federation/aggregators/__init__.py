"""Aggregators besides the mean: those that hold against hostile parties. One file a family."""
