"""Every algorithm of trees on numbers, categories, ordered ones, days and gaps: it takes them, or says what to type."""

from __future__ import annotations

import numpy as np
import pytest

import tequio
from tequio import registry
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import TequioError
from tequio.learners.learner import takes_of
from tequio.learners.trees.learner import TreeLearner
from tequio.registry import find

from .runs import ON_COLUMNS
from .subjects import LEARNERS, make

TREES = [entry.name for entry in registry.entries("learner") if hasattr(entry.component, "fit")]
EVERYTHING = frozenset({"number", "category", "missing"})


def mixed(gaps, categorical):
    draw = np.random.default_rng(0)
    columns = [draw.normal(size=160), draw.integers(0, 4, 160), draw.integers(0, 3, 160), draw.integers(0, 9000, 160)]
    features = np.stack(columns, axis=1).astype(float)
    target = ((features[:, 0] > 0) ^ (features[:, 1] == 2)).astype(int)
    if gaps:
        features[draw.random(features.shape) < 0.1] = np.nan
    kinds = (Feature("age"), Feature("job", tuple("abcd")), Feature("size", ("s", "m", "l"), "ordered"),
             Feature("day", kind="date"))
    if not categorical:
        kinds, features = (kinds[0], kinds[3]), features[:, [0, 3]]
    return Dataset.of(Schema(kinds, Target("classes", ("no", "yes"))), features, target,
                      missing="keep" if gaps else "")


@pytest.mark.parametrize("categorical", [True, False], ids=["categories", "numbers"])
@pytest.mark.parametrize("gaps", [True, False], ids=["gaps", "whole"])
@pytest.mark.parametrize("name", TREES)
def test_a_learner_takes_what_it_says(name, gaps, categorical):
    learner, data = make("learner", name), mixed(gaps, categorical)
    needed = {"number"} | ({"category"} if categorical else set()) | ({"missing"} if gaps else set())
    if needed <= takes_of(learner):
        model = learner.fit(data, np.random.default_rng(0))
        scores = learner.predict(model.to_payload(), data)
        assert (scores.argmax(axis=1) == data.target).mean() > 0.55
        return
    with pytest.raises(TequioError, match=r"data\.(prepare|missing) = "):
        learner.fit(data, np.random.default_rng(0))


ALGORITHMS = [name for name, learner in LEARNERS.items() if learner in TREES]


@pytest.mark.parametrize("categorical", [True, False], ids=["categories", "numbers"])
@pytest.mark.parametrize("gaps", [True, False], ids=["gaps", "whole"])
@pytest.mark.parametrize("name", [*ALGORITHMS, "voting"])
def test_an_algorithm_takes_what_it_says(name, gaps, categorical):
    learner = "cart" if name == "voting" else LEARNERS[name]
    data = mixed(gaps, categorical)
    takes = takes_of(find("learner", learner).component, find("algorithm", name).component)
    rounds = 1 if name in ("icdta4fl", "icdta4fl-plus", "icdta4fl-own", "fedrf", "federated-id3", "voting") else 2
    config = {"rounds": rounds, "algorithm": {"name": name, **({"trees": 5} if name == "fedrf" else {})},
              "learner": {"name": learner, **({"trees": 5} if learner in ("random-forest", "xgboost") else {})},
              "data": {"prepare": [], "partition": {"name": "columns" if name in ON_COLUMNS else "iid", "parties": 2},
                       "split": {"validation": 0.2, "test": 0.2}}, "engine": {"workers": 1}}
    needed = {"number"} | ({"category"} if categorical else set()) | ({"missing"} if gaps else set())
    if needed <= takes:
        result = tequio.run(config, data=data, progress=False)
        assert np.isfinite(result.summary["metrics"]["test.accuracy"])
        assert len(result.trained.answer.scores(data)) == 160
        return
    with pytest.raises(TequioError, match=r"data\.(prepare|missing) = "):
        tequio.run(config, data=data, progress=False)


def test_the_algorithms_of_the_page_take_everything():
    for name in ("icdta4fl", "icdta4fl-plus", "icdta4fl-own", "fedrf", "voting", "xgboost-bagging", "xgboost-cyclic"):
        learner = find("learner", "cart" if name == "voting" else LEARNERS[name]).component
        assert takes_of(learner, find("algorithm", name).component) == EVERYTHING, name
    assert all(isinstance(make("learner", name), TreeLearner) for name in TREES)
