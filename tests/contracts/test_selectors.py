"""Every selector picks eligible parties, the same ones for the same stream, and its memory can be saved."""

from __future__ import annotations

import numpy as np

from tequio.engines.inline import InlineEngine
from tequio.federation import payload as payloads
from tequio.federation.federation import Federation

from .subjects import every, make, population


def choose(name, eligible, seed=0, parties=6):
    people, engine = population(parties), InlineEngine()
    engine.open(people)
    federation = Federation(people, engine, seed=seed)
    return make("selector", name).choose(federation, np.asarray(eligible), {}, np.random.default_rng(seed))


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


@every("selector")
def test_its_memory_can_be_saved(name):
    memory = choose(name, range(6)).memory
    assert payloads.decode(payloads.encode(memory)).keys() == memory.keys()
