"""Noise on sums that hide their summands: the same numbers as in the open, whoever drops out, and the same bill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tequio
from parts import Parts
from tequio.errors import ConfigError, DataError, QuorumError, TequioError
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.exchange import Replies
from tequio.federation.federation import Rules
from tequio.federation.stages import Aggregated, SumCapacity, Summed
from tequio.noise.coins import Coins
from tequio.noise.grid import step_for
from tequio.noise.sampling import rounded_gaussian
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.aggregation.secure_sum import SecureSum
from tequio.privacy.central import CentralDP, TreeNoise
from tequio.privacy.ledger import Context, Ledger, Terms
from tequio.registry import build

from .conftest import Telling, TellSettings, released, tell, tellers

HIDING = ["secure-sum", "one-shot-sum"]
VALUES = [0.1, -0.2, 0.3, 0.05, 0.25]


def wired(stage, parties=5, hidden="secure-sum", **context):
    """The stage with a ledger, as a run makes it."""
    about = Context(parties, **{"cohort": float(parties), "hidden": hidden, "largest": 64.0, **context})
    ledger = Ledger(Terms(), stage, about)
    ledger.mechanism = replace(stage, expected=about.cohort, ledger=ledger)
    return ledger.mechanism


def in_the_open(stage, values=VALUES, **settings):
    federation = tellers(values, seed=7)
    federation.round = 1
    return released(federation, [stage], **settings)


def hidden(stage, hiding="secure-sum", values=VALUES, rules=None, **settings):
    federation = tellers(values, seed=7)
    federation.round, federation.rules = 1, rules or Rules()
    return released(federation, [stage, build("stage", hiding)], **settings)


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("stage", [CentralDP(noise=0.0, clip=0.3), CentralDP(noise=0.0, clip=9.0, most_rows=8),
                                   TreeNoise(noise=0.0, clip=0.3)], ids=str)
def test_without_noise_a_hidden_sum_is_that_of_the_clipped_updates(stage, hiding):
    ready = wired(stage, hidden=hiding)
    rows = 6 if getattr(stage, "most_rows", 0) else 1
    expected = in_the_open(wired(stage), rows=rows)
    assert hidden(ready, hiding, rows=rows) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("stage", [CentralDP(noise=2.0, clip=0.5), TreeNoise(noise=2.0, clip=0.5)], ids=str)
def test_noise_on_a_hidden_sum_has_the_deviation_that_was_asked_for_and_no_more_than_rounding_adds(
        stage, monkeypatch):
    size = 100_000
    lengths, draw = [], type(stage).draw
    monkeypatch.setattr(type(stage), "draw", lambda self, like, length, *more: lengths.append(length) or draw(
        self, like, length, *more))
    found, _ = (way(wired(stage), size=size, values=[0.0] * 5) for way in (hidden, in_the_open))
    assert found.std() == pytest.approx(2.0 * 0.5 / 5, rel=0.01)
    # A party's rounded update is longer by half a step of 8 / 2^24 in each of 100,000 places. In both cases the mean of
    # up to eight parties is rounded to single precision, and put on the grid afterwards.
    longer = 0.5 * size**0.5 * 8 / 2**24 / 5 / step_for(2.0 * 0.5 / 5)
    assert lengths[0] - lengths[1] == pytest.approx(longer, rel=1e-4)
    assert lengths[1] * step_for(2.0 * 0.5 / 5) == pytest.approx(0.5 / 5, rel=1e-3)


def test_a_hidden_sum_less_its_noise_is_the_sum():
    released_ = hidden(wired(CentralDP(noise=1.0, clip=10.0)))
    step = step_for(10.0 / 5)
    length = (10.0 * (1 + 2**-32) + 10.0 * 8 / 2**23 + 0.5 * 4**0.5 * 8 / 2**24) / 5 / step + 4**0.5
    noise = rounded_gaussian(Coins.derived(7, "central noise", "update", 1, 1), length, 4) * step
    assert released_ - noise == pytest.approx(np.full(4, sum(VALUES) / 5), abs=step)


@pytest.mark.parametrize("hiding", HIDING)
def test_who_drops_out_on_the_way_leaves_the_noise_and_the_divisor(hiding):
    rules = Rules(dropout=0.06 if hiding == "secure-sum" else 0.09, quorum=0.0)  # it strikes there less often
    stage = wired(CentralDP(noise=0.0, clip=9.0), parties=12, hidden=hiding)
    values = np.arange(1, 13) / 100
    federation = tellers(values, seed=2)
    federation.round, federation.rules = 1, rules
    notes = []
    federation.record = lambda kind, facts: notes.append(facts) if kind == "aggregation" else None
    found = released(federation, [stage, build("stage", hiding)])
    summed = notes[0][hiding.replace("-", "_")]["summed"]
    assert 6 < summed < 12
    # the sum over whoever was left, over the twelve that were expected: a subset of the values of that size
    total = round(float(found[0]) * 12 * 100)
    assert sum(range(1, summed + 1)) <= total <= sum(range(13 - summed, 13))
    assert float(found[0]) * 1200 == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize("hiding", HIDING)
def test_the_clip_adapts_to_hidden_lengths_as_to_open_ones(hiding):
    clips = []
    for way, name in ((in_the_open, ""), (lambda stage: hidden(stage, hiding), hiding)):
        stage = wired(CentralDP(noise=0.2, clip=0.3, quantile=0.5, bit_noise=1.0), hidden=name)
        way(stage)
        clips.append(stage.ledger.memory["clip"])
    assert clips[0] == clips[1] != 0.3


def test_an_adaptive_clip_never_outgrows_what_the_sum_has_room_for():
    stage = wired(CentralDP(noise=0.0, clip=0.3, quantile=0.9, clip_rate=5.0), largest=0.4)
    hidden(stage, values=[9.0] * 5)
    assert stage.ledger.memory["clip"] == 0.4


def test_both_arrays_of_a_hidden_reply_are_noised_and_the_clip_moves_once():
    stage = wired(replace(CentralDP(noise=0.1, clip=0.3, quantile=0.5), arrays=("update", "control")))
    federation = tellers(VALUES)
    federation.round = 1
    algorithm = Telling(**Parts(stages=(stage, SecureSum())))
    told = algorithm.told(federation, federation.everyone(), names=("update", "control"))
    assert not np.allclose(told["update"], told["control"])
    assert stage.ledger.memory["clip"] != 0.3
    assert not stage.ledger.owed


def test_a_share_does_not_depend_on_who_else_came():
    """One party more must not change how those of the others are rounded."""
    room = wired(CentralDP(), parties=100, cohort=10.0, sampling="poisson").capacity()
    assert room == SumCapacity(64)
    assert wired(CentralDP(most_rows=7), parties=3).capacity() == SumCapacity(4, weight=7.0)
    federation = tellers(VALUES)
    federation.round = 1
    with pytest.raises(DataError, match="sized for 4 parties, but 5 joined"):
        SecureSum().total(federation, np.arange(5), "update", np.ones(5), 4, capacity=SumCapacity(4))


def test_more_parties_than_a_sum_has_room_for_come_next_to_never():
    from scipy.stats import binom

    for parties, rate in ((1000, 0.01), (10_000, 0.05), (10**6, 1e-4)):
        most = Context(parties, parties * rate, "poisson").most
        assert binom.sf(most, parties, rate) < 1e-12
        assert most < 8 * (parties * rate + 8)
    assert Context(20, 20.0).most == 32
    assert Context(16, 16.0).most == 16


def test_a_hidden_round_of_nobody_releases_noise_like_any_other():
    stage = wired(CentralDP(noise=1.0, clip=3.0), cohort=2.0, sampling="poisson")
    stage.ledger.template = {"w": np.zeros(10_000, dtype=np.float32)}
    assert hidden(stage, parties=[], size=10_000).std() == pytest.approx(3.0 / 2, rel=0.03)


def test_too_few_for_a_hidden_sum_stop_the_run():
    with pytest.raises(QuorumError, match="3 are needed"):
        hidden(wired(CentralDP(noise=1.0)), values=[0.1, 0.2])


def test_an_algorithm_that_forgets_the_noise_is_found_out():
    stage, federation = wired(CentralDP(noise=1.0)), tellers(VALUES)
    federation.ask(federation.everyone(), tell, settings=TellSettings(size=4), stages=[stage])
    with pytest.raises(TequioError, match="used without the noise that it was charged with"):
        stage.ledger.epsilon()


GIVEN = {"data": {"name": "breast-cancer", "partition": {"name": "iid", "parties": 8},
                  "split": {"validation": 0.0, "test": 0.0}}, "rounds": 3,
         "algorithm": {"name": "fedavg", "weights": "uniform"}, "local": {"learning_rate": 1e-4},
         "evaluation": {"at": ["coordinator"]}, "engine": {"workers": 1}}


def run(tmp_path, *stages, **changes):
    return tequio.run(GIVEN | changes | {"stages": list(stages), "output": {"folder": str(tmp_path)}})


@pytest.mark.parametrize(("stage", "changes"), [
    ({"name": "central-dp", "noise": 1.0, "quantile": 0.5, "bit_noise": 1.0}, {}),
    ({"name": "central-dp", "noise": 1.0, "most_rows": 30}, {"algorithm": {"name": "fedavg"}}),
    ({"name": "central-dp", "noise": 1.0}, {"algorithm": {"name": "scaffold", "weights": "uniform"}}),
    ({"name": "central-dp", "noise": 3.0}, {"selector": {"name": "random", "count": 5}}),
    ({"name": "dp-ftrl", "noise": 2.0}, {"selector": {"name": "in-turn", "count": 4}}),
    ({"name": "dp-mf", "noise": 2.0}, {"selector": {"name": "in-turn", "count": 4}}),
], ids=str)
def test_a_hidden_run_costs_what_an_open_one_does(stage, changes, tmp_path):
    plain, masked = run(tmp_path, stage, **changes), run(tmp_path, stage, "secure-sum", **changes)
    assert masked.privacy["epsilon"] == pytest.approx(plain.privacy["epsilon"])
    for name, values in plain.model.items():
        np.testing.assert_allclose(masked.model[name], values, atol=2e-3 * max(1.0, float(np.abs(values).max())))
    assert "sees no single update, but their sum before it adds the noise" in masked.privacy["words"]
    assert "sees the clipped updates, and is trusted to add the noise" in plain.privacy["words"]


def test_epsilon_of_a_hidden_run_is_what_dp_accounting_says(tmp_path):
    import dp_accounting
    from dp_accounting import pld

    found = run(tmp_path, {"name": "central-dp", "noise": 1.3}, "secure-sum",
                selector={"name": "poisson", "fraction": 0.75}).privacy["epsilon"]
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.75, dp_accounting.GaussianDpEvent(1.3)), 3)
    assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_a_clip_that_the_sum_has_no_room_for_is_refused():
    stages = [{"name": "central-dp", "noise": 1.0, "clip": 3.0}, {"name": "secure-sum", "largest": 2.0}]
    with pytest.raises(ConfigError, match="'secure-sum' has room for entries of up to 2, and a clip of 3"):
        make_scenario(complete(GIVEN | {"stages": stages}))


@pytest.mark.parametrize("size", [1000, 6])
def test_rounding_counts_all_that_a_party_sends_where_buffers_are_fewer_than_weights(size):
    """0.5 sqrt(1006) steps of the ring, whichever of the two arrays is noised: both are one release."""
    stage = wired(replace(CentralDP(noise=1.0), arrays=("update", "buffers")), buffers=frozenset({"mean"}))
    stage.ledger.template = {"w": np.zeros(1000), "mean": np.zeros(6)}
    whole = Summed(np.empty(0), np.arange(4), 4.0, {}, np.empty(0, np.int64), (32, 64.0, 4), np.ones(4), np.empty(0))
    aggregated = Aggregated("update", Replies(()), np.arange(4), np.ones(4), 4.0, summed=whole)
    assert stage._rounding(size, aggregated) == pytest.approx(
        8 / 2**23 + 0.5 * 1006**0.5 * 4 / Ring.of(32, 64.0, 4).scale)  # single precision, for a mean of up to eight
