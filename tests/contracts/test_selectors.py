"""Every selector picks eligible parties, the same ones for the same stream, and can be saved and gone on with."""

from __future__ import annotations

import numpy as np
import pytest

from parts import Parts
from tequio import registry
from tequio.engines.inline import InlineEngine
from tequio.engines.local import WorkerPool
from tequio.federation import payload as payloads
from tequio.federation.algorithm import State
from tequio.federation.federation import Federation, Rules
from tequio.federation.selection import SelectionContext
from tequio.learners.learner import LocalTraining
from tequio.registry import build

from .subjects import clock, every, make, population, table


def federation(engine=None, parties=6, seed=0, **rules):
    people = population(parties)
    if engine is None:
        engine = InlineEngine()
        engine.open(people)
    return Federation(people, engine, seed=seed, rules=Rules(**rules), validation=table(30, seed=9),
                      clock=clock(people, seed))


def parts(name):
    return Parts(build("learner", "logistic"), LocalTraining(batch=8), make("selector", name))


def choose(name, eligible, seed=0):
    asked = federation(seed=seed)
    model = build("learner", "logistic").initial(asked.schema, asked.rng("initial model"))
    context = SelectionContext(asked, np.asarray(eligible), {}, np.random.default_rng(seed), model,
                               build("learner", "logistic"), LocalTraining(batch=8))
    return make("selector", name).choose(context)


class Play:
    """Rounds of federated averaging with one selector, that can be saved and gone on with elsewhere."""

    def __init__(self, name, engine=None, **rules):
        self.federation, self.chosen = federation(engine, **rules), []
        self.federation.record = self.note
        self.algorithm = build("algorithm", "fedavg", parts=parts(name))
        self.state = self.algorithm.start(self.federation)

    def note(self, kind, facts):
        if kind == "selection":
            self.chosen.append(facts["parties"])

    def rounds(self, count):
        for _ in range(count):
            self.federation.round += 1
            self.state = self.algorithm.round(self.federation, self.state)
        return self

    def saved(self):
        return payloads.encode({"model": self.state.model, "memory": dict(self.state.memory),
                                "round": self.federation.round})

    def resumed_from(self, data):
        content = payloads.decode(data)
        self.state, self.federation.round = State(content["model"], content["memory"]), content["round"]
        return self


@pytest.fixture(scope="module")
def two_workers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tequio.engines.local._LIGHT_WORK", 0)  # the workers do everything, however little it is
        pool = WorkerPool(2)
        pool.open(population())
        yield pool
        pool.close()


@every("selector")
def test_it_chooses_some_eligible_parties_once_each(name):
    chosen = choose(name, [1, 3, 5]).parties
    assert 0 < len(chosen) <= 3
    assert set(chosen.tolist()) <= {1, 3, 5}
    assert len(set(chosen.tolist())) == len(chosen)


@every("selector")
def test_the_same_stream_gives_the_same_choice(name):
    assert choose(name, range(6), seed=4).parties.tolist() == choose(name, range(6), seed=4).parties.tolist()


@every("selector")
def test_one_eligible_party_is_chosen(name):
    assert choose(name, [1]).parties.tolist() == [1]


# `fixed` says by an error that none of the parties it names is there.
@pytest.mark.parametrize("name", [name for name in registry.names("selector") if name != "fixed"])
def test_nobody_is_chosen_where_nobody_can_be_reached(name):
    assert choose(name, np.zeros(0, dtype=np.int64)).parties.tolist() == []


@every("selector")
def test_resuming_changes_nothing(name):
    straight = Play(name).rounds(6).saved()
    assert Play(name).resumed_from(Play(name).rounds(3).saved()).rounds(3).saved() == straight


@every("selector")
def test_two_workers_give_what_one_process_gives(name, two_workers):
    assert Play(name, two_workers).rounds(5).saved() == Play(name).rounds(5).saved()


@every("selector")
def test_it_goes_on_when_half_of_the_parties_drop_out(name):
    play = Play(name, dropout=0.5, quorum=0.0).rounds(8)
    assert len(play.chosen) == 8
    assert all(chosen and set(chosen) <= set(range(6)) for chosen in play.chosen)


@every("selector")
def test_it_goes_on_when_everybody_drops_out(name):
    play = Play(name, dropout=1.0, quorum=0.0).rounds(4)
    assert all(chosen for chosen in play.chosen)
