"""Selectors on the clock: FedCS, HybridFL and Dyn-HybridFL by hand, empty choices, and the deadline that adapts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from phones import MODEL, phones

from tequio.data.dataset import Target
from tequio.errors import ConfigError, PartyError, QuorumError
from tequio.federation.clock import Arrival
from tequio.federation.exchange import Replies
from tequio.federation.federation import Rules
from tequio.federation.selection import Choice, RoundOutcome, SelectionContext
from tequio.federation.selectors.by_deadline import MOST_EMPTY_ROUNDS, AdaptiveDeadline, DynHybridSelector
from tequio.registry import build

# A model of 1,000 bytes and ten rows a party. Seconds to train, and to send or receive the model:
#   0: trains 10, sends 2      1: trains 2, sends 3      2: trains 4, sends 3      3: trains 15, sends 6
SENDING, TRAINING = [500.0, 1000 / 3, 1000 / 3, 1000 / 6], [1.0, 5.0, 2.5, 10 / 15]


def choose(federation: Any, name: str, memory: dict[str, Any] | None = None, **parameters: Any) -> Choice:
    inner = {"": MODEL["model"][:-2]}  # the selector puts the model under the name 'model' to weigh it
    turn = SelectionContext(federation, federation.eligible(), memory or {}, np.random.default_rng(0), inner)
    return build("selector", name, {"fraction": 1.0, **parameters}).choose(turn)


def everyone(**given: Any) -> Any:
    return phones(SENDING, TRAINING, **given)


def test_fedcs_by_hand() -> None:
    # First increments: 0: 2 + 10 + 2 = 14; 1: 3 + 2 + 3 = 8; 2: 3 + 4 + 3 = 10; 3: 27. Party 1: elapsed 5, T_d 3.
    # Then 0: 0 + 5 + 2 = 7; 2: 0 + 0 + 3 = 3; 3: 3 + 10 + 6 = 19. Party 2: elapsed 8.
    # Then 0: 0 + 2 + 2 = 4: elapsed 12, the round ends at 15. Then 3: 6 + 15 + 6 = 27.
    assert choose(everyone(), "fedcs", deadline=20.0).parties.tolist() == [1, 2, 0]
    assert choose(everyone(), "fedcs", deadline=14.0).parties.tolist() == [1, 2]
    assert choose(everyone(), "fedcs", deadline=30.0).parties.tolist() == [1, 2, 0, 3]


def test_hybridfl_by_hand() -> None:
    # Classes a to j; only a and b occur, so the eight empty classes count as imbalance too.
    # Variance over mean of ten classes: 0 (4, 0): (4^2/10 - 0.4^2) / 0.4 = 3.6; 1 (3, 1): (10/10 - 0.16) / 0.4 = 2.1;
    # 2 (2, 2): (8/10 - 0.16) / 0.4 = 1.6; 3 (0, 4): 3.6. Four rows a party train in 4, 0.8, 1.6 and 6 s.
    # First: 0: (2 + 4 + 2) 3.6 = 28.8; 1: (3 + 0.8 + 3) 2.1 = 14.28; 2: (3 + 1.6 + 3) 1.6 = 12.16; 3: 18 x 3.6.
    # Party 2: elapsed 4.6, T_d 3. With (2, 2) held: 0 (6, 2): (40/10 - 0.64) / 0.8 = 4.2, increment 2 -> 8.4;
    # 1 (5, 3): (34/10 - 0.64) / 0.8 = 3.45, increment 3 -> 10.35; 3 (2, 6): 4.2, increment 3 + 1.4 + 6 = 10.4 -> 43.7.
    # Party 0: elapsed 6.6. With (6, 2): 1 (9, 3): (90/10 - 1.44) / 1.2 = 6.3 x 3 = 18.9;
    # 3 (6, 6): (72/10 - 1.44) / 1.2 = 4.8 x (3 + 0 + 6) = 43.2. Party 1: elapsed 9.6, the round ends at 12.6.
    labels = [[0] * 4, [0, 0, 0, 1], [0, 0, 1, 1], [1] * 4]
    assert choose(everyone(labels=labels), "hybridfl", deadline=13.0).parties.tolist() == [2, 0, 1]
    assert choose(everyone(labels=labels), "fedcs", deadline=13.0).parties.tolist() == [1, 0, 2]
    assert choose(everyone(labels=labels), "hybridfl", deadline=12.0).parties.tolist() == [2, 0]
    # 6 + 9.6 + 6 = 21.6 with party 3
    assert choose(everyone(labels=labels), "hybridfl", deadline=22.0).parties.tolist() == [2, 0, 1, 3]


def test_hybridfl_knows_who_offers_rows_and_how_long_there_is_time_for_it() -> None:
    labels = [[0] * 4, [0, 0, 0, 1], [0, 0, 1, 1], [1] * 4]
    consenting = {1: {"share_rows": True}, 3: {"share_rows": True}}
    offers = choose(everyone(labels=labels, overrides=consenting), "hybridfl", deadline=13.0).memory["offers"]
    assert offers["parties"].tolist() == [3]  # party 1 consents too, but it is chosen
    assert offers["classes"][0].tolist() == [0, 4, 0, 0, 0, 0, 0, 0, 0, 0]
    assert offers["window"] == pytest.approx(0.8)
    assert offers["row_bytes"].tolist() == [8 + 8]


@pytest.mark.parametrize(("direction", "expected"), [("follow", [180.0, 90.0, 225.0]),
                                                     ("inverse", [180.0, 360.0, 144.0])])
def test_dyn_hybridfl_by_hand(direction: Any, expected: list[float]) -> None:
    # Mean training plus mean upload times of 40, 20 and 50 s: 180 x 20/40 = 90, 90 x 50/20 = 225, or the inverse.
    selector, rule, deadlines = DynHybridSelector(direction=direction), {}, []
    for pace in (40.0, 20.0, 50.0):
        rule = selector.moved(rule, pace)
        deadlines.append(rule["deadline"])
        assert rule["telescoped"] == pytest.approx(rule["deadline"])  # T_0 phi_t / phi_0: nothing in between matters
    assert deadlines == pytest.approx(expected)


def test_the_mended_rules_do_not_telescope() -> None:
    selector, rule = DynHybridSelector(reference="mean"), {}
    for pace, expected in ((40.0, 180.0), (20.0, 90.0), (60.0, 360.0)):  # against the means 40, 40 and 30
        rule = selector.moved(rule, pace)
        assert rule["deadline"] == pytest.approx(expected)
    bounded = DynHybridSelector(lowest=100.0, highest=200.0, damping=0.5)
    rule = bounded.moved(bounded.moved({}, 40.0), 10.0)
    assert rule["deadline"] == 100.0
    assert rule["factor"] == 0.5
    assert bounded.moved(rule, 1000.0)["deadline"] == 200.0


def test_dyn_hybridfl_puts_both_numbers_on_the_record() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    federation = everyone(record=lambda kind, facts: told.append((kind, facts)))
    first = choose(federation, "dyn-hybridfl", deadline=30.0)
    choose(federation, "dyn-hybridfl", first.memory, deadline=30.0)
    kinds = [facts for kind, facts in told if kind == "deadline"]
    assert [facts["deadline"] for facts in kinds] == [facts["telescoped"] for facts in kinds] == [30.0, 30.0]
    assert federation.clock.metrics()["clock.deadline"] == 30.0
    # phi: mean training (10 + 2 + 4 + 15) / 4 plus mean upload (2 + 3 + 3 + 6) / 4
    assert kinds[0]["pace"] == pytest.approx(31 / 4 + 14 / 4)


def test_nobody_fits_and_after_a_while_that_is_an_error() -> None:
    told: list[str] = []
    federation = everyone(record=lambda kind, facts: told.append(facts["message"]) if kind == "warning" else None)
    memory: dict[str, Any] = {}
    for _ in range(MOST_EMPTY_ROUNDS - 1):
        choice = choose(federation, "fedcs", memory, deadline=5.0)
        memory = choice.memory
        assert not len(choice.parties)
    assert "the fastest of 4 candidates needs 8.0 s and the deadline is 5.0 s" in told[0]
    with pytest.raises(QuorumError, match=r"chose nobody in 20 rounds in a row.*raise selector.deadline"):
        choose(federation, "fedcs", memory, deadline=5.0)
    assert choose(federation, "fedcs", memory, deadline=9.0).memory["empty"] == 0


def test_a_candidate_without_a_link_is_never_chosen() -> None:
    federation = phones([500.0, 0.0], [1.0, 1.0])
    assert choose(federation, "fedcs", deadline=1e9).parties.tolist() == [0]
    assert choose(federation, "adaptive-deadline").parties.tolist() == [0]


@pytest.mark.parametrize("name", ["fedcs", "hybridfl", "dyn-hybridfl", "adaptive-deadline", "scheduled-random"])
def test_without_a_clock_they_say_what_is_missing(name: str) -> None:
    federation = everyone()
    federation.clock = None
    with pytest.raises(ConfigError, match=rf"'{name}' looks at the parties' times.*add a \[devices\] table"):
        choose(federation, name)


def test_a_candidate_that_fails_to_report_is_left_out_or_stops_the_run() -> None:
    lenient = everyone(target=Target("number"), rules=Rules(on_failure="continue", quorum=0.0))
    assert not len(choose(lenient, "hybridfl", deadline=1e6).parties)
    with pytest.raises(PartyError, match=r"the target is not one class a row.*such as 'fedcs'"):
        choose(everyone(target=Target("number")), "hybridfl", deadline=1e6)


def test_scheduled_random_can_upload_in_order_of_finishing() -> None:
    drawn = np.random.default_rng(0).choice(4, 4, replace=False)
    assert choose(everyone(), "scheduled-random").parties.tolist() == drawn.tolist() == [3, 2, 0, 1]
    assert choose(everyone(), "scheduled-random", order="finish").parties.tolist() == [1, 2, 0, 3]
    assert len(choose(everyone(), "scheduled-random", fraction=0.3).parties) == 2  # rounded up


def test_the_adaptive_deadline_cuts_where_useful_updates_a_second_are_most() -> None:
    # The order of FedCS; the round would end at 8, 11, 15 or 27 s. With h = 2 one to four updates are worth 2/3, 1, 6/5
    # and 4/3: 0.083, 0.091, 0.080 and 0.049 a second. So two, and with h = 20 (worth 0.95, 1.82, 2.61, 3.33) three.
    assert choose(everyone(), "adaptive-deadline", half=2.0).parties.tolist() == [1, 2]
    assert choose(everyone(), "adaptive-deadline", half=20.0).parties.tolist() == [1, 2, 0]
    # Rounds that always take 100 s longer than planned are worth filling.
    late = {"delay": 100.0, "answering": 1.0}
    assert choose(everyone(), "adaptive-deadline", late, half=2.0).parties.tolist() == [1, 2, 0, 3]
    # After 12, 15, 19 and 31 s: 0.056, 0.067, 0.063 and 0.043 a second.
    late = {"delay": 4.0, "answering": 1.0}
    assert choose(everyone(), "adaptive-deadline", late, half=2.0).parties.tolist() == [1, 2]


def test_useful_updates_a_second_by_hand() -> None:
    selector = AdaptiveDeadline(half=2.0)
    assert selector.rates(np.array([8.0, 11.0])) == pytest.approx([(2 / 3) / 8, 1 / 11])
    assert selector.rates(np.array([8.0, 11.0]), 0.5) == pytest.approx([0.4 / 8, (2 / 3) / 11])
    assert selector.rates(np.array([0.0])) == pytest.approx([(2 / 3) / 1e-9])


def test_the_adaptive_deadline_leaves_time_for_the_usual_delay() -> None:
    # All four would be done after 27 s, see above; rounds usually take 100 s longer.
    federation = everyone()
    choose(federation, "adaptive-deadline", {"delay": 100.0, "answering": 1.0}, half=2.0)
    assert federation.clock.notes["deadline"] == pytest.approx(127.0)


def test_the_adaptive_deadline_learns_from_what_it_observes() -> None:
    federation, selector = everyone(), AdaptiveDeadline(memory=0.5)
    memory = {"delay": 10.0, "answering": 1.0, "planned": 20.0, "empty": 0}
    federation.clock.last = Arrival(np.arange(4), np.array([True, True, True, False]), np.zeros(4, dtype=bool),
                                    np.zeros(4), 50.0)
    turn = SelectionContext(federation, np.arange(4), memory, np.random.default_rng(0))
    learnt = selector.observe(turn, RoundOutcome(Replies(()), {}))
    assert (learnt["delay"], learnt["answering"]) == (0.5 * 10 + 0.5 * 30, 0.5 + 0.5 * 0.75)


@pytest.mark.parametrize(("arrival", "empty"), [
    (None, 0), (Arrival(np.arange(0), np.zeros(0, dtype=bool), np.zeros(0, dtype=bool), np.zeros(0), 50.0), 0),
    (Arrival(np.arange(2), np.array([True, False]), np.zeros(2, dtype=bool), np.zeros(2), 50.0), 3)],
    ids=["no round yet", "nobody asked", "nobody chosen"])
def test_the_adaptive_deadline_learns_nothing_from_a_round_without_parties(arrival: Arrival | None, empty: int) -> None:
    federation = everyone()
    federation.clock.last = arrival
    memory = {"delay": 10.0, "answering": 0.9, "planned": 20.0, "empty": empty}
    turn = SelectionContext(federation, np.arange(4), memory, np.random.default_rng(0))
    assert AdaptiveDeadline(memory=0.5).observe(turn, RoundOutcome(Replies(()), {})) == memory
