"""Cyclic weight transfer: the same as training on one party's rows after the other's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import toy

from tequio.algorithms.peer.peers import CyclicTransfer
from tequio.errors import ConfigError, PartyError, QuorumError
from tequio.federation import payload as payloads
from tequio.federation.federation import Federation, Rules
from tequio.federation.selection import FixedParties
from tequio.federation.topology import Cyclic, Parallel

SIZES = [4, 9, 1, 6]


def ring(rows_of: Any, topology: Any = None, **extra: Any) -> Federation:
    made = toy.federation(rows_of, **extra)
    made.topology = topology or Cyclic()
    return made


def incremental(rows_of: Any, rounds: int, rate: float = 0.5) -> np.ndarray:
    w = np.zeros(rows_of[0][0].shape[1])
    for _ in range(rounds):
        for features, target in rows_of:
            w = w - rate * features.T @ (features @ w - target) / len(target)
    return w


@pytest.mark.parametrize("rounds", [1, 3])
def test_it_trains_on_one_partys_rows_after_the_others(rounds: int) -> None:
    rows_of = toy.random_parties(SIZES)
    state = toy.run(CyclicTransfer(**toy.parts()), ring(rows_of), rounds)
    np.testing.assert_allclose(toy.weights(state), incremental(rows_of, rounds), rtol=1e-12)


def test_hand_worked_ring() -> None:
    """Rate 0.5 from 0: target 2 gives 1, target 4 gives 2.5, target 8 gives 5.25."""
    state = toy.run(CyclicTransfer(**toy.parts()), ring(toy.targets(2.0, 4.0, 8.0)))
    assert toy.weights(state).tolist() == [5.25]


def test_a_shuffled_ring_takes_another_way_every_round() -> None:
    rows_of = toy.random_parties(SIZES)
    straight = toy.run(CyclicTransfer(**toy.parts()), ring(rows_of), 2)
    shuffled, again = (toy.run(CyclicTransfer(**toy.parts()), ring(rows_of, Cyclic(shuffle=True)), 2)
                       for _ in range(2))
    np.testing.assert_array_equal(toy.weights(shuffled), toy.weights(again))
    assert not np.allclose(toy.weights(shuffled), toy.weights(straight))


def test_every_hop_is_one_message() -> None:
    events: list[Any] = []
    peers = ring(toy.random_parties(SIZES))
    peers.record = lambda kind, facts: events.append((kind, facts))
    toy.run(CyclicTransfer(**toy.parts()), peers)
    size = payloads.size({"model": {"w": np.zeros(3)}})
    assert [facts for kind, facts in events if kind == "peers"] == [{"round": 1, "messages": 4, "bytes": 4 * size}]


def test_only_the_chosen_are_visited() -> None:
    rows_of = toy.random_parties(SIZES)
    some = CyclicTransfer(**toy.parts(selector=FixedParties(("1", "3"))))
    np.testing.assert_allclose(toy.weights(toy.run(some, ring(rows_of))),
                               incremental([rows_of[1], rows_of[3]], 1), rtol=1e-12)


def test_peers_that_are_away_are_skipped_while_the_quorum_holds() -> None:
    rows_of = toy.random_parties([5] * 10)
    peers = ring(rows_of, rules=Rules(dropout=0.3, quorum=0.3))
    state = toy.run(CyclicTransfer(**toy.parts()), peers)
    present = peers.present(np.arange(10))
    assert 0 < len(present) < 10
    np.testing.assert_allclose(toy.weights(state), incremental([rows_of[party] for party in present], 1), rtol=1e-12)
    with pytest.raises(QuorumError, match=r"only \d+ of 10 peers trained the model in round 1; the quorum is 100%"):
        toy.run(CyclicTransfer(**toy.parts()), ring(rows_of, rules=Rules(dropout=0.3, quorum=1.0)))


def test_a_failing_peer_stops_the_run_or_is_skipped() -> None:
    rows_of = toy.random_parties(SIZES)
    spoilt = CyclicTransfer(**toy.parts(stages=(toy.Spoil(party=1),)))
    with pytest.raises(PartyError, match="party '1' failed in round 1"):
        toy.run(spoilt, ring(rows_of))
    state = toy.run(spoilt, ring(rows_of, rules=Rules(on_failure="continue")))
    np.testing.assert_allclose(toy.weights(state), incremental([rows_of[0], *rows_of[2:]], 1), rtol=1e-12)


def test_only_a_ring_will_do() -> None:
    with pytest.raises(ConfigError, match=r"round a ring.*topology.name = 'cyclic'"):
        CyclicTransfer(**toy.parts()).start(ring(toy.random_parties(SIZES), Parallel()))
    with pytest.raises(ConfigError, match="cannot send models to each other"):
        CyclicTransfer(**toy.parts()).start(toy.federation(toy.random_parties(SIZES)))
