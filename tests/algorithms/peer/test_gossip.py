"""Gossip: a full mesh equals federated averaging, sparse graphs agree in the end, and every message is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toy

from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.peer.peers import Gossip, mixing_weights, relayed
from tequio.data.partition import Split
from tequio.errors import ConfigError, PermissionDenied
from tequio.federation import payload as payloads
from tequio.federation.algorithm import part_types
from tequio.federation.evaluation import OwnModel
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import state_name
from tequio.federation.selection import FixedParties, RandomParties
from tequio.federation.topology import Cast, Cyclic, Hierarchical, Parallel, RandomPeers
from tequio.learners.learner import LocalTraining
from tequio.learners.metrics import summarise

SIZES = [4, 9, 1, 6, 12]
RESTING = LocalTraining(epochs=0, batch=0)


def federation(topology: Any, sizes: list[int] | None = None, **extra: Any) -> Federation:
    made = toy.federation(toy.random_parties(sizes or SIZES), **extra)
    made.topology = topology
    return made


def own_models(peers: Federation) -> dict[int, np.ndarray]:
    return {party: state[state_name(OwnModel)]["model"]["w"] for party, state in sorted(peers.engine.states().items())}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("rule", ["size", "uniform"])
def test_in_a_full_mesh_every_peer_holds_the_model_of_federated_averaging(rule: Any, batched: bool) -> None:
    """Feature 6. Peers agree bit for bit; with FedAvg up to the rounding of its differences."""
    parts = toy.parts(LocalTraining(epochs=2, batch=3, learning_rate=0.1), toy.LeastSquares(batched=batched))
    peers, central = federation(Parallel()), federation(toy.federation(toy.random_parties([1])).topology)
    gossip = toy.run(Gossip(weights=rule, **parts), peers, rounds=4)
    average = toy.run(FedAvg(weights=rule, **parts), central, rounds=4)
    models = own_models(peers)
    assert len(models) == 5
    for model in models.values():
        np.testing.assert_array_equal(model, models[0])
    np.testing.assert_allclose(models[0], toy.weights(average), rtol=1e-12)
    np.testing.assert_allclose(toy.weights(gossip), toy.weights(average), rtol=1e-12)


def test_one_peer_alone_trains_alone() -> None:
    for topology in (Parallel(), RandomPeers(), Cyclic()):
        peers = federation(topology, [7])
        toy.run(Gossip(**toy.parts()), peers, rounds=3)
        central = toy.federation(toy.random_parties([7]))
        np.testing.assert_allclose(own_models(peers)[0], toy.weights(toy.run(FedAvg(**toy.parts()), central, 3)),
                                   rtol=1e-12)


def test_hand_worked_ring() -> None:
    """From 0 with rate 0.5 peers 0, 1, 2 of targets 2, 4, 8 go to 1, 2, 4; each then meets its predecessor halfway."""
    ring = toy.federation(toy.targets(2.0, 4.0, 8.0))
    ring.topology = Cyclic()
    toy.run(Gossip(weights="uniform", **toy.parts()), ring)
    assert [model.tolist() for model in own_models(ring).values()] == [[2.5], [1.5], [3.0]]


def test_sizes_weigh_neighbours() -> None:
    """Peer 0 has three rows of target 2, peer 1 one row of target 10: 1 and 5, weighed 3 to 1: 2."""
    mesh = toy.federation(toy.targets([2.0, 2.0, 2.0], 10.0))
    mesh.topology = Parallel()
    toy.run(Gossip(**toy.parts()), mesh)
    assert [model.tolist() for model in own_models(mesh).values()] == [[2.0], [2.0]]


@pytest.mark.parametrize(("topology", "rule"), [(RandomPeers(1), "metropolis"), (RandomPeers(2), "metropolis"),
                                                (Cyclic(), "metropolis"), (Cyclic(), "uniform")])
def test_mixing_alone_keeps_the_mean_and_reaches_it(topology: Any, rule: Any) -> None:
    peers = federation(topology)
    state = toy.run(Gossip(weights=rule, **toy.parts()), peers)
    before = np.stack(list(own_models(peers).values()))
    mean, spread = before.mean(axis=0), np.ptp(before, axis=0).max()
    resting = Gossip(weights=rule, **toy.parts(RESTING))
    for _ in range(40):
        state = toy.one_more(resting, peers, state)
        models = np.stack(list(own_models(peers).values()))
        np.testing.assert_allclose(models.mean(axis=0), mean, rtol=1e-10, atol=1e-12)
        assert np.ptp(models, axis=0).max() <= spread + 1e-12
        spread = np.ptp(models, axis=0).max()
    assert spread < 1e-4
    np.testing.assert_allclose(toy.weights(state), mean, rtol=1e-10, atol=1e-12)


def test_metropolis_weights_by_hand() -> None:
    """A path a - b - c: b hears two, its ends one each."""
    assert mixing_weights("metropolis", [1, 1], [1, 2], 0) == pytest.approx([2 / 3, 1 / 3])
    assert mixing_weights("metropolis", [1, 1, 1], [1, 2, 1], 1) == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert mixing_weights("metropolis", [1], [0], 0).tolist() == [1.0]
    assert mixing_weights("uniform", [7, 9], [1, 5], 0).tolist() == [1.0, 1.0]
    assert mixing_weights("size", [7, 9], [1, 5], 0).tolist() == [7.0, 9.0]


def test_messages_reach_their_receivers_in_party_order() -> None:
    links = np.array([[1, 0], [2, 0], [0, 2]])
    heard = relayed(links, {0: {"rows": 5}, 1: {"rows": 6}, 2: {"rows": 7}})
    assert heard == {0: {"neighbours": 2, "messages": [{"sender": 1, "neighbours": 0, "rows": 6},
                                                       {"sender": 2, "neighbours": 1, "rows": 7}]},
                     1: {"neighbours": 0, "messages": []},
                     2: {"neighbours": 1, "messages": [{"sender": 0, "neighbours": 2, "rows": 5}]}}


@pytest.mark.parametrize(("topology", "messages"), [(Parallel(), 20), (Cyclic(), 5)])
def test_messages_between_peers_are_counted(topology: Any, messages: int) -> None:
    """Feature 6: n(n-1) of them in a full mesh."""
    events: list[Any] = []
    peers = federation(topology)
    peers.record = lambda kind, facts: events.append((kind, facts))
    toy.run(Gossip(**toy.parts()), peers, rounds=2)
    one = payloads.size({"sender": 0, "neighbours": 1, "model": {"w": np.zeros(3)}, "rows": 4})
    assert [facts for kind, facts in events if kind == "peers"] == [
        {"round": round, "messages": messages, "bytes": messages * one} for round in (1, 2)]


def test_the_start_travels_once() -> None:
    """Peers keep their own model: only those who have none yet are sent one."""
    peers = federation(Parallel())
    algorithm = Gossip(**toy.parts())
    state = toy.run(algorithm, peers)
    first = peers.traffic.bytes_down
    toy.one_more(algorithm, peers, state)
    saved = 5 * (payloads.size({"model": {"w": np.zeros(3)}}) - payloads.size({}))
    assert peers.traffic.bytes_down - first == first - saved


def test_who_joins_late_starts_from_the_mean_of_the_others() -> None:
    peers = federation(Parallel())
    early = Gossip(**toy.parts(selector=FixedParties(("0", "1", "2"))))
    state = toy.run(early, peers, rounds=2)
    assert state.memory["joined"].tolist() == [0, 1, 2]
    late = Gossip(**toy.parts(RESTING, selector=FixedParties(("4",))))
    after = toy.one_more(late, peers, state)
    np.testing.assert_array_equal(own_models(peers)[4], toy.weights(state))
    assert after.memory["joined"].tolist() == [0, 1, 2, 4]


def test_peers_that_drop_out_keep_their_models() -> None:
    """Feature 15."""
    peers = federation(RandomPeers(2), [5] * 12, rules=Rules(dropout=0.3, quorum=0.2))
    algorithm = Gossip(**toy.parts(LocalTraining(batch=0, learning_rate=0.1)))
    state = toy.run(algorithm, peers, rounds=12)
    assert len(own_models(peers)) == 12
    assert np.isfinite(toy.weights(state)).all()


def test_partial_participation_links_only_those_who_take_part() -> None:
    peers = federation(Parallel(), [5] * 8)
    events: list[Any] = []
    peers.record = lambda kind, facts: events.append((kind, facts))
    toy.run(Gossip(**toy.parts(selector=RandomParties(count=3))), peers)
    assert [facts["messages"] for kind, facts in events if kind == "peers"] == [6]
    assert len(own_models(peers)) == 3


def test_evaluation_is_of_each_peers_own_model() -> None:
    peers = federation(Cyclic(), [10, 20, 30, 6], split=Split(0.0, 0.5))
    algorithm = Gossip(**toy.parts(selector=FixedParties(("0", "2", "3"))))
    state = toy.run(algorithm, peers)
    tallies = algorithm.evaluate(peers, state, "test", np.arange(4))
    assert list(tallies) == [0, 1, 2, 3]
    models = {**own_models(peers), 1: toy.weights(state)}
    for party, tally in tallies.items():
        rows = peers.population.view(party).test
        assert tally == toy.LeastSquares().evaluate({"w": models[party]}, rows)
    assert not np.allclose(models[0], models[2])


def test_the_score_is_the_mean_over_peers() -> None:
    peers = federation(Cyclic(), [10, 20, 30])
    algorithm = Gossip(weights="uniform", **toy.parts())
    rows = peers.population.dataset
    start = algorithm.start(peers)
    assert algorithm.score(peers, start, rows) == toy.LeastSquares().evaluate(start.model, rows)
    state = toy.one_more(algorithm, peers, start)
    scored = summarise(rows.schema.target, algorithm.score(peers, state, rows))
    single = [summarise(rows.schema.target, toy.LeastSquares().evaluate({"w": model}, rows))
              for model in own_models(peers).values()]
    assert scored["mae"] == pytest.approx(np.mean([metrics["mae"] for metrics in single]))
    assert scored["loss"] == pytest.approx(np.mean([metrics["loss"] for metrics in single]))


def test_an_equal_model_is_scored_once() -> None:
    peers = federation(Parallel())
    algorithm = Gossip(**toy.parts())
    state = toy.run(algorithm, peers)
    rows = peers.population.dataset
    one = toy.LeastSquares().evaluate({"w": own_models(peers)[0]}, rows)
    scored = algorithm.score(peers, state, rows)
    assert scored is not None
    assert scored["rows"] == 5 * one["rows"]
    assert scored["squared_error"] == pytest.approx(5 * one["squared_error"])


def test_the_same_seed_gives_the_same_models() -> None:
    def models(seed: int) -> list[list[float]]:
        peers = federation(RandomPeers(1), [5] * 8, seed=seed)
        toy.run(Gossip(**toy.parts(LocalTraining(batch=2))), peers, rounds=3)
        return [model.tolist() for model in own_models(peers).values()]

    assert models(1) == models(1) != models(2)


def test_state_and_memory_can_be_saved_and_resumed() -> None:
    algorithm = Gossip(**toy.parts(LocalTraining(batch=2)))
    whole, half = federation(RandomPeers(2), [5] * 6), federation(RandomPeers(2), [5] * 6)
    toy.run(algorithm, whole, rounds=4)
    state = toy.run(algorithm, half, rounds=2)
    stored = payloads.decode(payloads.encode({"model": state.model, "memory": dict(state.memory)}))
    states = {party: payloads.decode(payloads.encode(kept)) for party, kept in half.engine.states().items()}
    resumed = federation(RandomPeers(2), [5] * 6)
    resumed.engine.restore(states)
    resumed.round = 2
    state = replace(state, model=stored["model"], memory=stored["memory"])
    for _ in range(2):
        state = toy.one_more(algorithm, resumed, state)
    for party, model in own_models(whole).items():
        np.testing.assert_array_equal(own_models(resumed)[party], model)


@pytest.mark.parametrize("topology", [Hierarchical(2), toy.federation(toy.random_parties([1])).topology])
def test_without_peers_there_is_no_gossip(topology: Any) -> None:
    with pytest.raises(ConfigError, match=r"topology '(hierarchical|client-server)'; set topology.name = 'parallel'"):
        Gossip(**toy.parts()).start(federation(topology))


def test_parties_that_are_not_peers_may_not_exchange() -> None:
    class Pretending(Parallel):
        cast = Cast()

    with pytest.raises(PermissionDenied, match="'party' may not exchange with 'party'"):
        Gossip(**toy.parts()).start(federation(Pretending()))


def test_there_are_no_stages_because_whole_models_travel() -> None:
    with pytest.raises(TypeError, match="stages"):
        Gossip(**toy.parts(stages=(toy.Spoil(),)))
    assert set(part_types(Gossip)) == {"learner", "local", "selector", "aggregator"}


def test_a_peer_that_lost_its_model_says_so() -> None:
    peers = federation(Parallel())
    algorithm = Gossip(**toy.parts())
    state = toy.run(algorithm, peers)
    peers.engine.restore({})
    with pytest.raises(Exception, match="peer '0' has lost its model; resume the run"):
        toy.one_more(algorithm, peers, state)
