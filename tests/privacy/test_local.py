"""Noise that is added before an update leaves, and what the busiest party has spent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tequio.privacy.accounting import Release, epsilon_of
from tequio.privacy.ledger import Context, Ledger, Terms
from tequio.privacy.local import LocalDP

from .conftest import TellSettings, tell, tellers


def wired(parties, rounds=10, turns=0, **settings):
    stage = LocalDP(**{"noise": 1.0, **settings})
    ledger = Ledger(Terms(), stage, Context(parties, parties, rounds=rounds, turns=turns))
    ledger.mechanism = replace(stage, ledger=ledger)
    return ledger.mechanism, ledger


def asked(federation, stage, parties=None, size=4):
    federation.round += 1
    return federation.ask(federation.everyone() if parties is None else parties, tell, settings=TellSettings(size=size),
                          stages=[stage])


@pytest.mark.parametrize(("shape", "deviation"), [("gaussian", 3.0 * 0.5), ("laplace", 2**0.5 * 3.0 * 0.5)])
def test_every_update_carries_its_own_noise(shape, deviation):
    stage, _ = wired(2, noise=3.0, clip=0.5, shape=shape)
    first, second = (payload["update"]["w"] for payload in asked(tellers([0, 0]), stage, size=200_000).payloads)
    assert first.std() == pytest.approx(deviation, rel=0.01)
    assert second.std() == pytest.approx(deviation, rel=0.01)
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0.0, abs=0.01)


def test_laplace_noise_goes_with_a_clip_on_the_absolute_sum():
    stage, _ = wired(1, noise=0.0, clip=2.0, shape="laplace")
    [payload] = asked(tellers([5]), stage).payloads
    assert payload["update"]["w"] == pytest.approx(np.full(4, 0.5))
    assert "loss" not in payload


def test_a_party_pays_for_the_rounds_in_which_it_answers():
    stage, ledger = wired(3, noise=8.0)
    federation = tellers([0, 0, 0])
    for parties in ([0, 1], [1, 2], [1]):
        asked(federation, stage, parties)
    assert ledger.epsilon() == pytest.approx(epsilon_of({Release(4.0): 3}, 1e-5))


def test_an_update_may_turn_round_so_its_sensitivity_is_twice_the_clip():
    stage, ledger = wired(1, noise=10.0, shape="laplace")
    asked(tellers([0]), stage)
    assert ledger.epsilon() == pytest.approx(2 / 10.0, rel=1e-3)


def test_parties_that_take_turns_plan_for_their_turns_only():
    stage, ledger = wired(6, rounds=10, turns=3)
    assert len(stage.planned(1.0, ledger.context)) == 4
