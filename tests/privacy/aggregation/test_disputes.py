"""Who is in dispute is left out for ten rounds, and who is found to cheat for good; the others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import tequio
from tequio.errors import QuorumError
from tequio.privacy.aggregation import secure_sum_tasks as tasks
from tequio.privacy.aggregation.committees import ROUNDS, catch, dispute, left_out
from tequio.privacy.aggregation.keys import SHARE_BYTES
from tequio.privacy.aggregation.secure_sum import SecureSum

from .summed import HELD, by_themselves, federation, total, vectors

if TYPE_CHECKING:
    from tequio.federation.federation import Federation


def at_round(number: int) -> Federation:
    here = federation(vectors(2))
    here.round = number
    return here


def test_a_pair_is_left_out_of_the_next_ten_rounds() -> None:
    here = at_round(3)
    dispute(here, [(7, 2)])
    assert left_out(here, corrupt=1) == set()
    for here.round in range(4, 14):
        assert left_out(here, corrupt=1) == {2, 7}
    here.round = 14
    assert left_out(here, corrupt=1) == set()


def test_who_is_in_dispute_with_more_than_may_be_corrupt_is_out_for_good_and_the_others_are_back() -> None:
    here = at_round(1)
    dispute(here, [(0, 4), (4, 5)])
    here.round = 12
    dispute(here, [(8, 4)])
    here.round = 13
    assert left_out(here, corrupt=3) == {4, 8}
    assert left_out(here, corrupt=2) == {4}
    here.round = 1000
    assert left_out(here, corrupt=3) == set()
    assert left_out(here, corrupt=2) == {4}


def test_of_pairs_with_a_party_in_common_one_is_enough() -> None:
    here = at_round(1)
    dispute(here, [(0, 4), (4, 5), (4, 6), (1, 2)])
    here.round = 2
    assert left_out(here, corrupt=3) == {0, 4, 1, 2}


@settings(max_examples=200, deadline=None)
@given(some.data())
def test_corrupt_parties_take_no_more_honest_ones_along_than_they_are(data: Any) -> None:
    """Of each pair in dispute one is corrupt; that is all that holds of what they say."""
    parties, corrupt = 20, data.draw(some.integers(1, 6))
    here = at_round(1)
    for here.round in range(1, 16):
        out = left_out(here, corrupt)
        assert len({party for party in out if party >= corrupt}) <= corrupt
        recent = [(one, other) for one, other, since in here.agreed["disputes"]["pairs"]
                  if here.round - ROUNDS <= since < here.round]
        assert all(out & {*pair} for pair in recent)
        pairs = some.tuples(some.integers(0, corrupt - 1), some.integers(0, parties - 1))
        dispute(here, [(one, other) for one, other in data.draw(some.lists(pairs, max_size=5))
                       if one != other and not out & {one, other}])
    here.round = 1000
    assert all(party < corrupt for party in left_out(here, corrupt))


def begin(here: Federation, round: int, given: list[np.ndarray]) -> None:
    """Let parties hold these updates in a round."""
    here.round, states = round, here.engine.states()
    here.engine.restore({index: {**states[index], HELD: {"round": round, "vectors": {"update": vector}}}
                         for index, vector in enumerate(given)})


def summed_of(here: Federation, round: int, given: list[np.ndarray], left: list[int]) -> None:
    begin(here, round, given)
    summed = total(here, SecureSum())
    assert summed.parties.tolist() == left
    np.testing.assert_array_equal(summed.mean, by_themselves(given, np.ones(len(given)), SecureSum(), left))


def test_bad_boxes_put_both_in_dispute_and_sums_go_on_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = tasks.sealed
    calls: list[int] = []

    def spoilt(key: bytes, content: bytes, about: bytes) -> bytes:
        calls.append(1)
        return honest(key, bytes(2 * SHARE_BYTES) if len(calls) == 1 else content, about)

    monkeypatch.setattr(tasks, "sealed", spoilt)
    updates = vectors(30)
    here, causes = federation(updates), []
    here.record = lambda kind, facts: causes.append(facts["cause"]) if kind == "failure" else None
    summed_of(here, 1, updates, list(range(30)))
    assert any("party 1 says that its box is bad" in line for line in causes)
    for round in (2, 11):
        summed_of(here, round, updates, list(range(2, 30)))
    summed_of(here, 12, updates, list(range(30)))


def cheating(party: int, monkeypatch: pytest.MonkeyPatch, since: int = 1) -> None:
    """From the sum of that number on, a dealer commits to, and signs, what it does not use."""
    honest, sums = tasks.own_commitment, dict[bytes, int]()

    def committed(sid: bytes, dealer: int, mask: bytes) -> bytes:
        number = sums.setdefault(sid, len(sums) + 1)
        return honest(sid, dealer, mask[::-1] if dealer == party and number >= since else mask)

    monkeypatch.setattr(tasks, "own_commitment", committed)


def test_shares_that_rebuild_another_secret_lose_the_round_and_later_ones_go_without_the_dealer(
        monkeypatch: pytest.MonkeyPatch) -> None:
    cheating(3, monkeypatch)
    updates = vectors(12)
    here = federation(updates)
    with pytest.raises(QuorumError, match="party 3 failed the secure sum: it shared another secret") as caught:
        total(here, SecureSum())
    assert caught.value.lost
    for round in (2, 50):
        summed_of(here, round, updates, [party for party in range(12) if party != 3])


def test_a_new_cohort_does_not_forget_who_cheats() -> None:
    updates = vectors(12)
    here = federation(updates)
    catch(here, 5)
    total(here, SecureSum())
    begin(here, 2, updates)
    seed = here.agreed["seed"]
    summed = SecureSum().total(here, np.arange(9), "update", np.ones(9), 50)  # others than the randomness was made with
    assert here.agreed["seed"] != seed
    assert summed.parties.tolist() == [0, 1, 2, 3, 4, 6, 7, 8]


CONFIG: Any = {"data": {"name": "digits", "partition": {"name": "iid", "parties": 8}}, "learner": "logistic",
               "rounds": 3, "engine": {"workers": 1}, "stages": [{"name": "secure-sum"}], "evaluation": {"every": 3},
               "algorithm": {"name": "fedavg", "weights": "uniform"}}


def test_a_run_goes_on_after_a_lost_round_if_it_is_to_continue(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    output = {"folder": str(tmp_path), "models_every": 1}
    cheating(3, monkeypatch, since=2)
    run = tequio.run(CONFIG, output=output, rules={"on_failure": "continue"})
    causes = [event["message"] for event in run.events if event["event"] == "warning"]
    assert any("round 2 is lost, and the model stays as it was: party 3 failed" in cause for cause in causes)
    first, second, third = (run.model_after(round) for round in (1, 2, 3))
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values)
        assert (third[name] != values).any()
    cheating(3, monkeypatch, since=2)
    with pytest.raises(QuorumError, match=r"rules\.on_failure = 'continue'"):
        tequio.run(CONFIG, output=output)


def test_noise_that_later_rounds_take_back_has_no_lost_rounds(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cheating(3, monkeypatch, since=2)
    with pytest.raises(QuorumError, match="party 3 failed the secure sum"):
        tequio.run(CONFIG, stages=[{"name": "dp-mf", "noise": 1.0}, {"name": "secure-sum"}],
                   rules={"on_failure": "continue"}, output={"folder": str(tmp_path)})
