"""The coordinator's half of a Flower app: it runs a config with the parties behind the SuperNodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.engines.flower.engine import FlowerService
from tequio.engines.flower.grid import GridPost, refuse_telemetry, require_flower
from tequio.engines.network.audit import AuditLog
from tequio.engines.network.files import is_plain_name
from tequio.engines.network.telemetry import to_stderr
from tequio.errors import ConfigError, TequioError
from tequio.experiments import store
from tequio.experiments.api import refuse_changes
from tequio.experiments.config import build_named, config_hash, load_config
from tequio.experiments.recording import as_json
from tequio.experiments.remote import run_with_parties
from tequio.experiments.results import Result, is_finished

if TYPE_CHECKING:
    from tequio.engines.flower.post import Post
    from tequio.experiments.tables import Config

EXPERIMENT = "experiment.toml"
RUN_KEY = "run"


def server_app(folder: Path) -> Any:
    """The app that the SuperLink starts once: it runs the experiment in `folder`."""
    require_flower()
    from flwr.serverapp import ServerApp

    made = ServerApp()

    def main(grid: Any, context: Any) -> None:
        refuse_telemetry()
        config = load_config(folder / EXPERIMENT)
        deadline = build_named("engine", config.engine).deadline
        lead(config, GridPost(grid, deadline), str(context.run_config.get(RUN_KEY, "")))

    made.main()(main)
    return made


def lead(config: Config, post: Post, run: str) -> Result:
    """Run a config with the parties of a federation, or go on with it, in the run folder of that name."""
    place = _place(config, run)
    if is_finished(place) and Result(place).summary["config_hash"] == config_hash(config):
        return _told(Result(place))
    telemetry = to_stderr(AuditLog(place / "audit.jsonl"))
    service = FlowerService(build_named("engine", config.engine), post, telemetry)
    (place / store.STOPPED).unlink(missing_ok=True)
    service.start()
    try:
        return _told(run_with_parties(config, service, listen=_say, folder=place))
    except TequioError as cause:
        telemetry.note("run stopped", run=run, cause=str(cause))
        store.write_json(place / store.STOPPED, {"kind": type(cause).__name__, "message": str(cause)})
        raise
    finally:
        service.stop()


def check_run_name(run: str) -> None:
    """A run's name becomes that of a folder, at the coordinator and at the parties."""
    if not is_plain_name(run):
        raise ConfigError(f"a run cannot be called {run[:80]!r}",
                          remedy="use letters, digits, dots, dashes and underscores, starting with a letter or digit")


def _place(config: Config, run: str) -> Path:
    """The run folder: what was begun under this name is gone on with."""
    check_run_name(run)
    place = Path(config.output.folder).resolve() / run
    with store.explained(place):
        place.mkdir(parents=True, exist_ok=True)
    if (place / store.CONFIG).exists():
        refuse_changes(load_config(place / store.CONFIG), config)
    return place


def _say(event: str, facts: dict[str, Any]) -> None:
    """Events as lines of JSON, which Flower shows to whoever follows the run."""
    print(json.dumps({"event": event, **as_json(facts)}), file=sys.stdout, flush=True)


def _told(result: Result) -> Result:
    _say("finished", {"folder": str(result.folder), "model_sha256": result.summary["model_sha256"]})
    return result
