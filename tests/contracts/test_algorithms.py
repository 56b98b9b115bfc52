"""Every algorithm: same seed same bits, on one or two workers, through a save and a resume; survives one party."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tequio import registry
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.components import build
from tequio.engines.inline import InlineEngine
from tequio.engines.local import WorkerPool
from tequio.errors import ConfigError
from tequio.experiments.measuring import pooled
from tequio.federation import payload as payloads
from tequio.federation.algorithm import Parts, State
from tequio.federation.federation import Federation, Rules
from tequio.federation.selection import Choice
from tequio.learners.learner import LocalTraining
from tequio.learners.metrics import summarise

from .subjects import EXAMPLES, by_columns, categories, clock, every, labelled, population

# What an algorithm needs besides the defaults.
TOPOLOGIES = {"gossip": "parallel", "cyclic": "cyclic"}
LEARNERS = {"kmeans": "kmeans", "federated-id3": "id3", "fedrf": "random_forest", "simfl": "boosted_trees",
            "histogram-gbdt": "boosted_trees", "fedper": "mlp", "fedrep": "mlp", "fedbn": "torch",
            "xgboost-bagging": "xgboost", "xgboost-cyclic": "xgboost", "icdta4fl": "cart", "icdta4fl-plus": "cart",
            "secureboost": "boosted_trees", "vertical-forest": "random_forest",
            "mlfedavg": "mlp", "mlfedavg-alone": "mlp", "mlfedavg-plus": "mlp"}
MODULES = {"torch": {"module": "contracts.normalised:build", "arguments": {"inputs": 4, "outputs": 1}}}
ON_THE_CLOCK = {"fedasync", "fedbuff", "semisync", "hybridfl", "timing"}
ON_CATEGORIES = {"federated-id3"}
ON_LABELS = {"mlfedavg", "mlfedavg-alone", "mlfedavg-plus"}
ON_NUMBERS = {"vertical-linear"}
ONE_PARTY_ONLY = {"centralised"}
every_algorithm = every("algorithm")
every_federated = pytest.mark.parametrize(
    "name", [name for name in registry.names("algorithm") if name not in ONE_PARTY_ONLY])


def make(name):
    learner = LEARNERS.get(name, "logistic")
    if learner == "xgboost":
        pytest.importorskip("xgboost")
    parts = Parts(build("learner", learner, MODULES.get(learner) or EXAMPLES.get(("learner", learner))),
                  LocalTraining(epochs=2, batch=8, learning_rate=0.05))
    return build("algorithm", name, EXAMPLES.get(("algorithm", name)), parts={"parts": parts})


def is_vertical(name):
    return issubclass(registry.find("algorithm", name).component, VerticalAlgorithm)


def people(name, parties=6):
    if is_vertical(name):
        return by_columns(min(parties, 3), target="number" if name in ON_NUMBERS else "classes")
    data = categories() if name in ON_CATEGORIES else labelled() if name in ON_LABELS else None
    return population(1 if name in ONE_PARTY_ONLY else parties, data)


class Play:
    """A federation that can be played round by round, saved, and gone on with elsewhere."""

    def __init__(self, name, engine=None, **rules):
        self.algorithm, who = make(name), people(name)
        self.engine = engine or InlineEngine()
        if engine is None:
            self.engine.open(who)
        topology = build("topology", TOPOLOGIES.get(name, "client-server"))
        self.federation = Federation(who, self.engine, seed=7, rules=Rules(**rules), topology=topology,
                                     clock=clock(who) if name in ON_THE_CLOCK else None)
        self.state = self.algorithm.start(self.federation)

    def rounds(self, count):
        for _ in range(count):
            self.federation.round += 1
            self.state = self.algorithm.round(self.federation, self.state)
        return self

    def saved(self):
        return payloads.encode({"model": self.state.model, "memory": dict(self.state.memory),
                                "round": self.federation.round, "clock": self.time(),
                                "parties": {str(party): state for party, state in self.engine.states().items()}})

    def time(self):
        return self.federation.clock.to_plain() if self.federation.clock is not None else {}

    def resumed_from(self, data):
        content = payloads.decode(data)
        self.state = State(content["model"], content["memory"])
        self.federation.round = content["round"]
        if self.federation.clock is not None:
            self.federation.clock.restore(content["clock"])
        self.engine.restore({int(party): state for party, state in content["parties"].items()})
        return self


@pytest.fixture(scope="module")
def two_workers():
    """Two worker processes that serve whichever population an algorithm is played on."""
    pools = {}

    def serving(name):
        kind = (name in ON_CATEGORIES, name in ON_LABELS, name in ON_NUMBERS, is_vertical(name))
        if kind not in pools:
            pools[kind] = WorkerPool(2)
            pools[kind].open(people(name))
        pools[kind].restore({})
        return pools[kind]

    with pytest.MonkeyPatch.context() as patch:
        folders = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))  # where they find modules of this battery
        patch.setattr("tequio.engines.local._LIGHT_WORK", 0)  # the workers do everything, however little it is
        yield serving
    for pool in pools.values():
        pool.close()


@every_algorithm
def test_same_seed_same_bits(name):
    assert Play(name).rounds(2).saved() == Play(name).rounds(2).saved()


@every_algorithm
def test_resuming_changes_nothing(name):
    straight = Play(name).rounds(3).saved()
    assert Play(name).resumed_from(Play(name).rounds(1).saved()).rounds(2).saved() == straight


@every_federated
def test_two_workers_give_what_one_process_gives(name, two_workers):
    assert Play(name, two_workers(name)).rounds(2).saved() == Play(name).rounds(2).saved()


@every_algorithm
def test_one_party_is_enough(name):
    algorithm, who, engine = make(name), people(name, parties=1), InlineEngine()
    engine.open(who)
    federation = Federation(who, engine, seed=7, topology=build("topology", TOPOLOGIES.get(name, "client-server")),
                            clock=clock(who) if name in ON_THE_CLOCK else None)
    state = algorithm.start(federation)
    federation.round = 1
    state = algorithm.round(federation, state)
    assert payloads.size(algorithm.result(state)) > 0


@every_federated
def test_it_goes_on_when_half_of_the_parties_drop_out(name):
    play = Play(name, dropout=0.5, quorum=0.0, on_failure="continue").rounds(4)
    assert np.isfinite(payloads.size(play.algorithm.result(play.state)))


@every_algorithm
def test_parties_and_coordinator_can_score_it(name):
    play = Play(name).rounds(2)
    target = play.federation.schema.target
    by_party = play.algorithm.evaluate(play.federation, play.state, "test", play.federation.everyone())
    whole = play.algorithm.score(play.federation, play.state, play.federation.population.dataset)
    for tally in (*by_party.values(), whole):
        if tally:
            assert all(np.isfinite(value) or value != value for value in summarise(target, tally).values())
    if by_party:
        assert pooled(play.federation, by_party)["rows"] == sum(tally["rows"] for tally in by_party.values())


@dataclass(frozen=True)
class Watching:
    """A selector that counts what it is shown."""

    def choose(self, turn):
        return Choice(turn.eligible, {"chosen": turn.memory.get("chosen", 0) + 1, "seen": turn.memory.get("seen", 0)})

    def observe(self, turn, consequence):
        assert len(consequence.replies) == len(turn.eligible)
        return {**turn.memory, "seen": turn.memory["seen"] + 1}


@every_algorithm
def test_a_selector_sees_what_came_of_its_choice_or_is_refused(name):
    play = Play(name)
    play.algorithm = replace(play.algorithm, parts=replace(play.algorithm.parts, selector=Watching()))
    try:
        memory = play.rounds(3).state.memory.get("selector", {})
    except ConfigError as error:
        assert name in error.message
        assert "nothing to show" in error.message
    else:
        assert memory.get("seen") == memory.get("chosen")
