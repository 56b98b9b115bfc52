"""Small federations on which tree algorithms can be checked exactly, and parties that misbehave."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation import task as tasks
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import PartyData, Population, state_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.population import Party
    from tequio.federation.task import Task

M = TypeVar("M")

NO_SPLIT = Split(validation=0.0, test=0.0)
CONTINUE = Rules(on_failure="continue", quorum=0.0)


def categories(codes: Any, labels: Any, *, sizes: Sequence[int] = (), classes: int = 0) -> Dataset:
    codes, labels = np.asarray(codes), np.asarray(labels)
    sizes = sizes or (codes.max(axis=0) + 1).tolist()
    features = tuple(Feature(f"c{column}", tuple(f"v{value}" for value in range(size)))
                     for column, size in enumerate(sizes))
    names = tuple(f"k{label}" for label in range(classes or labels.max() + 1))
    return Dataset.of(Schema(features, Target("classes", names)), codes, labels)


def numbers(features: Any, target: Any, classes: int | None = None) -> Dataset:
    """Numeric columns with classes, or (classes None) with numbers to predict."""
    features, target = np.asarray(features, dtype=np.float64), np.asarray(target)
    kind = Target("number") if classes is None else Target("classes", tuple(f"k{label}" for label in range(classes)))
    return Dataset.of(Schema.of_numbers([f"x{column}" for column in range(features.shape[1])], kind), features, target)


def blobs(rows: int = 240, classes: int | None = 2, columns: int = 4, seed: int = 0) -> Dataset:
    """A learnable table that no single split explains."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(rows, columns))
    score = features[:, 0] * features[:, 1] + features[:, 2] + 0.1 * draw.normal(size=rows)
    if classes is None:
        return numbers(features, score)
    return numbers(features, np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)), classes)


def federation(data: Dataset, parts: Sequence[Any] | int, *, seed: int = 0, rules: Rules | None = None,
               split: Split = NO_SPLIT, overrides: Mapping[int, Mapping[str, Any]] | None = None) -> Federation:
    """Party i holds the rows of entry i, or that many parties equal shares in turn."""
    if isinstance(parts, int):
        parts = [np.arange(party, len(data), parts) for party in range(parts)]
    population = Population(data, Partition.of([np.asarray(rows, dtype=np.int64) for rows in parts]), split, seed,
                            overrides or {})
    engine = InlineEngine()
    engine.open(population)
    return Federation(population, engine, seed, rules or Rules())


def run(algorithm: Algorithm, federation: Federation, rounds: int = 1) -> State:
    state = algorithm.start(federation)
    for _ in range(rounds):
        state = one_more(algorithm, federation, state)
    return state


def one_more(algorithm: Algorithm, federation: Federation, state: State) -> State:
    federation.round += 1
    return algorithm.round(federation, state)


def exchanges(federation: Federation) -> list[dict[str, Any]]:
    """Facts of every exchange from now on."""
    facts: list[dict[str, Any]] = []
    federation.record = lambda kind, fact: facts.append(fact) if kind == "exchange" else None
    return facts


@contextmanager
def replies_changed(task: Task, change: Callable[[Party, dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
    """While it lasts, what parties reply to a task goes through `change` first, and no party checks it."""

    def changed(party: Party, payload: Any, settings: Any) -> dict[str, Any]:
        return change(party, task.run(party, payload, settings))

    tasks._tasks[task.name] = replace(task, run=changed, many=None, reply=dict)
    try:
        yield
    finally:
        tasks._tasks[task.name] = task


def spoilt_at(party: int, reply: dict[str, Any]) -> Callable[[Party, dict[str, Any]], dict[str, Any]]:
    """One party sends this instead of its reply."""
    return lambda who, honest: {**honest, **reply} if who.index == party else honest


def with_columns_of(federation: Federation, party: int, columns: Sequence[int]) -> None:
    """Give one party its columns in another order, under their right names."""
    own = federation.population.view(party)
    mixed = {part: getattr(own, part).select(columns) for part in ("train", "validation", "test")}
    federation.population._views[party] = PartyData(**mixed)


def kept(federation: Federation, kind: type[M]) -> dict[int, M]:
    """What each party keeps privately under a typed record."""
    return {party: state.get(state_name(kind), {}) for party, state in federation.engine.states().items()}


def same_payload(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """The same names with equal content, bit for bit."""
    return first.keys() == second.keys() and all(
        np.array_equal(value, second[name]) and np.asarray(value).dtype == np.asarray(second[name]).dtype
        for name, value in first.items())
