"""Hostile parties that train on wrong labels: every tree algorithm learns what it would from rows with these labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rivals import blobs, categories, federation, run

from parts import Parts
from tequio.attacks.hostility import Hostility
from tequio.attacks.rows import with_values
from tequio.data.partition import Split
from tequio.learners.learner import LocalTraining
from tequio.registry import build

SPLIT = Split(validation=0.25, test=0.0, stratify=False)
OPPOSITE = Hostility(attack="label-flip", parameters={"labels": "opposite"}, hostile=(0,), parties=3)
LEARNERS: dict[str, Any] = {
    "federated-id3": ("id3", {}), "fedrf": ("random-forest", {"trees": 3, "depth": 3}),
    "icdta4fl": ("cart", {"depth": 3}), "icdta4fl-plus": ("cart", {"depth": 3}),
    "icdta4fl-own": ("cart", {"depth": 3}),
    "histogram-gbdt": ("boosted-trees", {"depth": 2, "bins": 8}), "simfl": ("boosted-trees", {"depth": 2, "bins": 8}),
    "voting": ("logistic", {}), "xgboost-bagging": ("xgboost", {"depth": 2}),
    "xgboost-cyclic": ("xgboost", {"depth": 2})}
SETTINGS = {"fedrf": {"trees": 3}, "icdta4fl": {"filter": "none"}}


def algorithm(name: str, attack: Hostility | None = None) -> Any:
    learner, parameters = LEARNERS[name]
    local = LocalTraining(epochs=3) if name == "voting" else None
    return build("algorithm", name, SETTINGS.get(name),
                 parts=Parts(learner=build("learner", learner, parameters), attack=attack, local=local))


def table(name: str) -> tuple[Any, list[np.ndarray]]:
    """Rows of three parties; both classes are equally frequent at the first, so that swapping them keeps counts."""
    data = blobs(180)
    if name == "federated-id3":
        codes = (data.features > 0).astype(np.int64) + (data.features > 1)
        data = categories(codes, data.target)
    first = np.concatenate([np.flatnonzero(data.target == label)[:30] for label in (0, 1)])
    others = np.setdiff1d(np.arange(180), first)
    return data, [first, others[::2], others[1::2]]


@pytest.mark.parametrize("name", LEARNERS)
def test_a_hostile_party_trains_on_wrong_labels(name: str) -> None:
    if name.startswith("xgboost"):
        pytest.importorskip("xgboost")
    data, parts = table(name)
    split = SPLIT if name.startswith("icdta") else Split(validation=0.0, test=0.0)
    attacked, honest = (federation(data, parts, split=split) for _ in range(2))
    wrong = data.target.copy()
    trained_on = honest.population.view(0).train.rows
    wrong[trained_on] = 1 - wrong[trained_on]
    mislabelled = federation(with_values(data, data.features, wrong), parts, split=split)
    scores = [scores_of(name, run(algorithm(name, attack), where, rounds=3), data)
              for attack, where in ((OPPOSITE, attacked), (None, mislabelled), (None, honest))]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)
    assert np.abs(scores[0] - scores[2]).max() > 0.01


def scores_of(name: str, state: Any, data: Any) -> np.ndarray:
    if name == "voting":
        from tequio.algorithms.trees.voting import vote

        return vote(algorithm(name).offered, state.model, data)
    return algorithm(name).learner.predict(state.model, data)


@pytest.mark.parametrize("name", ["histogram-gbdt", "xgboost-bagging", "simfl"])
def test_rows_that_an_attack_adds_in_some_rounds_are_no_trouble(name: str) -> None:
    if name.startswith("xgboost"):
        pytest.importorskip("xgboost")
    data, parts = table(name)
    trigger = Hostility(attack="backdoor", parameters={"value": 3.0, "scale": 1.0}, hostile=(0,), parties=3,
                        first_round=2, every=2)
    attacked, honest = (run(algorithm(name, attack), federation(data, parts), rounds=5) for attack in (trigger, None))
    assert np.abs(scores_of(name, attacked, data) - scores_of(name, honest, data)).max() > 0.01
