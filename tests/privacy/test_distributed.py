"""Shares of noise that only a hidden sum has enough of: exact sums, its variance, its bill, and drop-outs."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import tequio
from tequio.errors import ConfigError, PartyError, QuorumError
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.federation import Rules
from tequio.federation.population import Party
from tequio.noise.grid import conditional_length
from tequio.privacy.accounting import Release, _renyi_loss, epsilon_of
from tequio.privacy.ledger import Context, Ledger, Terms
from tequio.privacy.local import DistributedDP
from tequio.privacy.verification.transcript import Transcript
from tequio.registry import build

from .conftest import released, tellers
from .test_hidden_noise import GIVEN, run
from .ways import population

VALUES = [0.1, -0.2, 0.3, 0.05, 0.25]


def wired(parties=5, **settings):
    context = Context(parties, float(parties), hidden="secure-sum", largest=64.0, scale=2.0**24)
    stage = DistributedDP(**{"noise": 1.0, **settings})
    stage = stage.opened(stage.noise, context)
    ledger = Ledger(Terms(accountant="rdp"), stage, context)
    ledger.mechanism = replace(stage, ledger=ledger)
    return ledger.mechanism


def summed(stage, hiding="secure-sum", values=VALUES, rules=None, more=(), seed=3, **settings):
    federation = tellers(values, seed=seed)
    federation.round, federation.rules, federation.notary = 1, rules or Rules(), Transcript()
    return released(federation, [stage, build("stage", hiding), *more], **settings)


def shares_of(stage, parties, size, seed=3, values=None):
    """What each party adds of an update of one value, or of noughts, in steps."""
    people, values = population(parties, seed), values or [0.0] * parties
    return [stage.send(Party(index, 1, {}, people), {"update": {"w": np.full(size, value, np.float32)}, "rows": 1})
            ["update"]["w"] / stage.step for index, value in enumerate(values)]


@pytest.mark.parametrize("hiding", ["secure-sum", "one-shot-sum"])
def test_the_sum_is_exactly_that_of_rounded_updates_and_whole_numbers_of_noise(hiding):
    stage = wired(clip=9.0)
    shares, noise = (np.array(shares_of(stage, 5, 4, values=values)) for values in (VALUES, None))
    assert np.array_equal(shares, np.rint(shares))
    exact = np.array(VALUES, np.float32)[:, None] / stage.step
    assert np.abs(shares - noise - exact).max() < 1
    found = summed(stage, hiding).astype(np.float64) * 5 / stage.step
    assert found == pytest.approx(shares.sum(axis=0), abs=2**-24 * 5 * float(np.abs(noise).max()))


def test_what_a_party_sends_lies_on_the_grid_of_the_sum():
    stage = wired(parties=100, clip=1.0)
    assert stage.step == 128 / 2**24  # shares of 1/128, and 2^24 steps make up one
    assert wired(parties=5, clip=0.7).step == 2.0**-21
    assert all(np.array_equal(share, np.rint(share)) for share in shares_of(stage, 3, 50))


def test_the_noise_of_the_sum_has_the_deviation_that_was_asked_for():
    stage = wired(parties=10, noise=2.0, clip=0.5, tolerated=0.2)
    noise = summed(stage, values=[0.0] * 10, size=50_000) * 10
    one = conditional_length(0.5 / stage.step, 50_000) * stage.step
    # eight shares are enough, and ten came
    assert noise.std() == pytest.approx(2.0 * one * sqrt(10 / 8), rel=0.01)
    assert noise.mean() == pytest.approx(0.0, abs=4 * 2.3 * one / sqrt(50_000))
    assert stage.ledger.entries[0].noise == pytest.approx(2.0 * sqrt(10 / 8))


def test_one_partys_share_is_not_the_noise_of_another():
    one, other = shares_of(wired(), 2, 1000)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.1


def test_drop_outs_that_are_tolerated_leave_enough_noise():
    stage = wired(parties=12, noise=1.0, clip=0.5, tolerated=0.4)
    rules = Rules(dropout=0.06, quorum=0.0)
    noise = summed(stage, values=[0.0] * 12, rules=rules, seed=2, size=20_000)
    entry = stage.ledger.entries[0]
    came = round(entry.noise**2 * 7)
    assert 7 <= came < 12
    assert noise.std() * came / 0.5 == pytest.approx(entry.noise, rel=0.02)


@pytest.mark.parametrize("hiding", ["secure-sum", "one-shot-sum"])
def test_more_drop_outs_than_tolerated_stop_the_run_before_anything_is_read(hiding):
    with pytest.raises(QuorumError, match=r"parties are left at '(keys|send)'"):
        summed(wired(parties=12, tolerated=0.0), hiding, values=[0.0] * 12, seed=2,
               rules=Rules(dropout=0.06 if hiding == "secure-sum" else 0.12, quorum=0.0))


def test_a_verified_sum_of_shares_is_proved():
    assert np.isfinite(summed(wired(), more=[build("stage", "verified")])).all()


def test_noise_of_few_steps_costs_more_and_of_many_what_a_gaussian_does():
    import dp_accounting
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant([*range(2, 64), 80, 96, 128, 192, 256, 384, 512, 1024])
    accountant.compose(dp_accounting.GaussianDpEvent(1.5), 10)
    gaussian = accountant.get_epsilon(1e-5)
    assert epsilon_of({Release(1.5, "skellam", steps=2.0**20): 10}, 1e-5) == pytest.approx(gaussian, rel=1e-6)
    coarse = epsilon_of({Release(1.5, "skellam", steps=4.0): 10}, 1e-5)
    assert gaussian < coarse < 1.1 * gaussian
    assert epsilon_of({Release(1.5, "skellam"): 1, Release(1.0, "laplace"): 1}, 1e-5) == float("inf")


@pytest.mark.parametrize(("steps", "noise", "order"), [(1, 2.0, 2), (3, 1.0, 5), (10, 0.7, 3), (4, 3.0, 20)])
def test_the_bill_covers_the_true_divergence(steps, noise, order):
    from scipy.stats import skellam as law

    half = (noise * steps) ** 2 / 2
    reach = np.arange(-int(40 * noise * steps) - 40, int(40 * noise * steps) + 40)
    logs = order * law.logpmf(reach, half, half) + (1 - order) * law.logpmf(reach - steps, half, half)
    logs = logs[np.isfinite(logs)]
    true = (logs.max() + np.log(np.exp(logs - logs.max()).sum())) / (order - 1)
    claimed = _renyi_loss(Release(noise, "skellam", steps=steps), order)
    assert order / noise**2 / 2 * 0.7 < true <= claimed


STAGE = {"name": "distributed-dp", "noise": 1.0}


def test_a_run_pays_for_the_noise_that_its_sums_had(tmp_path):
    result = run(tmp_path, STAGE, "secure-sum")
    # six of eight shares are enough, all eight came, three times
    expected = epsilon_of({Release(sqrt(8 / 6), "skellam", steps=2.0**20): 3}, 1e-5)
    assert result.privacy["epsilon"] == pytest.approx(expected, rel=1e-6)
    assert result.privacy["accountant"] == "rdp"
    assert "6 shares have a deviation of 1 times that length" in result.privacy["words"]
    assert "must stay secret, from the coordinator too" in result.privacy["words"]


def test_noise_is_calibrated_for_the_worst_that_is_tolerated(tmp_path):
    result = run(tmp_path, "distributed-dp", "secure-sum", privacy={"epsilon": 5.0})
    assert result.summary["rounds"] == 3
    assert 3.5 < result.privacy["epsilon"] < 5.0
    planned = epsilon_of({Release(result.privacy["noise"], "skellam", steps=2.0**20): 3}, 1e-5)
    assert 4.98 < planned <= 5.0


def test_runs_are_the_same_on_any_number_of_workers_and_secret_noise_differs(tmp_path):
    def model(workers, **settings):
        return run(tmp_path, STAGE | settings, "secure-sum", engine={"workers": workers}).summary["model_sha256"]

    assert model(1) == model(2)
    assert model(1, secret=True) != model(1, secret=True)


@pytest.mark.parametrize(("reason", "stages", "changes"), [
    ("has to come after it", [STAGE], {}),
    ("has to come after it", [STAGE, "delta-zstd"], {}),
    ("only where it is known how many parties come", [STAGE, "secure-sum"],
     {"selector": {"name": "poisson", "fraction": 0.5}}),
    ("too wide for a clip of 1", [STAGE, {"name": "secure-sum", "largest": 1e6}], {}),
    ("reach up to 4.9", [{**STAGE, "noise": 0.8}, {"name": "secure-sum", "largest": 2.0}], {}),
    ("reach up to", ["distributed-dp", {"name": "secure-sum", "largest": 2.0}], {"privacy": {"epsilon": 1.0}}),
    ("parties weigh by their rows", [STAGE, "secure-sum"], {"algorithm": {"name": "fedavg"}}),
], ids=str)
def test_what_voids_it_is_refused(reason, stages, changes):
    made = [{"name": stage} if isinstance(stage, str) else stage for stage in stages]
    with pytest.raises(ConfigError, match=reason):
        make_scenario(complete(GIVEN | changes | {"stages": made}))


def test_a_budget_of_the_party_does_not_count_shares_of_noise_as_its_own(tmp_path):
    stages = [{**STAGE, "noise": 1.0}, {"name": "secure-sum"}]
    with pytest.raises(PartyError, match="no noise of the party's own"):
        tequio.run(GIVEN | {"stages": stages, "policy": {"budget": {"epsilon": 1e6, "delta": 1e-5}},
                            "output": {"folder": str(tmp_path)}})


def test_the_model_still_learns(tmp_path):
    result = tequio.run(GIVEN | {"stages": [{**STAGE, "noise": 0.05, "clip": 0.5}, {"name": "secure-sum"}],
                                 "local": {"learning_rate": 0.1}, "rounds": 10, "output": {"folder": str(tmp_path)},
                                 "data": {**GIVEN["data"], "prepare": ["standardise"], "prepare_scope": "local"}})
    assert result.metrics["test.accuracy"][-1] > 0.9
