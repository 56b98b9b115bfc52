"""The record of a run while it happens: events, metrics, listeners, and the trackers MLflow and TensorBoard."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import MissingExtra, RunError
from tequio.experiments.config.complete import resolved
from tequio.experiments.running.store import EVENTS, METRICS, Plain, explained, write_all, write_whole
from tequio.experiments.running.table import Cell, Table, read_csv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tequio.experiments.config.tables import Config


Listener = Callable[[str, Plain], None]
"""Hears every event of a run: its kind and its facts."""


def ignore(kind: str, facts: Plain) -> None:
    """A listener that does not care."""


class Recorder:
    """Writes events and metrics to the run folder and passes events on to a listener."""

    def __init__(self, folder: Path, listen: Listener, kept: Mapping[str, int] | None = None) -> None:
        """Start a record, or go on with one from where a checkpoint says it was (`kept`)."""
        self._events = Journal(folder / EVENTS, kept[EVENTS] if kept else 0)
        self._listen = listen
        self._path = folder / METRICS
        self.metrics = _first_rows(self._path, kept[METRICS]) if kept else Table()
        write_whole(self._path, self.metrics.to_csv().encode() if self.metrics.columns else b"")
        self._lines = Journal(self._path)
        self._noted: dict[str, float] = {}

    def event(self, kind: str, facts: Plain) -> None:
        """Note something that happened."""
        if kind == "exchange" and "loss" in facts:
            self._noted["train.loss"] = facts["loss"]
        if kind == "attack":
            self._noted["attack.moved"] = fmean(facts["moved"].values())
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._events.add(json.dumps({"event": kind, "time": moment, **as_json(facts)}))
        self._listen(kind, facts)

    def row(self, row: Mapping[str, Cell]) -> None:
        """Add the metrics of a round."""
        if self.metrics.add(row):
            self._lines.close()
            write_whole(self._path, self.metrics.to_csv().encode())
            self._lines = Journal(self._path)
        else:
            self._lines.add(self.metrics.line(row))

    def taken(self) -> dict[str, float]:
        """The training loss that parties reported last, and how far an attack moved what they sent; handed out once."""
        noted, self._noted = self._noted, {}
        return noted

    def flush(self, *, sync: bool = False) -> dict[str, int]:
        """Write what waits; how far the record has come, for a checkpoint."""
        self._lines.flush(sync=sync)
        return {EVENTS: self._events.flush(sync=sync), METRICS: len(self.metrics)}

    def close(self) -> None:
        """Write what waits and let go."""
        try:
            self._lines.close()
        finally:
            self._events.close()


class Journal:
    """A file of lines that only grows. Lines wait in memory until `flush`, so that a round costs one write."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        """Open for appending; `keep` cuts what was written after a checkpoint of that many bytes."""
        self._path = path
        self._waiting: list[bytes] = []
        with explained(path):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._claim()
            self.length = os.fstat(self._descriptor).st_size
            if keep is not None:
                self._cut(keep)

    def add(self, line: str) -> None:
        """Put a line in the queue."""
        self._waiting.append(line.encode() + b"\n")

    def flush(self, *, sync: bool = False) -> int:
        """Write what waits; the length of the file so far."""
        content, self._waiting = b"".join(self._waiting), []
        with explained(self._path):
            if content:
                write_all(self._descriptor, content)
                self.length += len(content)
            if sync:
                os.fsync(self._descriptor)
        return self.length

    def close(self) -> None:
        """Flush and let go."""
        try:
            self.flush()
        finally:
            os.close(self._descriptor)

    def _cut(self, keep: int) -> None:
        if self.length < keep:
            raise RunError(f"'{self._path}' is shorter than its checkpoint says ({self.length} of {keep} bytes)",
                           remedy="the run folder was changed by hand; start the run anew")
        os.ftruncate(self._descriptor, keep)
        self.length = keep

    def _claim(self) -> None:
        """One process writes a run; a second one is told so. The claim ends with the process, however it ends."""
        try:
            import fcntl

            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise RunError(f"another process is writing '{self._path.parent}'",
                           remedy="wait for it or stop it") from None
        except (ImportError, OSError):
            return  # some systems and some network folders know no locks


def as_json(value: object) -> Any:
    """Plain data that JSON can hold: arrays as lists, what is not a finite number as null."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _first_rows(path: Path, count: int) -> Table:
    table = read_csv(path)
    if len(table) < count:
        raise RunError(f"'{path}' has fewer rows than its checkpoint says ({len(table)} of {count})",
                       remedy="the run folder was changed by hand; start the run anew")
    return Table(table.columns, table.rows[:count])


Write = Callable[[int, dict[str, float]], None]
"""Takes a round and its metrics."""


@contextmanager
def tracked(config: Config, folder: Path, listen: Listener) -> Iterator[Listener]:
    """A listener that also writes every round's metrics to the trackers that the config names."""
    openers = {"mlflow": _mlflow, "tensorboard": _tensorboard}
    with ExitStack() as stack:
        writers = [stack.enter_context(openers[name](config, folder)) for name in config.output.track]

        def hear(kind: str, facts: Plain) -> None:
            if kind == "round":
                metrics = {name: float(value) for name, value in facts.items() if name != "round" and value is not None}
                for write in writers:
                    write(facts["round"], metrics)
            listen(kind, facts)

        yield hear


@contextmanager
def _tensorboard(config: Config, folder: Path) -> Iterator[Write]:
    """Event files in the run folder: `tensorboard --logdir runs`."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise MissingExtra("tensorboard", "track", "output.track = ['tensorboard']") from None
    writer = EventFileWriter(str(folder / "tensorboard"))

    def write(round: int, metrics: dict[str, float]) -> None:
        values = [Summary.Value(tag=name.replace(".", "/"), simple_value=value) for name, value in metrics.items()]
        writer.add_event(Event(wall_time=time.time(), step=round, summary=Summary(value=values)))

    try:
        yield write
    finally:
        writer.close()


@contextmanager
def _mlflow(config: Config, folder: Path) -> Iterator[Write]:
    """A run at `$MLFLOW_TRACKING_URI`, or else in the folder `mlruns` beside the run folders."""
    try:
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise MissingExtra("mlflow-skinny", "track", "output.track = ['mlflow']") from None
    place = os.environ.get("MLFLOW_TRACKING_URI")
    if not place:
        # mlflow-skinny has no database; its file store wants to be asked for by name.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        place = (folder.parent / "mlruns").resolve().as_uri()
    client = MlflowClient(tracking_uri=place)
    known = client.get_experiment_by_name(config.name)
    experiment = known.experiment_id if known else client.create_experiment(config.name)
    run = client.create_run(experiment, run_name=folder.name).info.run_id
    client.log_batch(run, params=[Param(key, str(value)[:500]) for key, value in _flat(resolved(config)).items()])

    def write(round: int, metrics: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        client.log_batch(run, metrics=[Metric(name, value, now, round) for name, value in metrics.items()])

    try:
        yield write
    except BaseException:
        client.set_terminated(run, "FAILED")
        raise
    client.set_terminated(run)


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    return {name: leaf for key, value in table.items()
            for name, leaf in (_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else
                               {f"{prefix}{key}": value}).items()}
