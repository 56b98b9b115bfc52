"""The event queue: order of time, then of departure; plain data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tequio.federation import payload as payloads
from tequio.federation.events import EventQueue


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 9)), max_size=30))
def test_events_come_in_order_and_survive_a_save(given_events: list[tuple[float, int]]) -> None:
    queue = EventQueue()
    for number, (seconds, party) in enumerate(given_events):
        queue.add(seconds, party, version=number, lost=number % 3 == 0)
    other = EventQueue.from_plain(payloads.decode(payloads.encode(queue.to_plain())))
    taken = [queue.next() for _ in range(len(queue))]
    assert taken == [other.next() for _ in range(len(other))]
    assert [event.version for event in taken] == sorted(range(len(taken)), key=lambda place: given_events[place][0])
    assert queue.next_seconds() == float("inf")


def test_ties_are_broken_by_departure_and_the_busy_are_known() -> None:
    queue = EventQueue()
    for party in (7, 3, 5):
        queue.add(1.0, party, 0)
    assert queue.busy().tolist() == [3, 5, 7]
    assert [queue.next().party for _ in range(3)] == [7, 3, 5]
