"""A party at work: it judges runs and tasks by its policy, does each task once, and keeps its states to itself."""

from __future__ import annotations

import hmac
import json
import traceback
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from tequio import __version__
from tequio.data.partition import Split
from tequio.engines.network.bounded import runner_for
from tequio.engines.network.files import (
    check_party_name,
    create_private,
    look_alike,
    private_folder,
    write_private,
)
from tequio.engines.network.holding import OwnRows
from tequio.engines.network.journal import Journal, Record
from tequio.engines.network.policy import Approvals
from tequio.engines.network.wire import (
    HIGHEST,
    LOWEST,
    Declined,
    Hello,
    Part,
    Ready,
    TaskFailed,
    TaskResult,
    Waiting,
    clipped,
    frame,
)
from tequio.errors import ConfigError, EngineError, PermissionDenied, TequioError, crossing
from tequio.federation import payload as payloads
from tequio.federation.exchange import Order
from tequio.federation.population import (
    LEAST_BATCH,
    LEAST_COHORT,
    SMALL_CELLS,
    STEADY_EVALUATION,
    STEADY_TRAINING,
    Roster,
)
from tequio.federation.task import find_task
from tequio.gate.announcement import read_announcement
from tequio.gate.gate import Gate, PartyRows, judge_run, what_it_reveals
from tequio.gate.policy import refused
from tequio.gate.release import released
from tequio.noise.coins import Coins
from tequio.privacy.aggregation.identities import public_half
from tequio.privacy.aggregation.one_way import erase_secrets
from tequio.privacy.atoms import QUESTIONS
from tequio.privacy.dataset_ledger import fingerprint_of
from tequio.privacy.psi.limits import LIMITS, SETTLES, IntersectionLog
from tequio.privacy.updates import PROTOCOL_TASKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tequio.data.dataset import Dataset
    from tequio.engines.network.bounded import Runner
    from tequio.engines.network.files import Document
    from tequio.engines.network.holding import Holding, Question, Questions
    from tequio.engines.network.homes import PartyHome
    from tequio.engines.network.telemetry import Telemetry
    from tequio.engines.network.wire import TaskRequest
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population
    from tequio.gate.announcement import Announcement
    from tequio.gate.policy import Policy
    from tequio.privacy.dataset_ledger import DatasetLedger


REHEARSAL = "rehearsal"
"""The key of an announcement which says that the run is only tried out, on made-up rows."""

_MEGABYTE = 1 << 20
_MOST_RUNS = 1000
_SPLITS, _ONE_WAY = "split.json", "one way"


class _TaskError(EngineError):
    """A task failed in its own code; `shared` is what others may read of that."""

    def __init__(self, cause: str, remedy: str, shared: tuple[str, str]) -> None:
        super().__init__(cause, remedy=remedy)
        self.shared = shared


@dataclass(frozen=True, eq=False)
class _Engagement:
    """A run that the party takes part in, or a question to the model of one, on terms that are known by their hash."""

    announcement: Announcement
    terms: str
    population: Population
    journal: Journal
    gate: Gate
    question: Question | None = None


class Site:
    """One party's side of all runs."""

    def __init__(self, home: PartyHome, holding: Holding, policy: Policy, telemetry: Telemetry,
                 questions: Questions | None = None, runner: Runner | None = None) -> None:
        self._home, self._holding, self.policy, self._questions = home, holding, policy, questions
        self._telemetry = telemetry
        self._runner = runner or runner_for(home.folder / "workers", telemetry, gigabytes=policy.maximum_task_gigabytes,
                                            seconds=policy.maximum_task_seconds)
        self._authority = home.coordinator
        self._approvals = Approvals(home.folder / "approvals")
        self._runs: dict[str, _Engagement] = {}

    def greeting(self) -> Hello:
        """Who this party is, and as much about its data as its policy lets it say."""
        return Hello(self._holding.name, LOWEST, HIGHEST, __version__, self.policy.told_rows(self._holding.rows),
                     self._holding.schema, self._holding.share, key=public_half(self._home.signing_key))

    def begin(self, run: str, announcement: bytes | memoryview) -> Ready | Waiting | Declined:
        """Judge a run that the coordinator announces."""
        try:
            folder = self._home.run(run)
            facts = payloads.decode(announcement)
            if REHEARSAL in facts:  # see rehearsal.py
                raise PermissionDenied("this party rehearses no runs")
            told = read_announcement(facts)
            _check_names(told.roster)
            if run not in self._runs and len(self._runs) >= _MOST_RUNS:
                raise PermissionDenied(f"this party takes part in {_MOST_RUNS:,} runs already",
                                       remedy="end some of them, or start the party anew")
            judge_run(self.policy, told, self._authority, self._holding.rows)
            if told.share != self._holding.share:
                raise PermissionDenied("the run is not about the data that this party holds",
                                       remedy="give both sides the same config")
            terms = self._terms(announcement)
            if told.predicts:  # bringing rows was the approval
                self._runs[run] = self._asked(run, told, facts, terms)
                self._telemetry.note("question accepted", run=run, model=told.predicts)
                return Ready(run)
            population = replace(self._population(told, facts, self._holding), pinned=self._pinned(told, folder))
            gate = self._gate(run, told, population)
            if self.policy.approval == "run" and (
                    waiting := self._approvals.verdict(run, told, self._what_tasks_reveal(gate), gate.epsilon())):
                return Waiting(run, waiting)
            self._keep_split(told)
            self._runs[run] = _Engagement(told, terms, population, Journal(folder), gate)
        except Exception as cause:
            message = cause.message if isinstance(cause, TequioError) else f"it was announced badly: {cause!r}"
            self._telemetry.note("run declined", run=run, cause=message)
            shared, remedy = crossing(cause)
            return Declined(run, clipped(shared if isinstance(cause, TequioError) else
                                         f"it was announced badly: {shared}"), clipped(remedy))
        if self._is_news(run, announcement):
            self._telemetry.note("run accepted", run=run, algorithm=told.algorithm, parties=told.parties,
                                 announcement=told.hash, split=structs.asdict(told.split))
        return Ready(run)

    def close(self) -> None:
        """Let go of what tasks run in."""
        self._runner.close()

    def knows(self, run: str) -> bool:
        """Whether the party takes part in that run."""
        return run in self._runs

    def end(self, run: str) -> None:
        """A run is over."""
        engagement = self._runs.pop(run, None)
        self._runner.close(run)
        if engagement is not None and engagement.question is not None:
            engagement.journal.forget()
            self._telemetry.note("question over", run=run)
        elif engagement is not None:
            engagement.journal.end()
            if not self._home.run(run).exists():
                (self._home.folder / "announced" / run).unlink(missing_ok=True)
            erase_secrets(self._home.run(run) / _ONE_WAY)
            self._telemetry.note("run over", run=run)

    def run(self, request: TaskRequest, parts: list[bytes | memoryview]) -> Record:
        """Carry out a request; one that was carried out before gives the record of the first time."""
        engagement = self._runs.get(request.run)
        if engagement is None:
            raise PermissionDenied(f"this party takes no part in the run '{request.run[:80]}'")
        done = engagement.journal.find(request.position, request.base, request.digest)
        if done is not None:
            return done
        record = self._execute(engagement, request, parts)
        engagement.journal.add(record)
        engagement.journal.prune(request.keep)
        if engagement.question is not None:
            rows = engagement.population.whole(engagement.announcement.index)
            engagement.question.done(request.task, record.state, rows)
        return record

    def _execute(self, engagement: _Engagement, request: TaskRequest, parts: list[bytes | memoryview]) -> Record:
        about, payload = payloads.decode(parts[0]), payloads.decode(parts[1], shared=True)
        if parts[2]:
            payload |= payloads.decode(parts[2], shared=True)
        if not (about.keys() == {"settings", "stages"} and isinstance(about["settings"], dict)
                and isinstance(about["stages"], list)):
            raise PermissionDenied(f"task '{request.task[:80]}' came without settings and stages of its own",
                                   remedy="send both, and nothing else")
        if engagement.question is not None:
            engagement.question.judge(request.task, payload)
        index, state = engagement.announcement.index, engagement.journal.state(request.base)
        digest = _own_digest(engagement.terms, request, parts, state)
        passed = engagement.gate.admit(request.task, request.round, about["settings"], about["stages"], digest)
        order = Order(request.position, request.task, (index,), request.round, payload, about["settings"],
                      tuple(about["stages"]))
        states = {index: state}
        outcome = self._runner.run(request.run, order, engagement.population, states, self._seed_of(digest))
        for failure in outcome.failures:
            self._telemetry.log("task failed", run=request.run, task=request.task, cause=failure.cause,
                                trace=failure.trace)
            raise _TaskError(failure.cause, failure.remedy, failure.shared)
        answer = outcome.replies[0]
        # One and the same for all coarse metrics: were each reply rounded anew, their mean would be exact.
        known = "coarse" if passed.metrics == "coarse" else digest
        secret = self._private_seed(f"release|{known}") if self.policy.private_randomness else int(digest[:15], 16)
        reply = payloads.encode(released(answer.payload, passed, self.policy, Coins.derived(secret, "release")))
        if len(reply) > self.policy.maximum_reply_megabytes * _MEGABYTE:
            raise PermissionDenied(f"the party's policy refuses: the reply of task '{request.task}' has {len(reply)} "
                                   f"bytes, more than {self.policy.maximum_reply_megabytes:g} MB",
                                   remedy="raise 'maximum_reply_megabytes' there, or send less")
        if request.task == SETTLES:
            self._telemetry.note("ids intersected", run=request.run, **answer.payload)
        self._telemetry.note("task done", run=request.run, task=request.task, round=request.round, bytes=len(reply),
                             covered=passed.covered)
        return Record(request.position, request.base, request.digest, states[index], reply, answer.seconds)

    def explain(self, request: TaskRequest, cause: BaseException) -> tuple[str, str]:
        """Cause and remedy of a failure as the coordinator may know them; all the rest is in this party's log."""
        message = cause.message if isinstance(cause, TequioError) else f"{type(cause).__name__}: {cause}"
        if not isinstance(cause, TequioError):
            self._telemetry.log("task failed", run=request.run, task=request.task, cause=message,
                                trace=traceback.format_exc())
        self._telemetry.note("task refused" if isinstance(cause, PermissionDenied) else "task failed",
                             run=request.run, task=request.task, cause=message)
        engagement = self._runs.get(request.run)
        columns = () if engagement is None else engagement.population.schema.names
        shared, remedy = cause.shared if isinstance(cause, _TaskError) else crossing(cause, columns)
        return clipped(shared), clipped(remedy)

    def _asked(self, run: str, told: Announcement, facts: Payload, terms: str) -> _Engagement:
        """A question to the model of a finished run, about new rows. The run's own states stay as they are."""
        model = self._home.run(told.predicts)
        if self._questions is None:
            raise PermissionDenied("this party brings no new rows to trained models")
        question = self._questions.about(model.name, facts, Journal(model).last_state())
        folder = model / f"asked-{run}"
        for older in model.glob("asked-*"):
            if older != folder:  # a question that never came to its end
                Journal(older).forget()
        population = self._population(told, facts, question.holding)
        gate = Gate(self.policy, told, PartyRows(len(population.whole(told.index))), population.schema, run=run,
                    tasks=question.tasks, intersections=self._intersections(question.holding))
        population = replace(population, pinned=self._pinned(told, folder))
        return _Engagement(told, terms, population, Journal(folder, question.part), gate, question)

    def _gate(self, run: str, told: Announcement, population: Population) -> Gate:
        """The party's gate in a run."""
        data = population.view(told.index)
        ledger = None if self.policy.budget is None else self._ledger_of_rows()
        rows = PartyRows(len(data.train), len(data.validation), len(data.test))
        if self._holding.rows and rows.train < self.policy.minimum_rows:
            raise refused(f"it wants at least {self.policy.minimum_rows} rows behind each reply, and this split leaves "
                          "fewer to train on", "lower data.split.validation and data.split.test")
        return Gate(self.policy, told, rows, population.schema, ledger=ledger, run=run,
                    by=self._authority or "coordinator", intersections=self._intersections(self._holding))

    def _intersections(self, holding: Holding) -> IntersectionLog:
        """The set intersections that this party has taken part in."""
        rows = fingerprint_of(holding.dataset) if isinstance(holding, OwnRows) else f"{holding.share}-{holding.name}"
        return IntersectionLog(rows, self._home.folder / "intersections.jsonl")

    def _pinned(self, told: Announcement, folder: Path) -> Roster:
        """The roster of a run, if this party's own key is in its place there. One without keys is good for no task that
        signs or checks a signature."""
        own = self._home.signing_key
        if (told.signed or told.keys) and (not told.keys or told.keys[told.index] != public_half(own)):
            raise PermissionDenied("the run names another key for this party than it signs by, or none",
                                   remedy="its certificate may have been renewed since: announce the run again")
        return Roster(told.agreed, told.parties, tuple(told.keys), own, str(folder / _ONE_WAY), tuple(told.holders))

    def _terms(self, announcement: bytes | memoryview) -> str:
        """All besides a request that decides what its reply is: rows, policy, coins, and everything announced."""
        holding = self._holding
        rows = fingerprint_of(holding.dataset) if isinstance(holding, OwnRows) and holding.rows else holding.share
        coins = self._private_seed("terms") if self.policy.private_randomness else 0
        policy, announced = (sha256(part).hexdigest() for part in (msgspec.json.encode(self.policy), announcement))
        return sha256(f"{holding.name}|{rows}|{coins}|{policy}|{announced}".encode()).hexdigest()

    def _ledger_of_rows(self) -> DatasetLedger:
        """What was spent on this party's rows."""
        return self._home.ledger(self._key_of_rows)

    def _answered(self) -> dict[str, str]:
        """Where answered questions about this party's rows are written down, and who asks."""
        return {"folder": str(self._home.own_ledgers), "rows": self._key_of_rows,
                "by": self._authority or "coordinator"}

    @property
    def _key_of_rows(self) -> str:
        holding = self._holding
        return fingerprint_of(holding.dataset) if isinstance(holding, OwnRows) else f"{holding.share}-{holding.name}"

    def _what_tasks_reveal(self, gate: Gate) -> list[Document]:
        """For the person who decides: each task that the run may ask for, what its reply says about rows, and what is
        done about that under the announced stages."""
        return [{"task": task.name, "reveals": what_it_reveals(task), "covered_by": gate.outlook(task),
                 "cost": "charged" if self.policy.budget is not None and what_it_reveals(task) != "nothing" else "none"}
                for task in map(find_task, sorted(gate.tasks)) if task.name not in PROTOCOL_TASKS or gate.hides]

    def _own_rows(self) -> Dataset:
        assert isinstance(self._holding, OwnRows)
        return self._holding.dataset

    def _population(self, told: Announcement, facts: Payload, holding: Holding) -> Population:
        """The party's population in a run, under its own rules about rows, split and randomness."""
        policy = self.policy
        own = dict(told.overrides) | {"share_rows": policy.share_rows, LEAST_BATCH: policy.least_batch,
                                      LEAST_COHORT: policy.minimum_parties,
                                      SMALL_CELLS: policy.small_cells, STEADY_TRAINING: policy.budget is not None,
                                      STEADY_EVALUATION: policy.metrics != "exact",
                                      LIMITS: policy.intersections(self._home.folder),
                                      QUESTIONS: self._answered()}
        population = holding.population({**facts, "overrides": own})
        population = replace(population, overrides={told.index: own})
        if holding.share:
            return population
        if not told.predicts and holding.rows:
            # The split is made before the seed changes: it is this party's own, and the same in all runs.
            own_split, seed, fingerprint = self._kept_split(told)
            if self.policy.private_randomness:
                seed = self._private_seed(f"split|{fingerprint}")
            population = replace(population, split=Split(**own_split), seed=seed)
            population.view(told.index)
        seed = self._private_seed(str(told.seed)) if self.policy.private_randomness else told.seed
        return replace(population, seed=seed)

    def _keep_split(self, told: Announcement) -> None:
        """Split these rows so once and for all: as the policy says, or as the first run that was accepted asked for. A
        run that wants another split is refused, as two splits of the same rows show single ones: `split` of the policy
        is the owner's word against the first run's."""
        if self._holding.share or not self._holding.rows:
            return
        own, seed, fingerprint = self._kept_split(told)
        path = self._home.folder / _SPLITS
        kept = json.loads(path.read_bytes()) if path.exists() else {}
        if fingerprint not in kept:
            write_private(path, json.dumps({**kept, fingerprint: {"split": own, "seed": seed}}, indent=1).encode())

    def _kept_split(self, told: Announcement) -> tuple[dict[str, Any], int, str]:
        """The split of this party's rows and the seed of it, and the rows' fingerprint; a refusal where the run wants
        another."""
        path, fingerprint = self._home.folder / _SPLITS, fingerprint_of(self._own_rows())
        known = (json.loads(path.read_bytes()) if path.exists() else {}).get(fingerprint, {})
        wanted, chosen = structs.asdict(told.split), self.policy.split
        own = structs.asdict(chosen) if chosen is not None else known.get("split", wanted)
        if own != wanted:
            raise refused("the run keeps back other shares of the rows than this party does: it has validation = "
                          f"{own['validation']:g}, test = {own['test']:g}, stratify = {str(own['stratify']).lower()}",
                          f"set data.split = {{validation = {own['validation']:g}, test = {own['test']:g}, stratify = "
                          f"{str(own['stratify']).lower()}}}")
        return own, known.get("seed", told.seed), fingerprint

    def _is_news(self, run: str, announcement: bytes | memoryview) -> bool:
        """Whether the party hears this for the first time: links break, and then announcements are made again."""
        path = private_folder(self._home.folder / "announced") / run
        digest = sha256(announcement).hexdigest().encode()
        if path.exists() and path.read_bytes() == digest:
            return False
        write_private(path, digest, sync=False)
        return True

    def _seed_of(self, digest: str) -> int | None:
        """A seed for this very request: noise on two different replies must differ, whatever is asked again."""
        if not self.policy.private_randomness or self._holding.share:
            return None
        return self._private_seed(digest)

    def _private_seed(self, about: str) -> int:
        path = self._home.folder / "randomness"
        if not path.exists():
            import secrets

            create_private(path, secrets.token_bytes(32))
        return int.from_bytes(hmac.digest(path.read_bytes(), about.encode(), sha256)[:16], "little")


def _check_names(roster: Sequence[str] | str) -> None:
    """A person approves a roster by its names, so that each is plain and none may be taken for another."""
    if isinstance(roster, str):
        return
    try:
        pair = look_alike([check_party_name(name) for name in roster])
    except ConfigError as cause:
        raise PermissionDenied(f"the roster of the run is not plain: {cause.message}", remedy=cause.remedy) from None
    if len(set(roster)) < len(roster):
        raise PermissionDenied("the roster of the run has a name more than once", remedy="announce each party once")
    if pair is not None:
        raise PermissionDenied(f"two names in the roster of the run look alike: '{pair[0]}' and '{pair[1]}'",
                               remedy="let one of the two parties join by another name")


def _own_digest(terms: str, request: TaskRequest, parts: Sequence[bytes | memoryview], state: Payload) -> str:
    """What this party really received, on which terms and on top of which state: whatever the coordinator calls it."""
    known = sha256(payloads.encode(state)).hexdigest() if state else ""
    content = "".join(sha256(part).hexdigest() for part in parts)
    return sha256(f"{terms}|{request.run}|{request.task}|{request.round}|{known}|{content}".encode()).hexdigest()


LARGEST_PAYLOAD = 1 << 32
"""Bytes that a party takes for one task."""


def answer(site: Site, request: TaskRequest, parts: list[bytes | memoryview]) -> Iterable[bytes]:
    """The frames that answer a request: a result, or why there is none."""
    try:
        record = site.run(request, parts)
    except Exception as cause:
        return [frame(TaskFailed(request.run, request.position, request.digest, *site.explain(request, cause)))]
    reply = Part(record.reply, lasting=True)
    return _frames(reply, TaskResult(request.run, request.position, request.digest, record.seconds, reply.ref))


def _frames(reply: Part, result: TaskResult) -> Iterator[bytes]:
    yield from reply.frames
    yield frame(result, reply.inline)
