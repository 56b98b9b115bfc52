"""Parties find what a plain intersection finds, within their limits, and lists say no more than they must."""

from __future__ import annotations

import numpy as np
import pytest
from carrying import Carrier, common_ids, parties_with, talking
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.algorithms.vertical.intersecting import intersect
from tequio.algorithms.vertical.intersection import OwnSide
from tequio.errors import PartyError
from tequio.federation.population import state_name
from tequio.privacy.psi.limits import bucket

MANY = np.arange(200)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sets(st.integers(0, 30)), min_size=2, max_size=4))
def test_parties_find_what_all_have(sets):
    shared = {100 + number for number in range(5)}
    found = common_ids(*(sorted(one | shared) for one in sets), settings={
        party: {"minimum": 1} for party in range(len(sets))})
    assert set(found[0].tolist()) == set.intersection(*sets) | shared
    assert all((one == found[0]).all() for one in found)


def test_three_parties_of_10000_ids_find_what_a_plain_intersection_finds():
    draw = np.random.default_rng(11)
    lists = [draw.choice(20_000, 10_000, replace=False) + 10**12 for _ in range(3)]
    found = common_ids(*lists)
    plain = set(lists[0].tolist()) & set(lists[1].tolist()) & set(lists[2].tolist())
    assert 2_000 < len(plain) < 3_000
    assert len(found[0]) == len(plain)
    assert set(found[0].tolist()) == plain
    assert all((one == found[0]).all() for one in found)


def test_ids_are_compared_as_each_party_writes_them():
    bank = ["José García + 3.2.1980", "Ana Ruiz + 1.1.1999", "Bo Lee + 5.5.1970"]
    insurer = ["BO  LEE + 1970-05-05", "jose garcia + 1980-02-03", "Ana Ruiz + 1999-01-02"]
    found = common_ids(bank, insurer, compare=("text", "date"))
    assert set(found[0].tolist()) == {bank[0], bank[2]}
    assert dict(zip(found[0].tolist(), found[1].tolist(), strict=True)) == {bank[0]: insurer[1], bank[2]: insurer[0]}


def test_each_intersection_hides_ids_anew():
    shown = []
    for _ in range(2):
        common_ids(MANY, MANY, engine=Carrier(listen=lambda party, reply: shown.append(reply["digest"])
                                              if "digest" in reply else None))
    assert len(set(shown)) == 4


def test_secrets_are_forgotten_when_it_is_over():
    talk = talking(parties_with(MANY, MANY, MANY))
    intersect(talk, ())
    for state in talk.federation.engine.states().values():
        assert state[state_name(OwnSide)].keys() == {"sid", "step", "rows"}


def test_lists_are_padded_so_that_their_lengths_say_little():
    assert [bucket(rows) for rows in (1, 100, 101, 999, 9_400, 9_401)] == [100, 100, 200, 1200, 9_400, 11_800]
    assert all(rows <= bucket(rows) <= 1.25 * rows + 125 for rows in range(1, 50_000, 7))
    lengths = []
    common_ids(MANY, MANY[:150], MANY, engine=Carrier(
        listen=lambda party, reply: lengths.append(len(reply["box"])) if "box" in reply else None))
    assert set(lengths) == {200 * 32 + 16}  # of 150 ids as of 200


def test_two_parties_leave_the_coordinator_nothing_to_compare():
    seen = []
    common_ids(MANY, MANY, engine=Carrier(listen=lambda party, reply: seen.append("points" in reply)))
    assert not any(seen)
    common_ids(MANY, MANY, MANY, engine=Carrier(listen=lambda party, reply: seen.append("points" in reply)))
    assert sum(seen) == 3


@pytest.mark.parametrize(("limits", "said"), [
    ({"times_own": 2.0}, "intersects its 100 ids with lists of 200 at most, and that of party 1 has 400"),
    ({"most_ids": 300}, "intersects its 100 ids with lists of 300 at most, and that of party 1 has 400"),
    ({"minimum": 51}, "no ids in common, or fewer than the 51 that party 'p0' wants"),
    ({"tell_rows": "no"}, "party 'p0' does not say how many rows it has")])
def test_limits_of_a_party_hold(limits, said):
    with pytest.raises(PartyError, match=said):
        common_ids(np.arange(50, 100), np.arange(360), settings={0: limits})


def test_too_few_is_all_that_is_said():
    for common in (0, 1, 4):
        with pytest.raises(PartyError) as caught:
            common_ids(np.arange(50), np.arange(50 - common, 100))
        assert "no ids in common, or fewer than the 5 that party 'p0' wants" in str(caught.value)
    assert len(common_ids(np.arange(50), np.arange(45, 95))[0]) == 5


def test_parties_may_bring_the_secret_that_hardens_ids():
    tasks = []
    secret = {"secret": b"s" * 32}
    found = common_ids(MANY, MANY[50:], settings={0: secret, 1: secret}, engine=Carrier(
        alter=lambda task, party, payload: tasks.append(task) or payload))
    assert len(found[0]) == 150
    assert "intersection.harden" not in tasks


@pytest.mark.parametrize(("own", "said"), [
    ({0: b"s" * 32}, "party 1 brings no secret that hardens ids, and others do"),
    ({1: b"s" * 32}, "party 0 brings no secret that hardens ids, and others do"),
    ({0: b"s" * 32, 1: b"t" * 32}, "what party [01] sealed was forged, replayed or altered")])
def test_secrets_that_differ_are_an_error_and_not_an_empty_intersection(own, said):
    with pytest.raises(PartyError, match=said):
        common_ids(MANY, MANY, settings={party: {"secret": secret} for party, secret in own.items()})
