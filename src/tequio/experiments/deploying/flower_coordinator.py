"""The coordinator's half of a Flower app: the folder that `flwr run` hands to the SuperLink, and what it then runs."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio import __version__
from tequio.engines.flower.engine import FlowerService
from tequio.engines.flower.transport import GridTransport, refuse_telemetry, require_flower
from tequio.engines.network.files import is_plain_name
from tequio.engines.network.telemetry import AuditLog, to_stderr
from tequio.errors import ConfigError, TequioError
from tequio.experiments.api import refuse_changes
from tequio.experiments.config.complete import (
    build_named,
    complete,
    config_hash,
    load_config,
    read_given,
    resolved_toml,
)
from tequio.experiments.config.toml import write_toml
from tequio.experiments.deploying.deploying import carried_by, going_on
from tequio.experiments.deploying.remote import run_with_parties
from tequio.experiments.running import store
from tequio.experiments.running.recording import as_json, ignore
from tequio.experiments.running.results import Result, is_finished

if TYPE_CHECKING:

    from tequio.engines.flower.transport import Transport
    from tequio.experiments.config.tables import Config
    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.store import Plain



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
        lead(config, GridTransport(grid, deadline), str(context.run_config.get(RUN_KEY, "")))

    made.main()(main)
    return made


def lead(config: Config, transport: Transport, run: str) -> Result:
    """Run a config with the parties of a federation, or go on with it, in the run folder of that name."""
    place = _place(config, run)
    if is_finished(place) and Result(place).summary["config_hash"] == config_hash(config):
        return _told(Result(place))
    telemetry = to_stderr(AuditLog(place / "audit.jsonl"))
    service = FlowerService(build_named("engine", config.engine), transport, telemetry)
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


def _say(event: str, facts: Plain) -> None:
    """Events as lines of JSON, which Flower shows to whoever follows the run."""
    print(json.dumps({"event": event, **as_json(facts)}), file=sys.stdout, flush=True)


def _told(result: Result) -> Result:
    _say("finished", {"folder": str(result.folder), "model_sha256": result.summary["model_sha256"]})
    return result


_PARTY, _COORDINATOR = "tequio_party", "tequio_coordinator"
_PROGRAMS = {
    _PARTY: '''"""Written by `tequio flower app`: the code is in tequio, which every side has installed."""

from tequio.experiments.deploying.flower_party import client_app

app = client_app()
''',
    _COORDINATOR: '''"""Written by `tequio flower app`: the code is in tequio, which every side has installed."""

from pathlib import Path

from tequio.experiments.deploying.flower_coordinator import server_app

app = server_app(Path(__file__).parent)
'''}


def write_app(file: Path, folder: Path, overrides: list[str], run: str = "", listen: Listener = ignore) -> str:
    """Write the app that runs a config; the name of its run. The same app run again goes on with the same run."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"'{folder}' is not empty", remedy="choose another folder, or delete it")
    given = carried_by(read_given(file, overrides), "flower", listen)
    for table in ("sweep", "search"):
        if given.get(table):
            raise ConfigError(f"{file.name} has a [{table}] table, and an app is one run",
                              remedy=f"leave [{table}] out, and write one app for each run")
    config = complete(going_on(given), source=file.name)
    name = run or _name(config)
    check_run_name(name)
    with store.explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    store.write_whole(folder / EXPERIMENT, resolved_toml(config).encode())
    for module, program in _PROGRAMS.items():
        store.write_whole(folder / f"{module}.py", program.encode())
    store.write_whole(folder / "pyproject.toml", _project(name).encode())
    return name


def _name(config: Config) -> str:
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{store.safe_name(config.name)}-{moment}-{config_hash(config)[:8]}"


def _project(run: str) -> str:
    """What Flower wants to know of an app. It has no dependencies, because nothing is to be installed for it."""
    return write_toml({
        "project": {"name": "tequio-run", "version": __version__, "license": "Apache-2.0", "dependencies": [],
                    "description": "A run of tequio"},
        "tool": {"flwr": {"app": {
            "publisher": "tequio",
            "components": {"serverapp": f"{_COORDINATOR}:app", "clientapp": f"{_PARTY}:app"},
            "config": {RUN_KEY: run}}}}})
