"""The ways to deal a dataset to parties, one idea a file; each is a component of kind `partition`."""
