"""What kind of rows a party has, read from its updates by one who makes updates of rows with and without a property.

The shadow parties play rounds of the same federation, stages and noise included, with rows of the attacker's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tequio.attacks.label_leakage import area_under_curve
from tequio.attacks.privacy.inference import flat, told, told_share
from tequio.errors import ConfigError, nearest
from tequio.federation.rng import stream
from tequio.probing.probe import View, interval
from tequio.probing.target import ProbeOfAveraging, holding, observed, probed
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.running.results import Result
    from tequio.probing.target import Probed

_SINGLE, _SUMS = 120, 60
"""Updates to learn from, and as many to be told: of single parties, and of rounds of which only sums are seen."""
_TIMES_AS_MANY = 4
"""A share takes more updates to learn than a yes or no."""
_FIRST_ROUND_OF_VICTIMS = 1000
_SHARES, _NEAR = (0.1, 0.9), 0.1


@register("probe", "property-inference", paper="Melis et al., 2019")
@dataclass(frozen=True)
class PropertyInference(ProbeOfAveraging):
    """Is the first class twice as common at a party as overall? By a classifier of updates.

    The attacker learns from updates that it makes of its own rows in the same way, noise included, and knows that half
    of the parties have the property. `success` is the share of right answers, `area` that under the ROC curve.
    """

    views: ClassVar[tuple[View, ...]] = ("coordinator", "released")
    assumes: ClassVar[str] = "rows of the same kind (the test rows), the training, the stages, and how common the " \
                             "property is among parties"

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """In first rounds, on a fresh model."""
        run = probed(result)
        rng = stream(run.seed, "probe property")

        def marked(source: Dataset, round: int) -> NDArray[np.float64]:
            marks = rng.random(len(run.scenario.population)) < 0.5
            marks[rng.permutation(len(marks))[:2]] = round % 2 == 0, round % 2 == 1
            first = float((np.asarray(source.target) == 0).mean())
            return np.minimum(first * np.where(marks, 2, 1), 1.0)

        def is_first(rows: Dataset) -> NDArray[np.bool_]:
            return np.asarray(rows.target == 0)

        shadows, had = sampled(run, run.own, view, rng, 1, is_first, marked)
        victims, have = sampled(run, run.scenario.population.dataset, view, rng, _FIRST_ROUND_OF_VICTIMS, is_first,
                                marked)
        had, have = had > had.min(), have > have.min()
        chances = told(shadows, had, victims)
        hits = (chances > np.median(chances)) == have
        balanced = float((hits[have].mean() + hits[~have].mean()) / 2)
        return {**interval(balanced * len(hits), len(hits)), "success": balanced, "guess": 0.5,
                "area": area_under_curve(chances, have)}


@register("probe", "share-inference", paper="Melis et al., 2019; Zhang et al., 2021")
@dataclass(frozen=True)
class ShareInference(ProbeOfAveraging):
    """What share of a party's rows has a property of any column? By a regression of updates.

    Shares are drawn between 0.1 and 0.9. `success` is the share of parties whose own is found to within 0.1, `guess`
    that of always saying the mean; `error` and `guess_error` are the mean distances.

    Parameters:
        column: which column the property is of (the target's name, or left out: the target)
        value: its class or category (left out: the first); numbers have the property above their mean
    """

    views: ClassVar[tuple[View, ...]] = ("coordinator", "released")
    assumes: ClassVar[str] = "rows of the same kind (the test rows), the training and the stages"

    column: str = ""
    value: str = ""

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """In first rounds, on a fresh model."""
        run = probed(result)
        rng, parties, has = stream(run.seed, "probe share"), len(run.scenario.population), self.property_of(run.own)

        def shares(source: Dataset, round: int) -> NDArray[np.float64]:
            return rng.uniform(*_SHARES, parties)

        shadows, known = sampled(run, run.own, view, rng, 1, has, shares, _TIMES_AS_MANY)
        victims, true = sampled(run, run.scenario.population.dataset, view, rng, _FIRST_ROUND_OF_VICTIMS, has, shares)
        errors, blind = np.abs(told_share(shadows, known, victims) - true), np.abs(known.mean() - true)
        return {**interval(int((errors < _NEAR).sum()), len(errors)), "guess": float((blind < _NEAR).mean()),
                "error": float(errors.mean()), "guess_error": float(blind.mean())}

    def property_of(self, own: Dataset) -> Callable[[Dataset], NDArray[np.bool_]]:
        """Which rows have the property; a column or value that is not there is refused."""
        schema, value = own.schema, self.value
        if self.column in ("", schema.target.name):
            code = _code(value, schema.target.names, self.column or "target")
            return lambda rows: np.asarray(rows.target == code)
        if self.column not in schema.names:
            raise ConfigError(f"there is no column '{self.column}'", remedy=nearest(self.column, schema.names))
        place = schema.names.index(self.column)
        domain = schema.features[place].domain
        if domain is None:
            border = float(_entries(own, place).mean())
            return lambda rows: _entries(rows, place) > border
        code = _code(value, domain, self.column)
        return lambda rows: np.asarray(_entries(rows, place) == code)


def sampled(run: Probed, source: Dataset, view: View, rng: np.random.Generator, first: int,
            has: Callable[[Dataset], NDArray[np.bool_]], shares: Callable[[Dataset, int], NDArray[np.float64]],
            times: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is seen of parties with some shares of a property: of one a round where only sums are seen."""
    population, with_it = run.scenario.population, has(source)
    inside, outside = np.flatnonzero(with_it), np.flatnonzero(~with_it)
    if not len(inside) or not len(outside):
        raise ConfigError("all or none of the rows have the property", remedy="set column or value to another one")
    size, updates, drawn = int(np.median(population.sizes)), [], []
    local = replace(run.algorithm.local, decay=1.0)
    for round in range(first, first + times * _SINGLE):
        wished = shares(source, round)
        rows = [_drawn(inside, outside, size, float(share), rng) for share in wished]
        seen = observed(run, holding(population, source, rows), view, round=round, local=local)
        for party in seen.parties if seen.whole is None else rng.permutation(seen.parties)[:1]:
            updates.append(seen.of(int(party)))
            drawn.append(float(wished[party]))
        if len(updates) >= times * (_SINGLE if seen.whole is None else _SUMS) and len(set(drawn)) > 1:
            break
    return flat(updates), np.array(drawn)


def _drawn(inside: NDArray[np.intp], outside: NDArray[np.intp], size: int, share: float,
           rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of one party, of which a share has the property."""
    count = round(size * share)
    return np.concatenate([rng.choice(inside, count, replace=count > len(inside)),
                           rng.choice(outside, size - count, replace=size - count > len(outside))])


def _entries(rows: Dataset, column: int) -> NDArray[np.float64]:
    return np.asarray(rows.features).reshape(len(rows), -1)[:, column]


def _code(value: str, names: tuple[str, ...], column: str) -> int:
    if value and value not in names:
        raise ConfigError(f"'{column}' has no category '{value}'", remedy=nearest(value, names))
    return names.index(value) if value else 0
