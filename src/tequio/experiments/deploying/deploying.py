"""Processes of a real federation: a coordinator for one run or for many, and a party that serves."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tequio import registry
from tequio.engines.network.control import Control, ask
from tequio.engines.network.engine import Network
from tequio.engines.network.grpc_setup import telemetry_with_handshakes
from tequio.engines.network.homes import CoordinatorHome, PartyHome
from tequio.engines.network.policy import read_policy
from tequio.engines.network.telemetry import AuditLog, Telemetry, to_stderr
from tequio.errors import RunError, TequioError
from tequio.experiments.api import refuse_changes
from tequio.experiments.config.complete import (
    build_named,
    complete,
    config_hash,
    load_config,
    read_given,
    resolved_toml,
    with_key,
)
from tequio.experiments.deploying.holdings import open_holding
from tequio.experiments.deploying.predicting import Brought, predict_with_parties, told_table
from tequio.experiments.deploying.remote import REAL_PARTIES, run_with_parties
from tequio.experiments.running import store
from tequio.experiments.running.results import Result, is_finished

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.engines.network.service import Service
    from tequio.experiments.config.tables import Config
    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.store import Plain


_LOOK_AROUND = 0.2
_TURN = threading.Lock()


def run_here_or_there(home: Path, file: Path | None, overrides: list[str], resume: str | None, listen: Listener,
                      metrics_port: int) -> Result:
    """Run a config in this process, or in that of a coordinator which serves in the same folder."""
    config, folder = prepared_run(home, file, overrides, resume)
    if is_finished(folder) and Result(folder).summary["config_hash"] == config_hash(config):
        return Result(folder)
    if ask(home, "status") is not None:
        ask(home, "run", folder=str(folder.resolve()))
        return _follow(folder, listen)
    telemetry = Telemetry(AuditLog(home / "audit.jsonl"))
    with serving(home, telemetry, metrics_port, config=config) as service:
        return run_with_parties(config, service, listen=listen, folder=folder)


def predict_here_or_there(home: Path, folder: Path, *, tell: str, wait: float) -> Plain:
    """Ask the parties of a finished run about the rows that they have brought: how many were predicted and, where they
    are told, a CSV of them. A coordinator that serves in the same folder does the asking."""
    if ask(home, "status") is None:
        telemetry = Telemetry(AuditLog(home / "audit.jsonl"))
        with serving(home, telemetry) as service:
            return _predicted(service, folder, home, tell=tell, wait=wait)
    report = folder / f"predicted-{time.time_ns():x}.json"
    ask(home, "predict", folder=str(folder.resolve()), report=str(report.resolve()), tell=tell, wait=wait)
    while not report.exists():
        if ask(home, "status") is None:
            raise RunError("the coordinator ended before the parties had answered", remedy="start it, then ask again: "
                           f"tequio coordinator predict {folder.name}")
        time.sleep(_LOOK_AROUND)
    found: Plain = json.loads(report.read_bytes())
    report.unlink()
    if "error" in found:
        raise RunError(found["error"], remedy=found["remedy"])
    return found


def _predicted(service: Service, folder: Path, home: Path, *, tell: str, wait: float,
               turn: threading.Lock | None = None) -> Plain:
    told = predict_with_parties(folder, service, Network(str(home), wait=wait), tell=tell, turn=turn)
    return {"rows": told.rows, **({"table": told_table(folder, told)} if told.answers else {})}


def _start_prediction(service: Service, home: Path, question: Plain) -> Plain:
    """Ask the parties in a thread of its own; what came of it is written into a file that the asker waits for."""
    def work() -> None:
        try:
            with _TURN:
                found = _predicted(service, Path(question["folder"]), home, tell=question["tell"],
                                   wait=float(question["wait"]), turn=_TURN)
        except Exception as cause:
            found = {"error": cause.message if isinstance(cause, TequioError) else f"{type(cause).__name__}: {cause}",
                     "remedy": cause.remedy if isinstance(cause, TequioError) else ""}
        store.write_json(Path(question["report"]), found)

    threading.Thread(target=work, name="prediction", daemon=True).start()
    return {}


def prepared_run(home: Path, file: Path | None, overrides: list[str], resume: str | None) -> tuple[Config, Path]:
    """The checked config and its run folder, new or found again."""
    given = read_given(file, overrides) if file is not None else {}
    parent = given.get("output", {}).get("folder", "runs")
    folder = store.find_folder(resume, parent) if resume is not None else None
    if folder is not None and file is None:
        given = read_given(folder / store.CONFIG, overrides)
    given = with_key(with_key(given, "engine.name", "network"), "engine.home", str(home))
    config = complete(going_on(given), source=str(file or store.CONFIG))
    if folder is not None:
        refuse_changes(load_config(folder / store.CONFIG), config)
    place = folder or store.new_folder(config.output.folder, config.name, config_hash(config))
    store.write_whole(place / store.CONFIG, resolved_toml(config).encode())
    return config, place


def going_on(given: Given) -> Given:
    """Among real parties the quorum decides what a failure means, unless the config does."""
    if given.get("data", {}).get("name") == REAL_PARTIES and "on_failure" not in given.get("rules", {}):
        return with_key(given, "rules.on_failure", "continue")
    return given


def serve_forever(home: Path, metrics_port: int, metrics_address: str) -> None:
    """A coordinator that stays up; runs are handed over through its control port."""
    CoordinatorHome(home).facts  # noqa: B018 - a folder that is none is said so first
    telemetry = telemetry_with_handshakes(AuditLog(home / "audit.jsonl"))
    end_on_sigterm()
    with serving(home, telemetry, metrics_port, metrics_address):
        telemetry.log("listening", **CoordinatorHome(home).facts)
        threading.Event().wait()


def serve_party(home: Path, patience: int) -> None:
    """A party that dials, answers, and dials again."""
    from tequio.engines.network.dialling import PartyLink
    from tequio.engines.network.site import Site

    registry.load_everything()  # before the first task has to wait for it
    place = PartyHome(home)
    facts, policy = place.facts, read_policy(place.policy)
    holding = open_holding(facts["name"], facts["data"])
    telemetry = to_stderr(AuditLog(place.audit))
    link = PartyLink(place, Site(place, holding, policy, telemetry, Brought(place, holding)), telemetry)
    end_on_sigterm()
    try:
        link.serve(patience=patience)
    finally:
        link.stop()


def serve_aggregator(home: Path, patience: int) -> None:
    """An aggregator that parties dial and that dials the coordinator."""
    from tequio.engines.network.aggregating import Aggregator
    from tequio.engines.network.dialling import Dialler
    from tequio.engines.network.service import Service
    from tequio.engines.network.site import LARGEST_PAYLOAD

    registry.load_everything()
    place = PartyHome(home)
    telemetry = telemetry_with_handshakes(AuditLog(place.audit))
    aggregator = Aggregator(place, telemetry)
    dialler = Dialler(place, telemetry, aggregator.greeting, aggregator.on_message)
    aggregator.send_up = dialler.send
    aggregator.open = Service(aggregator, telemetry, maximum_reply_bytes=LARGEST_PAYLOAD).start
    end_on_sigterm()
    try:
        dialler.serve(patience)
    finally:
        dialler.stop()


@contextmanager
def serving(home: Path, telemetry: Telemetry, metrics_port: int = 0, metrics_address: str = "127.0.0.1",
            config: Config | None = None) -> Iterator[Service]:
    """A coordinator's service with its control port and its metrics, while the block lasts."""
    from tequio.engines.network.telemetry import serve_metrics

    network = Network(str(home)) if config is None else build_named("engine", config.engine)
    service = network.service(telemetry)
    service.start()
    control = Control(home, {"status": lambda _: service.status(),
                             "drop": lambda question: _drop(service, question),
                             "predict": lambda question: _start_prediction(service, home, question),
                             "run": lambda question: _start_run(service, telemetry, Path(question["folder"]))})
    control.start()
    metrics = serve_metrics(metrics_port, service.hub, telemetry, metrics_address) if metrics_port else None
    try:
        yield service
    finally:
        if metrics is not None:
            metrics.shutdown()
        control.stop()
        service.stop()


def _drop(service: Service, question: Plain) -> Plain:
    service.drop(str(question["name"]))
    return {}


def _start_run(service: Service, telemetry: Telemetry, folder: Path) -> Plain:
    """Do a run in a thread of its own; several go on at once over the same links."""
    config = load_config(folder / store.CONFIG)

    def work() -> None:
        try:
            with _TURN:
                run_with_parties(config, service, folder=folder, turn=_TURN)
            telemetry.log("run finished", run=folder.name)
        except Exception as cause:
            telemetry.note("run stopped", run=folder.name, cause=str(cause))
            if not isinstance(cause, TequioError):
                telemetry.log("unexpected error", run=folder.name, cause=repr(cause))
            store.write_json(folder / store.STOPPED, {"kind": type(cause).__name__, "message": str(cause)})

    (folder / store.STOPPED).unlink(missing_ok=True)
    threading.Thread(target=work, name=f"run {folder.name}", daemon=True).start()
    return {"folder": str(folder)}


def _follow(folder: Path, listen: Listener) -> Result:
    """Hear what happens in a run folder that another process writes, until the run ends."""
    heard = 0
    while True:
        path = folder / store.EVENTS
        lines = path.read_bytes()[heard:] if path.exists() else b""
        whole = lines[:lines.rfind(b"\n") + 1]
        heard += len(whole)
        for line in whole.splitlines():
            facts = json.loads(line)
            listen(facts.pop("event"), facts)
        if (folder / store.SUMMARY).exists():
            return Result(folder)
        if (folder / store.STOPPED).exists():
            told = json.loads((folder / store.STOPPED).read_bytes())
            raise RunError(told["message"], remedy=f"mend the cause, then: tequio coordinator run --resume {folder}")
        time.sleep(_LOOK_AROUND)


def end_on_sigterm() -> None:
    """End as after Ctrl-C when the system says stop."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
