"""A federation whose parties hold updates, and an engine that loses or tampers with messages on their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from privacy.ways import population
from tequio.data.partition import Partition
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import state_name
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.updates import Held

if TYPE_CHECKING:
    from tequio.federation.exchange import Order, Outcome, Reply
    from tequio.federation.population import Population
    from tequio.federation.stages import Summed

Change = Callable[[Any], Any]
HELD = state_name(Held)


class Hostile(InlineEngine):
    """Loses parties at a phase, changes orders before they arrive and replies after they left; notes all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: dict[str, set[int]] = {}
        self.on_order: Callable[[Order], Order] = lambda order: order
        self.on_reply: Callable[[str, Reply], Reply] = lambda task, reply: reply
        self.seen: list[tuple[str, Reply]] = []

    def submit(self, order: Order) -> None:
        phase = order.task.rpartition(".")[2]
        stay = [place for place, party in enumerate(order.parties) if party not in self.lost.get(phase, ())]
        each = None if order.each is None else tuple(order.each[place] for place in stay)
        order = replace(order, parties=tuple(order.parties[place] for place in stay), each=each)
        super().submit(self.on_order(order))

    def collect(self) -> Outcome:
        task = self._waiting[0].task
        outcome = super().collect()
        replies = tuple(self.on_reply(task, reply) for reply in outcome.replies)
        self.seen += [(task, reply) for reply in replies]
        return replace(outcome, replies=replies)


def federation(vectors: list[np.ndarray], *, rules: Rules | None = None, name: str = "update",
               rows: Any = None) -> Federation:
    engine = Hostile()
    parties = population(len(vectors)) if rows is None else with_rows(rows)
    engine.open(parties)
    engine.restore({index: {HELD: {"round": 1, "vectors": {name: vector}}} for index, vector in enumerate(vectors)})
    made = Federation(parties, engine, rules=rules or Rules(on_failure="continue"))
    made.round = 1
    return made


def with_rows(rows: Any) -> Population:
    """Parties of so many rows each."""
    count, offsets = int(np.sum(rows)), np.concatenate([[0], np.cumsum(rows)])
    return replace(population(count), partition=Partition(np.arange(count), offsets))


def vectors(parties: int, size: int = 50, seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(size).astype(np.float32) for _ in range(parties)]


def total(federation: Federation, stage: Any, weights: Any = None, size: int = 50) -> Summed:
    parties = federation.everyone()
    weights = np.ones(len(parties)) if weights is None else np.asarray(weights, dtype=float)
    return stage.total(federation, parties, "update", weights, size)


def in_plain(given: list[np.ndarray], weights: Any, stage: Any, left: Any = None) -> np.ndarray:
    """The same fixed-point sum, in the open, of shares that the coordinator works out."""
    left = range(len(given)) if left is None else left
    ring = Ring.of(stage.bits, stage.largest, len(given))
    shares = np.asarray(weights, dtype=float) / np.sum(weights)
    encoded = [ring.encoded(given[index], float(shares[index])) for index in left]
    whole = ring.signed(np.sum(encoded, axis=0, dtype=ring.kind))
    return whole / (ring.scale * shares[list(left)].sum())


def by_themselves(given: list[np.ndarray], rows: Any, stage: Any, left: Any = None) -> np.ndarray:
    """The sum in integers of numpy where parties weigh themselves by their rows."""
    left, count = list(range(len(given)) if left is None else left), len(given)
    weights = np.clip(np.asarray(rows) / np.max(rows), 1 / 16, 1.0)
    scale = 2.0 ** np.floor(np.log2((2.0 ** (stage.bits - 1) * (1 - 2.0 ** -20) - count) / stage.largest))
    whole = sum(np.rint(given[party].astype(float) * (weights[party] / count * scale)).astype(np.int64)
                for party in left)
    unit = 2.0 ** (stage.bits - 2 - np.ceil(np.log2(count)))
    weight = sum(round(weights[party] / count * count * unit) for party in left) / unit
    return whole.astype(float) * (count / (scale * weight))
