"""The `tequio` command, one file a command."""
