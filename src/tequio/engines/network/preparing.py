"""Preparation of rows that are elsewhere: parties fit a step on their training rows, the coordinator merges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.data.preprocessing import preparations
from tequio.errors import PartyError
from tequio.federation.exchange import Order
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.preprocessing import Statistics
    from tequio.federation.exchange import Engine
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


@task("fit preparation")
def fit_preparation(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The statistics of the last step on this party's training rows, after the steps before it."""
    *before, last = preparations(settings["steps"])
    rows = party.data.train
    for step, statistics in zip(before, payload["statistics"], strict=True):
        rows = step.apply(rows, statistics)
    return {"statistics": last.fit(rows)}


def fit_everywhere(engine: Engine, names: Sequence[str], steps: Sequence[Any]) -> list[Statistics]:
    """The merged statistics of each step over the training rows of all parties: those of the pooled rows."""
    found: list[Statistics] = []
    for ticket, step in enumerate(preparations(steps), 1):
        engine.submit(Order(ticket, fit_preparation.name, tuple(range(len(names))), 0, {"statistics": list(found)},
                            {"steps": list(steps[:ticket])}))
        outcome = engine.collect()
        for failure in outcome.failures:
            name = names[failure.party]
            raise PartyError(f"party '{name}' could not prepare its rows: {failure.cause}", party=name, round=0,
                             task=fit_preparation.name, cause=failure.cause, remedy=failure.remedy)
        found.append(step.merge([reply.payload["statistics"] for reply in outcome.replies]))
    return found
