"""How personal models answer: at the party, which alone has the private part, on its own rows or on rows sent to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import Dataset
from tequio.federation.rng import stream
from tequio.federation.task import task
from tequio.learners.metrics import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.task import Task
    from tequio.learners.learner import Arrays, Tally

    Settings = Mapping[str, Any]
    TallyOf = Callable[[Party, Payload, Dataset, Settings], Tally]
    ModelOf = Callable[[Party, Payload, Settings], Arrays]

_SCORED_PARTIES = 20


@dataclass(frozen=True)
class Inference:
    """Two tasks: tally a part of the party's own rows, and tally rows that the coordinator sends."""

    on_own: Task
    on_sent: Task

    def evaluate(self, federation: Federation, parties: NDArray[np.int64], payload: Payload,
                 settings: Settings) -> dict[int, Tally]:
        """Each party's tally on its own rows of `settings["part"]`."""
        replies = federation.ask(parties, self.on_own, payload, settings=settings)
        return {reply.party: reply.payload for reply in replies if reply.payload}

    def score(self, federation: Federation, rows: Dataset, payload: Payload, settings: Settings) -> Tally | None:
        """The mean over some eligible parties, the same ones in every round, as the sum of their tallies."""
        drawn = stream(federation.seed, "scored parties").permutation(federation.eligible())[:_SCORED_PARTIES]
        features = rows.features.toarray() if rows.is_sparse else rows.features
        sent = {**payload, "features": np.ascontiguousarray(features), "target": rows.target}
        replies = federation.ask(drawn, self.on_sent, sent, settings=settings)
        return merge([reply.payload for reply in replies]) if len(replies) else None


def inference(name: str, tally_of: TallyOf) -> Inference:
    """The tasks of an algorithm whose parties tally rows by `tally_of`."""

    @task(f"{name}: evaluate")
    def on_own(party: Party, payload: Payload, settings: Settings) -> Payload:
        rows: Dataset = getattr(party.data, settings["part"])
        return dict(tally_of(party, payload, rows, settings)) if len(rows) else {}

    @task(f"{name}: score")
    def on_sent(party: Party, payload: Payload, settings: Settings) -> Payload:
        rows = Dataset.of(party.data.train.schema, payload["features"], payload["target"], name="sent rows")
        return dict(tally_of(party, payload, rows, settings))

    return Inference(on_own, on_sent)


def by_model(name: str, model_of: ModelOf) -> Inference:
    """The tasks of an algorithm whose parties each answer with one model."""

    def tally_of(party: Party, payload: Payload, rows: Dataset, settings: Settings) -> Tally:
        tally: Tally = settings["learner"].evaluate(model_of(party, payload, settings), rows)
        return tally

    return inference(name, tally_of)


def own_or_received(party: Party, payload: Payload, settings: Settings) -> Arrays:
    """The party's own model; the received one for a party that has none yet."""
    own: Arrays | None = party.state.get("own_model")
    return payload["model"] if own is None else own
