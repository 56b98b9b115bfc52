"""Clipped updates, a noised sum over the expected cohort, and a clip that finds its quantile."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from tequio.errors import ConfigError, PartyError
from tequio.privacy.central import CentralDP
from tequio.privacy.ledger import Context, Ledger, Terms
from tequio.privacy.noising import clipped

from .conftest import released, tellers


def wired(parties, cohort=None, sampling="none", rounds=10, terms=None, **settings):
    """The stage with a ledger, as a run makes it."""
    context = Context(parties, cohort or parties, sampling, rounds)
    stage = CentralDP(**{"noise": 1.0, **settings}, expected=context.cohort)
    ledger = Ledger(terms or Terms(), stage, context)
    ledger.mechanism = replace(stage, ledger=ledger)
    return ledger.mechanism, ledger


def asked(federation, stage, **settings):
    federation.round += 1
    return released(federation, [stage], **settings)


def test_all_arrays_of_a_party_are_clipped_together():
    payload = {"update": {"a": np.array([3.0])}, "control": {"a": np.array([4.0])}, "rows": 7, "loss": 0.3}
    content, was_within = clipped(payload, ("update", "control"), 1.0)
    assert (content["update"]["a"].item(), content["control"]["a"].item()) == pytest.approx((0.6, 0.8))
    assert (content["rows"], "loss" in content, was_within) == (7, False, False)
    assert clipped(payload, ("update", "control"), 5.0)[0]["control"] is payload["control"]


def test_an_array_that_nobody_protects_is_refused_at_the_party():
    stage, _ = wired(2)
    with pytest.raises(PartyError, match="also sends 'control', which nothing would clip or noise"):
        asked(tellers([1, 1]), stage, control=True)


def test_the_sum_is_divided_by_the_expected_cohort():
    stage, _ = wired(3, cohort=10, noise=0.0, clip=100.0)
    assert asked(tellers([1, 2, 3]), stage) == pytest.approx(np.full(4, 6 / 10))


def test_the_noise_has_the_standard_deviation_that_was_asked_for():
    stage, _ = wired(3, cohort=10, noise=2.0, clip=0.5)
    federation = tellers([0, 0, 0], seed=3)
    first, second = (asked(federation, stage, size=200_000) for _ in range(2))
    assert first.std() == pytest.approx(2.0 * 0.5 / 10, rel=0.01)
    assert first.mean() == pytest.approx(0.0, abs=4 * 0.1 / sqrt(200_000))
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0.0, abs=0.01)


def test_two_releases_in_one_round_do_not_share_their_noise():
    stage, _ = wired(2)
    federation = tellers([0, 0])
    once = asked(federation, stage)
    federation.round -= 1
    assert not np.allclose(once, asked(federation, stage))


def test_a_round_that_nobody_answers_releases_noise_like_any_other():
    stage, ledger = wired(4, cohort=2, clip=3.0)
    ledger.template = {"w": np.zeros(100_000, dtype=np.float32)}
    federation = tellers([0] * 4)
    nothing = released(federation, [stage], parties=[], size=100_000)
    assert len(ledger.entries) == 1
    assert nothing.std() == pytest.approx(3.0 / 2, rel=0.01)


def test_weights_by_rows_are_bounded():
    stage, _ = wired(2, noise=0.0, clip=100.0, most_rows=5)
    assert asked(tellers([1, 3]), stage, rows=20) == pytest.approx(np.full(4, (1 + 3) / 2))
    assert asked(tellers([1, 3]), stage, rows=1) == pytest.approx(np.full(4, (1 + 3) / 5 / 2))


def test_the_clip_finds_the_quantile_of_the_lengths():
    lengths = np.linspace(1, 20, 20)
    stage, ledger = wired(20, clip=0.1, noise=0.5, quantile=0.5)
    federation = tellers(lengths / 2)  # four equal entries: twice as long as each
    for _ in range(60):
        asked(federation, stage)
    assert 8 < ledger.memory["clip"] < 13


def test_update_and_count_together_tell_as_much_as_the_noise_says():
    stage = CentralDP(noise=0.8, quantile=0.5, bit_noise=0.6)
    update = stage.update_noise(10)
    # a party moves the update by 1 (in clips) and the centred count by 1/2
    assert 1 / update**2 + (0.5 / 0.6) ** 2 == pytest.approx(1 / 0.8**2)
    assert CentralDP(noise=0.8, quantile=0.5).update_noise(40) == pytest.approx((0.8**-2 - 4.0**-2) ** -0.5)
    with pytest.raises(ConfigError, match="set bit_noise above"):
        CentralDP(noise=1.0, quantile=0.5).update_noise(10)


def test_without_noise_or_budget_there_is_nothing_to_add():
    with pytest.raises(ConfigError, match=r"set its noise, or privacy\.epsilon"):
        asked(tellers([1]), CentralDP())


def test_secret_noise_differs_although_the_seed_does_not():
    means = [asked(tellers([0, 0], seed=5), wired(2, secret=True)[0]) for _ in range(2)]
    assert not np.allclose(*means)
    again = [asked(tellers([0, 0], seed=5), wired(2)[0]) for _ in range(2)]
    assert np.array_equal(*again)
