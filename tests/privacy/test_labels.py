"""Randomised response: labels that are true with the right chance, drawn once, and shares that can be recovered."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

import tequio
from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError
from tequio.noise.coins import Coins
from tequio.privacy.labels import debiased, randomised, truth_chance


def labelled(labels, classes=4):
    names = tuple(f"c{number}" for number in range(classes))
    return Dataset.of(Schema.of_numbers(["x"], Target("classes", names)), np.zeros((len(labels), 1)), np.array(labels))


def test_two_neighbouring_labels_are_told_apart_by_no_more_than_epsilon():
    answers = randomised(labelled([2] * 100_000), 1.5, Coins.derived(0))
    shares = np.bincount(answers, minlength=4) / 100_000
    assert shares[2] == pytest.approx(truth_chance(1.5, 4), abs=0.005)
    assert log(shares[2] / shares[[0, 1, 3]].mean()) == pytest.approx(1.5, abs=0.03)
    assert truth_chance(1.5, 4) == pytest.approx(exp(1.5) / (exp(1.5) + 3))


def test_shares_of_classes_are_recovered_from_the_answers():
    true = np.array([0.5, 0.3, 0.15, 0.05])
    labels = np.repeat(np.arange(4), (true * 200_000).astype(int))
    answers = randomised(labelled(labels), 1.0, Coins.derived(1))
    assert debiased(np.bincount(answers, minlength=4) / len(labels), 1.0) == pytest.approx(true, abs=0.01)


def test_only_classes_have_labels_to_hide():
    rows = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(ConfigError, match="randomised response is for classes"):
        randomised(rows, 1.0, Coins.derived(0))


def test_rounds_tell_nothing_new(tmp_path):
    config = {"data": {"name": "breast-cancer", "partition": {"name": "iid", "parties": 3},
                       "split": {"validation": 0.0, "test": 0.0}},
              "local": {"learning_rate": 1e-4}, "evaluation": {"at": ["coordinator"]}, "engine": {"workers": 1},
              "stages": [{"name": "randomised-response", "epsilon": 2.0}], "output": {"folder": str(tmp_path)}}
    short, long = (tequio.run(config | {"rounds": rounds}) for rounds in (1, 4))
    assert short.privacy["epsilon"] == long.privacy["epsilon"] == pytest.approx(2.0, abs=0.01)
    assert long.privacy["unit"] == "label"
