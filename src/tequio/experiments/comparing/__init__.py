"""Comparing methods over runs: finding and pairing their values, and the statistics on them."""
