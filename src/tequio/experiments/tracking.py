"""Optional listeners that feed a run's metrics to MLflow or TensorBoard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tequio.errors import MissingExtra
from tequio.experiments.config import resolved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tequio.experiments.recording import Listener
    from tequio.experiments.tables import Config

Write = Callable[[int, dict[str, float]], None]
"""Takes a round and its metrics."""


@contextmanager
def tracked(config: Config, folder: Path, listen: Listener) -> Iterator[Listener]:
    """A listener that also writes every round's metrics to the trackers that the config names."""
    openers = {"mlflow": _mlflow, "tensorboard": _tensorboard}
    with ExitStack() as stack:
        writers = [stack.enter_context(openers[name](config, folder)) for name in config.output.track]

        def hear(kind: str, facts: dict[str, Any]) -> None:
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


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    return {name: leaf for key, value in table.items()
            for name, leaf in (_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else
                               {f"{prefix}{key}": value}).items()}
