"""Runs whose parties keep what their optimizers remember: where it lives, and that nothing else changes with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import tequio
from tequio.errors import TequioError


def a_run(folder: Any, memory: str = "kept", **other: Any) -> Any:
    base: dict[str, Any] = {
        "seed": 3, "rounds": 4, "learner": {"name": "mlp", "hidden": [8]}, "algorithm": {"name": "fedavg"},
        "data": {"name": "synthetic", "rows": 120, "partition": {"name": "iid", "parties": 3}},
        "local": {"optimizer": "adam", "learning_rate": 0.01, "batch": 16, "optimizer_memory": memory},
        "engine": {"name": "local", "workers": 1}, "output": {"folder": str(folder)}}
    return tequio.run(base | other)


def fingerprint(result: Any) -> str:
    return str(result.summary["model_sha256"])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: Any) -> Any:
    return a_run(tmp_path_factory.mktemp("kept"))


def test_it_makes_another_model(kept: Any, tmp_path: Any) -> None:
    fresh = a_run(tmp_path, "fresh")
    assert fingerprint(fresh) != fingerprint(kept)
    assert fresh.summary["config_hash"] != kept.summary["config_hash"]


def test_worker_processes_give_the_same_model(kept: Any, tmp_path: Any) -> None:
    assert fingerprint(a_run(tmp_path, engine={"name": "local", "workers": 2})) == fingerprint(kept)


def test_a_run_that_stops_goes_on_with_it(kept: Any, tmp_path: Any) -> None:
    half = a_run(tmp_path, rounds=2)
    whole = tequio.run(resume=half.folder, rounds=4)
    assert fingerprint(whole) == fingerprint(kept)


@pytest.mark.parametrize("algorithm", [
    {"name": "flprotector", "router": "pca", "weighting": False}, {"name": "ditto"}], ids=["flprotector", "ditto"])
def test_personal_training_has_a_memory_of_its_own(kept: Any, tmp_path: Any, algorithm: dict[str, Any]) -> None:
    personal = a_run(tmp_path, algorithm=algorithm)
    assert (personal.folder / "model.safetensors").read_bytes() == (kept.folder / "model.safetensors").read_bytes()
    assert fingerprint(personal) != fingerprint(kept)  # the parties' own models are in it


def test_the_global_model_of_apfl_keeps_it_too(kept: Any, tmp_path: Any) -> None:
    """Its steps are taken by numpy: the same numbers but for the last digits."""
    personal = a_run(tmp_path, algorithm={"name": "apfl"})
    for name, values in load_file(kept.folder / "model.safetensors").items():
        np.testing.assert_allclose(load_file(personal.folder / "model.safetensors")[name], values, atol=1e-4)


def test_one_party_and_all_rows_in_one_place_are_the_same(tmp_path: Any) -> None:
    alone = {"name": "synthetic", "rows": 120, "partition": {"name": "iid", "parties": 1}}
    models = {fingerprint(a_run(tmp_path / name, data=alone, algorithm={"name": name}))
              for name in ("fedavg", "centralised")}
    assert len(models) == 1


@pytest.mark.parametrize("other", [
    {"algorithm": {"name": "pfedme"}, "local": {"optimizer_memory": "kept"}},
    {"algorithm": {"name": "fednova"}, "local": {"momentum": 0.9, "optimizer_memory": "kept"}},
    {"learner": {"name": "sgd-classifier"}, "local": {"optimizer_memory": "kept"}},
])
def test_who_cannot_keep_it_says_so(tmp_path: Any, other: dict[str, Any]) -> None:
    with pytest.raises(TequioError, match=r"optimizer_memory|optimizer remembers|momentum of earlier"):
        a_run(tmp_path, **other)
