"""Who may talk to whom: the whole matrix, unions for composite roles, and the features of the roles one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition
from tequio.errors import DataError, PermissionDenied
from tequio.federation.population import Party, Population
from tequio.federation.topology import Cast, Flow, Role, may, require, require_ask

PARTY, AGGREGATOR, COORDINATOR = Role.PARTY, Role.AGGREGATOR, Role.COORDINATOR
PURE = (PARTY, AGGREGATOR, COORDINATOR)
COMPOSITE = [role for bits in range(1, 8) for role in [Role(bits)]]
ALLOWED = {(COORDINATOR, PARTY, Flow.DEPLOY), (AGGREGATOR, PARTY, Flow.COLLECT),
           (AGGREGATOR, COORDINATOR, Flow.HAND_OVER)}


def population(names: tuple[str, ...] | None = None) -> Population:
    dataset = Dataset.of(Schema.of_numbers(["age"], Target("none")), np.arange(3.0)[:, None])
    return Population(dataset, Partition.of([np.array([row]) for row in range(3)], names=names))


@pytest.mark.parametrize(("sender", "receiver", "flow"), list(product(PURE, PURE, Flow)))
def test_the_whole_matrix_of_pure_roles(sender: Role, receiver: Role, flow: Flow) -> None:
    allowed = (sender, receiver, flow) in ALLOWED
    assert may(sender, receiver, flow) is allowed
    if not allowed:
        with pytest.raises(PermissionDenied, match=f"may not {flow.value}"):
            require(sender, receiver, flow)


@pytest.mark.parametrize(("sender", "receiver", "flow"), list(product(COMPOSITE, COMPOSITE, list(Flow)[:3])))
def test_composite_roles_have_the_union_of_their_parts(sender: Role, receiver: Role, flow: Flow) -> None:
    union = any((one, other, flow) in ALLOWED for one, other in product(sender, receiver))
    assert may(sender, receiver, flow) is union


def test_only_full_peers_exchange() -> None:
    exchanging = [pair for pair in product(COMPOSITE, COMPOSITE) if may(*pair, Flow.EXCHANGE)]
    assert exchanging == [(Role.PEER, Role.PEER)]
    assert Role.PEER == PARTY | AGGREGATOR | COORDINATOR


@pytest.mark.parametrize(("receiver", "flow"), list(product(PURE, Flow)))
def test_a_party_starts_no_message(receiver: Role, flow: Flow) -> None:
    """Feature 1: a party only answers."""
    with pytest.raises(PermissionDenied):
        require(PARTY, receiver, flow)


def test_rows_cannot_be_reached_from_outside() -> None:
    """Features 1 and 27: once its task is over nobody reads a party's rows through it."""
    party = Party(0, 1, {}, population())
    assert party.data.train.features.tolist() == [[0.0]]
    party.leave()
    for read in (lambda: party.data, lambda: party.name, lambda: party.settings, lambda: party.rng("any")):
        with pytest.raises(PermissionDenied, match="task that runs there"):
            read()


def test_an_aggregator_collects_and_hands_over_but_does_not_push() -> None:
    """Feature 2: pull and push are different things."""
    require(AGGREGATOR, PARTY, Flow.COLLECT)
    require(AGGREGATOR, COORDINATOR, Flow.HAND_OVER)
    with pytest.raises(PermissionDenied, match="'aggregator' may not deploy to 'party'; only 'coordinator' may"):
        require(AGGREGATOR, PARTY, Flow.DEPLOY)


def test_a_coordinator_deploys_and_collects_only_as_an_aggregator_too() -> None:
    """Features 3 and 4."""
    require(COORDINATOR, PARTY, Flow.DEPLOY)
    with pytest.raises(PermissionDenied, match="'coordinator' may not collect from 'party'"):
        require(COORDINATOR, PARTY, Flow.COLLECT)
    require(COORDINATOR | AGGREGATOR, PARTY, Flow.COLLECT)


def test_an_ask_needs_a_cast_that_may_deploy_and_collect() -> None:
    require_ask(Cast())
    require_ask(Cast(deployer=COORDINATOR, collector=AGGREGATOR))
    require_ask(Cast(Role.PEER, Role.PEER, Role.PEER))
    for wrong in (Cast(collector=COORDINATOR), Cast(deployer=AGGREGATOR), Cast(party=AGGREGATOR)):
        for _ in range(2):  # refused every time, although what is allowed is remembered
            with pytest.raises(PermissionDenied):
                require_ask(wrong)


def test_roles_in_words() -> None:
    assert Role.CENTRE.words == "coordinator and aggregator"
    assert PARTY.words == "party"
    assert Role(0).words == "nobody"


@pytest.mark.parametrize("reserved", ["server", "coordinator", "aggregator"])
def test_reserved_names_are_refused(reserved: str) -> None:
    """Feature 8."""
    with pytest.raises(DataError, match=f"may not be called '{reserved}'"):
        population(("ana", reserved, "eva"))
    assert population(("ana", f"{reserved}-2", "eva")).name(1) == f"{reserved}-2"
