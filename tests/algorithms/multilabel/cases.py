"""Small federations of parties that know different labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parts import Parts
from tequio.algorithms.multilabel.heads import OwnNetworks
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population, state_name
from tequio.learners.learner import LocalTraining
from tequio.learners.zoo import MLP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.algorithm import State

LOCAL = LocalTraining(batch=8, optimizer="adam", learning_rate=0.01)
SPLIT = Split(validation=0.2, test=0.2, stratify=False)
SETS = ((0, 1, 2), (3,), (4, 5))
SIZES = (50, 40, 60)


def dataset(rows: int = 150, labels: int = 6, features: int = 7, seed: int = 0) -> Dataset:
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((rows, features)).astype(np.float32)
    truth = values @ draw.standard_normal((features, labels)) + 0.3 * draw.standard_normal((rows, labels)) > 0.4
    schema = Schema.of_numbers((f"x{column}" for column in range(features)),
                               Target("multilabel", tuple(f"l{label}" for label in range(labels))))
    return Dataset.of(schema, values, truth.astype(np.int8))


def population(sets: Sequence[Sequence[int]] = SETS, sizes: Sequence[int] = SIZES, data: Dataset | None = None,
               split: Split = SPLIT, seed: int = 3) -> Population:
    data = data or dataset(sum(sizes))
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return Population(data, Partition.of(rows, labels=tuple(np.array(own) for own in sets)), split, seed)


class Spy(InlineEngine):
    """An engine that keeps every payload that crosses, in either direction."""

    def __init__(self) -> None:
        super().__init__()
        self.crossed: list[Any] = []

    def submit(self, order: Any) -> None:
        self.crossed.append(order.payload)
        super().submit(order)

    def collect(self) -> Any:
        outcome = super().collect()
        self.crossed.extend(reply.payload for reply in outcome.replies)
        return outcome


def federation(who: Population | None = None, **rules: Any) -> Federation:
    who, engine = who or population(), Spy()
    engine.open(who)
    return Federation(who, engine, seed=3, rules=Rules(**rules))


def parts(local: LocalTraining = LOCAL, hidden: tuple[int, ...] = (9, 5), **more: Any) -> dict[str, Any]:
    return Parts(learner=MLP(hidden=hidden), local=local, **more)


def play(algorithm: Any, who: Federation, rounds: int) -> State:
    state = algorithm.start(who)
    for _ in range(rounds):
        who.round += 1
        state = algorithm.round(who, state)
    return state


def states(who: Federation) -> dict[int, Any]:
    """The networks that each party keeps."""
    return {party: kept[state_name(OwnNetworks)] for party, kept in who.engine.states().items()}


def arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [array for part in inner for array in arrays_in(part)]


def names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {name for part in value.values() for name in names_in(part)}
    return {name for part in value for name in names_in(part)} if isinstance(value, list | tuple) else set()
