"""Parameters, circles and sets that every party computes itself, against the published table and by brute force."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import hypergeom

from tequio.errors import PayloadError, QuorumError
from tequio.privacy.aggregation.committees import (
    Circle,
    Graph,
    check_room,
    count_of,
    drawn_circle,
    drawn_witnesses,
    fewest_for,
    graph_for,
    secrecy,
    witnesses_for,
)
from tequio.privacy.aggregation.encodings import (
    Draws,
    as_bitmap,
    content,
    derived_key,
    from_bitmap,
    paths_of,
    root_by_path,
    root_of,
)

SHARES = ((0.1, 0.1), (0.1, 0.2), (0.33, 0.1), (0.33, 0.2))
TABLE = {
    10: "9,6,0/10,1,6 9,6,0/10,1,6 9,7,0/10,3,7 9,7,0/10,3,7",
    30: "29,17,0/30,3,17 29,17,0/30,3,17 29,20,0/30,9,20 29,20,0/30,9,20",
    100: "42,22,11/31,10,21 54,28,11/47,10,29 84,43,32/53,32,43 99,67,0/74,33,54",
    300: "74,38,21/55,22,39 102,52,24/98,27,63 154,83,55/111,64,88 220,111,68/200,91,146",
    1000: "94,48,27/69,28,49 130,66,31/144,41,93 208,119,73/162,93,128 326,165,100/413,188,301",
    10000: "106,54,30/76,31,54 156,79,37/170,49,110 250,147,87/198,113,156 424,222,129/687,312,500",
}


@pytest.mark.parametrize("parties", TABLE)
def test_degrees_thresholds_windows_and_witnesses_are_those_of_the_table(parties):
    for (corrupt, absent), line in zip(SHARES, TABLE[parties].split(), strict=True):
        bad, gone = count_of(corrupt, parties), count_of(absent, parties)
        graph, witnesses = graph_for(parties, bad, gone, 40), witnesses_for(parties, bad, gone, 40)
        found = (f"{graph.degree},{graph.needed},{graph.window}/"
                 f"{witnesses.count},{witnesses.corrupt},{witnesses.quorum}")
        assert found == line


def test_a_thousand_rounds_take_more_neighbours():
    assert [graph_for(n, n // 10, n // 10, secrecy(1)).degree for n in (100, 300, 1000, 10000)] == [42, 84, 104, 122]
    assert [secrecy(round) for round in (1, 1024, 1025, 1 << 20)] == [53, 53, 54, 63]


@pytest.mark.parametrize(("parties", "corrupt", "absent"), [(100, 10, 10), (300, 99, 30), (1000, 100, 200)])
def test_the_bounds_hold_by_scipys_distribution(parties, corrupt, absent):
    graph, witnesses = graph_for(parties, corrupt, absent, 40), witnesses_for(parties, corrupt, absent, 40)

    def above(count, marked, drawn, population=parties - 1):
        return hypergeom.sf(count, population, marked, drawn)

    assert parties * above(graph.needed - 1, corrupt, graph.degree) <= 2.0 ** -41
    assert parties * above(graph.window - 1, corrupt, graph.degree // 2) <= 2.0 ** -41
    assert parties * above(graph.degree - graph.needed, absent, graph.degree) <= 2.0 ** -21
    assert parties * above(graph.degree // 2 - graph.window, absent, graph.degree // 2) <= 2.0 ** -21
    assert 2 * witnesses.quorum > witnesses.count + witnesses.corrupt
    assert above(witnesses.corrupt, corrupt, witnesses.count, parties) <= 2.0 ** -40
    assert above(witnesses.count - witnesses.quorum, absent, witnesses.count, parties) <= 2.0 ** -20


def test_sets_that_share_an_honest_party_are_the_fewest():
    assert [fewest_for(10, 1), fewest_for(10, 3), fewest_for(3, 0), fewest_for(10, 1, own=9)] == [6, 7, 3, 9]
    check_room(5, 3)
    with pytest.raises(QuorumError, match=r"10 of all may be corrupt, .* 12 are needed; ask more parties"):
        check_room(11, 10)


def circle(count, degree, needed, window, seed=0):
    return Circle(np.arange(count), np.random.default_rng(seed).permutation(count), Graph(degree, needed, window))


def test_neighbours_are_mutual_and_sets_are_judged_as_by_hand():
    ring, draw = circle(40, 12, 5, 3), np.random.default_rng(1)
    around = {party: ring.neighbours(party) for party in range(40)}
    assert all(len(others) == 12 and party not in others and all(party in around[other] for other in others)
               for party, others in around.items())
    for _ in range(50):
        inside = draw.random(40) < 0.6
        helpers = [sum(inside[other] for other in around[party]) for party in range(40)]
        clockwise = [sum(inside[ring.order[(place + step) % 40]] for step in range(1, 7)) for place in range(40)]
        ahead = dict(zip(ring.order.tolist(), clockwise, strict=True))
        bad = [inside[party] and (helpers[party] < 5 or ahead[party] < 3) for party in range(40)]
        assert ring.helpers(inside).tolist() == helpers
        assert ring.broken(inside).tolist() == bad
        assert ring.neighbours(7, inside) == [other for other in around[7] if inside[other]]
        peeled = ring.peeled(inside)
        assert not ring.broken(peeled).any()
        assert not (peeled & ~inside).any()


def connected(ring, honest):
    """Whether these are one piece, by walking from neighbour to neighbour."""
    reached = waiting = {int(np.flatnonzero(honest)[0])}
    while waiting:
        waiting = {other for party in waiting for other in ring.neighbours(party, honest)} - reached
        reached = reached | waiting
    return len(reached) == honest.sum()


def random_cases(window):
    """Peeled sets of circles of 40 with 5 corrupt parties, of whom no 6 places clockwise of an honest one hold 3. Half
    of the sets leave out two arcs, which is what splits circles."""
    draw = np.random.default_rng(6)
    for case in range(1000):
        ring, corrupt = circle(40, 12, 5, window, seed=case), np.zeros(40, dtype=bool)
        corrupt[draw.choice(40, 5, replace=False)] = True
        if (ring._in_arc(corrupt, 1, 6)[~corrupt] >= 3).any():
            continue
        inside = draw.random(40) < 0.9
        if case % 2:
            start, length = draw.integers(40), draw.integers(8, 16)
            gone = [start + step for step in range(6)] + [start + length + 6 + step for step in range(6)]
            inside[ring.order[np.array(gone) % 40]] = False
        inside = ring.peeled(inside)
        if (inside & ~corrupt).sum() > 1:
            yield ring, inside & ~corrupt


def test_honest_members_of_a_sound_set_are_connected_whoever_chose_it():
    cases = list(random_cases(window=3))
    assert len(cases) > 300
    assert all(connected(ring, honest) for ring, honest in cases)


def test_without_the_window_a_circle_can_be_split():
    ring = circle(40, 12, 5, 1)
    inside = np.ones(40, dtype=bool)
    inside[ring.order[[0, 1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21]]] = False
    assert (ring.helpers(inside)[inside] >= 5).all()
    assert not connected(ring, inside)
    strict = Circle(ring.cohort, ring.order, Graph(12, 5, 3))
    assert strict.broken(inside).any()


def test_circles_and_witnesses_follow_from_the_seed_alone():
    cohort, graph = tuple(range(5, 105)), Graph(42, 22, 11)
    one, other = (drawn_circle(b"A" * 32, seed * 32, 1, "update", cohort, graph) for seed in (b"v", b"w"))
    again = drawn_circle.__wrapped__(b"A" * 32, b"v" * 32, 1, "update", cohort, graph)
    assert one.order.tolist() == again.order.tolist() != other.order.tolist()
    assert sorted(one.order.tolist()) == list(range(100))
    assert set(one.neighbours(5)) <= set(cohort)
    witnesses = drawn_witnesses(b"A" * 32, b"v" * 32, 1, "update", cohort, 31)
    assert len(set(witnesses)) == 31
    assert set(witnesses) <= set(cohort)


def test_shuffles_are_even():
    firsts = np.zeros((4, 4))
    draws = Draws(bytes(32))
    for _ in range(4000):
        for place, item in enumerate(draws.shuffled(np.arange(4))):
            firsts[place, item] += 1
    assert abs(firsts - 1000).max() < 5 * np.sqrt(750)


def test_contents_are_never_written_alike_and_keys_are_those_of_hkdf():
    assert content("x", b"ab", b"c") != content("x", b"a", b"bc") != content("x", b"a", b"b", b"c")
    assert content("x", "ä", 5) == b"tequio/6/x\2\0\0\0\xc3\xa4\x08\0\0\0\5\0\0\0\0\0\0\0"
    known = HKDF(SHA256(), 32, salt=b"A" * 32, info=content("mask", 3, 4)).derive(b"secret")
    assert derived_key(b"A" * 32, b"secret", "mask", 3, 4) == known


@given(some.integers(1, 40), some.data())
@settings(max_examples=60, deadline=None)
def test_paths_lead_to_the_root_and_nothing_else_does(count, data):
    leaves = [bytes([place, 1]) for place in range(count)]
    root, paths, place = root_of(leaves), paths_of(leaves), data.draw(some.integers(0, count - 1))
    assert root_by_path(leaves[place], place, count, paths[place]) == root
    assert len(paths[place]) <= 32 * ceil(np.log2(count)) if count > 1 else paths[place] == b""
    assert root_by_path(b"other", place, count, paths[place]) != root
    with pytest.raises(PayloadError, match="too long"):
        root_by_path(leaves[place], place, count, paths[place] + bytes(32))


def test_bitmaps_name_members_of_the_cohort_only():
    cohort = np.array([2, 5, 7, 11, 13, 17, 19, 23, 29])
    assert from_bitmap(cohort, as_bitmap(cohort, [5, 29])).tolist() == [False, True] + [False] * 6 + [True]
    for wrong in (b"\1", b"\1\2", b"\0\0\0"):
        with pytest.raises(PayloadError, match="set of"):
            from_bitmap(cohort, wrong)
