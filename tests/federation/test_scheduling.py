"""The arithmetic of rounds: hand-worked schedules, and equality with a step-by-step simulation."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.federation.clock import Candidates, fitting, imbalance, upload_ends

times = st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 20)), min_size=1, max_size=12)


def candidates(*rows: tuple[float, float, float]) -> Candidates:
    """Training, upload and download seconds of each candidate."""
    training, upload, download = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return Candidates(np.arange(len(rows)) + 100, training, upload, download)


def test_uploads_one_after_another_hide_training() -> None:
    # 5 ready at 5, done at 7; 3 is ready and waits for the channel, done at 9; 20 keeps the channel waiting until 20.
    assert upload_ends(np.array([5.0, 3.0, 20.0]), np.array([2.0, 2.0, 1.0])).tolist() == [7.0, 9.0, 21.0]
    assert upload_ends(np.array([5.0, 3.0]), np.array([2.0, 2.0]), sequential=False).tolist() == [7.0, 5.0]


@given(times)
def test_the_closed_form_is_what_an_event_queue_gives(rows: list[tuple[float, float]]) -> None:
    training, upload = (np.array(column) for column in zip(*rows, strict=True))
    ready = [(seconds, place) for place, seconds in enumerate(training)]
    heapq.heapify(ready)
    waiting: set[int] = set()
    free, ends, turn = 0.0, np.zeros(len(rows)), 0
    while turn < len(rows):  # the channel serves the parties in their order, each as soon as it is ready
        while turn not in waiting:
            seconds, place = heapq.heappop(ready)
            waiting.add(place)
            free = max(free, seconds) if place == turn else free
        free = max(free, training[turn]) + upload[turn]
        ends[turn], turn = free, turn + 1
    np.testing.assert_allclose(upload_ends(training, upload), ends, rtol=1e-12, atol=1e-9)


def test_a_broken_link_does_not_keep_the_others_waiting() -> None:
    ends = upload_ends(np.array([1.0, np.inf, 1.0, 2.0]), np.array([2.0, 1.0, np.inf, 2.0]))
    assert ends.tolist() == [3.0, np.inf, np.inf, 5.0]


# Four candidates; T_d is the slowest download of the set, and everything must end before 20 s.
#   a: trains 10, uploads 2, downloads 1      b: trains 2, uploads 3, downloads 2
#   c: trains 4, uploads 3, downloads 1       d: trains 15, uploads 6, downloads 6
# First increments (download + training + upload): a 13, b 7, c 8, d 27. b is in: elapsed 5, T_d 2.
# Then a: 0 + 5 + 2 = 7; c: 0 + 0 + 3 = 3; d: 4 + 10 + 6 = 20. c is in: elapsed 8.
# Then a: 0 + 2 + 2 = 4; d: 4 + 7 + 6 = 17. a is in: elapsed 12, round 14. d would end at 6 + 15 + 6 = 27: out.
HAND_WORKED = candidates((10, 2, 1), (2, 3, 2), (4, 3, 1), (15, 6, 6))


def test_fedcs_by_hand() -> None:
    places = fitting(HAND_WORKED, 20.0)
    assert places.tolist() == [1, 2, 0]
    assert HAND_WORKED.round_seconds(places).tolist() == [7.0, 10.0, 14.0]
    assert fitting(HAND_WORKED, 14.0).tolist() == [1, 2]  # ends before the deadline, not at it
    assert fitting(HAND_WORKED, 28.0).tolist() == [1, 2, 0, 3]
    assert fitting(HAND_WORKED, 5.0).tolist() == []
    assert HAND_WORKED.round_seconds(np.arange(0)).tolist() == []
    assert fitting(HAND_WORKED, 20.0, classes=np.ones((4, 2))).tolist() == [1, 2, 0]  # nothing weighs the classes


def test_nobody_without_rows_is_unbalanced() -> None:
    assert imbalance(np.zeros(2), np.array([[0, 0], [3, 3], [0, 4]])) == pytest.approx([1e-9, 1e-9, 2 + 1e-9], rel=1e-6)


def test_the_sum_of_the_published_runs_by_hand() -> None:
    # One sum of everything: b 7 (elapsed 7); c adds 3 (10); a: 0 + max(0, 10 - 10) + 2 (12); d: 4 + 3 + 6 = 13 (25).
    # The plan says 25, the round really lasts 27: training is not hidden behind the distribution.
    assert fitting(HAND_WORKED, 26.0, legacy=True).tolist() == [1, 2, 0, 3]
    assert fitting(HAND_WORKED, 26.0).tolist() == [1, 2, 0]


def test_hybridfl_by_hand() -> None:
    # Two classes. Alone, a has 4 and 0: mean 2, variance 4, so 2; b 3 and 1: 1/2 = 0.5; c 2 and 2: 0; d 0 and 4: 2.
    classes = np.array([[4, 0], [3, 1], [2, 2], [0, 4]])
    np.testing.assert_allclose(imbalance(np.zeros(2), classes), [2, 0.5, 0, 2], atol=1e-8)
    np.testing.assert_allclose(imbalance(np.zeros(2), classes, root=True), [1, 0.5, 0, 1], atol=1e-8)
    # c is perfectly balanced and comes first: elapsed 7, T_d 1. With c held (2, 2):
    # a (6, 2): 4/4 = 1, increment 0 + 3 + 2 = 5 -> 5.   b (5, 3): 1/4, increment 1 + 0 + 3 = 4 -> 1.   d (2, 6): 1,
    # increment 5 + 8 + 6 = 19 -> 19. b is in: elapsed 10, T_d 2, held (5, 3).
    # a (9, 3): 9/6 = 1.5, increment 0 + 0 + 2 -> 3.   d (5, 7): 1/6, increment 4 + 5 + 6 = 15 -> 2.5. d is tried first:
    # 6 + 15 + 6 = 27 is too late for 20, so it is out, and a comes: 2 + 10 + 2 = 14. For 28 d is in, and a ends at 29.
    assert fitting(HAND_WORKED, 20.0, coefficient=imbalance, classes=classes).tolist() == [2, 1, 0]
    assert fitting(HAND_WORKED, 28.0, coefficient=imbalance, classes=classes).tolist() == [2, 1, 3]
    assert fitting(HAND_WORKED, 30.0, coefficient=imbalance, classes=classes).tolist() == [2, 1, 3, 0]


@given(rows=st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 20), st.floats(0.1, 20)), min_size=1, max_size=10),
       deadline=st.floats(1, 100))
def test_what_fits_ends_before_the_deadline(rows: list[tuple[float, float, float]], deadline: float) -> None:
    given_candidates = candidates(*rows)
    places = fitting(given_candidates, deadline)
    assert len(set(places.tolist())) == len(places)
    if len(places):
        assert given_candidates.round_seconds(places)[-1] <= deadline + 1e-9
    elif all(sum(row) < deadline for row in rows):
        pytest.fail("somebody would have fitted")


def test_who_can_never_finish_is_not_chosen() -> None:
    assert fitting(candidates((1, 1, 1), (1, np.inf, np.inf), (np.inf, 1, 1)), np.inf).tolist() == [0]
