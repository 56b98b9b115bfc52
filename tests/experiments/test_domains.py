"""Evaluation by domain and of newcomers, through whole runs on embedded digits of several looks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tequio
from tequio.data.catalogue.digits import resized
from tequio.errors import ConfigError
from tequio.registry import build

DATA = {"name": "digit-worlds", "test_rows": 30, "partition": {"name": "domain", "rows": 40},
        "split": {"validation": 0.0, "test": 0.2}}


def run(tmp_path: Any, **keys: Any) -> Any:
    return tequio.run(**{"data": DATA, "learner": "logistic", "rounds": 2, "engine": {"workers": 1},
                         "evaluation": {"by_domain": True}, "output": {"folder": str(tmp_path)}, **keys})


def test_one_model_for_all_has_one_global_accuracy_and_it_is_the_mean_of_the_local_ones(tmp_path: Any) -> None:
    metrics = run(tmp_path).summary["metrics"]
    domains = ("mnist", "mnist_m", "svhn", "syn", "usps")
    assert {metrics[f"global.{domain}.accuracy"] for domain in domains} == {metrics["test.accuracy"]}
    local = [metrics[f"local.{domain}.accuracy"] for domain in domains]
    assert np.mean(local) == pytest.approx(metrics["test.accuracy"])
    assert not any(name.startswith("route.") for name in metrics)


def test_a_router_says_where_rows_go_and_how_novel_they_are(tmp_path: Any) -> None:
    router = {"name": "pca", "components": 3}
    metrics = run(tmp_path, algorithm={"name": "flprotector", "router": router}).summary["metrics"]
    assert metrics["route.mnist.mnist"] > 0.8
    assert 0 <= metrics["route.usps.syn"] <= 1
    assert metrics["novelty.mnist.mnist.mean"] < metrics["novelty.mnist.syn.mean"]


def test_ablations_of_one_run_are_those_of_runs_of_their_own(tmp_path: Any) -> None:
    """Neither the router nor the increments feed back into training, so one run answers for all three."""
    keys: dict[str, Any] = {"attack": {"name": "backdoor", "parties": ["svhn"]},
                            "local": {"optimizer": "adam", "epochs": 5, "optimizer_memory": "kept",
                                      "learning_rate": 0.01}}
    full = {"name": "flprotector", "router": {"name": "pca", "components": 3}}
    metrics = run(tmp_path, algorithm=full, **keys).summary["metrics"]
    for name, change in (("own", {"router": ""}), ("common", {"personalise": False})):
        without = run(tmp_path, algorithm=full | change, **keys).summary["metrics"]
        assert without.pop("attack.moved") == metrics["attack.moved"]
        same = {key for key in without if key.startswith(("local.", "global.", "attack."))}
        assert {key: metrics[f"{name}.{key}"] for key in same} == {key: without[key] for key in same}
        assert {"local.accuracy", "attack.success"} <= same
    assert len({metrics["global.accuracy"], metrics["own.global.accuracy"], metrics["common.global.accuracy"]}) == 3
    assert not any(key.startswith(("own.route", "common.novelty")) for key in metrics)


def test_newcomers_never_train_and_are_reported_on(tmp_path: Any) -> None:
    result = run(tmp_path, algorithm="ditto", rules={"held_out": ["usps"]})
    assert "newcomers.accuracy.mean" in result.summary["metrics"]
    assert "usps" not in result.parties["party"]
    assert '"parties": [4' not in (result.folder / "events.jsonl").read_text()


def test_domains_must_be_known(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="by_domain"):
        run(tmp_path, data={"name": "digits", "partition": {"name": "iid", "parties": 3}})
    with pytest.raises(Exception, match="no party called 'nobody'"):
        run(tmp_path, rules={"held_out": ["nobody"]})


def test_every_digit_is_in_one_domain_and_test_rows_are_apart() -> None:
    loaded = build("dataset", "digit-worlds").load()
    assert (len(loaded.train), len(loaded.test)) == (1497, 300)
    assert set(loaded.train.groups) == {"mnist", "mnist_m", "svhn", "syn", "usps"}
    assert loaded.train.features.min() >= 0
    assert loaded.train.features.max() <= 1


def test_resizing_keeps_flat_images_flat_and_means_as_they_are() -> None:
    flat = np.full((2, 1, 28, 28), 0.25, dtype=np.float32)
    np.testing.assert_allclose(resized(flat), 0.25, rtol=1e-6)
    assert resized(flat).shape == (2, 3, 16, 16)
    halved = np.random.default_rng(0).random((3, 3, 32, 32), dtype=np.float32)
    np.testing.assert_allclose(resized(halved).mean(axis=(2, 3)), halved.mean(axis=(2, 3)), atol=0.01)
    assert resized(halved).flags.c_contiguous
