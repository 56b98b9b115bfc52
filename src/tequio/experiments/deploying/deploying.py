"""Processes of a real federation: a coordinator for one run or for many, and a party that serves."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tequio import registry
from tequio.engines.network.control import Control, ask
from tequio.engines.network.engine import Network
from tequio.engines.network.grpc_setup import telemetry_with_handshakes
from tequio.engines.network.homes import CoordinatorHome, PartyHome
from tequio.engines.network.people import OPERATOR, Desk
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries, to_stderr
from tequio.errors import ConfigError, PermissionDenied, RunError, TequioError
from tequio.experiments.api import refuse_changes
from tequio.experiments.config.complete import (
    build_named,
    complete,
    config_hash,
    copied,
    load_config,
    read_given,
    resolved_toml,
    with_key,
)
from tequio.experiments.deploying.holdings import open_holding
from tequio.experiments.deploying.predicting import Brought, predict_with_parties, told_table
from tequio.experiments.deploying.rehearsing import document, rehearse
from tequio.experiments.deploying.remote import REAL_PARTIES, check_real, run_with_parties
from tequio.experiments.running import store
from tequio.experiments.running.recording import ignore
from tequio.experiments.running.results import Result, is_finished
from tequio.experiments.running.scenario import make_algorithm
from tequio.gate.components import check_components, check_steps
from tequio.gate.policy import Policy, read_policy
from tequio.registry import parameters_of, to_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tequio.engines.network.control import Handler
    from tequio.engines.network.service import Service
    from tequio.experiments.config.tables import Config
    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.store import Plain


_LOOK_AROUND = 0.2
_AWAITED = "awaited.json"
_TURN = threading.Lock()


def run_here_or_there(home: Path, file: Path | None, overrides: list[str], resume: str | None, listen: Listener,
                      metrics_port: int) -> Result:
    """Run a config in this process, or in that of a coordinator which serves in the same folder."""
    config, folder = prepared_run(home, file, overrides, resume, listen)
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
    return _asked_there(home, "predict", folder / f"predicted-{time.time_ns():x}.json",
                        f"tequio coordinator predict {folder.name}", folder=str(folder.resolve()), tell=tell, wait=wait)


def rehearsed_here_or_there(home: Path, file: Path, overrides: list[str], *, wait: float, listen: Listener) -> Plain:
    """What a rehearsal of a config with the parties comes to; a coordinator that serves in the same folder holds it."""
    config = real_config(home, read_given(file, overrides), file.name, listen)
    if ask(home, "status") is None:
        with serving(home, Telemetry(AuditLog(home / "audit.jsonl")), config=config) as service:
            return document(rehearse(config, service, wait=wait))
    written, report = (home / f"ready-{time.time_ns():x}.{ending}" for ending in ("toml", "json"))
    store.write_whole(written, resolved_toml(config).encode())
    try:
        return _asked_there(home, "ready", report, f"tequio coordinator ready {file}", config=str(written.resolve()),
                            wait=wait)
    finally:
        written.unlink(missing_ok=True)


def _asked_there(home: Path, question: str, report: Path, again: str, **facts: object) -> Plain:
    """What the coordinator that serves here writes into a report."""
    ask(home, question, report=str(report.resolve()), **facts)
    while not report.exists():
        if ask(home, "status") is None:
            raise RunError("the coordinator ended before the parties had answered", remedy="start it, then ask again: "
                           + again)
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
    """Ask the parties of a run about the rows that they have brought."""
    return _in_background(question, lambda: _predicted(
        service, Path(question["folder"]), home, tell=question["tell"], wait=float(question["wait"]), turn=_TURN))


def _start_rehearsal(service: Service, question: Plain) -> Plain:
    """Rehearse a config with the parties."""
    config = load_config(question["config"])
    return _in_background(question, lambda: document(rehearse(config, service, wait=float(question["wait"]),
                                                              turn=_TURN)))


def _in_background(question: Plain, work: Callable[[], Plain]) -> Plain:
    """Do what was asked in a thread of its own; what came of it is written into a file that the asker waits for."""
    def done() -> None:
        try:
            with _TURN:
                found = work()
        except Exception as cause:
            found = {"error": cause.message if isinstance(cause, TequioError) else f"{type(cause).__name__}: {cause}",
                     "remedy": cause.remedy if isinstance(cause, TequioError) else ""}
        store.write_json(Path(question["report"]), found)

    threading.Thread(target=done, name="question", daemon=True).start()
    return {}


def prepared_run(home: Path, file: Path | None, overrides: list[str], resume: str | None,
                 listen: Listener = ignore) -> tuple[Config, Path]:
    """The checked config and its run folder, new or found again."""
    given = read_given(file, overrides) if file is not None else {}
    parent = given.get("output", {}).get("folder", "runs")
    folder = store.find_folder(resume, parent) if resume is not None else None
    if folder is not None and file is None:
        given = read_given(folder / store.CONFIG, overrides)
    config = real_config(home, given, str(file or store.CONFIG), listen)
    if folder is not None:
        refuse_changes(load_config(folder / store.CONFIG), config)
    place = folder or store.new_folder(config.output.folder, config.name, config_hash(config))
    store.write_whole(place / store.CONFIG, resolved_toml(config).encode())
    return config, place


def real_config(home: Path, given: Given, source: str, listen: Listener) -> Config:
    """The checked config of a run over the network."""
    given = with_key(carried_by(given, "network", listen), "engine.home", str(home))
    return complete(going_on(given), source=source)


def carried_by(given: Given, engine: str, listen: Listener) -> Given:
    """The config with that engine. Keys of the engine that it was written for are set aside, which `listen` hears."""
    registry.load_plugins(given.get("plugins", []))
    table = given.get("engine", {})
    own = {"name": table} if isinstance(table, str) else dict(table)
    written_for = str(own.pop("name", "local"))
    known, known_there = ({field.name for field in parameters_of(registry.find("engine", name).component)}
                          for name in (engine, written_for))
    aside = [key for key in own if key in known_there - known]
    if aside:
        listen("note", {"message": f"set aside, because the engine is '{engine}' here and not '{written_for}': " +
                        ", ".join(f"engine.{key} = {own[key]!r}" for key in aside)})
    kept = {key: value for key, value in own.items() if key not in aside}
    return {**copied(given), "engine": {**kept, "name": engine}}


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
        telemetry.log("listening", **{**CoordinatorHome(home).facts, "bind": CoordinatorHome(home).bind})
        threading.Event().wait()


def serve_party(home: Path, patience: int) -> None:
    """A party that dials, answers, and dials again."""
    from tequio.engines.network.dialling import PartyLink
    from tequio.engines.network.rehearsal import RehearsingSite

    registry.load_everything()  # before the first task has to wait for it
    place = PartyHome(home)
    facts, policy = place.facts, read_policy(place.policy)
    holding = open_holding(facts["name"], facts["data"])
    telemetry = to_stderr(AuditLog(place.audit))
    site = RehearsingSite(place, holding, policy, telemetry, Brought(place, holding))
    link = PartyLink(place, site, telemetry)
    end_on_sigterm()
    try:
        link.serve(patience=patience)
    finally:
        link.stop()
        site.close()


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
    service = Service(aggregator, telemetry, maximum_reply_bytes=LARGEST_PAYLOAD)

    def open_door() -> None:
        service.start()
        telemetry.log("listening", address=place.facts["listen"], bind=place.bind)

    aggregator.open = open_door
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
    handlers: Mapping[str, Handler] = {
        "status": lambda _: service.status(), "drop": lambda question: _drop(service, question),
        "predict": lambda question: _start_prediction(service, home, question),
        "ready": lambda question: _start_rehearsal(service, question),
        "run": lambda question: _start_run(service, telemetry, Path(question["folder"]))}
    desk = Desk(CoordinatorHome(home), handlers, _ProposedRuns(home, service, telemetry), telemetry.note)
    control = Control(home, desk.for_operator())
    control.start()
    desk.open()
    metrics = serve_metrics(metrics_port, service.hub, telemetry, metrics_address) if metrics_port else None
    try:
        yield service
    finally:
        if metrics is not None:
            metrics.shutdown()
        desk.close()
        control.stop()
        service.stop()


def asked_of(home: Path, question: str, **facts: object) -> Plain:
    """What the operator is answered, by the coordinator that runs in this folder or, if none does, by the folder."""
    answer = ask(home, question, **facts)
    if answer is None:
        place = CoordinatorHome(home)
        _ = place.facts
        desk = Desk(place, {}, None, Telemetry(AuditLog(home / "audit.jsonl")).note)
        answer = dict(desk.act(OPERATOR, {"ask": question, **facts}))
    return answer


_PATIENCE = 7 * 86400.0
_NOT_PROPOSED = ("plugins", "output", "sweep", "search")
_REACHES_FILES = re.compile(r"[/\\:~]|\.[A-Za-z]")


def proposed_config(home: Path, text: str, *, wait: float = 0.0) -> Config:
    """The checked config of a proposal. It may name components, and nothing that is read, written or imported here."""
    try:
        given: Given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise ConfigError(f"the proposal is not valid TOML: {cause}", remedy="correct that line") from None
    for key in _NOT_PROPOSED:
        if key in given:
            raise ConfigError(f"a proposal cannot hold '{key}'", remedy=f"leave '{key}' out, or ask the operator to "
                                                                        "run it: tequio coordinator run FILE.toml")
    data = given.get("data")
    if (data.get("name") if isinstance(data, dict) else data) != REAL_PARTIES:
        raise ConfigError("a proposal is about the rows of real parties", remedy=f"set data.name = '{REAL_PARTIES}'")
    for key, value in texts_in(given):
        if key.endswith("path") or (_REACHES_FILES.search(value) and key not in _NAMES_OF_OTHERS):
            raise ConfigError(f"'{key}' of the proposal names a file or code: '{value[:80]}'", remedy=f"leave '{key}' "
                              "out, or ask the operator to run it: tequio coordinator run FILE.toml")
    given.setdefault("name", "proposal")
    config = real_config(home, given, "the proposal", ignore)
    if wait > float(config.engine.get("wait", 0.0)):
        config = real_config(home, with_key(given, "engine.wait", wait), "the proposal", ignore)
    check_real(config)
    try:  # the allow-list by which parties judge what others send
        check_components([to_plain(component) for component in make_algorithm(config).sent_components], Policy(),
                         "the proposal")
        check_steps(config.data.steps, Policy())
    except PermissionDenied as cause:
        raise ConfigError(cause.message.removeprefix("the party's policy refuses: "), remedy="leave it out, or ask the "
                          "operator to run it: tequio coordinator run FILE.toml") from None
    return config


_NAMES_OF_OTHERS = ("data.parties", "evaluation.headline", "stop.metric")
"""Keys whose texts are names of parties or of metrics, which may hold dots."""


def texts_in(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a config, those that are keys too, each with the dotted key that it stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield f"{key}.{name}".lstrip("."), name
            yield from texts_in(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item, key)


class _ProposedRuns:
    """What the service does with runs that people propose; their folders are in the coordinator's own."""

    def __init__(self, home: Path, service: Service, telemetry: Telemetry) -> None:
        self._home, self._service, self._telemetry = home, service, telemetry
        self._folder = home / "runs"

    def check(self, config: str) -> str:
        """The run's name, if it can run."""
        return proposed_config(self._home, config).name

    def start(self, config: str, *, patient: bool) -> str:
        """Start it in the background."""
        checked = proposed_config(self._home, config, wait=_PATIENCE if patient else 0.0)
        folder = store.new_folder(self._folder, checked.name, config_hash(checked))
        store.write_whole(folder / store.CONFIG, resolved_toml(checked).encode())
        _start_run(self._service, self._telemetry, folder)
        return folder.name

    def state(self, run: str) -> str:
        """How far it is."""
        folder = self._folder / run
        if is_finished(folder):
            return "finished"
        if (folder / store.STOPPED).exists():
            why = str(json.loads((folder / store.STOPPED).read_bytes())["message"])
            return "stopped: " + why.replace(str(self._home.resolve()), "").replace(str(self._home), "")
        if (folder / _AWAITED).exists():
            missing = json.loads((folder / _AWAITED).read_bytes())["missing"]
            return "waits for " + ", ".join(f"{party} ({why})" for party, why in missing.items())
        return "running" if run in self._service.status()["runs"] else "starting, or the coordinator was restarted"

    def result(self, run: str) -> Plain:
        """Its summary."""
        if not is_finished(self._folder / run):
            raise ConfigError(f"the run '{run}' has no result: {self.state(run)}", remedy="wait until it is finished")
        return dict(Result(self._folder / run).summary)

    def ledgers(self) -> dict[str, Plain]:
        """What every finished run says about its privacy loss: proposed ones, and those that were handed over."""
        handed = {Path(entry["folder"]) for entry in entries(self._home / "audit.jsonl") if entry.get("folder")}
        folders = sorted({path.parent for path in self._folder.glob(f"*/{store.SUMMARY}")} | handed)
        return {folder.name: Result(folder).privacy for folder in folders if is_finished(folder)}


def _drop(service: Service, question: Plain) -> Plain:
    service.drop(str(question["name"]))
    return {}


def _start_run(service: Service, telemetry: Telemetry, folder: Path) -> Plain:
    """Do a run in a thread of its own; several go on at once over the same links."""
    config = load_config(folder / store.CONFIG)
    said: Plain = {}

    def listen(kind: str, facts: Plain) -> None:
        if kind == "waiting" and facts != said:
            said.update(facts)
            store.write_json(folder / _AWAITED, facts)
            telemetry.log("waiting", run=folder.name, missing=facts["missing"], more=facts["more"],
                          there=facts["there"])

    def work() -> None:
        try:
            try:
                with _TURN:
                    run_with_parties(config, service, listen=listen, folder=folder, turn=_TURN)
            finally:
                (folder / _AWAITED).unlink(missing_ok=True)
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
        if not heard and (folder / _AWAITED).exists():
            listen("waiting", json.loads((folder / _AWAITED).read_bytes()))
        if (folder / store.SUMMARY).exists():
            return Result(folder)
        if (folder / store.STOPPED).exists():
            told = json.loads((folder / store.STOPPED).read_bytes())
            raise RunError(told["message"], remedy=f"remove the cause, then: tequio coordinator run --resume {folder}")
        time.sleep(_LOOK_AROUND)


def end_on_sigterm() -> None:
    """End as after Ctrl-C when the system says stop."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
