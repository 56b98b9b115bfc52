"""Tree noise: few nodes a prefix, the same node the same noise, and a bill by the rounds of the busiest party."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest

from tequio.privacy.accounting import Release, epsilon_of
from tequio.privacy.central import TreeNoise, nodes_of, sensitivity
from tequio.privacy.ledger import Context, Ledger, Terms

from .conftest import released, tellers


def wired(parties, cohort, rounds=8, turns=0, **settings):
    stage = TreeNoise(**{"noise": 1.0, **settings}, expected=cohort)
    ledger = Ledger(Terms(), stage, Context(parties, cohort, rounds=rounds, turns=turns))
    ledger.mechanism = replace(stage, ledger=ledger)
    return ledger.mechanism, ledger


def test_a_prefix_has_one_node_for_every_binary_digit():
    assert nodes_of(0) == set()
    assert nodes_of(6) == {(2, 0), (1, 2)}  # rounds 1 to 4, and 5 to 6
    assert nodes_of(7) == {(2, 0), (1, 2), (0, 6)}


def test_the_noise_of_the_model_is_that_of_its_prefix_and_not_of_its_rounds():
    stage, _ = wired(2, 2, noise=3.0, clip=0.5)
    federation, model, deviations = tellers([0, 0]), 0.0, []
    for federation.round in range(1, 9):
        model = model + released(federation, [stage], size=50_000)
        deviations.append(model.std())
    expected = [3.0 * 0.5 / 2 * sqrt(len(nodes_of(round))) for round in range(1, 9)]
    assert deviations == pytest.approx(expected, rel=0.02)


def test_a_party_moves_every_node_above_its_rounds():
    # of 4 rounds: its leaf, the pair and all four
    assert sensitivity([1], 4) == pytest.approx(sqrt(3))
    # twice: two leaves, one pair twice, the root twice
    assert sensitivity([1, 2], 4) == pytest.approx(sqrt(1 + 1 + 4 + 4))
    # rounds 5 and 6 of 6: the root of eight is never completed
    assert sensitivity([5], 6) == pytest.approx(sqrt(2))


def test_parties_that_take_part_once_cost_what_dp_accounting_says_of_one_epoch():
    from dp_accounting import NeighboringRelation, SingleEpochTreeAggregationDpEvent, rdp

    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(SingleEpochTreeAggregationDpEvent(4.0, 8))
    stage, ledger = wired(8, 1, turns=8)
    ledger.entries = stage.planned(4.0, ledger.context)
    spent = stage.spent(ledger.entries, ledger.context)
    assert spent == [{Release(4.0 / 2): 1}]  # heights 0 to 3
    assert epsilon_of(spent[0], 1e-5, "rdp") == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)


def test_the_ledger_counts_the_rounds_in_which_parties_really_took_part():
    stage, ledger = wired(3, 1, turns=3)
    federation = tellers([0, 0, 0])
    for federation.round, party in enumerate([0, 1, 0], start=1):
        released(federation, [stage], parties=[party])
    moved = sensitivity([1, 3], 3)
    assert ledger.epsilon() == pytest.approx(epsilon_of({Release(1.0 / moved): 1}, 1e-5))
