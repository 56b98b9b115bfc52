"""Whether a model treats groups of rows alike: additive counts by group, from which every measure follows.

A party counts its own rows and only counts leave it: rows of each group by true and by predicted class, and in ten bins
of the predicted probability. Counts of several parties add up to those of their pooled rows.

    counts = count_groups(model, "patients.csv", "sex")
    for row in measures(counts): ...

Demographic parity compares how often groups are told the positive class; equal opportunity, how often rows that are
positive are told so; equalised odds adds how often those that are not are told so too (Hardt, Price, Srebro: Equality
of opportunity in supervised learning, NeurIPS 2016). Calibration compares told probabilities with what is true.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, DataError, PayloadError, nearest
from tequio.models.rows import asked, batches
from tequio.models.statistics import wilson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.models.model import Model
    from tequio.models.rows import Unseen

BINS = 10
HIDDEN = "(few rows)"
"""Where rows of groups that are too small to be told go."""

_MOST_GROUPS = 30
_DRAWS = 2000


@dataclass(frozen=True)
class GroupCounts:
    """Counts of rows by group: `confusion` (true class, predicted class), and by bins of the probability of each class
    `rows`, `positives` and the sum of told `probability`, each (classes, bins)."""

    column: str
    classes: tuple[str, ...]
    confusion: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    positives: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    probability: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __add__(self, other: GroupCounts) -> GroupCounts:
        if (self.column, self.classes) != (other.column, other.classes):
            raise DataError("counts of other groups or classes do not add up",
                            remedy=f"count by the column '{self.column}' with the same model everywhere")
        parts = (_sum(getattr(self, name), getattr(other, name)) for name in _PARTS)
        return GroupCounts(self.column, self.classes, *parts)

    def without_small(self, minimum: int) -> GroupCounts:
        """Groups of fewer rows go together, and are not told at all where even that leaves too few."""
        small = [name for name, table in self.confusion.items() if table.sum() < minimum]
        if not small:
            return self
        together = sum(int(self.confusion[name].sum()) for name in small) >= minimum
        parts = []
        for part in _PARTS:
            tables = getattr(self, part)
            kept = {name: values for name, values in tables.items() if name not in small}
            parts.append({**kept, HIDDEN: sum(tables[name] for name in small)} if together else kept)
        return GroupCounts(self.column, self.classes, *parts)

    def to_json(self) -> str:
        """For a file that a party hands over."""
        tables = {part: {name: values.tolist() for name, values in getattr(self, part).items()} for part in _PARTS}
        return json.dumps({"column": self.column, "classes": self.classes, **tables}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> GroupCounts:
        """Back from a file; anything that cannot be counts of rows is refused."""
        try:
            document = json.loads(text)
            classes = tuple(str(name) for name in document["classes"])
            parts: list[Any] = [{str(name): np.array(values, dtype=kind) for name, values in document[part].items()}
                                for part, kind in zip(_PARTS, (np.int64, np.int64, np.int64, np.float64), strict=True)]
            counts = cls(str(document["column"]), classes, *parts)
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            raise PayloadError(f"these are no counts of groups: {cause!r}",
                               remedy="write them with: tequio fairness MODEL --data FILE --counts FILE") from cause
        _check(counts)
        return counts


_PARTS = ("confusion", "rows", "positives", "probability")


def count_groups(model: Model, rows: Any, column: str, *, target: Any = None, unseen: Unseen = "error",
                 cuts: Sequence[float] = ()) -> GroupCounts:
    """Count rows by the groups that a column makes; it need not be one that the model looks at.

    Numbers are cut at `cuts`; without them each number is a group.
    """
    _check_target(model)
    total = GroupCounts(column, model.target.names)
    first = 0
    for part in batches(rows):
        found = asked(model.reading, part, target=target, unseen=unseen, id=column, with_target=True, first=first)
        first += found.given
        if len(found.rows):
            assert found.ids is not None
            total = total + _counted(model, found.rows, column, named_groups(found.ids, cuts))
    return total


def count_dataset(model: Model, rows: Dataset, column: str, groups: NDArray[Any]) -> GroupCounts:
    """The same for raw rows whose groups are known."""
    _check_target(model)
    return _counted(model, rows, column, groups) if len(rows) else GroupCounts(column, model.target.names)


def named_groups(values: NDArray[Any], cuts: Sequence[float] = ()) -> NDArray[Any]:
    """The group of each value: its text, or the interval that it falls into."""
    texts = np.asarray(values).astype(str)
    if not len(cuts):
        return texts
    try:
        numbers = texts.astype(np.float64)
    except ValueError:
        raise DataError("only a column of numbers can be cut into intervals", remedy="leave the cuts out") from None
    ends = sorted(cuts)
    names = [f"below {ends[0]:g}", *(f"{low:g} to below {high:g}" for low, high in pairwise(ends)),
             f"{ends[-1]:g} and above"]
    return np.array(names, dtype=object)[np.searchsorted(ends, numbers, side="right")]


def _counted(model: Model, rows: Dataset, column: str, groups: NDArray[Any]) -> GroupCounts:
    names = np.unique(groups.astype(str))
    if len(names) > _MOST_GROUPS:
        raise DataError(f"column '{column}' makes {len(names)} groups, which looks like ids or numbers",
                        remedy="name a column with few values, or cut numbers into intervals: --cuts 18,65")
    scores = np.asarray(model.answer.scores(model.reading.prepared(rows, model.party)), dtype=np.float64)
    size, truth = len(model.target.names), rows.target.astype(np.int64)
    predicted = scores.argmax(axis=1)
    bins = np.minimum((scores * BINS).astype(np.int64), BINS - 1)
    parts: list[dict[str, Any]] = [{}, {}, {}, {}]
    for name in names:
        mine = groups.astype(str) == name
        table = np.bincount(truth[mine] * size + predicted[mine], minlength=size * size).reshape(size, size)
        told = np.stack([np.bincount(bins[mine, place], minlength=BINS) for place in range(size)])
        right = np.stack([np.bincount(bins[mine, place], weights=truth[mine] == place, minlength=BINS)
                          for place in range(size)]).astype(np.int64)
        summed = np.stack([np.bincount(bins[mine, place], weights=scores[mine, place], minlength=BINS)
                           for place in range(size)])
        for part, values in zip(parts, (table, told, right, summed), strict=True):
            part[str(name)] = values
    return GroupCounts(column, model.target.names, *parts)


RATES = {"told positive": "demographic parity", "true positives": "equal opportunity", "false positives": ""}
"""Rates that are compared between groups, and what their equality is called."""


def rates(counts: GroupCounts, positive: str) -> dict[str, dict[str, Any]]:
    """For each group its rows, each rate with its 95 % interval (Wilson), and how well probabilities are calibrated."""
    place = _place(counts, positive)
    found = {}
    for name, table in sorted(counts.confusion.items(), key=lambda pair: not pair[0].startswith("below ")):
        rows: dict[str, Any] = {"rows": int(table.sum())}
        for rate, (some, all) in _fractions(table, place).items():
            rows[rate] = some / all if all else float("nan")
            rows[f"{rate} low"], rows[f"{rate} high"] = wilson(some, all) if all else (np.nan, np.nan)
        rows |= _calibration(counts, name, place)
        found[name] = rows
    return found


def gaps(counts: GroupCounts, positive: str, *, seed: int = 0) -> dict[str, dict[str, float]]:
    """How far the groups lie apart: largest minus smallest rate, with a 95 % interval.

    The interval is drawn from the counts alone: each rate from its Beta distribution, and the largest gap of every
    draw. A gap between groups that do not differ is above 0 by chance too, so `by_chance` says how large it would be in
    19 of 20 cases if all groups had the same rate.
    """
    place, rng = _place(counts, positive), np.random.default_rng(seed)
    tables = list(counts.confusion.values())
    drawn: dict[str, tuple[float, NDArray[np.float64], NDArray[np.float64]]] = {}
    for rate, called in RATES.items():
        pairs = np.array([_fractions(table, place)[rate] for table in tables], dtype=np.float64).reshape(-1, 2)
        some, all = pairs[pairs[:, 1] > 0].T
        if len(all) > 1:
            apart = rng.beta(some + 0.5, all - some + 0.5, size=(_DRAWS, len(all)))
            alike = rng.binomial(all.astype(np.int64), some.sum() / all.sum(), size=(_DRAWS, len(all))) / all
            drawn[called] = float(np.ptp(some / all)), np.ptp(apart, axis=1), np.ptp(alike, axis=1)
    first, second = drawn.get("equal opportunity"), drawn.pop("", None)
    if first and second:
        drawn["equalised odds"] = (max(first[0], second[0]), np.maximum(first[1], second[1]),
                                   np.maximum(first[2], second[2]))
    return {called: {"gap": gap, "low": float(np.quantile(apart, 0.025)), "high": float(np.quantile(apart, 0.975)),
                     "by_chance": float(np.quantile(alike, 0.95))} for called, (gap, apart, alike) in drawn.items()}


def reliability(counts: GroupCounts, positive: str) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """For each group the mean told probability and the share that is positive, of every bin that has rows."""
    place = _place(counts, positive)
    for name in counts.confusion:
        rows = counts.rows[name][place]
        some = rows > 0
        yield name, counts.probability[name][place][some] / rows[some], counts.positives[name][place][some] / rows[some]


def positive_class(counts: GroupCounts, wanted: str = "") -> str:
    """The class that is looked at: the wanted one, or the second of two."""
    if wanted:
        _place(counts, wanted)
        return wanted
    if len(counts.classes) != 2:
        raise ConfigError(f"there are {len(counts.classes)} classes, of which one has to be the positive one",
                          remedy=f"--positive {counts.classes[-1]}")
    return counts.classes[1]


def summed(counts: Iterable[GroupCounts]) -> GroupCounts:
    """The counts of all rows together."""
    first, *others = counts
    for other in others:
        first = first + other
    return first


def _fractions(table: NDArray[np.int64], place: int) -> dict[str, tuple[int, int]]:
    told, true = int(table[:, place].sum()), int(table[place].sum())
    right, rows = int(table[place, place]), int(table.sum())
    return {"told positive": (told, rows), "true positives": (right, true),
            "false positives": (told - right, rows - true)}


def _calibration(counts: GroupCounts, name: str, place: int) -> dict[str, float]:
    """The mean gap between told and true over bins, by rows, and which way it leans on the whole."""
    rows, right = counts.rows[name][place], counts.positives[name][place]
    told, total = counts.probability[name][place], max(int(rows.sum()), 1)
    return {"calibration error": float(np.abs(told - right).sum() / total),
            "told minus true": float((told.sum() - right.sum()) / total)}


def _place(counts: GroupCounts, positive: str) -> int:
    if positive not in counts.classes:
        raise ConfigError(f"there is no class '{positive}'", remedy=nearest(positive, counts.classes))
    return counts.classes.index(positive)


def _sum(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = defaultdict(lambda: 0)
    for table in (first, second):
        for name, values in table.items():
            total[name] = total[name] + values
    return dict(total)


def _check_target(model: Model) -> None:
    if model.target.kind != "classes" or model.clusters:
        raise ConfigError("groups are compared by how often each is told a class, and this model predicts none",
                          remedy="choose a model of classes")


def _check(counts: GroupCounts) -> None:
    size = len(counts.classes)
    shapes = {"confusion": (size, size), "rows": (size, BINS), "positives": (size, BINS), "probability": (size, BINS)}
    for part, shape in shapes.items():
        tables = getattr(counts, part)
        if tables.keys() != counts.confusion.keys() or any(
                values.shape != shape or not np.isfinite(values).all() or (values < 0).any()
                for values in tables.values()):
            raise PayloadError(f"these are no counts of groups: '{part}' has a wrong shape or a number below 0")
    for name, table in counts.confusion.items():
        rows = counts.rows[name]
        if (rows.sum(axis=1) != table.sum()).any() or (counts.positives[name] > rows).any() or \
                (counts.positives[name].sum(axis=1) != table.sum(axis=1)).any() or \
                (counts.probability[name] > rows + 1e-6).any():
            raise PayloadError(f"the counts of group '{name}' contradict each other")
