"""What studies read off the curve of a metric over the rounds, or over the virtual time, of a finished run.

A cell asks for it by name with the metric in brackets: `rounds_to(test.accuracy, 0.9)`, `area(validation.loss)`,
`seconds_to(test.accuracy, 0.9)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tequio.experiments.results import Result

_FORM = re.compile(r"(\w+)\(\s*([\w.]+)\s*(?:,\s*(-?[\d.]+)\s*)?\)")


@dataclass(frozen=True)
class Reading:
    """A function of the rounds, the values there and the target, if it takes one. Better is what it says, or (none)
    what is better for the metric itself."""

    read: Callable[[Sequence[float], Sequence[float], float], float]
    has_target: bool = False
    higher_is_better: bool | None = None
    by: str = "round"


def rounds_to(rounds: Sequence[float], values: Sequence[float], target: float) -> float:
    """The first round, counted from 1 (or moment), whose value is at least the target; infinite where none is."""
    return next((place for place, value in zip(rounds, values, strict=True) if value >= target), inf)


def area(rounds: Sequence[float], values: Sequence[float], target: float = 0.0) -> float:
    """The area under the curve by the trapezoid rule, over its length: the mean height of the curve."""
    if len(rounds) < 2:
        return float(values[0])
    return float(np.trapezoid(values, rounds) / (rounds[-1] - rounds[0]))


READINGS = {
    "rounds_to": Reading(rounds_to, has_target=True, higher_is_better=False),
    "seconds_to": Reading(rounds_to, has_target=True, higher_is_better=False, by="clock.seconds"),
    "area": Reading(area),
    "mean": Reading(lambda rounds, values, target: float(np.mean(values))),
    "lowest": Reading(lambda rounds, values, target: float(np.min(values))),
    "highest": Reading(lambda rounds, values, target: float(np.max(values))),
}
"""By the name under which a cell asks for it."""


@dataclass(frozen=True)
class CurveMetric:
    """A reading of one metric."""

    reading: Reading
    metric: str
    target: float = 0.0

    def of(self, result: Result) -> float:
        """The number for one run."""
        if self.reading.by not in result.metrics.columns:
            raise ConfigError(f"the run '{result.folder.name}' has no virtual clock",
                              remedy="add a [devices] table to its config, or ask for rounds")
        rounds, values = result.metrics.series(self.metric, by=self.reading.by)
        if not values:
            raise ConfigError(f"the run '{result.folder.name}' has no value of '{self.metric}'",
                              remedy="evaluate it, or ask for another metric")
        return self.reading.read(rounds, values, self.target)


def curve_metric(text: str) -> CurveMetric | None:
    """The reading that a cell's metric asks for; nothing where it is a plain name."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    name, metric, target = found.groups()
    if name not in READINGS:
        raise ConfigError(f"there is no reading '{name}' of a curve", remedy=nearest(name, READINGS))
    if (target is not None) != READINGS[name].has_target:
        raise ConfigError(f"'{text}': '{name}' takes {'a' if READINGS[name].has_target else 'no'} target",
                          remedy="write, for instance, rounds_to(test.accuracy, 0.9) or area(validation.loss)")
    return CurveMetric(READINGS[name], metric, float(target or 0))
