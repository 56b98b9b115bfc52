"""Configs: their tables, their defaults, what goes together in them, and TOML both ways."""
