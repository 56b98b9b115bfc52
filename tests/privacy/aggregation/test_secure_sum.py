from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tequio.errors import DataError, PartyError, QuorumError
from tequio.federation.federation import Rules
from tequio.federation.population import LEAST_COHORT, Party, state_name
from tequio.federation.stages import SumCapacity
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING, Ring
from tequio.privacy.aggregation.identities import signed_by
from tequio.privacy.aggregation.own_weights import SumSettings, own_share, weight_unit
from tequio.privacy.aggregation.secure_sum import SecureSum
from tequio.privacy.aggregation.secure_sum_tasks import SumMemory, shown_part
from tequio.privacy.updates import NoiseShare

from .summed import HELD, by_themselves, federation, total, vectors

PHASES = ("commit", "reveal", "learn", "keys", "shares", "boxes", "masked", "witness", "open")
AFTER = PHASES.index("masked")
"""Who drops out after it has sent its masked update is in the sum."""


def lose(parties: Any, share: float, seed: int = 3) -> set[int]:
    count = round(share * len(parties))
    return set(np.random.default_rng(seed).choice(len(parties), count, replace=False).tolist())


@pytest.mark.parametrize("count", [10, 100])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("stage", [SecureSum(), SecureSum(bits=64, absent=0.2)], ids=["32", "64"])
def test_the_sum_is_exact_whoever_drops_out_at_whichever_phase(phase: str, stage: SecureSum, count: int) -> None:
    if count == 100 and (stage.bits == 64 or phase in ("commit", "learn")):
        return  # the same code, slowly
    given = vectors(count, size=5)
    rows = np.random.default_rng(1).integers(1, 50, count)
    here = federation(given, rows=rows)
    gone = lose(given, 0.1)
    here.engine.lost = {phase: gone}
    summed = total(here, stage, size=5)
    late = PHASES.index(phase) > AFTER or phase in ("commit", "reveal", "learn")
    left = [index for index in range(count) if (late and phase != "learn") or index not in gone]
    np.testing.assert_array_equal(summed.mean, by_themselves(given, rows, stage, left))
    weights = np.clip(rows / rows.max(), 1 / 16, 1.0)[left]
    np.testing.assert_allclose(summed.mean, np.average([given[index] for index in left], axis=0, weights=weights),
                               atol=1e-5)
    assert summed.parties.tolist() == left
    assert summed.weight == pytest.approx(weights.sum())


def test_drop_outs_at_every_phase_together() -> None:
    given = vectors(30)
    here = federation(given)
    here.engine.lost = {"keys": {0}, "shares": {1}, "boxes": {2}, "masked": {3, 4}, "witness": {5}, "open": {6, 7}}
    summed = total(here, SecureSum(absent=0.2))
    np.testing.assert_array_equal(summed.mean, by_themselves(given, np.ones(30), SecureSum(), range(5, 30)))
    assert summed.notes["secure_sum"]["recovered"] == 2


@pytest.mark.parametrize("phase", PHASES)
def test_below_the_fewest_the_sum_is_refused(phase: str) -> None:
    here = federation(vectors(10))
    here.engine.lost = {phase: set(range(5))}
    with pytest.raises(QuorumError, match=r"only 5 of 10|joint randomness|neighbours of party|only 0 of 10"):
        total(here, SecureSum())
    held_back = [reply for task, reply in here.engine.seen if task == "secure-sum.open"]
    assert phase == "open" or not held_back


def test_one_or_two_updates_are_never_summed_nor_a_cohort_that_may_be_corrupt() -> None:
    with pytest.raises(QuorumError, match="3 are needed"):
        total(federation(vectors(2)), SecureSum())
    here = federation(vectors(40))
    with pytest.raises(QuorumError, match=r"5 parties are too few for a sum: 4 of all may be corrupt.* `corrupt`"):
        SecureSum().total(here, np.arange(5), "update", np.ones(5), 50)
    assert len(SecureSum(corrupt=0.05).total(here, np.arange(5), "update", np.ones(5), 50).parties) == 5


def test_injected_drop_outs_strike_at_every_phase() -> None:
    given = vectors(40)
    here = federation(given, rules=Rules(dropout=0.02, on_failure="continue"))
    summed = total(here, SecureSum())
    assert 20 < len(summed.parties) < 40
    np.testing.assert_array_equal(summed.mean, by_themselves(given, np.ones(40), SecureSum(), summed.parties))


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
        assert state[state_name(SumMemory)]["secrets"] == {}
        assert HELD not in state
    with pytest.raises(QuorumError):
        total(here, SecureSum())
    assert all("an update is sent once" in event for event in causes(here))


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
    assert total(federation(given), SecureSum()).parties.tolist() == [0, 1, 3, 4]


def test_a_hundred_parties_have_few_neighbours_and_a_few_all() -> None:
    given = vectors(60, size=5)
    here = federation(given)
    here.engine.lost = {"masked": lose(given, 0.1)}
    summed = total(here, SecureSum(), size=5)
    np.testing.assert_array_equal(summed.mean, by_themselves(given, np.ones(60), SecureSum(), summed.parties))
    assert summed.notes["secure_sum"]["neighbours"] == 26


def test_rows_of_a_million_to_one_weigh_sixteen_to_one() -> None:
    settings = SumSettings(stage=SecureSum(), local=NO_TRAINING, room=4, by_rows=True, cap=1e6, fewest=3)

    class Rows:
        def __init__(self, count: int) -> None:
            self.data = self
            self.train = range(count)

        def recall(self, kind: type) -> dict[str, int]:
            return {}

    shares = [own_share(Rows(count), settings) for count in (1, 62_500, 250_000, 10**6, 10**7)]  # type: ignore[arg-type]
    assert [share * 4 for share in shares] == [1 / 16, 1 / 16, 0.25, 1.0, 1.0]
    alike = replace(settings, by_rows=False)
    assert own_share(Rows(1), alike) == 0.25  # type: ignore[arg-type]


@pytest.mark.parametrize(("bits", "largest"), [(32, 64.0), (64, 64.0), (32, 4096.0)])
def test_sixty_thousand_extreme_values_do_not_overflow(bits: int, largest: float) -> None:
    count = 60_000
    ring, share = Ring.of(bits, largest, count), 1 / count
    one = int(ring.encoded(np.array([largest]), share)[0])
    assert count * one < 2 ** (bits - 1)
    weight = round(share * count * weight_unit(bits, count))
    assert count * weight < 2 ** (bits - 1)
    assert weight >= 2**13


def test_a_sum_has_room_for_what_it_was_sized_for() -> None:
    here = federation(vectors(6))
    with pytest.raises(DataError, match="sized for 5 parties, but 6 joined"):
        SecureSum().total(here, here.everyone(), "update", np.ones(6), 50, 0, SumCapacity(5))
    summed = SecureSum().total(here, here.everyone(), "update", np.ones(6), 50, 0, SumCapacity(64), by="uniform")
    assert summed.ring == (32, 64.0, 64)
    np.testing.assert_allclose(summed.mean, np.mean(vectors(6), axis=0), atol=1e-5)


def test_weights_by_rows_up_to_a_most_weigh_as_much_as_agreed() -> None:
    rows = [2, 4, 8, 16, 100]
    here = federation(vectors(5), rows=rows)
    summed = SecureSum().total(here, here.everyone(), "update", np.ones(5), 50, 0, SumCapacity(8, weight=8.0))
    assert summed.weight == pytest.approx(2 + 4 + 8 + 8 + 8)


def test_a_party_wants_as_many_others_as_its_owner_and_its_noise() -> None:
    here = federation(vectors(8))
    object.__setattr__(here.population, "overrides", {3: {LEAST_COHORT: 9}})
    told: list[str] = []
    here.record = lambda kind, facts: told.append(f"{facts['party']}: {facts['cause']}") if kind == "failure" else None
    assert 3 not in total(here, SecureSum()).parties
    assert any("a sum of 8 parties, and it wants at least 9" in line for line in told)
    noised = federation(vectors(8))
    for state in noised.engine._states.values():
        state[state_name(NoiseShare)] = {"round": 1, "enough": 7}
    noised.engine.lost = {"masked": {0, 1}}
    with pytest.raises(QuorumError):
        total(noised, SecureSum(absent=0.2))
    assert not [reply for task, reply in noised.engine.seen if task == "secure-sum.open"]


def test_what_weighs_in_full_stays_for_a_run() -> None:
    here = federation(vectors(5))
    total(here, SecureSum())
    here.round = 2
    states = {party: {**state, HELD: {"round": 2, "vectors": {"update": np.zeros(50, np.float32)}}}
              for party, state in here.engine.states().items()}
    here.engine.restore(states)
    with pytest.raises(QuorumError):
        total(here, SecureSum(cap=7))
    assert all("bounds of weights stay" not in str(reply) for _, reply in here.engine.seen)


def test_forged_shares_are_left_out_and_their_holder_named() -> None:
    """A holder that signs what it shows: two of its neighbours' commitments tell."""
    here, told = federation(vectors(8)), []
    here.engine.lost = {"masked": {0}}
    here.record = lambda kind, facts: told.append(f"{facts['party']}: {facts['cause']}") if kind == "failure" else None
    def forged(task: str, reply: Any) -> Any:
        if task != "secure-sum.open" or reply.party != 1:
            return reply
        shares = b"\1" * len(reply.payload["shares"])
        sid = here.engine.states()[1][state_name(SumMemory)]["sid"]
        signature = signed_by(Party(1, 1, {}, here.population), shown_part(sid, 1, shares))
        return replace(reply, payload={"shares": shares, "signature": signature})

    here.engine.on_reply = forged
    summed = total(here, SecureSum(absent=0.2))
    np.testing.assert_array_equal(summed.mean, by_themselves(vectors(8), np.ones(8), SecureSum(), range(1, 8)))
    assert told
    assert all(line.startswith("1: it showed a forged share") for line in told if "forged" in line)
