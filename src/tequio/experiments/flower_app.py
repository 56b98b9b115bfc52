"""The folder of a Flower app for one run: `flwr run` packs it and hands it to the SuperLink."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tequio import __version__
from tequio.errors import ConfigError
from tequio.experiments import store
from tequio.experiments.config import complete, config_hash, read_given, resolved_toml, with_key
from tequio.experiments.deploying import going_on
from tequio.experiments.flower_coordinator import EXPERIMENT, RUN_KEY, check_run_name
from tequio.experiments.toml import write_toml

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.experiments.tables import Config

_PARTY, _COORDINATOR = "tequio_party", "tequio_coordinator"
_PROGRAMS = {
    _PARTY: '''"""Written by `tequio flower app`: the code is in tequio, which every side has installed."""

from tequio.experiments.flower_party import client_app

app = client_app()
''',
    _COORDINATOR: '''"""Written by `tequio flower app`: the code is in tequio, which every side has installed."""

from pathlib import Path

from tequio.experiments.flower_coordinator import server_app

app = server_app(Path(__file__).parent)
'''}


def write_app(file: Path, folder: Path, overrides: list[str], run: str = "") -> str:
    """Write the app that runs a config; the name of its run. The same app run again goes on with the same run."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"'{folder}' is not empty", remedy="choose another folder, or delete it")
    given = with_key(read_given(file, overrides), "engine.name", "flower")
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
