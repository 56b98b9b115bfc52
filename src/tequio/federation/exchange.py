"""What an engine carries (orders to parties, outcomes back), and what happens at a party when an order arrives.

The contract of an engine is small enough to fake in ten lines. Every engine calls the one function `execute`, so all
give the same numbers. The answers of a cohort are always in party order, so that sums do not depend on who was fastest.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast, overload, runtime_checkable

import numpy as np

from tequio.errors import DataError, DivergedError, PayloadError, PermissionDenied, TequioError, crossing, described
from tequio.federation import payload as payloads
from tequio.federation.payload import Columns, R
from tequio.federation.population import Party
from tequio.federation.rng import Streams
from tequio.federation.task import Reveals, fault_of, fault_of_columns, find_task
from tequio.registry import from_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.population import Population, Roster
    from tequio.federation.stages import Stage
    from tequio.federation.task import AnyTask

    States = dict[int, Payload]


@dataclass(frozen=True)
class Order:
    """Ask some parties to run one task. `settings` and `stages` are plain data; `each` holds per-party payloads."""

    ticket: int
    task: str
    parties: tuple[int, ...]
    round: int
    payload: Payload
    settings: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[Mapping[str, Any], ...] = ()
    each: tuple[Payload, ...] | None = None


@dataclass(frozen=True)
class Reply(Generic[R]):
    """One party's answer, with what crossed to get it. `bytes_*` are the exact lengths of the encoded payloads."""

    party: int
    payload: R
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Failure:
    """One party could not answer: what went wrong there, and (for --debug) where in its code.

    `shared` is the cause and the remedy as they may leave the party, where they come from its own code. `diverged` says
    that the party did all that it should, and training led nowhere.
    """

    party: int
    cause: str
    remedy: str = ""
    trace: str = ""
    shared: tuple[str, str] = ("", "")
    diverged: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of an order: replies and failures, each in party order.

    `columns` hold the payloads of the replies column by column where they lie in memory so, to be looked at in one go.
    """

    ticket: int
    replies: tuple[Reply[Any], ...] = ()
    failures: tuple[Failure, ...] = ()
    columns: Payload | None = None


@dataclass(frozen=True)
class Announcement:
    """What parties that judge for themselves are told of a run before it begins. `facts` are plain data.

    `run` is the name under which they keep what they need to resume it.
    """

    run: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Announcing(Protocol):
    """An engine whose parties are not ours: they hear of a run before it is opened, and when it is over."""

    def announce(self, announcement: Announcement) -> None:
        """Remember what to tell them."""
        ...

    @property
    def roster(self) -> Roster:
        """Who takes part in the run that was announced, and by which key each signs."""
        ...

    def finish(self) -> None:
        """The run came to its end and will not be resumed."""
        ...


class Engine(Protocol):
    """Carries orders to parties. `submit` may return before the work is done; `collect` waits for the next outcome."""

    def open(self, population: Population) -> None:
        """Get ready to reach these parties."""
        ...

    def submit(self, order: Order) -> None:
        """Send an order on its way."""
        ...

    def collect(self) -> Outcome:
        """The next outcome to arrive, in any order."""
        ...

    def states(self) -> dict[int, Payload]:
        """Private states of the parties this engine keeps, for a checkpoint on the same machine."""
        ...

    def restore(self, states: dict[int, Payload]) -> None:
        """Put states of a checkpoint back."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


NOBODY = -1
"""The number of the party in an answer that nobody gave."""


@dataclass(frozen=True)
class Replies(Sequence["Reply[R]"], Generic[R]):
    """What came back from an ask. `dropped` were chosen and vanished; `failures` say why a party could not answer.

    `late` answered, or would have, after the exchange closed on the virtual clock.
    """

    answers: tuple[Reply[R], ...]
    failures: tuple[Failure, ...] = ()
    dropped: tuple[int, ...] = ()
    late: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.answers)

    @overload
    def __getitem__(self, index: int) -> Reply[R]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Reply[R]]: ...
    def __getitem__(self, index: int | slice) -> Reply[R] | Sequence[Reply[R]]:
        return self.answers[index]

    @property
    def parties(self) -> NDArray[np.int64]:
        """Who answered."""
        return np.array([reply.party for reply in self.answers], dtype=np.int64)

    @property
    def payloads(self) -> list[R]:
        """The contents."""
        return [reply.payload for reply in self.answers]

    @property
    def of_nobody(self) -> bool:
        """Whether there is one answer that no party gave, which a stage put where there was none."""
        return len(self.answers) == 1 and self.answers[0].party == NOBODY

    def values(self, name: str) -> NDArray[Any]:
        """One number a party."""
        return np.array([cast("Payload", reply.payload)[name] for reply in self.answers])

    def of(self, party: int) -> R:
        """The content one party sent."""
        for reply in self.answers:
            if reply.party == party:
                return reply.payload
        raise DataError(f"party {party} gave no answer", remedy="look for it in `failures` and `dropped`")


def execute(order: Order, population: Population, states: States, seed: int | None = None) -> Outcome:
    """Run an order's task at its parties. `states` gains the new state of every party that succeeded.

    Random streams of the round come from the population's seed, or from another one that the party wants for this task.
    """
    task = find_task(order.task)
    settings = task.decode(order.settings)
    stages: list[Stage] = [from_plain(stage) for stage in order.stages]
    streams = Streams(population.seed if seed is None else seed, order.round, order.parties)
    parties = [Party(index, order.round, dict(states.get(index, ())), population, streams) for index in order.parties]
    inputs = _inputs(order)
    for stage in stages:
        for party in parties:
            stage.enter(party)
    answers, columns = _run_together(task, parties, inputs, settings, stages)
    answers = answers or [
        _run_alone(task, party, given, settings, stages) for party, given in zip(parties, inputs, strict=True)]
    for party, answer in zip(parties, answers, strict=True):
        party.leave()
        if isinstance(answer, Reply) and (party.state or party.index in states):
            states[party.index] = payloads.on_its_own(party.state)
    return Outcome(order.ticket, tuple(answer for answer in answers if isinstance(answer, Reply)),
                   tuple(answer for answer in answers if isinstance(answer, Failure)), columns)


@dataclass(frozen=True)
class _Given:
    """What a party received, and how many bytes that was."""

    payload: Payload
    bytes: int


def _inputs(order: Order) -> Sequence[_Given]:
    """What each party receives. Arrays are read-only: parties of one process share them."""
    if order.each is None:
        return [_Given(payloads.read_only(order.payload), payloads.size(order.payload))] * len(order.parties)
    wholes = ({**order.payload, **extra} for extra in order.each)
    return [_Given(payloads.read_only(whole), payloads.size(whole)) for whole in wholes]


def _run_together(task: AnyTask, parties: Sequence[Party], inputs: Sequence[_Given], settings: Any,
                  stages: Sequence[Stage]) -> tuple[list[Reply | Failure], Payload | None]:
    """The vectorised form, with its columns where no stage changed them.

    Empty if there is none here, or if it failed and each must run alone to find the culprit.
    """
    if task.many is None or task.reveals is Reveals.ROWS:
        return [], None
    before = [dict(party.state) for party in parties]
    started = time.perf_counter()
    try:
        contents = task.many(parties, [given.payload for given in inputs], settings)
        sizes = contents.sizes() if isinstance(contents, Columns) and not stages and not fault_of_columns(
            task.reply, contents.content) else None
    except Exception:
        for party, state in zip(parties, before, strict=True):
            party.state = state
        return [], None
    if not contents:
        return [], None
    if len(contents) != len(parties):
        cause = f"the vectorised form of task '{task.name}' gave {len(contents)} replies for {len(parties)} parties"
        return [Failure(party.index, cause, "correct the task") for party in parties], None
    seconds = (time.perf_counter() - started) / max(len(parties), 1)
    if isinstance(contents, Columns) and sizes is not None:
        return [Reply(party.index, content, given.bytes, size, seconds)
                for party, given, content, size in zip(parties, inputs, contents, sizes, strict=True)], contents.content
    return [_answer(task, party, given, partial(_unchanged, content), stages, seconds)
            for party, given, content in zip(parties, inputs, contents, strict=True)], None


def _unchanged(content: Payload) -> Payload:
    return content


def _run_alone(task: AnyTask, party: Party, given: _Given, settings: Any, stages: Sequence[Stage]) -> Reply | Failure:
    work = _refuse if task.reveals is Reveals.ROWS and not party.settings.get("share_rows") else task.run
    return _answer(task, party, given, partial(work, party, given.payload, settings), stages)


def _refuse(party: Party, payload: Payload, settings: Any) -> Payload:
    raise PermissionDenied(f"party '{party.name}' was asked to hand over rows, and its settings do not allow that",
                           remedy=f"set overrides.{party.name}.share_rows = true if its owner consents")


def _answer(task: AnyTask, party: Party, given: _Given, work: Callable[[], Payload], stages: Sequence[Stage],
            seconds: float = 0.0) -> Reply | Failure:
    started = time.perf_counter()
    try:
        content = work()
        fault = fault_of(task.reply, content)
        if fault:
            raise PayloadError(f"task '{task.name}': {fault}", remedy="correct the task")
        for stage in stages:
            content = stage.send(party, content)
        up = payloads.size(content)
        return Reply(party.index, content, given.bytes, up, seconds + time.perf_counter() - started)
    except TequioError as cause:
        return Failure(party.index, cause.message, cause.remedy, traceback.format_exc(),
                       crossing(cause, party.columns), isinstance(cause, DivergedError))
    except Exception as cause:
        return Failure(party.index, described(cause), "", traceback.format_exc(), crossing(cause))
