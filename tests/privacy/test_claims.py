"""Where a ledger could claim more than the code does: each test is a way in which it once did, or might have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tequio
from tequio.errors import ConfigError
from tequio.experiments.api import resume_run
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.exchange import Failure, Replies, Reply
from tequio.federation.population import Party
from tequio.noise.coins import Coins
from tequio.noise.grid import step_for
from tequio.noise.sampling import rounded_gaussian
from tequio.privacy.accounting import Release, epsilon_of
from tequio.privacy.central import CentralDP, TreeNoise
from tequio.privacy.labels import RandomisedResponse
from tequio.privacy.ledger import Context, Ledger, Terms
from tequio.privacy.local import DistributedDP, LocalDP
from tequio.privacy.noising import clipped, keyed_by, norm, on_grid
from tequio.privacy.rows import NoisySums

from .conftest import released, tellers
from .passages import people
from .test_hidden_noise import GIVEN, run
from .ways import population

ZEROS = {"w": np.zeros(1000, dtype=np.float32)}


def test_lengths_are_never_underestimated():
    draw = np.random.default_rng(0)
    for size in (1, 255, 256, 1000, 70_001):
        values = draw.standard_normal(size).astype(np.float32)
        true = float(np.sqrt((values.astype(np.float64) ** 2).sum()))
        assert true <= norm([values]) <= true * (1 + 1e-9)
        assert np.abs(values.astype(np.float64)).sum() <= norm([values], order=1)
    for unit, kind in ((5e37, np.float32), (3e307, np.float64), (1e-43, np.float32), (1e-310, np.float64)):
        values = np.array([3 * unit, 4 * unit], kind)  # whose squares do not exist
        ratio = norm([values]) / np.hypot(*map(float, values))
        assert 1 <= ratio <= 1 + 1e-9


NASTY = {"nan": np.nan, "inf": np.inf, "minus inf": -np.inf}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("value", NASTY.values(), ids=NASTY)
def test_what_is_not_finite_becomes_noughts(value, order):
    update = {"w": np.full(5, 0.1, np.float32), "b": np.array([0.1, value])}
    content, was_within = clipped({"update": update, "rows": 3}, ("update",), 1.0, order)
    assert not was_within
    assert {name: values.tolist() for name, values in content["update"].items()} == {"w": [0.0] * 5, "b": [0.0] * 2}


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("value", [3e38, -3e38, 1e-45, 1e-40, 1.0])
def test_extreme_updates_are_clipped_to_the_bound(value, kind):
    short = clipped({"update": {"w": np.full(1000, value, kind)}}, ("update",), 0.3)[0]["update"]["w"]
    assert np.isfinite(short).all()
    assert np.sqrt((short.astype(np.float64) ** 2).sum()) <= 0.3
    assert abs(value) < 1e-3 or np.sqrt((short.astype(np.float64) ** 2).sum()) == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize("stage", [LocalDP(noise=1.0), LocalDP(noise=1.0, shape="laplace"),
                                   DistributedDP(noise=1.0, expected=4.0)], ids=lambda stage: type(stage).__name__)
@pytest.mark.parametrize("value", [*NASTY.values(), 3e38, 1e-45])
def test_noise_covers_whatever_a_party_sends_alike(stage, value):
    """The reply of a party whose training ran away is like any other: finite, in bounds, and it is paid for."""
    sent = stage.send(Party(0, 1, {}, population(2)), {"update": {"w": np.full(1000, value, np.float32)}})
    assert np.isfinite(sent["update"]["w"]).all()
    assert np.abs(sent["update"]["w"]).max() < 20
    usual = stage.send(Party(0, 1, {}, population(2)), {"update": {"w": np.zeros(1000, np.float32)}})
    if not np.isfinite(value):
        assert np.array_equal(sent["update"]["w"], usual["update"]["w"])


def test_a_clipped_update_is_not_longer_than_the_clip():
    values = np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    short = clipped({"update": {"w": values}}, ("update",), 0.3)[0]["update"]["w"]
    assert np.sqrt((short.astype(np.float64) ** 2).sum()) <= 0.3


def test_clipping_where_an_update_lies_spares_what_the_party_keeps():
    kept, free = np.ones(10, dtype=np.float32), np.ones(10, dtype=np.float32)
    clipped({"update": {"w": kept[2:]}}, ("update",), 0.1, kept={"memory": [{"old": kept}]})
    assert kept.tolist() == [1.0] * 10
    content, _ = clipped({"update": {"w": free}}, ("update",), 0.1, kept={"memory": [{"old": kept}]})
    assert content["update"]["w"] is free
    assert free[0] < 1
    sealed = np.ones(10, dtype=np.float32)
    sealed.flags.writeable = False
    assert clipped({"update": {"w": sealed}}, ("update",), 0.1, kept={})[0]["update"]["w"][0] < 1


@pytest.mark.parametrize("extra", [{"mean_age": 41.5}, {"note": "x"}, {"table": {"a": 1}}, {"count": 3}])
def test_whatever_else_a_task_sends_is_refused(extra):
    with pytest.raises(ConfigError, match="which nothing would clip or noise"):
        clipped({"update": ZEROS, "rows": 3, "steps": 1, "loss": 0.1, **extra}, ("update",), 1.0)


def test_what_is_released_lies_on_a_grid_that_any_update_could_have_reached():
    step = step_for(0.3)
    assert step == 2.0**-22
    for values in (np.full(1000, 0.1), np.full(1000, 1 / 3)):
        noise = rounded_gaussian(Coins.derived(0), 0.3 / step, 1000)
        out = on_grid({"w": values}, step, noise)["w"]
        assert np.array_equal(out / step, np.trunc(values / step) + noise)
        single = on_grid({"w": values.astype(np.float32)}, step, noise)["w"]
        assert single.dtype == np.float32
        assert np.array_equal(single, on_grid({"w": values.astype(np.float32).astype(float)}, step, noise)["w"].astype(
            np.float32))


@pytest.mark.parametrize("stage", [LocalDP(noise=1.0), LocalDP(noise=1.0, shape="laplace"),
                                   DistributedDP(noise=1.0, expected=4.0), NoisySums(noise=1.0, moves={"w": 1.0})],
                         ids=lambda stage: type(stage).__name__)
def test_two_replies_of_one_round_do_not_share_their_noise(stage):
    party = Party(0, 1, {}, population(2))
    first, second = (stage.send(party, {"update": {"w": np.zeros(1000)}})["update"]["w"] for _ in range(2))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
    again = Party(0, 1, {}, population(2))
    assert np.array_equal(stage.send(again, {"update": {"w": np.zeros(1000)}})["update"]["w"], first)


def test_a_label_is_answered_once_even_if_the_answer_was_forgotten():
    """A coordinator that could have labels answered again and again would find out the truth by voting."""
    told = []
    for round in (1, 5):
        party = Party(2, round, {}, people())
        RandomisedResponse(epsilon=0.5).enter(party)
        told.append(np.asarray(party.data.train.target).tolist())
    assert told[0] == told[1]


def test_dp_ftrl_refuses_a_second_sum_in_a_round():
    stage = TreeNoise(noise=1.0)
    ledger = Ledger(Terms(), stage, Context(2, 2.0))
    stage = ledger.mechanism = replace(stage, ledger=ledger)
    federation = tellers([0, 0])
    federation.round = 1
    released(federation, [stage])
    with pytest.raises(ConfigError, match="has noise for one sum per round"):
        released(federation, [stage])


def charged(stage):
    ledger = Ledger(Terms(), stage, Context(6, 6.0))
    ledger.charge(Replies((Reply(0, {}), Reply(3, {})), (Failure(1, "no good"),), (4,), (2,)), 1, 1.0)
    return ledger.entries[0]


def test_answers_that_came_too_late_or_were_no_good_are_paid_for_where_parties_noise_for_themselves():
    assert charged(LocalDP(noise=1.0)).answered == (0, 1, 2, 3)
    assert charged(DistributedDP(noise=1.0)).answered == (0, 1, 2, 3)
    assert charged(TreeNoise(noise=1.0)).answered == (0, 3)
    assert charged(LocalDP(noise=1.0)).chosen == 5


def test_a_round_of_nobody_counts_nobody_in_the_adaptive_clip():
    """One party moves the centred count by a half; an answer that nobody gave must not have moved it already."""
    clips = []
    for parties in ([], [0]):
        stage = CentralDP(noise=0.0, clip=1.0, quantile=0.5, clip_rate=0.2, expected=2.0)
        ledger = Ledger(Terms(), stage, Context(4, 2.0, "poisson"), template={"w": np.zeros(4, dtype=np.float32)})
        stage = ledger.mechanism = replace(stage, ledger=ledger)
        federation = tellers([0.0] * 4)
        federation.round = 1
        released(federation, [stage], parties=parties)
        clips.append(ledger.memory["clip"])
    # nobody: a share of 1/2, the quantile; one within the clip: half of one more, of two expected
    assert clips == pytest.approx([1.0, np.exp(-0.2 * 0.25)])


def test_nobody_weighs_more_than_agreed_even_if_it_says_so():
    stage = CentralDP(most_rows=5, noise=1.0)
    rows = stage.receive(Replies((Reply(0, {"rows": 10**9}), Reply(1, {"rows": 2}))), 1, 0).values("rows")
    assert rows.tolist() == [5, 2]


def test_secret_noise_follows_from_what_it_is_added_to():
    """A round that is played again with other updates must not get the noise of the first time."""
    one, other = {"w": np.zeros(4)}, {"w": np.array([0, 0, 0, 1e-9])}
    assert keyed_by(one, 7) == keyed_by({"w": np.zeros(4)}, 7)
    assert len({keyed_by(one, 7), keyed_by(other, 7), keyed_by(one, 8)}) == 3


def test_a_resumed_run_with_secret_noise_pays_for_the_round_that_may_have_been_seen(tmp_path):
    stage = {"name": "central-dp", "noise": 1.0, "secret": True}
    short = run(tmp_path, stage, rounds=2)
    resumed = resume_run(str(short.folder), None, {"rounds": 4})
    assert resumed.privacy["epsilon"] == pytest.approx(epsilon_of({Release(1.0): 5}, 1e-5))
    from_seed = run(tmp_path, {**stage, "secret": False}, rounds=2)
    again = resume_run(str(from_seed.folder), None, {"rounds": 4})
    assert again.privacy["epsilon"] == pytest.approx(epsilon_of({Release(1.0): 4}, 1e-5))


def test_a_party_cannot_have_less_noise_than_the_ledger_says():
    given = GIVEN | {"stages": [], "local": {"name": "dp-sgd", "noise": 1.0, "batch": 10},
                     "overrides": {"0": {"local": {"noise": 0.0}}}}
    with pytest.raises(ConfigError, match="has a noise of its own"):
        tequio.run(given)


@pytest.mark.parametrize(("caveat", "stages", "changes"), [
    ("how many bytes packed updates take", ["central-dp", "delta-zstd"], {}),
    ("where too few parties are drawn for 'secure-sum'", ["central-dp", "secure-sum"],
     {"selector": {"name": "poisson", "fraction": 0.5}}),
])
def test_what_is_told_on_the_way_is_said_aloud(caveat, stages, changes):
    made = [{"name": name, **({"noise": 1.0} if name == "central-dp" else {})} for name in stages]
    warnings = make_scenario(complete(GIVEN | changes | {"stages": made})).warnings
    assert any(caveat in warning for warning in warnings)


def test_a_round_of_nobody_looks_like_any_other_in_fednova(tmp_path):
    result = run(tmp_path, {"name": "central-dp", "noise": 1.0}, selector={"name": "poisson", "fraction": 0.01},
                 algorithm={"name": "fednova", "weights": "uniform"}, local={"steps": 2, "learning_rate": 1e-4})
    assert result.privacy["releases"] == 3
    assert all(np.abs(values).max() > 1 for values in result.model.values())
