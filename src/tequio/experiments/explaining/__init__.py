"""Explaining and asking finished runs: their trees, their decisions, and their vertical models for new rows."""
