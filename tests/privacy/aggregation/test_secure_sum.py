from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tequio.errors import PartyError, QuorumError
from tequio.federation.federation import Rules
from tequio.federation.population import state_name
from tequio.privacy.aggregation.secure_sum import SecureSum
from tequio.privacy.aggregation.secure_sum_tasks import Secrets

from .summed import HELD, federation, in_plain, total, vectors

PHASES = ("keys", "shares", "masked", "unmask")


def lose(parties: Any, share: float, seed: int = 3) -> set[int]:
    count = round(share * len(parties))
    return set(np.random.default_rng(seed).choice(len(parties), count, replace=False).tolist())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("stage", [SecureSum(), SecureSum(bits=64), SecureSum(neighbours=14)], ids=str)
def test_the_sum_is_exact_whoever_drops_out_at_whichever_phase(share: float, phase: str, stage: SecureSum) -> None:
    given, weights = vectors(20), np.random.default_rng(1).integers(1, 50, 20)
    here = federation(given)
    gone = lose(given, share)
    here.engine.lost = {phase: gone}
    left = range(20) if phase == "unmask" else [index for index in range(20) if index not in gone]
    summed = total(here, stage, weights)
    np.testing.assert_array_equal(summed.mean, in_plain(given, weights, stage, left))
    exact = np.average([given[index] for index in left], axis=0, weights=weights[list(left)])
    np.testing.assert_allclose(summed.mean, exact, atol=1e-5)
    assert summed.parties.tolist() == list(left)
    assert summed.weight == pytest.approx(weights[list(left)].sum())


def test_drop_outs_at_every_phase_together() -> None:
    given = vectors(30)
    here = federation(given)
    here.engine.lost = {"keys": {0}, "shares": {1, 2}, "masked": {3, 4, 5}, "unmask": {6, 7}}
    summed = total(here, SecureSum())
    np.testing.assert_array_equal(summed.mean, in_plain(given, np.ones(30), SecureSum(), range(6, 30)))
    assert summed.notes["secure_sum"]["recovered"] == 3


@pytest.mark.parametrize("phase", PHASES)
def test_below_the_threshold_the_sum_is_refused(phase: str) -> None:
    here = federation(vectors(10))
    here.engine.lost = {phase: set(range(5))}
    with pytest.raises(QuorumError, match=r"only 5 of 10 .*|neighbours of party"):
        total(here, SecureSum())


def test_one_or_two_updates_are_never_summed() -> None:
    with pytest.raises(QuorumError, match="3 are needed"):
        total(federation(vectors(2)), SecureSum())


def test_injected_drop_outs_strike_at_every_phase() -> None:
    given = vectors(40)
    here = federation(given, rules=Rules(dropout=0.1, on_failure="continue"))
    summed = total(here, SecureSum())
    assert 20 < len(summed.parties) < 40
    np.testing.assert_array_equal(summed.mean, in_plain(given, np.ones(40), SecureSum(), summed.parties))


def test_what_crosses_looks_random_and_other_parties_masks_are_other_masks() -> None:
    given = [np.zeros(40_000, dtype=np.float32) for _ in range(4)]
    here = federation(given)
    assert not total(here, SecureSum(), size=40_000).mean.any()
    views = [reply.payload["masked"] for task, reply in here.engine.seen if task == "secure-sum.masked"]
    for view in views:
        data = np.frombuffer(view.tobytes(), dtype=np.uint8)
        assert stats.chisquare(np.bincount(data, minlength=256)).pvalue > 1e-4
        ones = int(np.unpackbits(data).sum())
        assert abs(ones - len(data) * 4) < 4.5 * np.sqrt(len(data) * 8) / 2
        assert abs(np.corrcoef(data[:-1].astype(float), data[1:])[0, 1]) < 0.012
    assert len({view.tobytes() for view in views}) == 4
    # the same update in another sum looks different
    again = federation(given)
    total(again, SecureSum(), size=40_000)
    later = [reply.payload["masked"] for task, reply in again.engine.seen if task == "secure-sum.masked"]
    assert not {view.tobytes() for view in views} & {view.tobytes() for view in later}


def test_a_view_says_nothing_about_the_update() -> None:
    """The masked form of a large update and of noughts have the same distribution (two-sample test)."""
    views = {}
    for size in (0.0, 50.0):
        here = federation([np.full(20_000, size, dtype=np.float32) for _ in range(3)])
        total(here, SecureSum(), size=20_000)
        views[size] = next(reply.payload["masked"] for task, reply in here.engine.seen if task == "secure-sum.masked")
    assert stats.ks_2samp(views[0.0], views[50.0]).pvalue > 1e-4


def test_secrets_are_gone_after_the_sum_and_updates_are_summed_once() -> None:
    here = federation(vectors(5))
    total(here, SecureSum())
    for state in here.engine.states().values():
        assert state_name(Secrets) not in state
        assert HELD not in state
    with pytest.raises(QuorumError):
        total(here, SecureSum())
    assert all("holds no update" in event for event in causes(here))


def causes(here: Any) -> list[str]:
    told: list[str] = []
    watched = replace(here, record=lambda kind, facts: told.append(facts["cause"]) if kind == "failure" else None)
    with pytest.raises(QuorumError):
        total(watched, SecureSum())
    return told


def test_an_entry_too_large_is_refused_at_its_party() -> None:
    given = vectors(5)
    given[2] = given[2] * 1000
    strict = federation(given, rules=Rules())
    with pytest.raises(PartyError, match=r"party '2' .* largest that the sum has room for"):
        total(strict, SecureSum())
    summed = total(federation(given), SecureSum())
    assert summed.parties.tolist() == [0, 1, 3, 4]


def test_parties_may_weigh_nothing() -> None:
    np.testing.assert_array_equal(total(federation(vectors(4)), SecureSum(), [1, 0, 0, 1]).mean,
                                  in_plain(vectors(4), [1, 0, 0, 1], SecureSum()))


def test_a_hundred_parties_have_few_neighbours_and_a_few_all() -> None:
    assert [SecureSum().degree(count) for count in (3, 50, 100, 1000)] == [2, 49, 38, 76]
    assert SecureSum(neighbours=10).degree(1000) == 10
    given = vectors(60, size=5)
    here = federation(given)
    here.engine.lost = {"masked": lose(given, 0.1)}
    summed = total(here, SecureSum(), size=5)
    np.testing.assert_array_equal(summed.mean, in_plain(given, np.ones(60), SecureSum(), summed.parties))
    assert summed.notes["secure_sum"]["neighbours"] == SecureSum().degree(60) < 59
