"""Datasets with a schema, the catalogue and its loaders, partitions and splits. Views, not copies."""
