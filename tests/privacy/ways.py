"""Parties that send updates through stages, without an engine: the party halves, the wire, the coordinator halves."""

from __future__ import annotations

from typing import Any

import numpy as np

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.federation import payload as payloads
from tequio.federation.exchange import Replies, Reply
from tequio.federation.population import Party, Population

Arrays = dict[str, np.ndarray]


def population(parties: int, seed: int = 0) -> Population:
    rows = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((parties, 1)), np.zeros(parties))
    return Population(rows, Partition(np.arange(parties), np.arange(parties + 1)), Split(0.0, 0.0), seed)


def updates(count: int, seed: int = 0, *, scale: float = 0.1) -> list[Arrays]:
    draw = np.random.default_rng(seed)
    return [{"weight": (scale * draw.standard_normal((40, 30))).astype(np.float32),
             "bias": (scale * draw.standard_normal(30)).astype(np.float32)} for _ in range(count)]


class Way:
    """The way of updates through stages, round after round, with the parties' states and the bytes that crossed."""

    def __init__(self, *stages: Any, parties: int = 3, seed: int = 0) -> None:
        self.stages, self.seed, self.round, self.bytes_up = stages, seed, 0, 0
        self.states: dict[int, dict[str, Any]] = {}
        self.population = population(parties, seed)

    def carry(self, updates: list[Arrays]) -> list[Arrays]:
        return [payload["update"] for payload in self.replies(updates).payloads]

    def replies(self, updates: list[Arrays]) -> Replies:
        self.round += 1
        answers = [Reply(index, self.sent(index, {"update": update, "rows": 1}))
                   for index, update in enumerate(updates)]
        replies = Replies(tuple(answers))
        for stage in reversed(self.stages):
            replies = stage.receive(replies, self.round, self.seed)
        return replies

    def sent(self, index: int, payload: dict[str, Any]) -> dict[str, Any]:
        party = Party(index, self.round, dict(self.states.get(index, {})), self.population)
        for stage in self.stages:
            payload = stage.send(party, payload)
        self.states[index] = party.state
        wire = payloads.encode(payload)
        assert len(wire) == payloads.size(payload)
        self.bytes_up += len(wire)
        return payloads.decode(wire)


def mean(updates: list[Arrays]) -> Arrays:
    return {name: np.mean([update[name] for update in updates], axis=0) for name in updates[0]}


def distance(one: Arrays, other: Arrays) -> float:
    return float(np.sqrt(sum(np.square(one[name].astype(float) - other[name]).sum() for name in one)))


def length(update: Arrays) -> float:
    return distance(update, {name: np.zeros_like(values) for name, values in update.items()})
