"""Finished runs under attack: what their updates and their models give away."""
