"""What really happened, joined with what was answered: how right each answer of each version was.

Outcomes come later than answers, and in parts. Each time that some are added they become one file, whose hash is in the
model's audit log. An id counts once per version. Where an id has several answers of a version the last one before the
outcome counts; where it has several outcomes, the last one added does.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from math import isfinite, log
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.inputs.column import column_of
from tequio.data.inputs.reading import opened_csv
from tequio.data.inputs.tables import columns_from_file
from tequio.engines.network.files import write_private
from tequio.errors import ConfigError, DataError, RunError, nearest
from tequio.models.answers_log import Reading, answers_of
from tequio.models.audit import locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tequio.data.inputs.column import Columns
    from tequio.models.answers_log import Answered
    from tequio.models.model import Model
    from tequio.models.registry import ModelRegistry

FOLDER = "outcomes"
HIGHER_IS_BETTER = {"accuracy": True, "brier": False, "log_loss": False, "label_accuracy": True, "exact_match": True,
                    "absolute_error": False, "squared_error": False}
"""What is known of an answer once its outcome is, and whether more of it is better."""
METRICS = {"classes": ("accuracy", "brier", "log_loss"), "number": ("absolute_error", "squared_error"),
           "multilabel": ("label_accuracy", "exact_match", "brier")}
"""Which of them there are, by the kind of the target."""
SHARES = ("accuracy", "exact_match", "label_accuracy")
"""Those that lie between 0 and 1."""

_TRUTH, _TIME, _MOST_GROUPS = ("outcome", "truth", "target"), "time", 20
_SMALLEST_CHANCE = 1e-15


@dataclass(frozen=True)
class Outcome:
    """One answer with what happened. `version` is the hash of the model folder, `time` when it answered."""

    id: str
    version: str
    time: str
    truth: str
    values: Mapping[str, float]
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Joined:
    """How outcomes that were given fit the answers; everything but `joined` was left out or is said for your sake."""

    given: int = 0
    joined: int = 0
    versions: dict[int, int] = field(default_factory=dict)
    repeated: int = 0
    changed: int = 0
    unknown: int = 0
    without_outcome: int = 0
    before_answer: int = 0
    late: int = 0
    retired: int = 0
    answered_twice: int = 0
    other_models: int = 0
    damaged: int = 0
    groups: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """What is worth saying, in words."""
        told = {
            "repeated": "repeat an outcome that is already known; counted once",
            "changed": "change an outcome that was known; the new one counts",
            "unknown": "have an id that was never answered; left out",
            "without_outcome": "have no outcome yet; left out",
            "before_answer": "happened before the answer was given; left out",
            "late": "came later than --within allows; left out",
            "retired": "are of versions no longer in use; kept",
            "answered_twice": "have an id with several answers of one version; the last one counts",
            "other_models": "were answered by a model that is no version here; left out",
        }
        counts = asdict(self)
        lines = [f"{counts[name]:,} {text}" for name, text in told.items() if counts[name]]
        if self.damaged:
            lines.append(f"{self.damaged:,} lines of the answer log are damaged")
        if self.ignored:
            lines.append("columns ignored (too many different values for a group): " + ", ".join(self.ignored))
        return lines


@dataclass(frozen=True)
class _Given:
    """One line of the file of outcomes."""

    row: int
    truth: str
    labels: frozenset[str] | None
    time: datetime | None
    groups: dict[str, str]


def add_outcomes(registry: ModelRegistry, path: Path, *, answers: Path | None = None, id: str = "id", truth: str = "",
                 groups: Sequence[str] = (), within_days: float = 0.0) -> Joined:
    """Join a table of ids and outcomes with the answer log, and keep the result by version."""
    counts = Joined()
    with locked(registry.folder):
        state, numbers = registry.state, {version.sha256: version.number for version in registry.versions()}
        names = next((version.schema.target for version in registry.versions()), None)
        columns = _columns(path, id)
        labels = names.names if names is not None and names.kind == "multilabel" and not truth else ()
        given = _given(columns, counts, id, truth or _truth_column(columns, labels, names.name if names else ""),
                       labels, groups)
        known = {(one.id, one.version): one for one in read_outcomes(registry)}
        fresh: list[Outcome] = []
        for one, answer in _joined(given, answers or registry.answers, counts, within_days, set(numbers)):
            moment = datetime.fromisoformat(answer.time).astimezone(UTC).isoformat(timespec="microseconds")
            outcome = Outcome(answer.id, answer.version, moment, one.truth, _values(answer, one),
                              {**one.groups, **({"party": answer.party} if answer.party else {})})
            before = known.get((outcome.id, outcome.version))
            if before is not None and before.truth == outcome.truth and before.groups == outcome.groups:
                counts.repeated += 1
                continue
            counts.changed += before is not None and before.truth != outcome.truth
            number = numbers[answer.version]
            counts.retired += number not in (state["production"], state["candidate"])
            counts.joined += 1
            counts.versions[number] = counts.versions.get(number, 0) + 1
            fresh.append(outcome)
        if fresh:
            _keep(registry, fresh, counts, dict(state))
    return counts


def read_outcomes(registry: ModelRegistry) -> list[Outcome]:
    """All outcomes that were added, each answer once, in the order of the answers."""
    found: dict[tuple[str, str], Outcome] = {}
    for entry in registry.audit.entries():
        if entry["what"] == FOLDER:
            path = registry.folder / FOLDER / str(entry["facts"]["file"])
            content = path.read_bytes() if path.is_file() else b""
            if sha256(content).hexdigest() != entry["facts"]["sha256"]:
                raise RunError(f"'{path}' is not what was written", remedy="somebody changed the outcomes: restore the "
                               "model's folder from a copy")
            for line in content.splitlines():
                outcome = Outcome(**json.loads(line))
                found[outcome.id, outcome.version] = outcome
    return sorted(found.values(), key=lambda one: (one.time, one.id))


def outcomes_offline(model: Model, path: Path, *, truth: str = "", groups: Sequence[str] = ()) -> list[Outcome]:
    """How right a model is on each row of a table with the truth in it; the number of the row is its id."""
    columns, target = columns_from_file(path), model.target
    labels = target.names if target.kind == "multilabel" and not truth else ()
    wanted = truth or _truth_column(columns, labels, target.name)
    places = [str(row) for row in range(len(next(iter(columns.values())).values))] if columns else []
    numbered = {**columns, "": column_of("", np.array(places, dtype=object))}
    features = {feature.name for feature in model.reading.schema.features} - set(groups)
    given = _given({name: column for name, column in numbered.items() if name not in features}, Joined(), "", wanted,
                   labels, groups)
    found, first = list[Outcome](), 0
    for part, scores in model.answered(path):
        ids = [str(first + int(place)) for place in part.places]
        first += part.given
        found += [Outcome(answer.id, answer.version, answer.time, given[answer.id].truth,
                          _values(answer, given[answer.id]), given[answer.id].groups)
                  for answer in answers_of(model, ids, scores) if answer.id in given]
    return found


def counts_by_version(registry: ModelRegistry) -> dict[int, int]:
    """How many answers of each version have an outcome."""
    counts = Counter(one.version for one in read_outcomes(registry))
    return {version.number: counts[version.sha256] for version in registry.versions()}


def _keep(registry: ModelRegistry, fresh: list[Outcome], counts: Joined, state: dict[str, object]) -> None:
    number = 1 + sum(entry["what"] == FOLDER for entry in registry.audit.entries())
    (registry.folder / FOLDER).mkdir(exist_ok=True)
    path = registry.folder / FOLDER / f"{number:04d}.jsonl"
    content = "".join(f"{json.dumps(asdict(one))}\n" for one in fresh).encode()
    write_private(path, content)
    facts = {"file": path.name, "sha256": sha256(content).hexdigest(), "joined": counts.joined, "given": counts.given,
             "versions": {str(version): count for version, count in sorted(counts.versions.items())}}
    registry.audit.add(FOLDER, state, version=0, why=f"{counts.joined:,} of {counts.given:,} joined", facts=facts)


def _columns(path: Path, id: str) -> Columns:
    """The table, with ids as they are written: a long number is no number."""
    if not path.is_file() or path.suffix == ".parquet":
        return columns_from_file(path)
    with opened_csv(path) as (header, lines):
        rows = list(lines)
    values = zip(*rows, strict=True) if rows else ((),) * len(header)
    return {name: column_of(name, np.array(cells, dtype=object), parse=name != id)
            for name, cells in zip(header, values, strict=True)}


def _truth_column(columns: Columns, labels: Sequence[str], target: str) -> str:
    found = "" if labels else next((name for name in (*_TRUTH, target) if name in columns), None)
    if found is None:
        raise DataError("there is no column that says what happened",
                        remedy=f"call it 'outcome', or name it: --truth COLUMN. There is: {', '.join(columns)}")
    return found


def _given(columns: Columns, counts: Joined, id: str, truth: str, labels: Sequence[str],
           groups: Sequence[str]) -> dict[str, _Given]:
    """The last line of each id that has an outcome."""
    for name in (id, *([truth] if truth else labels), *groups):
        if name not in columns:
            raise DataError(f"there is no column '{name}' in the outcomes", remedy=nearest(name, columns))
    texts = {name: column.texts() for name, column in columns.items()}
    others = [name for name in columns if name not in (id, truth, _TIME, *labels)]
    kept = list(groups) or [name for name in others if len(set(texts[name])) <= _MOST_GROUPS]
    counts.groups, counts.ignored = tuple(kept), tuple(name for name in others if name not in kept)
    wanted = [truth] if truth else list(labels)
    found: dict[str, _Given] = {}
    for row, key in enumerate(texts[id].tolist()):
        counts.given += 1
        if any(columns[name].missing[row] for name in wanted):
            counts.without_outcome += 1
            continue
        here = None if truth else frozenset(name for name in labels if _is_on(texts[name][row], name, row))
        what = str(texts[truth][row]) if here is None else ";".join(sorted(here))
        time = _time(str(texts[_TIME][row]), row) if _TIME in columns else None
        if key in found:
            counts.changed += found[key].truth != what
            counts.repeated += found[key].truth == what
        found[key] = _Given(row, what, here, time, {name: str(texts[name][row]) for name in kept})
    return found


def _joined(given: Mapping[str, _Given], path: Path, counts: Joined, within_days: float,
            versions: set[str]) -> Iterator[tuple[_Given, Answered]]:
    """Lines with the answers that they are about."""
    log = Reading(path)
    answers: dict[tuple[str, str], Answered] = {}
    seen, early, foreign = set[str](), set[str](), set[str]()
    for answer in log:
        one = given.get(answer.id)
        if one is None:
            continue
        seen.add(answer.id)
        if answer.version not in versions:
            foreign.add(answer.id)
        elif one.time is not None and datetime.fromisoformat(answer.time) > one.time:
            early.add(answer.id)
        else:
            counts.answered_twice += (answer.id, answer.version) in answers
            answers[answer.id, answer.version] = answer
    answered = {id for id, _ in answers}
    counts.damaged, counts.unknown = log.damaged, len(given) - len(seen)
    counts.before_answer, counts.other_models = len(early - answered), len(foreign - answered - early)
    for (id, _), answer in answers.items():
        one = given[id]
        if within_days and one.time is not None and \
                one.time - datetime.fromisoformat(answer.time) > timedelta(days=within_days):
            counts.late += 1
            continue
        yield one, answer


def _values(answer: Answered, one: _Given) -> dict[str, float]:
    """How right an answer was."""
    if isinstance(answer.prediction, list):
        chances = answer.probabilities or {}
        truth = one.labels if one.labels is not None else frozenset(filter(None, one.truth.split(";")))
        _refuse_unknown(truth, chances, one)
        wrong = truth ^ set(answer.prediction)
        return {"label_accuracy": 1 - len(wrong) / max(len(chances), 1), "exact_match": float(not wrong),
                "brier": sum((share - (name in truth)) ** 2 for name, share in chances.items()) / max(len(chances), 1)}
    if answer.value is not None:
        try:
            error = float(one.truth) - answer.value
            if not isfinite(error):
                raise ValueError
        except ValueError:
            raise DataError(f"row {one.row} of the outcomes has '{one.truth}', which is no number; the first row is 0",
                            remedy="correct the value, or leave it empty until it is known") from None
        return {"absolute_error": abs(error), "squared_error": error * error}
    if answer.probabilities is None:
        raise ConfigError("a cluster is neither right nor wrong, so it has no outcome",
                          remedy="look at drift instead: tequio models drift NAME --data FILE")
    _refuse_unknown({one.truth}, answer.probabilities, one)
    return {"accuracy": float(str(answer.prediction) == one.truth),
            "brier": sum((share - (name == one.truth)) ** 2 for name, share in answer.probabilities.items()),
            "log_loss": -log(max(answer.probabilities[one.truth], _SMALLEST_CHANCE))}


def _refuse_unknown(truth: set[str] | frozenset[str], known: Mapping[str, float], one: _Given) -> None:
    for name in sorted(truth - set(known)):
        raise DataError(f"row {one.row} of the outcomes has '{name}', which the model does not know; the first row is "
                        "0", remedy=f"{nearest(name, known)} Correct the value, or leave it empty until it is known")


def _is_on(text: object, name: str, row: int) -> bool:
    if str(text).strip().lower() not in ("0", "1", "true", "false"):
        raise DataError(f"row {row} of the outcomes has '{text}' in column '{name}'; the first row is 0",
                        remedy="write 1 where the label applies, else 0")
    return str(text).strip().lower() in ("1", "true")


def _time(text: str, row: int) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise DataError(f"row {row} of the outcomes has '{text}' for a time; the first row is 0",
                        remedy="write it as 2026-11-18T16:20:00+00:00, or leave the column 'time' out") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
