"""Whether a model in use still sees the rows it was trained for: drift of inputs, of scores and of outcomes.

Columns are compared by the population stability index over bins (see `tequio.data.skew`). A version keeps a reference
of its training for that: counts in bins per column and per score, no rows. Chance alone moves the index as well: of
counts of n and m rows in k bins it is about chi-squared with k - 1 degrees of freedom times (1/n + 1/m), so every index
stands beside the one that chance stays below 95 times in 100.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.skew import Bins, bins_of, columns_in_bins, stability_index, values_by_column
from tequio.engines.network.files import write_private
from tequio.errors import ConfigError, DataError, RunError
from tequio.models.answers_log import Answered, Reading, answers_of
from tequio.models.audit import locked
from tequio.models.outcomes import METRICS, read_outcomes
from tequio.models.statistics import estimate, wilson

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tequio.data.dataset import Array, Dataset
    from tequio.models.model import Model
    from tequio.models.outcomes import Outcome
    from tequio.models.registry import ModelRegistry, Version

FILE = "drift.jsonl"
SMALL, LARGE = 0.1, 0.25
_MOST_COLUMNS, _MOST_CELLS, _MOST_SCORES = 500, 2_000_000, 10
_WINDOWS, _FEWEST_IN_WINDOW, _FEWEST = 8, 100, 30


@dataclass(frozen=True)
class Reference:
    """What rows and scores were like when a model was trained: counts in bins, by name."""

    rows: int
    columns: dict[str, Bins] = field(default_factory=dict)
    scores: dict[str, Bins] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text for a file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Reference:
        """Back from its text."""
        try:
            plain = json.loads(text)
            bins = [{name: Bins(tuple(one["counts"]), None if one["cuts"] is None else tuple(one["cuts"]))
                     for name, one in plain[kind].items()} for kind in ("columns", "scores")]
            return cls(int(plain["rows"]), *bins)
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise RunError("the reference of the training cannot be read",
                           remedy="compare with rows of that time instead: --since FILE") from cause


@dataclass(frozen=True)
class Change:
    """How far a column, a score or the outcomes moved. `chance` is the index that chance rarely exceeds."""

    kind: str
    name: str
    index: float
    chance: float
    before: int
    now: int

    @property
    def word(self) -> str:
        """The change in a word."""
        if self.index < SMALL or self.index <= self.chance:
            return "stable"
        return "changed" if self.index < LARGE else "changed much"


@dataclass(frozen=True)
class Window:
    """Some answers of one version, one after the other.

    `index` says how far their scores are from those of the version's first window, `mean` is the metric of answers that
    have an outcome.
    """

    version: int
    begin: str
    end: str
    answers: int
    index: float
    outcomes: int
    metric: str
    mean: float | None
    low: float | None
    high: float | None


def reference_of(rows: Dataset, model: Model) -> Reference:
    """What raw rows and the model's scores of them are like. Of very many rows some are taken, at even distances."""
    width = max(len(rows.schema.features), 1)
    step = max(-(-len(rows) * width // _MOST_CELLS), 1)
    some = rows.take(np.arange(0, len(rows), step)) if step > 1 else rows
    columns = columns_in_bins(some) if width <= _MOST_COLUMNS else {}
    try:
        scores = model.answer.scores(model.reading.prepared(some))
        found = scores_by_name(answers_of(model, [""] * len(scores), scores))
    except (ConfigError, DataError):  # parties answer with models of their own, or rows that only they prepare
        found = {}
    return Reference(len(some), columns, {name: _binned(values) for name, values in found.items()})


def reference_of_file(path: Path, model: Model) -> Reference:
    """The same of a table, for a model whose training left none."""
    columns: dict[str, list[Array]] = {}
    scores: dict[str, list[Array]] = {}
    for part, found in model.answered(path, unseen="skip"):
        _gather(columns, {name: values for name, values in values_by_column(part.rows).items()
                          if name != model.target.name})
        _gather(scores, scores_by_name(answers_of(model, [""] * len(found), found)))
    kinds = {feature.name: len(feature.domain or ()) for feature in model.reading.schema.features}
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    rows = max((len(values) for values in joined.values()), default=0)
    if not rows:
        raise DataError(f"'{path}' has no row that the model can be asked about", remedy="give a table with rows")
    return Reference(rows, {name: bins_of(values, kinds[name]) for name, values in joined.items()},
                     {name: _binned(np.concatenate(parts)) for name, parts in scores.items()})


def input_drift(reference: Reference, path: Path, model: Model) -> tuple[list[Change], int]:
    """Changes of inputs and scores from the reference to a table, and how many rows have values never seen before."""
    counts: dict[tuple[str, str], Any] = {}
    rows, unseen = 0, 0
    for part, found in model.answered(path, unseen="skip"):
        rows, unseen = rows + len(part.rows), unseen + part.given - len(part.rows)
        scores = scores_by_name(answers_of(model, [""] * len(found), found))
        for kind, known, values in (("input", reference.columns, values_by_column(part.rows)),
                                    ("score", reference.scores, scores)):
            for name, bins in known.items():
                if name in values and not (kind == "input" and name == model.target.name):
                    counts[kind, name] = counts.get((kind, name), 0) + bins.count(values[name])
    if not rows:
        raise DataError(f"'{path}' has no row that the model can be asked about",
                        remedy="give a table with the columns that it was trained on")
    before = {"input": reference.columns, "score": reference.scores}
    return [_change(kind, name, before[kind][name].counts, now) for (kind, name), now in counts.items()], unseen


def scores_by_name(answers: Sequence[Answered]) -> dict[str, Array]:
    """Scores of answers as columns: probabilities (of the second class where there are two), numbers or clusters."""
    first = next(iter(answers), None)
    if first is None:
        return {}
    if first.value is not None:
        return {"predicted value": np.array([one.value for one in answers], dtype=np.float64)}
    if first.probabilities is None:
        return {"cluster": np.array([one.prediction for one in answers], dtype=np.int64)}
    names = list(first.probabilities)
    table = np.array([[(one.probabilities or {}).get(name, np.nan) for name in names] for one in answers])
    if len(names) > _MOST_SCORES:
        return {"highest probability": table.max(axis=1)}
    chosen = names[1:] if len(names) == 2 and not isinstance(first.prediction, list) else names
    return {f"probability of {name}": table[:, names.index(name)] for name in chosen}


def drift_in_use(registry: ModelRegistry, answers: Path | None = None, metric: str = ""
                 ) -> tuple[list[Change], list[Window]]:
    """Changes of scores and outcomes over time and from version to version, from the answer log and the outcomes."""
    numbers = {version.sha256: version.number for version in registry.versions()}
    by_version: dict[int, list[Answered]] = {}
    path = answers or registry.answers
    for answer in Reading(path) if answers is not None or path.is_file() else ():
        if answer.version in numbers:
            by_version.setdefault(numbers[answer.version], []).append(answer)
    outcomes: dict[int, list[Outcome]] = {}
    for one in read_outcomes(registry):
        outcomes.setdefault(numbers[one.version], []).append(one)
    changes: list[Change] = []
    windows: list[Window] = []
    for number, mine in sorted(by_version.items()):
        mine.sort(key=lambda answer: answer.time)
        parts = _cut(mine)
        windows += _windows(number, parts, outcomes.get(number, []), metric or _metric(outcomes))
        if len(parts) > 1:
            changes += _score_changes(f"version {number}, last window against first", parts[0], parts[-1])
        known = outcomes.get(number, [])
        if len(known) >= 2 * _FEWEST:
            changes.append(_outcome_change(f"version {number}, second half against first", known))
    for old, new in pairwise(sorted(by_version)):
        begin = by_version[new][0].time
        together = [answer for answer in by_version[old] if answer.time >= begin]
        if min(len(together), len(by_version[new])) >= _FEWEST:
            changes += _score_changes(f"version {new} against {old}", together, by_version[new])
    return changes, windows


def reference_for(version: Version, model: Model, since: Path | None) -> Reference:
    """What a version is compared with: a table, or the reference that it keeps."""
    if since is not None:
        return reference_of_file(since, model)
    if version.reference is None:
        raise ConfigError(f"version {version.number} keeps no reference of its training",
                          remedy="compare with rows of that time: --since FILE")
    return Reference.from_json(version.reference)


def _score_changes(what: str, before: Sequence[Answered], now: Sequence[Answered]) -> list[Change]:
    old, new = scores_by_name(before), scores_by_name(now)
    return [_change("score", f"{name}: {what}", _binned(old[name]).counts, _binned(old[name]).count(new[name]))
            for name in old if name in new]


def _outcome_change(what: str, known: Sequence[Outcome]) -> Change:
    half = len(known) // 2
    truths = [one.truth for one in known]
    if "squared_error" in known[0].values:
        values = np.array([float(truth) for truth in truths])
        bins = bins_of(values[:half])
    else:
        names = {truth: place for place, truth in enumerate(sorted(set(truths)))}
        values = np.array([names[truth] for truth in truths])
        bins = bins_of(values[:half], len(names))
    return _change("outcome", what, bins.counts, bins.count(values[half:]))


def _windows(number: int, parts: Sequence[Sequence[Answered]], outcomes: Sequence[Outcome], metric: str
             ) -> Iterable[Window]:
    first = {name: _binned(values) for name, values in scores_by_name(parts[0]).items()}
    known = {one.id: one.values for one in outcomes}
    for part in parts:
        found = [known[one.id][metric] for one in part if metric in known.get(one.id, ())]
        moved = [stability_index(first[name].counts, first[name].count(values))
                 for name, values in scores_by_name(part).items() if name in first]
        yield Window(number, part[0].time, part[-1].time, len(part), max(moved, default=0.0), len(found),
                     metric, *_interval(found))


def _interval(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not values:
        return None, None, None
    if set(values) <= {0.0, 1.0}:
        return sum(values) / len(values), *wilson(sum(values), len(values))
    found = estimate(values)
    return found.mean, found.low, found.high


def _cut(answers: list[Answered]) -> list[list[Answered]]:
    count = min(max(len(answers) // _FEWEST_IN_WINDOW, 1), _WINDOWS)
    edges = np.linspace(0, len(answers), count + 1).astype(int)
    return [answers[begin:end] for begin, end in pairwise(edges)]


def _metric(outcomes: dict[int, list[Outcome]]) -> str:
    known = next((set(one.values) for side in outcomes.values() for one in side), set())
    return next((names[0] for names in METRICS.values() if names[0] in known), "")


def _binned(values: Array) -> Bins:
    return bins_of(values, int(values.max()) + 1) if values.dtype.kind == "i" else bins_of(values)


def _gather(found: dict[str, list[Array]], more: dict[str, Array]) -> None:
    for name, values in more.items():
        found.setdefault(name, []).append(values)


def _change(kind: str, name: str, before: Sequence[int], now: Array) -> Change:
    from scipy.special import chdtri

    old, new = np.asarray(before), np.asarray(now)
    wide = max(len(old), len(new))  # a cluster or category may be new
    old, new = (np.pad(counts, (0, wide - len(counts))) for counts in (old, new))
    used = int(((old + new) > 0).sum())
    rows, others = int(old.sum()), int(new.sum())
    chance = float(chdtri(used - 1, 0.05)) * (1 / rows + 1 / others) if used > 1 and rows and others else 0.0
    return Change(kind, name, stability_index(old, new) if rows and others else 0.0, chance, rows, others)


def note_drift(registry: ModelRegistry, version: int, changes: Sequence[Change], unseen: int) -> None:
    """Keep what was found, for the dashboard."""
    note = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "version": version, "unseen_rows": unseen,
            "changes": [asdict(one) for one in changes]}
    with locked(registry.folder):
        path = registry.folder / FILE
        write_private(path, path.read_bytes() if path.is_file() else b"", f"{json.dumps(note)}\n".encode())


def last_drift(registry: ModelRegistry, version: int = 0) -> tuple[str, int, list[Change]] | None:
    """When rows were last compared with the training of a version (0: of any), which one, and what was found."""
    path = registry.folder / FILE
    notes = [json.loads(line) for line in (path.read_bytes().splitlines() if path.is_file() else ())]
    note = next((one for one in reversed(notes) if version in (0, one["version"])), None)
    if note is None:
        return None
    return str(note["time"]), int(note["version"]), [Change(**one) for one in note["changes"]]
