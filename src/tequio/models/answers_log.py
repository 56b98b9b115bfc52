"""What a model in use has answered, one JSON line per answer, so that outcomes can be joined later by id.

    {"id": "patient-17", "time": "2026-11-18T16:20:03.125000+00:00", "version": SHA-256 of the model folder,
     "party": "", "prediction": "ill", "probabilities": {"ill": 0.8, "well": 0.2}, "value": null}

`prediction` is the class, the names of the labels that apply, the number or the cluster. Classes and labels have
`probabilities`, numbers have `value`. The rows themselves are not kept.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tequio.data.dataset import Array
    from tequio.models.model import Model

FILE = "answers.jsonl"
"""Its name beside the versions of a model, where nothing else is asked for."""

Prediction = str | int | float | list[str]


@dataclass(frozen=True)
class Answered:
    """One answer. `version` is the hash of the model folder that gave it."""

    id: str
    version: str
    prediction: Prediction
    probabilities: Mapping[str, float] | None = None
    value: float | None = None
    party: str = ""
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds"))


def answers_of(model: Model, ids: Sequence[str], scores: Array) -> list[Answered]:
    """Records of rows that a model scored, one per row of `scores`."""
    version, party, names = str(model.facts.get("sha256", "")), model.party, list(model.target.names)
    time = datetime.now(UTC).isoformat(timespec="microseconds")

    def record(id: str, prediction: Any, probabilities: Mapping[str, float] | None = None,
               value: float | None = None) -> Answered:
        return Answered(str(id), version, prediction, probabilities, value, party, time)

    if model.clusters:
        return [record(id, int(cluster)) for id, cluster in zip(ids, scores, strict=True)]
    if model.target.kind == "number":
        numbers = np.asarray(scores, dtype=np.float64).reshape(-1).tolist()
        return [record(id, number, value=number) for id, number in zip(ids, numbers, strict=True)]
    rows = zip(ids, np.asarray(scores, dtype=np.float64).tolist(), strict=True)
    if model.target.kind == "multilabel":
        return [record(id, [name for name, share in zip(names, row, strict=True) if share > 0.5],
                       dict(zip(names, row, strict=True))) for id, row in rows]
    classes = model.classes.tolist()
    return [record(id, classes[max(range(len(row)), key=row.__getitem__)], dict(zip(names, row, strict=True)))
            for id, row in rows]


class AnswersLog:
    """A log that grows at its end. Several threads and processes may write the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":  # a writer died within a line
                os.write(self._descriptor, b"\n")
        except OSError as cause:
            raise _unwritable(path, cause) from cause

    def write(self, answers: Iterable[Answered]) -> None:
        """Add answers; when this returns, the system has them."""
        rest = memoryview("".join(f"{json.dumps(asdict(answer))}\n" for answer in answers).encode())
        try:
            with self._lock:
                while rest:
                    rest = rest[os.write(self._descriptor, rest):]
        except OSError as cause:
            raise _unwritable(self.path, cause) from cause

    def close(self) -> None:
        """Write no more."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)

    def __enter__(self) -> AnswersLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Reading:
    """The answers of a log, and afterwards how many lines were no answer."""

    path: Path
    damaged: int = 0

    def __iter__(self) -> Iterator[Answered]:
        try:
            with self.path.open("rb") as file:
                for line in file:
                    answer = _parsed(line)
                    if answer is not None:
                        yield answer
                    elif line.strip():
                        self.damaged += 1
        except OSError as cause:
            raise DataError(f"the answers in '{self.path}' cannot be read: {cause.strerror or cause}",
                            remedy="name the log that `tequio serve` wrote: --answers FILE") from cause


def _parsed(line: bytes) -> Answered | None:
    try:
        answer = Answered(**json.loads(line))
    except (ValueError, TypeError):
        return None
    chances = answer.probabilities
    sound = isinstance(answer.id, str) and isinstance(answer.version, str) and isinstance(answer.party, str) \
        and _is_time(answer.time) and (answer.value is None or _is_number(answer.value)) \
        and isinstance(answer.prediction, str | int | float | list) \
        and (chances is None or (isinstance(chances, dict) and all(map(_is_number, chances.values()))))
    return answer if sound else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_time(text: object) -> bool:
    try:
        return isinstance(text, str) and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _unwritable(path: Path, cause: OSError) -> DataError:
    return DataError(f"answers cannot be written to '{path}': {cause.strerror or cause}",
                     remedy="free some space, or name another file: --log FILE")
