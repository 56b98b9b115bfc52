"""A party at work: it judges runs and tasks by its policy, does each task once, and keeps its states to itself."""

from __future__ import annotations

import hmac
import traceback
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from tequio import __version__
from tequio.engines.network.budget import BudgetBook
from tequio.engines.network.files import create_private, private_folder, write_private
from tequio.engines.network.journal import Journal, Record
from tequio.engines.network.policy import Approvals, check_installed
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
from tequio.errors import EngineError, PermissionDenied, TequioError, crossing
from tequio.federation import payload as payloads
from tequio.federation.exchange import Order, execute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tequio.engines.network.holding import Holding, Question, Questions
    from tequio.engines.network.homes import PartyHome
    from tequio.engines.network.policy import Policy
    from tequio.engines.network.telemetry import Telemetry
    from tequio.engines.network.wire import TaskRequest
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population



REHEARSAL = "rehearsal"
"""The key of an announcement which says that the run is only tried out, on made-up rows."""

_MEGABYTE = 1 << 20


class _TaskError(EngineError):
    """A task failed in its own code; `shared` is what others may read of that."""

    def __init__(self, cause: str, remedy: str, shared: tuple[str, str]) -> None:
        super().__init__(cause, remedy=remedy)
        self.shared = shared


@dataclass(frozen=True, eq=False)
class _Engagement:
    """A run that the party takes part in, or a question to the model of one."""

    facts: Payload
    population: Population
    journal: Journal
    question: Question | None = None


class Site:
    """One party's side of all runs."""

    def __init__(self, home: PartyHome, holding: Holding, policy: Policy, telemetry: Telemetry,
                 questions: Questions | None = None) -> None:
        self._home, self._holding, self.policy, self._questions = home, holding, policy, questions
        self._telemetry = telemetry
        self._authority = home.coordinator
        self._approvals = Approvals(home.folder / "approvals")
        self._budget = None if policy.budget is None else BudgetBook(home.folder / "budget.json", policy.budget.epsilon,
                                                                     policy.budget.delta)
        self._runs: dict[str, _Engagement] = {}

    def greeting(self) -> Hello:
        """Who this party is, and as much about its data as its policy lets it say."""
        return Hello(self._holding.name, LOWEST, HIGHEST, __version__, self.policy.told_rows(self._holding.rows),
                     self._holding.schema, self._holding.share)

    def begin(self, run: str, announcement: bytes | memoryview) -> Ready | Waiting | Declined:
        """Judge a run that the coordinator announces."""
        try:
            folder = self._home.run(run)
            facts = payloads.decode(announcement)
            if REHEARSAL in facts:  # see rehearsal.py
                raise PermissionDenied("this party rehearses no runs")
            self.policy.judge_run(facts, self._authority, self._holding.rows)
            if facts.get("share", "") != self._holding.share:
                raise PermissionDenied("the run is not about the data that this party holds",
                                       remedy="give both sides the same config")
            if "predicts" in facts:  # bringing rows was the approval
                self._runs[run] = self._asked(run, facts)
                self._telemetry.note("question accepted", run=run, model=facts["predicts"])
                return Ready(run)
            if self.policy.approval == "run" and (waiting := self._approvals.verdict(run, facts)):
                return Waiting(run, waiting)
            self._runs[run] = _Engagement(facts, self._population(facts, self._holding), Journal(folder))
        except (TequioError, KeyError, TypeError, ValueError) as cause:
            message = cause.message if isinstance(cause, TequioError) else f"it was announced badly: {cause!r}"
            self._telemetry.note("run declined", run=run, cause=message)
            shared, remedy = crossing(cause)
            return Declined(run, clipped(shared if isinstance(cause, TequioError) else
                                         f"it was announced badly: {shared}"), clipped(remedy))
        if self._is_news(run, announcement):
            self._telemetry.note("run accepted", run=run, algorithm=facts.get("algorithm"),
                                 parties=facts.get("parties"))
        return Ready(run)

    def knows(self, run: str) -> bool:
        """Whether the party takes part in that run."""
        return run in self._runs

    def end(self, run: str) -> None:
        """A run is over."""
        engagement = self._runs.pop(run, None)
        if engagement is not None and engagement.question is not None:
            engagement.journal.forget()
            self._telemetry.note("question over", run=run)
        elif engagement is not None:
            engagement.journal.end()
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
            engagement.question.done(request.task, record.state, engagement.population.whole(engagement.facts["index"]))
        return record

    def _execute(self, engagement: _Engagement, request: TaskRequest, parts: list[bytes | memoryview]) -> Record:
        about, payload = payloads.decode(parts[0]), payloads.decode(parts[1], shared=True)
        if parts[2]:
            payload |= payloads.decode(parts[2], shared=True)
        check_installed(request.task)
        if engagement.question is not None:
            engagement.question.judge(request.task, payload)
        self.policy.judge_task(request.task, about, engagement.facts)
        index = engagement.facts["index"]
        if self._budget is not None and request.task not in self.policy.exempt_tasks:
            self._budget.charge(request, about, len(engagement.population.view(index).train))
        order = Order(request.position, request.task, (index,), request.round, payload, about["settings"],
                      tuple(about["stages"]))
        states = {index: engagement.journal.state(request.base)}
        outcome = execute(order, engagement.population, states, self._seed_of(request, parts))
        for failure in outcome.failures:
            self._telemetry.log("task failed", run=request.run, task=request.task, cause=failure.cause,
                                trace=failure.trace)
            raise _TaskError(failure.cause, failure.remedy, failure.shared)
        answer = outcome.replies[0]
        reply = payloads.encode(answer.payload)
        if len(reply) > self.policy.maximum_reply_megabytes * _MEGABYTE:
            raise PermissionDenied(f"the party's policy refuses: the reply of task '{request.task}' has {len(reply)} "
                                   f"bytes, more than {self.policy.maximum_reply_megabytes:g} MB",
                                   remedy="raise 'maximum_reply_megabytes' there, or send less")
        self._telemetry.note("task done", run=request.run, task=request.task, round=request.round, bytes=len(reply))
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

    def _asked(self, run: str, facts: Payload) -> _Engagement:
        """A question to the model of a finished run, about new rows. The run's own states stay as they are."""
        model = self._home.run(str(facts["predicts"]))
        if self._questions is None:
            raise PermissionDenied("this party brings no new rows to trained models")
        question = self._questions.about(model.name, facts, Journal(model).last_state())
        folder = model / f"asked-{run}"
        for older in model.glob("asked-*"):
            if older != folder:  # a question that never came to its end
                Journal(older).forget()
        return _Engagement(facts, self._population(facts, question.holding), Journal(folder, question.part), question)

    def _population(self, facts: Payload, holding: Holding) -> Population:
        """The party's population in a run, under its own rules about rows and randomness."""
        own = dict(facts["overrides"]) | {"share_rows": self.policy.share_rows}
        population = holding.population({**facts, "overrides": own})
        population = replace(population, overrides={facts["index"]: own})
        if self.policy.private_randomness and not self._holding.share:
            # The split has to stay what it was, so it is made before the seed changes.
            population.view(facts["index"])
            population = replace(population, seed=self._private_seed(str(facts["seed"])))
        return population

    def _is_news(self, run: str, announcement: bytes | memoryview) -> bool:
        """Whether the party hears this for the first time: links break, and then announcements are made again."""
        path = private_folder(self._home.folder / "announced") / run
        digest = sha256(announcement).hexdigest().encode()
        if path.exists() and path.read_bytes() == digest:
            return False
        write_private(path, digest, sync=False)
        return True

    def _seed_of(self, request: TaskRequest, parts: Sequence[bytes | memoryview]) -> int | None:
        """A seed for this very request: noise on two different replies must differ, whatever is asked again."""
        if not self.policy.private_randomness or self._holding.share:
            return None
        content = sha256(b"".join(sha256(part).digest() for part in parts)).hexdigest()
        return self._private_seed(f"{request.run}|{request.position}|{request.base}|{request.round}|{request.task}"
                                  f"|{content}")

    def _private_seed(self, about: str) -> int:
        path = self._home.folder / "randomness"
        if not path.exists():
            import secrets

            create_private(path, secrets.token_bytes(32))
        return int.from_bytes(hmac.digest(path.read_bytes(), about.encode(), sha256)[:8], "little")


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
