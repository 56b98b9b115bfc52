"""Every attack: changes only hostile parties, keeps shapes and types, is the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.attack import Circumstances
from tequio.attacks.hostility import MOVED, Hostility, Schedule
from tequio.federation.exchange import Replies, Reply
from tequio.federation.population import Party

from .subjects import every, make, population

every_attack = every("attack")
NOW = Circumstances(round=3, hostile=2, parties=6)


def update(seed):
    draw = np.random.default_rng(seed)
    return {"w": draw.standard_normal((3, 2)).astype(np.float32), "b": draw.standard_normal(2)}


def attacked(name):
    """What six parties send when two of them are hostile, and what they trained on."""
    people = population()
    hostility = Hostility.of(make("attack", name), Schedule(parties=("1", "4")), people)
    answers, trained = [], []
    for index in range(6):
        party = Party(index, 3, {}, people)
        hostility.enter(party)
        trained.append(party.data.train)
        answers.append(Reply(index, hostility.send(party, {"update": update(index), "rows": 5})))
    replies = hostility.receive(Replies(tuple(answers)), 3, seed=0)
    return people, trained, [reply.payload for reply in replies]


@every_attack
def test_honest_parties_are_left_alone(name):
    people, trained, sent = attacked(name)
    for index in (0, 2, 3, 5):
        assert trained[index] is people.view(index).train
        assert sent[index]["rows"] == 5
        for key, values in update(index).items():
            np.testing.assert_array_equal(sent[index]["update"][key], values)


@every_attack
def test_hostile_parties_do_something_that_looks_like_an_update(name):
    people, trained, sent = attacked(name)
    for index in (1, 4):
        own = update(index)
        assert {key: (values.shape, values.dtype) for key, values in sent[index]["update"].items()} == \
            {key: (values.shape, values.dtype) for key, values in own.items()}
        assert all(np.isfinite(values).all() for values in sent[index]["update"].values())
        assert trained[index].schema is people.schema
    changed = [any(not np.array_equal(sent[index]["update"][key], update(index)[key]) for key in "wb")
               or trained[index] is not people.view(index).train for index in (1, 4)]
    assert all(changed)
    assert all(sent[index][MOVED] > 0 for index in (1, 4))
    assert not any(MOVED in sent[index] for index in (0, 2, 3, 5))


@every_attack
def test_it_is_the_same_again(name):
    first, again = attacked(name), attacked(name)
    for one, other in zip(first[2], again[2], strict=True):
        for key in "wb":
            np.testing.assert_array_equal(one["update"][key], other["update"][key])
    for one, other in zip(first[1], again[1], strict=True):
        np.testing.assert_array_equal(one.target, other.target)
        np.testing.assert_array_equal(one.features, other.features)


@every_attack
def test_own_rows_are_not_changed(name):
    people = population()
    before = people.dataset.features.copy(), people.dataset.target.copy()
    make("attack", name).poison(people.view(0).train, np.random.default_rng(0))
    np.testing.assert_array_equal(people.dataset.features, before[0])
    np.testing.assert_array_equal(people.dataset.target, before[1])


@every_attack
@pytest.mark.parametrize("count", [1, 3])
def test_without_honest_parties_it_still_works(name, count):
    sent = make("attack", name).conspire([update(index) for index in range(count)], [], NOW, np.random.default_rng(0))
    assert len(sent) == count
