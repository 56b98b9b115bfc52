"""A run rehearsed with the parties that will take part in it: who would accept it, and what it would cost.

Each party answers on rows that it makes up from the agreed schema (see engines/network/rehearsal.py), over the links of
a real run and through its own policy. One round or two take place here; the others are assumed to be like the last.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from tequio.engines.network.engine import NetworkEngine
from tequio.engines.network.hub import RunMailbox
from tequio.engines.network.rehearsal import MOST_ROUNDS
from tequio.engines.network.site import REHEARSAL
from tequio.engines.network.wire import Declined, Part, Ready
from tequio.errors import ConfigError, DataError, TequioError
from tequio.experiments.config.complete import build_named, resolved_toml
from tequio.experiments.config.tables import Stop
from tequio.experiments.deploying.remote import (
    REAL_PARTIES,
    agreed_schema,
    by_columns,
    check_real,
    population_of,
    scenario_of,
)
from tequio.experiments.running import store
from tequio.experiments.running.recording import Recorder, ignore
from tequio.experiments.running.runner import Run, announcement_of
from tequio.experiments.running.scenario import make_algorithm
from tequio.federation import payload as payloads
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import Lock

    from tequio.engines.network.hub import Gateway
    from tequio.engines.network.wire import Hello
    from tequio.experiments.config.tables import Config
    from tequio.experiments.running.scenario import Scenario
    from tequio.experiments.running.store import Plain
    from tequio.federation.algorithm import State
    from tequio.federation.exchange import Announcement, Failure, Order, Outcome
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population

_SPEAKS_REHEARSALS = 3


@dataclass(frozen=True)
class Verdict:
    """What a party would do, and why: it takes part, asks a person, declines the run, refuses a task, or is not there.

    `made_up` is the number of rows that it rehearsed with.
    """

    word: str
    cause: str = ""
    remedy: str = ""
    task: str = ""
    made_up: int = 0


TAKES_PART, ASKS, DECLINES, REFUSES, AWAY = "takes part", "asks a person", "declines", "refuses", "not connected"


@dataclass(frozen=True)
class Answer:
    """What one party's answer to one order took."""

    phase: str
    order: int
    task: str
    party: str
    up: int
    down: int
    seconds: float


@dataclass
class Rehearsed:
    """All that came of it. `times` says how often each phase takes place in the whole run (not listed: never)."""

    rounds: int
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)
    epsilons: dict[str, float] = field(default_factory=dict)
    delta: float | None = None
    problem: str = ""

    @property
    def willing(self) -> list[str]:
        """The parties that were not found to refuse anything."""
        return [name for name, verdict in self.verdicts.items() if verdict.word == TAKES_PART]


class RehearsingEngine(NetworkEngine):
    """Carries orders as for a real run, marks the run as a rehearsal, and keeps account of each answer."""

    lowest: ClassVar[int] = _SPEAKS_REHEARSALS

    def __init__(self, service: Gateway, found: Rehearsed, config: Config, turn: Lock | None) -> None:
        super().__init__(build_named("engine", config.engine), service, turn)
        self._gateway, self._found = service, found
        self.phase = "start"
        self.failures: dict[str, tuple[str, Failure]] = {}
        self._tasks: dict[int, str] = {}
        self._names: list[str] = []

    def facts_for(self, population: Population, party: int) -> Payload:
        """What a party hears: that this is a rehearsal, and how many take part in the real run."""
        facts, parties = super().facts_for(population, party), len(self._found.verdicts)
        if "keys" in facts:  # the real run has keys of those, too, who are not there now
            facts["keys"] = [*self._keys, *(b"absent %d" % number for number in range(parties - len(self._keys)))]
        return facts | {REHEARSAL: True, "parties": parties}

    def pin(self, facts: Mapping[str, Any]) -> None:
        """The same: what parties sign says nothing of a rehearsal."""
        super().pin({key: value for key, value in facts.items() if key != REHEARSAL})

    def judged(self, population: Population, announcement: Announcement, roster: Mapping[str, Hello],
               seconds: float) -> dict[str, Verdict]:
        """What each party says to the announcement."""
        self.announce(announcement)
        self._keys = [hello.key for hello in roster.values()]
        names = self._names = [population.name(party) for party in range(len(population))]
        announcements = [Part(payloads.encode(self.facts_for(population, party))) for party in range(len(names))]
        mailbox = RunMailbox(announcement.run, names, announcements, lowest=self.lowest)
        self._gateway.hub.open(mailbox)
        with self.others_turn():
            self._gateway.hub.wait_for_verdicts(mailbox, seconds, self.say)
        self._gateway.hub.close(mailbox, finished=False)
        return {name: _verdict(mailbox.verdicts.get(party), seconds) for party, name in enumerate(names)}

    def dismiss(self) -> None:
        """The rehearsal is over, whatever came of it: parties delete what they made for it."""
        self._gateway.hub.close(RunMailbox(self._announcement.run, self._names, ()), finished=True)

    def submit(self, order: Order) -> None:
        """Send an order."""
        self._tasks[order.ticket] = order.task
        super().submit(order)

    def collect(self) -> Outcome:
        """The next outcome, noted."""
        outcome = super().collect()
        task = self._tasks[outcome.ticket]
        self._found.answers += [Answer(self.phase, outcome.ticket, task, self._names[reply.party], reply.bytes_up,
                                       reply.bytes_down, reply.seconds) for reply in outcome.replies]
        self.failures |= {self._names[failure.party]: (task, failure) for failure in outcome.failures}
        return outcome


def rehearse(config: Config, service: Gateway, *, wait: float, turn: Lock | None = None) -> Rehearsed:
    """Try a run out with those of its parties that are there within `wait` seconds."""
    if config.data.name != REAL_PARTIES:
        raise ConfigError(f"there are no real parties to rehearse with: '{config.data.name}' is dealt here",
                          remedy="type: tequio run; or set data.name = 'parties'")
    check_real(config)
    config = config.model_copy(update={"engine": {**config.engine, "wait": wait},
                                       "rules": {**config.rules, "on_failure": "stop", "quorum": 0.0}})
    there, missing = _present(config, service, wait, turn)
    found = Rehearsed(config.rounds, reported={name: hello.rows for name, hello in there.items()})
    found.verdicts = {name: Verdict(TAKES_PART) for name in there} | missing
    if missing and by_columns(config):
        found.problem = "parties with different columns are all needed"
        return found
    with TemporaryDirectory(prefix="tequio-ready-") as folder:
        for attempt in range(len(there)):
            place = Path(folder) / f"ready-{time.time_ns():x}-{attempt}"
            place.mkdir()
            before = found.willing
            _attempt(config, service, {name: there[name] for name in before}, place, found, turn)
            if found.problem or found.willing == before or not found.willing or by_columns(config):
                break
    return found


def _present(config: Config, service: Gateway, wait: float,
             turn: Lock | None) -> tuple[dict[str, Hello], dict[str, Verdict]]:
    """Who is there and can rehearse, and why the others cannot."""
    asked = build("dataset", REAL_PARTIES, config.data.parameters)
    engine = NetworkEngine(build_named("engine", config.engine), service, turn)
    with engine.others_turn():
        here = service.hub.gathered(asked.parties, asked.minimum, wait)
    old = {name: Verdict(AWAY, f"tequio {hello.version} knows no rehearsals", "install the same version on both sides")
           for name, hello in here.items() if hello.highest < _SPEAKS_REHEARSALS}
    names = asked.parties or list(here)
    away = Verdict(AWAY, remedy="start it: tequio party run")
    missing = {name: old.get(name, away) for name in names if name not in here or name in old}
    if not asked.parties and len(here) < asked.minimum:
        missing |= {f"(any {asked.minimum - len(here)} more)": away}
    return {name: here[name] for name in names if name in here and name not in old}, missing


def _attempt(config: Config, service: Gateway, roster: Mapping[str, Hello], place: Path, found: Rehearsed,
             turn: Lock | None) -> None:
    """Ask these parties for the whole of it; those that refuse something are noted, and left out next time."""
    found.answers, found.times, found.epsilons = [], {}, {}
    engine = RehearsingEngine(service, found, config, turn)
    with closing(engine):
        population = population_of(config, roster)
        announcement = announcement_of(config, place, {"schema": agreed_schema(config, roster, population)},
                                       make_algorithm(config))
        try:
            found.verdicts |= engine.judged(population, announcement, roster, config.engine["wait"])
            if set(roster) - set(found.willing):
                return
            _play(config, engine, scenario_of(config, engine, roster, place), place, found)
        except TequioError as cause:
            if not engine.failures and isinstance(cause, ConfigError | DataError):
                raise  # the run itself is described badly
            found.problem = "" if engine.failures else str(cause)
        finally:
            engine.dismiss()
        found.verdicts |= {name: Verdict(REFUSES, failure.cause, failure.remedy, task)
                           for name, (task, failure) in engine.failures.items()}


def _play(config: Config, engine: RehearsingEngine, scenario: Scenario, place: Path, found: Rehearsed) -> None:
    """The run from its start to its end, but for most of its rounds."""
    short = config.model_copy(update={
        "rounds": min(config.rounds, MOST_ROUNDS), "stop": Stop(),
        "evaluation": config.evaluation.model_copy(update={"every": 1})})
    store.write_whole(place / store.CONFIG, resolved_toml(short).encode())
    engine.announce(announcement_of(config, place, scenario.announced, scenario.algorithm))
    engine.open(scenario.population)
    with closing(Recorder(place, ignore)) as recorder:
        played, ended = _Rehearsal(short, scenario, engine, recorder, place).played()
    rounds, ledger = played if ended else config.rounds, scenario.ledger
    if ledger is not None:
        found.delta = ledger.terms.delta
        everybody = range(len(scenario.population))
        if ledger.terms.epsilon:  # the run ends when its budget does
            rounds = bisect_right(range(1, rounds + 1), ledger.terms.epsilon,
                                  key=lambda count: max(ledger.predicted(count, party) for party in everybody))
        found.epsilons = {scenario.population.name(party): ledger.predicted(rounds, party) for party in everybody}
    found.rounds = max(rounds, played)
    found.times = {"start": 1, "end": 1, **{f"round {number}": 1 for number in range(1, played)},
                   f"round {played}": found.rounds - played + 1,
                   f"evaluation {played}": -(-found.rounds // config.evaluation.every)}


class _Rehearsal(Run):
    """A run that says what its orders are for."""

    _engine: RehearsingEngine

    def played(self) -> tuple[int, bool]:
        """Play it: the number of rounds, and whether it came to an end of its own, as the real run will."""
        self.to_its_end(None)
        return self._federation.round, self._situation.progress.reason != "rounds"

    def _round(self, state: State) -> State:
        self._engine.phase = f"round {self._federation.round + 1}"
        return super()._round(state)

    def _measure(self, state: State) -> dict[str, float]:
        before, self._engine.phase = self._engine.phase, f"evaluation {self._federation.round}"
        try:
            return super()._measure(state)
        finally:
            self._engine.phase = before

    def _finish(self, state: State) -> None:
        self._engine.phase = "end"
        super()._finish(state)


def _verdict(said: object, seconds: float) -> Verdict:
    if isinstance(said, Ready):
        return Verdict(ASKS, said.note) if said.note else Verdict(TAKES_PART, made_up=said.rows)
    if isinstance(said, Declined):
        return Verdict(DECLINES, said.cause, said.remedy)
    return Verdict(AWAY, f"it did not answer within {seconds:g} s")


def document(found: Rehearsed) -> Plain:
    """What came of it as plain data; what is not known is null."""
    parties = {name: _prediction(found, name, verdict) for name, verdict in found.verdicts.items()}
    epsilons = list(found.epsilons.values())
    known = [facts for facts in parties.values() if facts["bytes_up"] is not None]
    return {"ready": not found.problem and len(found.willing) == len(parties) > 0, "rounds": found.rounds,
            "problem": found.problem, "parties": parties, "seconds": _seconds(found) if known else None,
            **{key: sum(facts[key] for facts in known) if known else None for key in ("bytes_up", "bytes_down")},
            "epsilon": _finite(max(epsilons)) if epsilons else None, "private": bool(epsilons), "delta": found.delta,
            "tasks": _tasks(found)}


def _prediction(found: Rehearsed, name: str, verdict: Verdict) -> Plain:
    """One party's verdict and, where it did everything, its share of the whole run."""
    mine = [answer for answer in found.answers if answer.party == name] if found.times else []
    times = [found.times.get(answer.phase, 0) for answer in mine]
    counted = verdict.word == TAKES_PART and bool(mine)
    return {"verdict": verdict.word, "task": verdict.task, "cause": verdict.cause, "remedy": verdict.remedy,
            "rows": found.reported.get(name), "made_up_rows": verdict.made_up or None,
            "bytes_up": sum(answer.up * count for answer, count in zip(mine, times, strict=True)) if counted else None,
            "bytes_down": sum(answer.down * count for answer, count in zip(mine, times, strict=True)) if counted
            else None,
            "seconds": sum(answer.seconds * count for answer, count in zip(mine, times, strict=True))
            * _scale(found, name) if counted else None,
            "epsilon": _finite(found.epsilons[name]) if name in found.epsilons else None}


def _scale(found: Rehearsed, name: str) -> float:
    """How much longer a party takes on all the rows that it reports than on those that it made up."""
    return max(found.reported.get(name, 0) / max(found.verdicts[name].made_up, 1), 1.0)


def _seconds(found: Rehearsed) -> float:
    """What the whole run takes if each order waits for its slowest party, and links take no time."""
    slowest: defaultdict[tuple[str, int], float] = defaultdict(float)
    for answer in found.answers:
        key = answer.phase, answer.order
        slowest[key] = max(slowest[key], answer.seconds * _scale(found, answer.party))
    return sum(seconds * found.times.get(phase, 0) for (phase, _), seconds in slowest.items())


def _tasks(found: Rehearsed) -> list[Plain]:
    """The bytes of each task in the whole run, in the order in which tasks first came."""
    total: dict[str, list[int]] = {}
    for answer in found.answers if found.times else ():
        sums = total.setdefault(answer.task, [0, 0])
        sums[0] += answer.up * found.times.get(answer.phase, 0)
        sums[1] += answer.down * found.times.get(answer.phase, 0)
    return [{"task": task, "bytes_up": up, "bytes_down": down} for task, (up, down) in total.items()]


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
