"""Parties with ids, and a coordinator that carries their messages and may alter them on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tequio.algorithms.vertical.conversation import Conversation, Roles
from tequio.algorithms.vertical.intersecting import intersect
from tequio.algorithms.vertical.intersection import CommonInOrder
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population, state_name


class Carrier(InlineEngine):
    """Carries messages one party at a time. `alter` may change what reaches a party: (task, party, payload) -> payload;
    `listen` sees every reply."""

    def __init__(self, alter=None, listen=None):
        super().__init__()
        self.alter, self.listen = alter, listen

    def submit(self, order):
        own = order.each or ({},) * len(order.parties)
        wholes = [{**order.payload, **extra} for extra in own]
        if self.alter is not None:
            wholes = [self.alter(order.task, party, whole) for party, whole in zip(order.parties, wholes, strict=True)]
        super().submit(replace(order, payload={}, each=tuple(wholes)))

    def collect(self):
        outcome = super().collect()
        if self.listen is not None:
            for reply in outcome.replies:
                self.listen(reply.party, reply.payload)
        return outcome


def parties_with(*ids, settings=None):
    """A population whose parties hold these ids, in this order, and a column each."""
    known = [np.asarray(each) for each in ids]
    every = np.concatenate(known)
    features = np.zeros((len(every), len(known)), np.float32)
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in known])])
    dataset = Dataset.of(Schema.of_numbers([f"c{place}" for place in range(len(known))], Target("none")), features,
                         ids=every)
    partition = Partition(np.arange(len(every)), offsets, tuple(f"p{place}" for place in range(len(known))),
                          tuple(np.array([place]) for place in range(len(known))),
                          tuple(place == 0 for place in range(len(known))))
    return Population(dataset, partition, Split(0.0, 0.0), seed=3,
                      overrides={party: {"psi": limits} for party, limits in (settings or {}).items()})


def talking(population, engine=None):
    """A conversation of the coordinator with these parties."""
    engine = engine or Carrier()
    engine.open(population)
    holders = tuple(range(len(population)))
    federation = Federation(population, engine, seed=5, rules=Rules(), record=lambda kind, facts: None)
    federation.round = 1
    return Conversation(federation, Roles(0, holders))


def common_ids(*ids, compare=(), engine=None, **more):
    """What each party finds to be common, as its own ids in the common order."""
    population = parties_with(*ids, **more)
    talk = talking(population, engine)
    intersect(talk, compare)
    states = talk.federation.engine.states()
    return [population.whole(party).ids[states[party][state_name(CommonInOrder)]["rows"]]
            for party in range(len(population))]
