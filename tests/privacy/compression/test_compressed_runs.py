"""Whole runs with compression: how many bytes it saves, and what that costs."""

from __future__ import annotations

from typing import Any

import pytest

import tequio

SMALL: dict[str, list[dict[str, Any]]] = {
    "4 bits": [{"name": "quantise", "bits": 4}],
    "largest tenth in 8 bits": [{"name": "top-k", "fraction": 0.1}, {"name": "quantise"}, {"name": "delta-zstd"}]}


def run(tmp_path: Any, **keys: Any) -> Any:
    return tequio.run(**{"engine": {"workers": 1}, "evaluation": {"at": ["coordinator"], "every": 10},
                         "output": {"folder": str(tmp_path)}, **keys}).summary


@pytest.mark.parametrize("way", SMALL)
def test_four_times_fewer_bytes_cost_little_on_small_digits(tmp_path: Any, way: str) -> None:
    keys: Any = {"data": {"name": "digits", "partition": {"name": "iid", "parties": 5}}, "rounds": 20,
                 "learner": {"name": "mlp", "hidden": [64]}, "local": {"learning_rate": 0.2, "batch": 16}}
    whole, small = run(tmp_path, **keys), run(tmp_path, **keys, stages=SMALL[way])
    assert whole["bytes_up"] / small["bytes_up"] > 4
    # Of 359 test rows; on MNIST one point is the bound.
    assert whole["metrics"]["test.accuracy"] - small["metrics"]["test.accuracy"] < 0.02


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("way", SMALL)
def test_four_times_fewer_bytes_cost_less_than_a_point_on_mnist(tmp_path: Any, way: str) -> None:
    keys: Any = {"data": {"name": "mnist", "partition": {"name": "iid", "parties": 10}}, "rounds": 40,
                 "learner": {"name": "mlp", "hidden": [128]},
                 "local": {"learning_rate": 0.1, "batch": 20, "steps": 30}}
    whole, small = run(tmp_path, **keys), run(tmp_path, **keys, stages=SMALL[way])
    assert whole["bytes_up"] / small["bytes_up"] > 4
    assert whole["metrics"]["test.accuracy"] - small["metrics"]["test.accuracy"] < 0.01
