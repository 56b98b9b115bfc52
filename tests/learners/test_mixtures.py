"""Losses of mixtures: the batched form gives what evaluating one after the other gives."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import DataError
from tequio.learners import mixtures
from tequio.learners.mixtures import judge_one_by_one, mixture, mixture_judge
from tequio.registry import build

TARGETS = {"classes": Target("classes", ("a", "b", "c")), "two classes": Target("classes", ("no", "yes")),
           "labels": Target("multilabel", ("x", "y")), "number": Target("number")}


def problem(kind, learner="mlp", **parameters):
    draw = np.random.default_rng(3)
    target = TARGETS[kind]
    values = {"classes": draw.integers(0, max(target.size, 2), 50), "multilabel": draw.integers(0, 2, (50, 2)),
              "number": draw.normal(size=50)}[target.kind]
    schema = Schema.of_numbers("abcde", target)
    rows = Dataset.of(schema, draw.normal(size=(50, 5)).astype(np.float32), values)
    made = build("learner", learner, parameters)
    base, *directions = [made.initial(schema, np.random.default_rng(seed)) for seed in range(4)]
    return made, base, directions, draw.normal(size=(6, 3)), rows


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("hidden", [[4], [4, 3], []])
@pytest.mark.parametrize("kept", [0, 10_000])
def test_dense_stacks(kind, hidden, kept, monkeypatch):
    monkeypatch.setattr(mixtures, "PIECE_ROWS", 17)
    monkeypatch.setattr(mixtures, "KEPT_NUMBERS", kept)
    monkeypatch.setattr(mixtures, "ROOM_NUMBERS", 150)
    learner, base, directions, shares, rows = problem(kind, hidden=hidden)
    judge, expected = mixture_judge(learner, base, directions, rows), judge_one_by_one(learner, base, directions, rows)
    assert judge(shares) == pytest.approx(expected(shares), rel=1e-5)
    assert judge(shares[::-1]).tolist() == judge(shares)[::-1].tolist()


def test_other_learners():
    learner, base, directions, shares, rows = problem("classes", "logistic")
    expected = [learner.evaluate(mixture(base, directions, row), rows)["loss_sum"] / 50 for row in shares]
    assert mixture_judge(learner, base, directions, rows)(shares) == pytest.approx(expected)


def test_a_direction_of_another_shape_is_refused():
    learner, base, directions, _, rows = problem("classes")
    name = next(iter(base))
    directions[1] = {**directions[1], name: directions[1][name][:1]}
    with pytest.raises(DataError, match="shape"):
        mixture_judge(learner, base, directions, rows)
