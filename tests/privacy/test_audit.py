"""An audit of real releases: two runs that differ in one party tell less apart than the ledger claims."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.privacy.auditing import epsilon_lower_bound
from tequio.privacy.central import CentralDP

from .conftest import released, tellers
from .test_central import wired

TRIALS, ROUNDS = 400, 3


def ledger_of(rate, noise):
    sampling = "poisson" if rate < 1 else "none"
    stage, ledger = wired(4, cohort=4 * rate, sampling=sampling, noise=noise)
    ledger.template = {"w": np.zeros(4, dtype=np.float32)}
    return stage, ledger


def scores(rate, noise, *, present):
    """How far the released means of a short run lie in the direction of the party in question, trial by trial."""
    found, federation = [], tellers([50.0 if present else 0.0, 0.0, 0.0, 0.0])
    for trial in range(TRIALS):
        stage, ledger = ledger_of(rate, noise)
        federation.seed, total = 2 * trial + present, 0.0
        for federation.round in range(1, ROUNDS + 1):
            chosen = federation.everyone()[federation.rng("select").random(4) < rate]
            total += released(federation, [stage], parties=chosen).sum()
        found.append(total)
    assert len(ledger.entries) == ROUNDS
    return found


def audited(rate, noise):
    return epsilon_lower_bound(scores(rate, noise, present=True), scores(rate, noise, present=False), 1e-5)


def claimed(rate, noise):
    _, ledger = ledger_of(rate, noise)
    ledger.entries = ledger.mechanism.planned(noise, ledger.context)[:ROUNDS]
    return ledger.epsilon()


def test_the_audit_stays_under_what_the_ledger_claims():
    assert 0.8 < audited(1.0, 1.0) <= claimed(1.0, 1.0)
    assert audited(0.5, 2.5) <= claimed(0.5, 2.5)


def test_the_audit_catches_a_mechanism_that_forgets_to_clip(monkeypatch):
    monkeypatch.setattr(CentralDP, "send", lambda self, party, payload: payload)
    assert audited(0.5, 2.5) > claimed(0.5, 2.5)


def test_the_audit_catches_a_tenth_of_the_noise():
    assert audited(0.5, 0.25) > claimed(0.5, 2.5)


def test_the_bound_of_a_coin_is_nothing_and_of_a_giveaway_what_the_trials_allow():
    draw = np.random.default_rng(0)
    assert epsilon_lower_bound(draw.random(400), draw.random(400), 1e-5) < 0.5
    assert epsilon_lower_bound(np.ones(400), np.zeros(400), 1e-5) == pytest.approx(np.log(200 / 3.72), abs=0.1)
