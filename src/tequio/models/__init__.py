"""Trained models as things to use: how rows are read for them, how they answer, and the folder that they live in."""
