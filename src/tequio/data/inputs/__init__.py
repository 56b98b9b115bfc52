"""Datasets from what people have: arrays, data frames, CSV and Parquet files, torch and Hugging Face datasets."""

from tequio.data.inputs.read import read

__all__ = ["read"]
