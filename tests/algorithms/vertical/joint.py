"""Small vertical federations, a vertical algorithm by hand, and an engine that keeps all that crosses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contracts.transcripts import Transcript, assert_no_ids, assert_no_labels, assert_no_rows, keeping, kept, said
from tequio.algorithms.vertical.rows import KeptScores, asked_rows, design
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split
from tequio.data.partitions.columns import Columns
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population
from tequio.federation.task import Done, NoSettings, Reveals, task

__all__ = ["JointSum", "Transcript", "assert_no_ids", "assert_no_labels", "assert_no_rows", "dealt", "federation_of",
           "keeping", "kept", "people", "play", "said"]


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


@task("joint sum: add up", settings=NoSettings, reply=dict, reveals=Reveals.SCORES)
def add_up(party, payload, settings):
    return {"sum": design(party, asked_rows(party, payload)).sum(axis=1)}


@task("joint sum: keep", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def keep_sum(party, payload, settings):
    own = design(party, asked_rows(party, payload)).sum(axis=1)
    positive = 1 / (1 + np.exp(-(own + payload["others"])))
    party.keep(KeptScores, {"scores": np.stack([1 - positive, positive], axis=1)})
    return {}


@task("joint sum: be there", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
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
        talk.ask_one(holder, keep_sum, {**request[holder], "others": rest})
