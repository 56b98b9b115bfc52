"""Every algorithm: same seed same bits, on one or two workers, through a save and a resume; survives one party, and
parties that do not keep to what a task declares."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import is_typeddict

import numpy as np
import pytest

from tequio import registry
from tequio.algorithms.baselines.timing import TimingOnly
from tequio.algorithms.trees.icdta4fl import TreeFusion
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.engines.inline import InlineEngine
from tequio.engines.local import WorkerPool
from tequio.errors import ConfigError, DataError, TequioError
from tequio.experiments.config.complete import complete
from tequio.experiments.running.measuring import pooled
from tequio.federation import payload as payloads
from tequio.federation.algorithm import State, part_types, with_parts
from tequio.federation.federation import Federation, Rules
from tequio.federation.selection import Choice, Selector
from tequio.federation.task import Reveals, Sums, installed_tasks
from tequio.learners.metrics import summarise
from tequio.registry import build

from .runs import config_of
from .subjects import by_columns, categories, clock, every, labelled, make, population

# What an algorithm needs besides the defaults.
TOPOLOGIES = {"gossip": "parallel", "cyclic": "cyclic"}
ON_THE_CLOCK = {"fedasync", "fedbuff", "semisync", "hybridfl", "timing"}
ON_CATEGORIES = {"federated-id3"}
ON_LABELS = {"mlfedavg", "mlfedavg-alone", "mlfedavg-plus"}
ON_NUMBERS = {"vertical-linear", "vertical-poisson"}
ONE_PARTY_ONLY = {"centralised"}
TWO_PARTIES_AT_LEAST = {"transfer"}
ALGORITHMS = registry.names("algorithm")
every_algorithm = every("algorithm")
every_federated = pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ONE_PARTY_ONLY])


def component(name):
    return registry.find("algorithm", name).component


def is_vertical(name):
    return issubclass(component(name), VerticalAlgorithm)


def people(name, parties=6):
    if is_vertical(name):
        return by_columns(min(parties, 3), target="count" if name == "vertical-poisson" else
                          "number" if name in ON_NUMBERS else "classes")
    data = categories() if name in ON_CATEGORIES else labelled() if name in ON_LABELS else None
    return population(1 if name in ONE_PARTY_ONLY else parties, data)


class Play:
    """A federation that can be played round by round, saved, and gone on with elsewhere."""

    def __init__(self, name, engine=None, parties=6, **rules):
        self.algorithm, who = make("algorithm", name), people(name, parties)
        self.engine, self.events = engine or InlineEngine(), []
        if isinstance(self.engine, InlineEngine):
            self.engine.open(who)
        self.federation = Federation(
            who, self.engine, seed=7, rules=Rules(**rules),
            topology=build("topology", TOPOLOGIES.get(name, "client-server")),
            clock=clock(who) if name in ON_THE_CLOCK else None, record=lambda *event: self.events.append(event))
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

    def made(self):
        """All arrays that came of it: in the model, or in what the parties keep where there is no common one."""
        return list(arrays_in(self.algorithm.result(self.state))) or list(arrays_in(self.engine.states()))


def arrays_in(value):
    if isinstance(value, np.ndarray):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from arrays_in(part)


def is_sound(play):
    """Something came of it, in which every number is one. Rules may be open towards one end."""
    if isinstance(play.algorithm, TimingOnly):
        return play.federation.clock.now > 0
    wrong = np.isnan if isinstance(play.algorithm, TreeFusion) else lambda array: ~np.isfinite(array)
    arrays = play.made()
    return any(array.size for array in arrays) and not any(
        wrong(array).any() for array in arrays if array.dtype.kind == "f")


@pytest.fixture(scope="module")
def two_workers():
    """Two worker processes that serve whichever population an algorithm is played on."""
    pools = {}

    def serving(name):
        kind = (name in ON_CATEGORIES, name in ON_LABELS, name in ON_NUMBERS, name == "vertical-poisson",
                is_vertical(name))
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


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in TWO_PARTIES_AT_LEAST])
def test_one_party_is_enough(name):
    if name == "meta":
        with pytest.raises(DataError, match="one study is no meta-analysis"):
            Play(name, parties=1).rounds(1)
        return
    assert is_sound(Play(name, parties=1).rounds(1))


@every_federated
def test_it_goes_on_when_half_of_the_parties_drop_out(name):
    play = Play(name, dropout=0.5, quorum=0.0, on_failure="continue").rounds(4)
    assert is_sound(play)
    assert sum(facts["dropped"] for kind, facts in play.events if kind == "exchange") + (
        play.federation.clock.totals.lost if play.federation.clock else 0) > 0


@every_algorithm
def test_parties_and_coordinator_can_score_it(name):
    play = Play(name).rounds(2)
    target = play.federation.schema.target
    by_party = play.algorithm.evaluate(play.federation, play.state, "test", play.federation.everyone())
    whole = play.algorithm.score(play.federation, play.state, play.federation.population.dataset)
    together = pooled(play.federation, by_party) if by_party else None
    # Over all rows every metric has a value; over one party's few rows only those do that need no class to be there.
    for tally in filter(None, (together, whole)):
        assert all(np.isfinite(value) for value in summarise(target, tally).values())
    for tally in by_party.values():
        found = summarise(target, tally)
        assert found
        assert {key for key, value in found.items() if not np.isfinite(value)} <= {"auc"}
    if together is not None:
        assert together["rows"] == sum(tally["rows"] for tally in by_party.values()) > 0


# --- selectors that learn ---


@dataclass(frozen=True)
class Watching(Selector):
    """A selector that counts what it is shown."""

    def choose(self, context):
        known = context.memory
        return Choice(context.eligible, {"chosen": known.get("chosen", 0) + 1, "seen": known.get("seen", 0)})

    def observe(self, context, outcome):
        assert len(outcome.replies) == len(context.eligible)
        return {**context.memory, "seen": context.memory["seen"] + 1}


SELECTING = [name for name in ALGORITHMS if "selector" in part_types(component(name))]


@pytest.mark.parametrize("name", [name for name in SELECTING if component(name).shows_replies])
def test_a_selector_sees_what_came_of_its_choice(name):
    play = Play(name)
    play.algorithm = with_parts(play.algorithm, selector=Watching())
    memory = play.rounds(3).state.memory["selector"]
    assert memory["seen"] == memory["chosen"] > 0  # some algorithms are done after one round


@pytest.mark.parametrize("name", [name for name in SELECTING if not component(name).shows_replies])
def test_a_selector_that_would_see_nothing_is_refused(name):
    config = {**config_of(name), "data": {"name": "iris"}}
    complete({**config, "selector": "random"})
    with pytest.raises(ConfigError, match=f"'{name}' has nothing to show"):
        complete({**config, "selector": "oort"})


# --- what a task declares ---


def test_every_task_declares_what_it_takes_gives_and_reveals():
    ours = [task for task in installed_tasks() if task.run.__module__.startswith("tequio.")]
    assert len(ours) > 50
    for task in ours:
        assert task.settings.__dataclass_params__.frozen, task.name
        assert isinstance(task.reveals, Reveals | Sums), task.name
        assert task.reply is not dict, task.name


class Tampering(InlineEngine):
    """One party whose answers are changed on their way, once it has something of the wanted kind to say."""

    def __init__(self, change):
        super().__init__()
        self.change, self.guilty, self.task = change, None, ""

    def submit(self, order):
        self.task = order.task
        super().submit(order)

    def collect(self):
        outcome = super().collect()
        answers = [self._changed(reply) for reply in outcome.replies]
        return replace(outcome, replies=tuple(answers), columns=None)

    def _changed(self, reply):
        if self.guilty is not None or not is_typeddict(registry_of_tasks()[self.task].reply):
            return reply
        changed = self.change(dict(reply.payload))
        if changed is None:
            return reply
        self.guilty = reply.party
        return replace(reply, payload=changed)


def registry_of_tasks():
    return {task.name: task for task in installed_tasks()}


def surplus(payload):
    return {**payload, "surplus": 1}


def missing(payload):
    return {key: value for key, value in payload.items() if key != next(iter(payload))} if payload else None


def negative_count(payload):
    return {**payload, "rows": -1} if isinstance(payload.get("rows"), int) else None


def wrong_shape(payload):
    """An update (named arrays) or a single array gets a shape that nobody else has."""
    for key, value in payload.items():
        if isinstance(value, dict) and value and all(isinstance(part, np.ndarray) for part in value.values()):
            first = next(iter(value))
            return {**payload, key: {**value, first: np.zeros((2, 7, 3))}}
    return None


# Algorithms whose parties send nothing of the kind that is changed; all others have to notice.
WITHOUT = {"surplus": {"timing"}, "missing": {"timing"},
           "negative_count": {"federated-id3", "fedrf", "histogram-gbdt", "kmeans", "secureboost", "simfl", "fedgbdt",
                              "glm", "penalised-glm", "cox", "effect", "kaplan-meier", "log-rank",
                              "statistics", "timing", "vertical-forest", "vertical-linear", "vertical-logistic",
                              "vertical-poisson", "voting", "ask", "test", "meta"},
           "wrong_shape": {"meta", "alone", "fedrf", "icdta4fl", "icdta4fl-plus", "icdta4fl-own", "mlfedavg-alone",
                           "statistics", "timing", "xgboost-bagging", "xgboost-cyclic"}}


@pytest.mark.parametrize("change", [surplus, missing, negative_count, wrong_shape], ids=lambda change: change.__name__)
@every_federated
def test_a_bad_reply_fails_its_party_by_name(name, change):
    engine = Tampering(change)
    try:
        Play(name, engine).rounds(2)
    except TequioError as error:
        assert f"party '{people(name).name(engine.guilty)}'" in str(error)
    else:
        assert engine.guilty is None, f"nobody minded what party {engine.guilty} sent"
        assert name in WITHOUT[change.__name__]


@pytest.mark.parametrize("change", [surplus, missing, negative_count, wrong_shape], ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ONE_PARTY_ONLY and not is_vertical(name)])
def test_the_others_go_on_without_a_party_that_sends_bad_replies(name, change):
    engine = Tampering(change)
    play = Play(name, engine, on_failure="continue", quorum=0.0).rounds(2)
    if engine.guilty is not None:
        assert [facts["party"] for kind, facts in play.events if kind == "failure"] == [str(engine.guilty)]
