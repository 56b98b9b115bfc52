"""Availability: who can be reached when, by formula, by chance and by file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tequio.errors import DataError
from tequio.federation.devices import DAY, Always, Diurnal, Markov, Trace
from tequio.federation.rng import uniform

NOBODY: Any = None
PARTIES = np.arange(2000)


class Village:
    def index(self, name: str) -> int:
        if name not in ("ana", "bo", "cy"):
            raise DataError(f"there is no party called '{name}'")
        return ("ana", "bo", "cy").index(name)


VILLAGE: Any = Village()


def test_always_needs_no_schedule() -> None:
    assert Always().schedule(NOBODY, 0) is None


@pytest.mark.parametrize(("hour", "expected"), [(21.9, False), (22.1, True), (24.0, True), (29.9, True), (30.1, False),
                                                (0.0, True), (5.9, True), (6.1, False), (24 * 30 + 23, True),
                                                (22.0, True), (6.0, False), (30.0, False)])
def test_diurnal_hours_run_past_midnight(hour: float, expected: bool) -> None:
    reachable = Diurnal(hours=8, start=22).schedule(NOBODY, 0)
    assert reachable(PARTIES[:3], hour * 3600).tolist() == [expected] * 3


def test_time_zones_spread_the_parties_over_the_day() -> None:
    reachable = Diurnal(hours=6, start=0, zones=24, jitter=2).schedule(NOBODY, 0)
    shares = [reachable(PARTIES, 10 * DAY + hour * 3600).mean() for hour in range(24)]
    assert all(abs(share - 0.25) < 0.04 for share in shares)
    assert reachable(PARTIES, 0.0).tolist() != reachable(PARTIES, 12 * 3600.0).tolist()


@pytest.mark.parametrize("seconds", [0.0, 5 * 3600.0, 0.5 * DAY, 3.2 * DAY, 100.9 * DAY])
def test_hours_shift_with_the_zone_and_the_day(seconds: float) -> None:
    parties, hours = PARTIES[:200], seconds / 3600 + 20 * uniform(5, "time zone", 0, PARTIES[:200])
    expected = np.zeros(200, dtype=bool)
    for day in range(int(seconds // DAY) - 9, int(seconds // DAY) + 9):
        opens = 24 * day + 22 - 3 + 6 * uniform(5, "hours of the day", day, parties)
        expected |= (opens <= hours) & (hours < opens + 8)
    reachable = Diurnal(hours=8, start=22, zones=20, jitter=3).schedule(NOBODY, 5)
    assert reachable(parties, seconds).tolist() == expected.tolist()


@pytest.mark.parametrize("slot", [0, 1, 2, 7])
def test_a_markov_state_is_that_of_the_last_slot_that_was_drawn_afresh(slot: int) -> None:
    """Slots of 1,200 s; a slot is drawn afresh where its number is 1/e or more, and the first one always."""
    def state(party: int, slot: int) -> bool:
        drawn = uniform(4, "reachable", slot, np.array([party]))[0]
        if drawn < 1 / np.e and slot > 0:
            return state(party, slot - 1)
        rest = (drawn - 1 / np.e) / (1 - 1 / np.e) if drawn >= 1 / np.e else drawn * np.e
        return bool(rest < 3600 / 5400)

    reachable = Markov(3600.0, 1800.0).schedule(NOBODY, 4)
    expected = [state(party, slot) for party in range(300)]
    assert reachable(PARTIES[:300], 1200.0 * slot).tolist() == expected
    assert reachable(PARTIES[:300], 1200.0 * slot + 1199).tolist() == expected


def test_a_markov_party_stays_and_switches_as_the_chain_does() -> None:
    on, off = 3600.0, 1800.0
    reachable = Markov(on, off).schedule(NOBODY, 0)
    slot = 1.0 / (1.0 / on + 1.0 / off)
    states = np.array([reachable(PARTIES, (step + 0.5) * slot) for step in range(40)])
    assert states.mean() == pytest.approx(on / (on + off), abs=0.01)
    # over one slot the chain forgets itself with chance 1 - 1/e: P(on -> on) = pi + (1 - pi) / e
    stayed = states[1:][states[:-1]].mean()
    assert stayed == pytest.approx(2 / 3 + 1 / 3 * np.exp(-1), abs=0.01)


def test_a_markov_state_does_not_depend_on_what_was_asked_before() -> None:
    reachable = Markov().schedule(NOBODY, 3)
    late = reachable(PARTIES, 1e6)
    reachable(PARTIES, 5e5)
    np.testing.assert_array_equal(reachable(PARTIES, 1e6), late)
    np.testing.assert_array_equal(reachable(PARTIES[100:103], 1e6), late[100:103])


def test_a_trace_says_who_and_can_repeat(tmp_path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("party,start,end\nana,0,10\nbo,5,20\nana,15,16\n")
    once, again = Trace(str(path)).schedule(VILLAGE, 0), Trace(str(path), period=30).schedule(VILLAGE, 0)
    everyone = np.arange(3)
    assert once(everyone, 0.0).tolist() == [True, False, False]
    assert once(everyone, 5.0).tolist() == once(everyone, 7.0).tolist() == [True, True, False]
    assert once(everyone, 10.0).tolist() == [False, True, False]
    assert once(everyone, 37.0).tolist() == [False, False, False]
    assert again(everyone, 37.0).tolist() == [True, True, False]


@pytest.mark.parametrize(("text", "complaint"), [
    ("party,start,end\nana,0,soon\n", "line 2"), ("party,begin\nana,0\n", "line 2"),
    ("party,start,end\nzoe,0,1\n", "no party called 'zoe'")])
def test_a_trace_that_is_none_is_refused(tmp_path, text: str, complaint: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=complaint):
        Trace(str(path)).schedule(VILLAGE, 0)
    with pytest.raises(DataError, match="cannot be read"):
        Trace(str(tmp_path / "none.csv")).schedule(VILLAGE, 0)
