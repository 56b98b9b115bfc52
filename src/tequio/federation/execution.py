"""What happens at a party when an order arrives. Every engine calls this one function, so all give the same numbers."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tequio.components import from_plain
from tequio.errors import PermissionDenied, TequioError
from tequio.federation import payload as payloads
from tequio.federation.columns import Columns
from tequio.federation.exchange import Failure, Outcome, Reply
from tequio.federation.party import Party
from tequio.federation.rng import Streams
from tequio.federation.task import find_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tequio.federation.exchange import Order
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population
    from tequio.federation.stages import Stage
    from tequio.federation.task import Task

    States = dict[int, Payload]


def execute(order: Order, population: Population, states: States, seed: int | None = None) -> Outcome:
    """Run an order's task at its parties. `states` gains the new state of every party that succeeded.

    Random streams of the round come from the population's seed, or from another one that the party wants for this task.
    """
    task = find_task(order.task)
    settings = from_plain(order.settings)
    stages = [from_plain(stage) for stage in order.stages]
    streams = Streams(population.seed if seed is None else seed, order.round, order.parties)
    parties = [Party(index, order.round, dict(states.get(index, ())), population, streams) for index in order.parties]
    inputs = _inputs(order)
    for stage in stages:
        for party in parties if hasattr(stage, "enter") else ():
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


def _run_together(task: Task, parties: Sequence[Party], inputs: Sequence[_Given], settings: Any,
                  stages: Sequence[Stage]) -> tuple[list[Reply | Failure], Payload | None]:
    """The vectorised form, with its columns where no stage changed them.

    Empty if there is none here, or if it failed and each must run alone to find the culprit.
    """
    if task.many is None or task.shares_rows:
        return [], None
    before = [dict(party.state) for party in parties]
    started = time.perf_counter()
    try:
        contents = task.many(parties, [given.payload for given in inputs], settings)
        sizes = contents.sizes() if isinstance(contents, Columns) and not stages else None
    except Exception:
        for party, state in zip(parties, before, strict=True):
            party.state = state
        return [], None
    if not contents:
        return [], None
    if len(contents) != len(parties):
        cause = f"the vectorised form of task '{task.name}' gave {len(contents)} replies for {len(parties)} parties"
        return [Failure(party.index, cause, "mend the task") for party in parties], None
    seconds = (time.perf_counter() - started) / max(len(parties), 1)
    if isinstance(contents, Columns) and sizes is not None:
        return [Reply(party.index, content, given.bytes, size, seconds)
                for party, given, content, size in zip(parties, inputs, contents, sizes, strict=True)], contents.content
    return [_answer(party, given, partial(_unchanged, content), stages, seconds)
            for party, given, content in zip(parties, inputs, contents, strict=True)], None


def _unchanged(content: Payload) -> Payload:
    return content


def _run_alone(task: Task, party: Party, given: _Given, settings: Any, stages: Sequence[Stage]) -> Reply | Failure:
    work = _refuse if task.shares_rows and not party.settings.get("share_rows") else task.run
    return _answer(party, given, partial(work, party, given.payload, settings), stages)


def _refuse(party: Party, payload: Payload, settings: Any) -> Payload:
    raise PermissionDenied(f"party '{party.name}' was asked to hand over rows, and its settings do not allow that",
                           remedy=f"set overrides.{party.name}.share_rows = true if its owner consents")


def _answer(party: Party, given: _Given, work: Callable[[], Payload], stages: Sequence[Stage],
            seconds: float = 0.0) -> Reply | Failure:
    started = time.perf_counter()
    try:
        content = work()
        for stage in stages:
            content = stage.send(party, content)
        up = payloads.size(content)
        return Reply(party.index, content, given.bytes, up, seconds + time.perf_counter() - started)
    except TequioError as cause:
        return Failure(party.index, cause.message, cause.remedy, traceback.format_exc())
    except Exception as cause:
        return Failure(party.index, f"{type(cause).__name__}: {cause}", "", traceback.format_exc())
