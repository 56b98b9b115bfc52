"""What studies read off curves: rounds to a target, areas, extremes."""

from __future__ import annotations

from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest

from tequio.errors import ConfigError
from tequio.experiments.comparing.pairing import curve_metric
from tequio.experiments.running.table import Table
from tequio.studies.answers import higher_is_better

RUN = SimpleNamespace(folder=Path("run"), metrics=Table(["round", "test.accuracy", "test.loss"], [
    {"round": 1, "test.accuracy": 0.5, "test.loss": 2.0}, {"round": 2, "test.loss": None},
    {"round": 3, "test.accuracy": 0.9, "test.loss": 1.0}, {"round": 5, "test.accuracy": 0.8, "test.loss": 0.5}]))


@pytest.mark.parametrize(("text", "expected"), [
    ("rounds_to(test.accuracy, 0.5)", 1), ("rounds_to(test.accuracy,0.85)", 3), ("rounds_to(test.accuracy, 0.95)", inf),
    ("area(test.loss)", (2 * 1.5 + 2 * 0.75) / 4), ("highest(test.accuracy)", 0.9), ("lowest(test.loss)", 0.5),
    ("mean(test.loss)", 3.5 / 3),
])
def test_readings(text, expected):
    assert curve_metric(text).of(RUN) == pytest.approx(expected)


def test_a_plain_name_is_no_reading():
    assert curve_metric("test.accuracy") is None


@pytest.mark.parametrize(("text", "complaint"), [("round_to(test.accuracy, 1)", "no reading 'round_to'"),
                                                 ("rounds_to(test.accuracy)", "takes a target"),
                                                 ("area(test.loss, 2)", "takes no target")])
def test_what_makes_no_sense_is_refused(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        curve_metric(text)


def test_a_metric_that_was_never_evaluated_is_named():
    with pytest.raises(ConfigError, match=r"validation\.loss"):
        curve_metric("area(validation.loss)").of(SimpleNamespace(folder=Path("run"), metrics=RUN.metrics))


def test_which_way_is_better():
    assert not higher_is_better("rounds_to(test.accuracy, 0.9)")
    assert higher_is_better("area(test.accuracy)")
    assert not higher_is_better("area(validation.loss)")
