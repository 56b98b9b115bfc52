"""Sealed gossip: the same models as gossip in the open, and a coordinator that carries them without reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import toy

from tequio.algorithms.peer.peers import Gossip
from tequio.errors import PartyError
from tequio.federation import payload as payloads
from tequio.federation.evaluation import OwnModel
from tequio.federation.population import state_name
from tequio.federation.topology import Cyclic, Parallel, RandomPeers
from tequio.learners.learner import LocalTraining
from tequio.privacy.aggregation.keys import Identity

if TYPE_CHECKING:
    from tequio.federation.federation import Federation

PARTS = toy.parts(LocalTraining(epochs=2, batch=3, learning_rate=0.1))


def federation(topology: Any) -> Federation:
    made = toy.federation(toy.random_parties([4, 9, 1, 6]))
    made.topology = topology
    return made


def own_models(peers: Federation) -> dict[int, np.ndarray]:
    return {party: state[state_name(OwnModel)]["model"]["w"] for party, state in sorted(peers.engine.states().items())}


def spied(peers: Federation, meddle: Any = None) -> list[bytes]:
    """All that the coordinator carries, as bytes; `meddle` may change an order on its way."""
    seen: list[bytes] = []
    submit, collect = peers.engine.submit, peers.engine.collect

    def carry(order: Any) -> None:
        order = meddle(order) if meddle else order
        seen.extend(payloads.encode(own) for own in order.each or ())
        submit(order)

    def bring() -> Any:
        outcome = collect()
        seen.extend(payloads.encode(reply.payload) for reply in outcome.replies)
        return outcome

    peers.engine.submit, peers.engine.collect = carry, bring  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("topology", [Parallel(), Cyclic(), RandomPeers()])
@pytest.mark.parametrize("rule", ["size", "metropolis"])
def test_sealed_models_mix_as_open_ones_do(topology: Any, rule: Any) -> None:
    open_peers, sealed_peers = federation(topology), federation(topology)
    toy.run(Gossip(weights=rule, **PARTS), open_peers, rounds=3)
    toy.run(Gossip(weights=rule, **PARTS, sealed=True), sealed_peers, rounds=3)
    for party, model in own_models(open_peers).items():
        np.testing.assert_array_equal(own_models(sealed_peers)[party], model)


def test_the_coordinator_sees_no_model() -> None:
    peers = federation(Parallel())
    seen = spied(peers)
    algorithm = Gossip(**PARTS, sealed=True)
    state = toy.run(algorithm, peers, rounds=2)
    for model in own_models(peers).values():
        assert not any(model.tobytes() in carried for carried in seen)
    assert algorithm.score(peers, state, peers.population.dataset) is None
    assert any(b"boxes" in carried for carried in seen)


def meddling(change: Any) -> Any:
    def meddle(order: Any) -> Any:
        for own in order.each or ():
            if own.get("mail", {}).get("boxes"):
                change(own["mail"])
        return order

    return meddle


def flip(mail: dict[str, Any]) -> None:
    mail["boxes"] = [bytes([box[0] ^ 1]) + box[1:] for box in mail["boxes"]]


def swap_boxes(mail: dict[str, Any]) -> None:
    mail["boxes"] = mail["boxes"][::-1]


def forge_key(mail: dict[str, Any]) -> None:
    mail["offers"] = [{**offer, "public": bytes(31) + b"\x09"} for offer in mail["offers"]]


@pytest.mark.parametrize(("change", "cause"), [(flip, "altered on its way"), (swap_boxes, "altered on its way"),
                                               (forge_key, "not signed by it")])
def test_a_coordinator_that_meddles_is_found_out(change: Any, cause: str) -> None:
    peers = federation(Parallel())
    spied(peers, meddling(change))
    with pytest.raises(PartyError, match=cause):
        toy.run(Gossip(**PARTS, sealed=True), peers, rounds=1)


def test_another_identity_in_a_known_place_is_found_out() -> None:
    peers = federation(Parallel())
    algorithm = Gossip(**PARTS, sealed=True)
    state = toy.run(algorithm, peers, rounds=1)
    kept = peers.engine.states()
    kept[2] = {key: value for key, value in kept[2].items() if key != state_name(Identity)}
    peers.engine.restore(kept)
    with pytest.raises(PartyError, match="another identity than before"):
        toy.one_more(algorithm, peers, state)
