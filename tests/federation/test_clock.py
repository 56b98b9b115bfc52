"""The virtual clock: hand-worked exchanges, deadlines, drop-outs, energy and cost, and what cannot be waited for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from phones import BYTES, MODEL, SendSettings, phones, send

from tequio.errors import ConfigError, QuorumError
from tequio.federation import payload as payloads
from tequio.federation.clock import LONGEST_WAIT, Clock
from tequio.federation.devices import Mobile
from tequio.federation.federation import Rules
from tequio.learners.learner import LocalTraining

LENIENT = Rules(quorum=0.0)


def test_the_payload_is_what_the_hand_worked_numbers_say() -> None:
    assert payloads.size(MODEL) == BYTES


def test_a_round_by_hand() -> None:
    # 1,000 bytes at 500, 1,000 and 250 a second: the multicast takes 4 s. 10 rows at 10, 1 and 5 a second: 1, 10, 2 s.
    # Uploads in the chosen order 2, 0, 1: ready at 2, done at 6; then until 8; then until 10 + 1 = 11. Altogether 15.
    federation = phones([500, 1000, 250], [10, 1, 5])
    replies = federation.ask([2, 0, 1], send, MODEL)
    clock = federation.clock
    assert replies.parties.tolist() == [0, 1, 2]
    assert clock.now == 15.0
    assert dict(zip(clock.last.parties.tolist(), clock.last.ends.tolist(), strict=True)) == {2: 10.0, 0: 12.0, 1: 15.0}
    assert (clock.totals.chosen, clock.totals.updates) == (3, 3)
    # listening 3 x 4 s at 0.8 W, training 13 s at 2 W, sending 4 + 2 + 1 s at 1.2 W
    assert clock.totals.joules == pytest.approx(0.8 * 12 + 2 * 13 + 1.2 * 7)


def test_uploads_by_number_or_all_at_once() -> None:
    # By number: 0 ready at 1, done at 3; 1 ready at 10, done at 11; 2 until 15; plus 4 for the multicast.
    by_number = phones([500, 1000, 250], [10, 1, 5], upload_order="party")
    by_number.ask([2, 0, 1], send, MODEL)
    assert by_number.clock.now == 19.0
    # All at once: 1 + 2, 10 + 1, 2 + 4.
    at_once = phones([500, 1000, 250], [10, 1, 5], uploads="parallel")
    at_once.ask([2, 0, 1], send, MODEL)
    assert at_once.clock.now == 15.0


def test_a_clock_draws_by_seed_nought_unless_told_otherwise() -> None:
    parties, devices = np.arange(3), Mobile()
    drawn = Clock(devices, np.full(3, 10.0)).resources(parties, 1)
    assert drawn.speed.tolist() == devices.resources(0, 1, parties).speed.tolist()


def test_epochs_and_steps_take_time() -> None:
    federation = phones([1000.0], [10.0])
    federation.ask([0], send, MODEL, settings=SendSettings(local=LocalTraining(epochs=5)))
    assert federation.clock.now == 1 + 5 + 1
    federation.ask([0], send, MODEL, settings=SendSettings(local=LocalTraining(steps=3, batch=4)))
    assert federation.clock.now == pytest.approx(7 + 1 + 1.2 + 1)


def test_a_deadline_leaves_out_the_late_and_weights_are_those_of_the_rest() -> None:
    federation = phones([500, 1000, 250], [10, 1, 5], deadline=12.0, price=0.5, rules=LENIENT)
    replies = federation.ask([2, 0, 1], send, MODEL)
    assert (replies.parties.tolist(), replies.late, federation.clock.now) == ([0, 2], (1,), 12.0)
    assert (federation.clock.totals.late, federation.clock.totals.updates) == (1, 2)
    # Party 1 heard the model for 4 s and trained for 8 of its 10; its upload never began.
    assert federation.clock.totals.joules == pytest.approx(0.8 * 12 + 2 * (1 + 2 + 8) + 1.2 * 6)
    assert federation.clock.totals.cost == pytest.approx(0.5 * 5 * BYTES / 1e6)


def test_a_party_that_cannot_be_in_time_does_no_work() -> None:
    federation = phones([1000, 1000], [10, 0.1], deadline=10.0, rules=LENIENT)
    assert federation.ask([0, 1], send, MODEL).late == (1,)
    assert federation.traffic.messages == 2  # one order and one answer


def test_who_still_trains_at_the_deadline_is_too_slow() -> None:
    # The model arrives after 1 s; training takes 1, 10 and 9 s.
    clock = phones([1000, 1000, 1000], [10, 1, 10 / 9], deadline=10.0).clock
    departure = clock.depart(np.arange(3), 1, float(BYTES), np.full(3, 10.0))
    assert clock.too_slow(departure, np.arange(3)).tolist() == [False, True, True]
    assert clock.too_slow(departure, np.array([0, 1])).tolist() == [False, True, False]
    assert clock.hopeful(departure, np.arange(3)).tolist() == [0]
    assert not phones([1000], [0.001]).clock.too_slow(departure, np.arange(3)).any()  # no deadline


def test_models_sent_out_one_by_one_by_hand() -> None:
    # 1,000 bytes down, 500 up at 500 and 1,000 bytes a second; 10 rows at 10 and 1 a second. The third has no link.
    clock = phones([500, 1000, 0], [10, 1, 1], price=3.0).clock
    assert clock.send_out(np.arange(3), 1, 1000.0, 500.0, np.full(3, 10.0)).tolist() == [4.0, 11.5, np.inf]
    assert clock.totals.joules == pytest.approx(0.8 * (2 + 1) + 2 * (1 + 10) + 1.2 * (1 + 0.5))
    assert clock.totals.cost == pytest.approx(3.0 * 2 * 1500 / 1e6)
    assert (clock.totals.chosen, clock.totals.lost, clock.now) == (3, 1, 0.0)


def test_an_exchange_closes_when_enough_have_answered() -> None:
    # Ends at 10, 12 and 15 as above; two of three are enough.
    federation = phones([500, 1000, 250], [10, 1, 5], wait_for=0.6, rules=LENIENT)
    assert federation.ask([2, 0, 1], send, MODEL).late == (1,)
    assert federation.clock.now == 12.0
    # A third is one of three, and a half is two of four: 1 + 1 + 1, and as much again for each later upload.
    third = phones([500, 1000, 250], [10, 1, 5], wait_for=1 / 3, rules=LENIENT)
    assert third.ask([2, 0, 1], send, MODEL).parties.tolist() == [2]
    half = phones([1000] * 4, [10] * 4, wait_for=0.5, rules=LENIENT)
    assert half.ask(range(4), send, MODEL).parties.tolist() == [0, 1]
    assert half.clock.now == 4.0


def test_an_exchange_closes_with_the_last_answer_before_the_deadline() -> None:
    federation = phones([500, 1000, 250], [10, 1, 5], deadline=60.0)
    assert len(federation.ask([2, 0, 1], send, MODEL)) == 3
    assert federation.clock.now == 15.0
    # Without a deadline the last of those that are still there ends it: 1 + 1 + 1 and 1 + 5 + 1 s; party 0 is lost.
    schedule = lambda parties, seconds: (parties != 0) | (seconds < 1.5)  # noqa: E731
    federation = phones([1000] * 3, [10, 10, 2], schedule=schedule, rules=LENIENT)
    assert federation.ask([0, 1, 2], send, MODEL).parties.tolist() == [1, 2]
    assert federation.clock.now == 7.0


def test_what_is_sent_to_single_parties_goes_at_the_pace_of_the_largest() -> None:
    federation = phones([1000, 1000], [10, 10])
    extra = {0: {}, 1: MODEL}
    federation.ask([0, 1], send, MODEL, each=extra)
    assert federation.clock.last.parties.tolist() == [0, 1]
    assert federation.clock.last.ends[0] == 2 + 1 + 1  # 2,000 bytes come down, and 1,000 go up


def test_half_of_the_parties_vanish_in_the_middle() -> None:
    federation = phones([1000.0] * 40, [10.0] * 40, rules=Rules(dropout=0.5, quorum=0.2), uploads="parallel")
    replies = federation.ask(np.arange(40), send, MODEL)
    assert 10 <= len(replies.dropped) <= 30
    assert len(replies) + len(replies.dropped) == 40
    assert federation.clock.totals.lost == len(replies.dropped)
    assert federation.clock.now == 3.0
    with_deadline = phones([1000.0] * 40, [10.0] * 40, rules=Rules(dropout=0.5, quorum=0.2), deadline=60.0,
                           uploads="parallel")
    with_deadline.ask(np.arange(40), send, MODEL)
    assert with_deadline.clock.now == 60.0  # nobody knows that the missing will not come


def test_a_deadline_that_nobody_can_meet_says_so() -> None:
    federation = phones([1000, 500], [10, 10], deadline=2.5)
    with pytest.raises(QuorumError, match=r"2 were too late \(it closed after 2.5 s, the fastest needs .* s\)") as told:
        federation.ask([0, 1], send, MODEL)
    assert "raise devices.deadline" in told.value.remedy
    lenient = phones([1000, 500], [10, 10], deadline=2.5, rules=LENIENT)
    assert len(lenient.ask([0, 1], send, MODEL)) == 0
    assert lenient.clock.now == 2.5


def test_no_throughput_needs_a_deadline() -> None:
    with pytest.raises(ConfigError, match=r"1 of 2 parties would never finish.*set devices.deadline"):
        phones([1000, 0], [10, 10]).ask([0, 1], send, MODEL)
    federation = phones([1000, 0], [10, 10], deadline=30.0, rules=LENIENT)
    assert federation.ask([0, 1], send, MODEL).late == (1,)
    assert federation.clock.now == 30.0
    # The multicast goes at the pace of the slowest link that works.
    assert federation.clock.last.ends.tolist() == [3.0, np.inf]


def test_nobody_asked_takes_no_time() -> None:
    federation = phones([1000], [10], deadline=30.0)
    assert len(federation.ask([], send, MODEL)) == 0
    assert federation.clock.now == 0.0


def test_time_passes_until_somebody_can_be_reached() -> None:
    federation = phones([1000, 1000], [10, 10], schedule=lambda parties, seconds: (parties == 1) & (seconds >= 200))
    assert federation.reachable().tolist() == [1]
    assert (federation.clock.now, federation.clock.totals.waited) == (240.0, 240.0)
    just = phones([1000], [10], schedule=lambda parties, seconds: np.full(len(parties), seconds >= LONGEST_WAIT))
    assert just.reachable().tolist() == [0]
    never = phones([1000], [10], schedule=lambda parties, seconds: np.zeros(len(parties), dtype=bool))
    with pytest.raises(QuorumError, match="none of 1 eligible parties can be reached, nor was any in the 14 virtual"):
        never.reachable()


def test_who_goes_offline_while_training_has_dropped_out() -> None:
    schedule = lambda parties, seconds: (parties != 0) | (seconds < 1.5)  # noqa: E731
    federation = phones([1000, 1000], [10, 10], schedule=schedule, rules=LENIENT, price=0.5)
    replies = federation.ask([0, 1], send, MODEL)
    assert (replies.parties.tolist(), replies.dropped) == ([1], (0,))
    # Both heard the model for 1 s; one trained for 1 s and sent for 1 s, the other was lost half-way of its training.
    assert federation.clock.totals.joules == pytest.approx(0.8 * 2 + 2 * 1.5 + 1.2 * 1)
    assert federation.clock.totals.cost == pytest.approx(0.5 * 3 * BYTES / 1e6)
    assert (federation.clock.totals.lost, federation.clock.totals.late) == (1, 0)


def test_an_upload_that_the_deadline_cuts_off_costs_energy_until_then() -> None:
    # Party 2 sends until 10, party 0 from 10 to 12, see above: at 11 it has sent for 1 s; party 1 trained for 7 s.
    federation = phones([500, 1000, 250], [10, 1, 5], deadline=11.0, rules=LENIENT)
    assert federation.ask([2, 0, 1], send, MODEL).late == (0, 1)
    assert federation.clock.totals.joules == pytest.approx(0.8 * 12 + 2 * (1 + 2 + 7) + 1.2 * (4 + 1))


def test_the_clock_survives_a_checkpoint() -> None:
    federation = phones([500, 1000, 250], [10, 1, 5], deadline=12.0, rules=LENIENT)
    federation.ask([2, 0, 1], send, MODEL)
    saved = payloads.decode(payloads.encode(federation.clock.to_plain()))
    fresh = phones([500, 1000, 250], [10, 1, 5], deadline=12.0, rules=LENIENT)
    fresh.clock.restore(saved)
    for one in (federation, fresh):
        one.round = 2
        one.ask([0, 1], send, MODEL)
    assert fresh.clock.metrics() == federation.clock.metrics()
    assert fresh.clock.counts.tolist() == [2, 0, 1]
    fresh.clock.restore(saved)  # what came after is forgotten
    assert fresh.clock.counts.tolist() == [1, 0, 1]


def test_what_a_round_added_is_told_apart_from_the_whole_run() -> None:
    federation = phones([500, 1000, 250], [10, 1, 5], deadline=12.0, rules=LENIENT)
    federation.ask([2, 0, 1], send, MODEL)
    since, earlier = federation.clock.now, replace(federation.clock.totals)
    federation.ask([0, 2], send, MODEL)  # the model comes in 4 s; uploads end after 1 + 2 and 4 s more
    row = federation.clock.metrics(since, earlier)
    assert (row["clock.round_chosen"], row["clock.round_updates"], row["clock.updates"]) == (2, 2, 4)
    assert (row["clock.round_seconds"], row["clock.late"], row["clock.coverage"]) == (11.0, 1, 2)


def test_the_text_of_a_federation_shows_no_parties() -> None:
    shown = repr(phones([1000], [10], schedule=lambda parties, seconds: parties >= 0))
    assert "clock=Clock(devices=" in shown
    for name in ("population", "engine", "record", "validation", "root", "notary", "sizes", "schedule", "last",
                 "counts"):
        assert f"{name}=" not in shown


def test_requests_and_evaluations_take_no_time() -> None:
    federation = phones([1000], [10], rules=Rules(dropout=1.0, quorum=0.0))
    assert len(federation.off_the_clock().ask([0], send, MODEL)) == 1
    assert federation.clock.now == 0.0
    assert len(replace(federation, rules=Rules()).ask([0], send, MODEL)) == 1
    assert federation.clock.now == 3.0
