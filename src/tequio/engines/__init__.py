"""Engines: what carries tasks to parties and replies back."""
