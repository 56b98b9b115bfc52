"""Experiments: configs, runs, sweeps and searches, comparisons, explanations, deployment, and the Python API."""
