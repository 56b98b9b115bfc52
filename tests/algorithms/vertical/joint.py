"""Small vertical federations, a vertical algorithm by hand, and an engine that keeps all that crosses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tequio.algorithms.vertical.rows import asked_rows, design
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.data.dataset import Dataset
from tequio.data.partitions.columns import Columns
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population
from tequio.federation.task import task


def people(rows=60, *, columns=4, target="classes", seed=0):
    """A learnable table whose ids are long random numbers, so that none turns up in a message by chance."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((rows, columns))
    score = features @ np.linspace(1.0, -2.0, columns) + 0.3 * draw.standard_normal(rows)
    kind = Target("classes", ("no", "yes")) if target == "classes" else Target("number")
    values = (score > 0).astype(np.int64) if target == "classes" else score
    ids = draw.choice(10**9, rows, replace=False) + 10**12
    return Dataset.of(Schema.of_numbers([f"c{place}" for place in range(columns)], kind), features, values, ids=ids)


def dealt(dataset=None, *, overlap=0.5, split=None, seed=0, **how):
    dataset = dataset or people()
    partition = Columns(overlap=overlap, **how).deal(dataset, np.random.default_rng(seed))
    return Population(dataset, partition, split or Split(validation=0.2, test=0.2), seed=seed)


class Transcript(InlineEngine):
    """The engine of this process, which keeps every message: (task, sender, receiver, payload)."""

    def __init__(self):
        super().__init__()
        self.messages: list[tuple[str, Any, Any, dict[str, Any]]] = []
        self._orders = []

    def submit(self, order):
        self._orders.append(order)
        super().submit(order)

    def collect(self):
        order, outcome = self._orders.pop(0), super().collect()
        own = order.each or ({},) * len(order.parties)
        for party, extra in zip(order.parties, own, strict=True):
            self.messages.append((order.task, "coordinator", party, {**order.payload, **extra}))
        for reply in outcome.replies:
            self.messages.append((order.task, reply.party, "coordinator", reply.payload))
        return outcome


def federation_of(population, *, seed=7, record=None, engine=None, **rules):
    engine = engine or Transcript()
    engine.open(population)
    return Federation(population, engine, seed=seed, rules=Rules(**rules), record=record or (lambda kind, facts: None))


def play(algorithm, federation, rounds=1):
    state = algorithm.start(federation)
    for _ in range(rounds):
        federation.round += 1
        state = algorithm.round(federation, state)
    return state


def values_in(payload):
    """Every array, text and number of a payload."""
    if isinstance(payload, dict):
        for value in payload.values():
            yield from values_in(value)
    elif isinstance(payload, list | tuple):
        for value in payload:
            yield from values_in(value)
    else:
        yield payload


def said(engine, *, skip=()):
    """(task, sender, receiver, value) of everything that crossed, but for some tasks."""
    return [(name, sender, receiver, value) for name, sender, receiver, payload in engine.messages if name not in skip
            for value in values_in(payload)]


def assert_no_ids(engine, population):
    """No id crosses in clear, as a number, as a text, or as raw bytes."""
    ids = {int(value) for value in population.dataset.ids}
    for name, _, _, value in said(engine):
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
            assert not ids & {int(entry) for entry in value.ravel()[np.isfinite(value.ravel())]}, name
        elif isinstance(value, str | bytes):
            text = value.encode() if isinstance(value, str) else value
            assert not any(str(identity).encode() in text or identity.to_bytes(8, "little") in text
                           for identity in ids), name
        elif not isinstance(value, np.ndarray):
            assert value not in ids, name


def assert_no_rows(engine, population, *, skip=()):
    """No column of any party crosses, whole or standardised: no message has one of its values at so many places."""
    features = np.asarray(population.dataset.features, dtype=np.float64)
    standard = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1)
    known = np.sort(np.unique(np.concatenate([features.ravel(), features.astype(np.float32).ravel(),
                                              standard.ravel()])))
    known = known[(known != np.rint(known))]
    for name, _, _, value in said(engine, skip=skip):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert not np.isin(value.astype(np.float64).ravel(), known).any(), name


def assert_no_labels(engine, population, state_of_label_holder, *, skip=()):
    """No message has the labels of the common rows, in the agreed order or in any order of its own but sorted."""
    rows = population.partition.view(population.dataset, 0).take(state_of_label_holder["rows"])
    labels = rows.target.astype(np.float64)
    shapes = [labels, 2 * labels - 1, 1 - labels]
    for name, sender, receiver, value in said(engine, skip=skip):
        flat = np.asarray(value, dtype=np.float64).ravel() if isinstance(value, np.ndarray) else np.empty(0)
        if len(flat) == len(labels):
            assert not any(np.allclose(flat, shape) for shape in shapes), (name, sender, receiver)


@task("joint.sum")
def add_up(party, payload, settings):
    return {"sum": design(party, asked_rows(party, payload)).sum(axis=1)}


@task("joint.keep")
def keep_sum(party, payload, settings):
    own = design(party, asked_rows(party, payload)).sum(axis=1)
    positive = 1 / (1 + np.exp(-(own + payload["others"])))
    party.state["scores"] = np.stack([1 - positive, positive], axis=1)
    return {}


@task("joint.be there")
def be_there(party, payload, settings):
    return {}


@dataclass(frozen=True, kw_only=True)
class JointSum(VerticalAlgorithm):
    """The sum of all standardised columns through a sigmoid: nothing is learnt, everything else happens."""

    def prepare(self, talk, state):
        return state

    def step(self, talk, state):
        talk.ask(talk.roles.holders, be_there)
        return state.next(steps=state.memory.get("steps", 0) + 1)

    def scores(self, talk, state, request):
        others, holder = talk.roles.others, talk.roles.label_holder
        told = talk.ask(others, add_up, each={party: request[party] for party in others}) if others else []
        rest = sum((reply.payload["sum"] for reply in told), np.zeros(1))
        talk.tell(holder, keep_sum, {**request[holder], "others": rest})
