"""Weights by rows have no bound, so central noise is refused with them, and taken with uniform ones."""

from __future__ import annotations

import pytest

import tequio
from tequio.errors import ConfigError

from .runs import config_of

NOISED = ("fedadagrad", "fedadam", "fedavg", "fedavgm", "fedprox", "fedsgd", "fedyogi", "scaffold")


def private_run(name, weights, folder):
    config = config_of(name)
    config["algorithm"] = {**config["algorithm"], "weights": weights}
    config["data"] = {**config["data"], "split": {"validation": 0.0, "test": 0.0}}
    return tequio.run(**config, stages=[{"name": "central-dp", "clip": 0.5, "noise": 1.0}],
                      output={"folder": str(folder)})


@pytest.mark.parametrize("name", NOISED)
def test_weights_by_rows_are_refused_under_central_noise(name, tmp_path):
    with pytest.raises(ConfigError, match=r"algorithm\.weights = 'uniform'"):
        private_run(name, "size", tmp_path)


@pytest.mark.parametrize("name", NOISED)
def test_uniform_weights_go_with_central_noise(name, tmp_path):
    assert private_run(name, "uniform", tmp_path).privacy["epsilon"] > 0
