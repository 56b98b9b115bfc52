"""What the coordinator's process and its workers tell each other: orders with states, and what came of them."""

from __future__ import annotations

import traceback
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tequio.errors import EngineError
from tequio.federation.columns import from_columns, to_columns
from tequio.federation.exchange import Failure, Order, Outcome, Reply
from tequio.federation.execution import execute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.payload import Payload
    from tequio.federation.population import Population

Message = dict[str, Any]


def tell(order: Order, states: Mapping[int, Payload]) -> Message:
    """An order with the states of its parties, without the payload that all orders of one ask have in common."""
    plain = {"ticket": order.ticket, "task": order.task, "parties": list(order.parties), "round": order.round,
             "settings": order.settings, "stages": list(order.stages),
             "each": None if order.each is None else list(order.each)}
    return {"order": plain, "states": [[party, states[party]] for party in order.parties if party in states]}


def answer(message: Message, population: Population) -> Message:
    """Do at a worker what it was told: the outcome, with the states that changed."""
    order = Order(**{**message["order"], "parties": tuple(message["order"]["parties"]), "payload": message["payload"]})
    before = dict(message["states"])
    states = dict(before)
    try:
        outcome = execute(order, population, states)
    except Exception as cause:
        return {"ticket": order.ticket, "error": f"{type(cause).__name__}: {cause}", "trace": traceback.format_exc()}
    changed = [[party, state] for party, state in states.items() if not _same(state, before.get(party))]
    return {"ticket": order.ticket, "states": changed, "count": len(outcome.replies), "replies": _columns(outcome),
            "failures": [asdict(failure) for failure in outcome.failures]}


def hear(message: Message, order: Order, states: dict[int, Payload]) -> Outcome:
    """A worker's answer to an order; `states` gains what changed."""
    if "error" in message:
        raise EngineError(f"task '{order.task}' could not be run by a worker: {message['error']}",
                          remedy="install what it needs where the workers run, or use engine.workers = 1")
    states.update(dict(message["states"]))
    replies = from_columns(message["replies"], message["count"]) if message["count"] else []
    columns = message["replies"].get("payload")
    return Outcome(message["ticket"], tuple(Reply(**reply) for reply in replies),
                   tuple(Failure(**failure) for failure in message["failures"]),
                   columns if isinstance(columns, dict) else None)


def _columns(outcome: Outcome) -> Message:
    """The replies column by column, with their payloads as they lie in memory if they already do so."""
    if not outcome.replies:
        return {}
    rest = to_columns([{**vars(reply), "payload": None} for reply in outcome.replies])
    payloads = outcome.columns or to_columns([reply.payload for reply in outcome.replies])
    return {**rest, "payload": payloads}


def _same(after: Payload, before: Payload | None) -> bool:
    return before is not None and after.keys() == before.keys() and all(after[key] is before[key] for key in after)
