"""Puts this folder on the path, to import `summed`."""
