"""Models that one party trains, alone or many parties at once in batched array operations."""
