"""What a model in use has answered, one JSON line per answer, so that outcomes can be joined later by id.

    {"id": "patient-17", "time": "2026-11-18T16:20:03.125000+00:00", "version": SHA-256 of the model folder,
     "party": "", "prediction": "ill", "probabilities": {"ill": 0.8, "well": 0.2}, "value": null}

`prediction` is the class, the names of the labels that apply, the number or the cluster. Classes and labels have
`probabilities`, numbers have `value`. The rows themselves are not kept. An id may come again; a line that is no such
object is a write that was cut off, and is skipped.
"""

from __future__ import annotations

import json
import math
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from glob import escape
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
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
    moment = datetime.now(UTC).isoformat(timespec="microseconds")

    def record(id: str, prediction: Any, probabilities: Mapping[str, float] | None = None,
               value: float | None = None) -> Answered:
        return Answered(str(id), version, prediction, probabilities, value, party, moment)

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
    """A log that grows at its end. Several threads and processes may write the same file.

    Only its owner may read it. With `largest` a file of that many bytes is set aside under another name, with the time
    in it, and a new one begun; nothing is deleted.
    """

    def __init__(self, path: Path, largest: int = 0) -> None:
        self.path, self._largest = path, largest
        self._lock = Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = self._opened()
        except OSError as cause:
            raise _unwritable(path, cause) from cause

    def write(self, answers: Iterable[Answered]) -> None:
        """Add answers; when this returns, the system has them, and only a loss of power could lose them."""
        lines = b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers)
        try:
            with self._lock:
                if self._largest and os.fstat(self._descriptor).st_size >= self._largest:
                    self._rotate()
                self._append(lines)
        except OSError as cause:
            raise _unwritable(self.path, cause) from cause

    def sync(self) -> None:
        """Wait until the disk has everything, which may take a while; others may write meanwhile."""
        with self._lock:
            copy = os.dup(self._descriptor)
        try:
            os.fsync(copy)
        finally:
            os.close(copy)

    def close(self) -> None:
        """Write no more."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)

    def _opened(self) -> int:
        # A link that another user put here could lead anywhere.
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
        status = os.fstat(descriptor)
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
        if status.st_size and os.pread(descriptor, 1, status.st_size - 1) != b"\n":  # a writer died within a line
            os.write(descriptor, b"\n")
        return descriptor

    def _append(self, lines: bytes) -> None:
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest):]
        except OSError:
            if len(rest) < len(lines):
                with suppress(OSError):  # the disk is full: what was begun ends here, and readers skip it
                    os.write(self._descriptor, b"\n")
            raise

    def _rotate(self) -> None:
        """Set the file aside, unless another process has done so already, and begin a new one."""
        os.fsync(self._descriptor)
        with suppress(FileNotFoundError):
            if os.stat(self.path).st_ino == os.fstat(self._descriptor).st_ino:
                moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
                os.rename(self.path, self.path.with_name(f"{self.path.stem}-{moment}{self.path.suffix}"))
        fresh = self._opened()
        os.close(self._descriptor)
        self._descriptor = fresh

    def __enter__(self) -> AnswersLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def log_files(path: Path) -> list[Path]:
    """The files of a log, the oldest first: those that were set aside, and the one that grows."""
    return [*sorted(path.parent.glob(f"{escape(path.stem)}-????????T??????.??????Z{escape(path.suffix)}")), path]


@dataclass
class Reading:
    """The answers of a log, and afterwards how many lines were no answer."""

    path: Path
    damaged: int = 0

    def __iter__(self) -> Iterator[Answered]:
        try:
            for path in log_files(self.path):
                with path.open("rb") as file:
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
