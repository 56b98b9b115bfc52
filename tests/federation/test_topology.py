"""Topologies: groups equal the whole, peers' links are what they claim, and asks need a cast that may ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, PermissionDenied
from tequio.federation import payload as payloads
from tequio.federation.aggregation import SUMMED, Combined, Mean, Updates
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.task import Done, NoSettings, Reveals, task
from tequio.federation.topology import (
    Cast,
    ClientServer,
    Cyclic,
    Hierarchical,
    Parallel,
    PeerTopology,
    RandomPeers,
    Role,
    Topology,
)

seeds = st.integers(0, 2**32 - 1)
PEER_TOPOLOGIES = [Parallel(), RandomPeers(), Cyclic(), Cyclic(shuffle=True)]


@dataclass(frozen=True)
class Median:
    """Not linear: the median of medians is another one."""

    linear = False

    def combine(self, updates: Updates, memory: dict[str, Any]) -> Combined:
        columns = {name: np.stack([update[name] for update in updates.arrays]) for name in updates.arrays[0]}
        medians = {name: np.median(values, axis=0) for name, values in columns.items()}
        return Combined(medians, {"calls": 1}, {"seen": 1})


def updates(seed: int, count: int, kind: str = "float64") -> Updates:
    rng = np.random.default_rng(seed)
    parties = np.sort(rng.choice(100, count, replace=False))
    arrays = [{"w": (rng.standard_normal((3, 2)) * 10.0 ** rng.integers(-3, 4)).astype(kind),
               "b": rng.standard_normal(4).astype(kind)} for _ in range(count)]
    return Updates(parties, arrays, rng.integers(1, 1000, count).astype(np.float64))


@task("topology test.nothing", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def nothing(party: Any, payload: Any, settings: NoSettings) -> Done:
    return {}


def federation(parties: int, topology: Topology) -> Federation:
    dataset = Dataset.of(Schema.of_numbers(["age"], Target("none")), np.zeros((parties, 1)))
    population = Population(dataset, Partition.of([np.array([row]) for row in range(parties)]))
    engine = InlineEngine()
    engine.open(population)
    return Federation(population, engine, topology=topology)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, count=st.integers(1, 30), aggregators=st.integers(1, 12))
def test_groups_of_a_weighted_mean_equal_the_whole(seed: int, count: int, aggregators: int) -> None:
    given_updates = updates(seed, count)
    flat = ClientServer().combine(given_updates, Mean(), {}).update
    grouped = Hierarchical(aggregators).combine(given_updates, Mean(), {}).update
    largest = {name: max(np.abs(update[name]).max() for update in given_updates.arrays) for name in flat}
    for name in flat:
        np.testing.assert_allclose(grouped[name], flat[name], rtol=1e-12, atol=1e-12 * largest[name])


def test_four_aggregators_give_the_flat_mean_of_single_precision_updates_bit_for_bit() -> None:
    """Feature 7, and no rounding to single precision between the levels."""
    given_updates = updates(3, 20, "float32")
    flat = ClientServer().combine(given_updates, Mean(), {}).update
    grouped = Hierarchical(4).combine(given_updates, Mean(), {}).update
    assert grouped["w"].dtype == np.float32
    for name in flat:
        np.testing.assert_array_equal(grouped[name], flat[name])


def test_hand_worked_hierarchy() -> None:
    """Parties 0 and 2 belong to aggregator 0, party 3 to aggregator 1: means 2 (weight 4) and 10 (weight 4)."""
    given_updates = Updates(np.array([0, 2, 3]), [{"w": np.array([value])} for value in (5.0, 1.0, 10.0)],
                            np.array([1.0, 3.0, 4.0]))
    combined = Hierarchical(2).combine(given_updates, Mean(), {})
    assert combined.update["w"].tolist() == [6.0]
    hop = payloads.size({"update": {"w": np.zeros(1)}, "weight": 4.0})
    assert combined.notes == {"hierarchy": {"aggregators": 2, "messages": 2, "bytes": 2 * hop}}


def test_what_aggregators_have_summed_takes_no_further_way() -> None:
    whole = Updates(np.array([SUMMED]), [{"w": np.array([5.0])}], np.array([8.0]))
    combined = Hierarchical(2).combine(whole, Mean(), {})
    assert (combined.update["w"].tolist(), combined.notes) == ([5.0], {})


def test_a_party_keeps_its_aggregator_whoever_else_takes_part() -> None:
    tree = Hierarchical(3)
    assert [part.tolist() for part in tree.groups(np.array([0, 1, 2, 3, 7]))] == [[0, 3], [1, 4], [2]]
    assert [part.tolist() for part in tree.groups(np.array([3, 6, 8]))] == [[0, 1], [2]]


def test_what_is_not_linear_is_refused_unless_allowed() -> None:
    with pytest.raises(ConfigError, match=r"'Median' is not linear.*allow_nonlinear"):
        Hierarchical(2).combine(updates(0, 5), Median(), {})
    values = [1.0, 4.0, 2.0, 5.0, 30.0, 6.0]
    given_updates = Updates(np.arange(6), [{"w": np.array([value])} for value in values], np.ones(6))
    combined = Hierarchical(2, allow_nonlinear=True).combine(given_updates, Median(), {})
    # Even parties hold 1, 2, 30 (median 2), odd ones 4, 5, 6 (median 5); the median of all six would be 4.5.
    assert combined.update["w"].tolist() == [3.5]
    assert combined.memory == {"calls": 1}
    assert combined.notes.keys() == {"seen", "hierarchy"}


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(1, 15), neighbours=st.integers(1, 20))
def test_links_of_every_peer_topology(seed: int, count: int, neighbours: int) -> None:
    rng = np.random.default_rng(seed)
    peers = np.sort(rng.choice(50, count, replace=False))
    for topology in (Parallel(), RandomPeers(neighbours), Cyclic(), Cyclic(shuffle=True)):
        links = topology.links(peers, rng)
        assert links.shape == (len(links), 2)
        assert np.isin(links, peers).all()
        assert (links[:, 0] != links[:, 1]).all()
        assert len(np.unique(links, axis=0)) == len(links)
        np.testing.assert_array_equal(links, links[np.lexsort((links[:, 0], links[:, 1]))])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_parallel_is_a_full_mesh(count: int) -> None:
    """Feature 6: n(n-1) messages."""
    links = Parallel().links(np.arange(count) * 2, np.random.default_rng(0))
    expected = {(2 * one, 2 * other) for one in range(count) for other in range(count) if one != other}
    assert {tuple(link) for link in links.tolist()} == expected
    assert len(links) == count * (count - 1)


def test_parallel_aggregates_the_whole_cohort_at_every_peer() -> None:
    given_updates = updates(1, 5)
    combined = Parallel().combine(given_updates, Mean(), {})
    flat = Mean().combine(given_updates, {})
    for name in flat.update:
        np.testing.assert_array_equal(combined.update[name], flat.update[name])
    assert combined.notes["mesh"] == {"messages": 20, "bytes": 20 * payloads.size({"update": given_updates.arrays[0]})}


@settings(max_examples=30, deadline=None)
@given(seed=seeds, count=st.integers(2, 15), neighbours=st.integers(1, 20))
def test_random_peers_talk_to_enough_others_and_both_ways(seed: int, count: int, neighbours: int) -> None:
    links = RandomPeers(neighbours).links(np.arange(count), np.random.default_rng(seed))
    assert {(a, b) for a, b in links.tolist()} == {(b, a) for a, b in links.tolist()}
    heard = np.bincount(links[:, 1], minlength=count)
    assert heard.min() >= min(neighbours, count - 1)
    assert len(links) <= 2 * neighbours * count


def test_random_peers_follow_the_stream() -> None:
    draw = [RandomPeers(2).links(np.arange(20), np.random.default_rng(seed)).tolist() for seed in (1, 1, 2)]
    assert draw[0] == draw[1] != draw[2]


def test_a_ring_visits_everyone_once() -> None:
    peers = np.array([3, 5, 8, 9])
    assert Cyclic().links(peers, np.random.default_rng(0)).tolist() == [[9, 3], [3, 5], [5, 8], [8, 9]]
    assert Cyclic().links(peers[:2], np.random.default_rng(0)).tolist() == [[5, 3], [3, 5]]
    assert Cyclic().links(peers[:1], np.random.default_rng(0)).tolist() == []
    shuffled = Cyclic(shuffle=True)
    route = shuffled.route(peers, np.random.default_rng(4)).tolist()
    assert sorted(route) == peers.tolist() != route
    following = dict(shuffled.links(peers, np.random.default_rng(4)).tolist())
    assert [following[peer] for peer in route] == [*route[1:], route[0]]


@pytest.mark.parametrize("topology", [RandomPeers(), Cyclic()])
def test_where_nobody_has_all_updates_nobody_aggregates_them(topology: Topology) -> None:
    with pytest.raises(PermissionDenied, match=r"nobody receives the updates of all parties.*'gossip'"):
        topology.combine(updates(0, 3), Mean(), {})


def test_protocols() -> None:
    assert isinstance(Hierarchical(), Topology)
    assert not isinstance(Hierarchical(), PeerTopology)
    assert all(isinstance(topology, PeerTopology) for topology in PEER_TOPOLOGIES)


@pytest.mark.parametrize("topology", [ClientServer(), Hierarchical(4), *PEER_TOPOLOGIES])
def test_every_topology_may_ask(topology: Topology) -> None:
    """Features 5 to 7: one call builds the federation, and its parties can be asked."""
    assert len(federation(6, topology).ask(np.arange(6), nothing)) == 6


def test_a_coordinator_that_is_no_aggregator_may_not_ask_for_answers() -> None:
    @dataclass(frozen=True)
    class Wrong(ClientServer):
        cast = Cast(deployer=Role.COORDINATOR, collector=Role.COORDINATOR)

    with pytest.raises(PermissionDenied, match="'coordinator' may not collect from 'party'"):
        federation(3, Wrong()).ask([0], nothing)
