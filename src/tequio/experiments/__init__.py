"""Experiments: config, scenario, runner, run store, sweeps, and the Python API."""
