"""The run folder: whole files appear at once or not at all, journals grow line by line, a full disk loses nothing.

A checkpoint is all that a run needs to go on, in one file that is read whole or not at all:

    tequio-checkpoint 1 <sha256 of the rest> <bytes of the rest>\\n | payload
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, DataError, MissingExtra, PayloadError, RunError
from tequio.federation import payload
from tequio.federation.algorithm import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tequio.federation.payload import Payload


Plain = dict[str, Any]
"""What a run writes as JSON, by name: an event, a summary, the facts in a checkpoint."""

CONFIG, EVENTS, METRICS, PARTIES = "config.toml", "events.jsonl", "metrics.csv", "parties.csv"
LABELS, PARTICIPATION = "labels.csv", "participation.csv"
MESSAGES, LEAKAGE, PROBES, SHADOWS = "messages.csv", "leakage.csv", "probes.json", "shadows"
ENVIRONMENT, SUMMARY, CHECKPOINT = "environment.json", "summary.json", "checkpoint"
STOPPED, SCHEMA = "stopped.json", "schema.json"
BASELINES, MODELS, CHECKPOINTS = "baselines", "models", "checkpoints"
FORGOTTEN, SUPERSEDED = "forgotten.json", "superseded.json"


def new_folder(parent: str | Path, name: str, identity: str) -> Path:
    """Make `parent/name-<UTC time>-<short hash>`."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    label = f"{safe_name(name)}-{moment}-{identity[:8]}"
    with explained(Path(parent)):
        for number in range(1, 1000):
            path = Path(parent) / (label if number == 1 else f"{label}-{number}")
            try:
                path.mkdir(parents=True)
                return path
            except FileExistsError:
                continue
    raise RunError(f"no free name for a run folder like '{label}'", remedy="choose another output.folder")


@contextmanager
def kept_if_begun(folder: Path, *, is_new: bool, parent_is_new: bool) -> Iterator[None]:
    """Take what is new of a run folder away again where a mistake in config or data ends the run before its first
    round."""
    try:
        yield
    except (ConfigError, DataError, MissingExtra):
        metrics = folder / METRICS
        if is_new and not (metrics.is_file() and metrics.stat().st_size):
            shutil.rmtree(folder.parent if parent_is_new else folder, ignore_errors=True)
        raise


def safe_name(text: str) -> str:
    """A text as part of a folder's name."""
    return re.sub(r"[^\w.=+-]+", "_", text)


def find_folder(run: str | Path, parent: str | Path = "runs") -> Path:
    """A run's folder from its path, its name under `parent`, or 'last'."""
    folder = Path(parent)
    if str(run) == "last" and folder.is_dir():
        runs = [path for path in folder.iterdir() if (path / CONFIG).is_file()]
        if runs:
            return max(runs, key=lambda path: (path / CONFIG).stat().st_mtime_ns)
    for path in (Path(run), folder / run):
        if (path / CONFIG).is_file():
            return path
    raise RunError(f"'{run}' is not a run folder", remedy=f"give the path of a folder that holds {CONFIG}, or 'last'")


@contextmanager
def explained(place: Path) -> Iterator[None]:
    """Turn trouble with files into an error that names the place, the cause and what to do."""
    try:
        yield
    except OSError as cause:
        remedy = "check that the folder exists and may be written, or set output.folder to another one (--out FOLDER)"
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = f"free some space, then go on from the last checkpoint: tequio run --resume {place.parent}"
        raise RunError(f"'{place}' cannot be written: {cause.strerror or cause}", remedy=remedy) from cause


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old content or the new, never a part: temporary file, sync, rename."""
    temporary = path.with_name(f".{path.name}.partial")
    with explained(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                write_all(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """A JSON document, whole."""
    write_whole(path, (json.dumps(document, indent=2) + "\n").encode())


def write_all(descriptor: int, content: bytes) -> None:
    """`os.write` until everything is out."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest):]


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_WORD = b"tequio-checkpoint 1"
# At most one part in this many of the run's time is spent on checkpoints.
_COST_SHARE = 30


@dataclass(frozen=True)
class Checkpoint:
    """The situation after a round. `kept` says how long the journals were then."""

    round: int
    state: State
    parties: dict[int, Payload]
    facts: Plain
    kept: dict[str, int] = field(default_factory=dict)


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Replace the folder's checkpoint."""
    body = payload.encode({
        "round": checkpoint.round, "model": checkpoint.state.model, "memory": dict(checkpoint.state.memory),
        "parties": {str(party): state for party, state in sorted(checkpoint.parties.items())},
        "facts": checkpoint.facts, "kept": checkpoint.kept})
    header = b"%s %s %d\n" % (_WORD, hashlib.sha256(body).hexdigest().encode(), len(body))
    write_whole(folder / CHECKPOINT, header + body)


def keep_checkpoint(folder: Path, round: int) -> None:
    """Keep the folder's checkpoint, which is that of this round, when later ones follow."""
    place = folder / CHECKPOINTS / str(round)
    with explained(place):
        place.mkdir(parents=True, exist_ok=True)
    write_whole(place / CHECKPOINT, (folder / CHECKPOINT).read_bytes())


def kept_checkpoints(folder: Path) -> dict[int, Path]:
    """The rounds whose checkpoints were kept, in order, and the folders they are in."""
    return dict(sorted((int(place.name), place) for place in (folder / CHECKPOINTS).glob("*")
                       if place.name.isdigit() and (place / CHECKPOINT).is_file()))


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The folder's checkpoint; nothing where none was written yet."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    header, _, body = path.read_bytes().partition(b"\n")
    if header != b"%s %s %d" % (_WORD, hashlib.sha256(body).hexdigest().encode(), len(body)):
        raise RunError(f"the checkpoint '{path}' is damaged or of another version", remedy="start the run anew")
    try:
        content = payload.decode(body)
    except PayloadError as cause:
        raise RunError(f"the checkpoint '{path}' cannot be read: {cause}", remedy="start the run anew") from cause
    parties = {int(party): state for party, state in content["parties"].items()}
    return Checkpoint(content["round"], State(content["model"], content["memory"]), parties, content["facts"],
                      content["kept"])


class Pace:
    """When the next checkpoint is due: every so many rounds, or (0) as often as costs a few per cent of the time."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._cost = 0.0
        self._last = time.perf_counter()

    def due(self, round: int) -> bool:
        """Whether a checkpoint should follow this round."""
        if self._every:
            return round % self._every == 0
        return time.perf_counter() - self._last >= _COST_SHARE * self._cost

    def took(self, seconds: float) -> None:
        """Note what a checkpoint cost."""
        self._cost, self._last = seconds, time.perf_counter()
