"""Dossiers: what is known of a run or a model, each fact with the file and the hash that it comes from."""
