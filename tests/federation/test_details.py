"""Small things that everything else stands on, each of which a fault once went through unnoticed."""

from __future__ import annotations

import numpy as np
import pytest
from phones import MODEL, phones, send

from tequio.federation import payload as payloads
from tequio.federation.aggregators.distances import krum_scores


def test_what_is_read_only_is_so_at_every_depth():
    weights = np.ones(2)
    sealed = payloads.read_only({"model": {"weights": weights}, "list": [weights]})
    for array in (sealed["model"]["weights"], sealed["list"][0]):
        assert not array.flags.writeable
    assert weights.flags.writeable


def test_a_reply_says_how_long_the_task_took_not_when_it_ended():
    federation = phones([500, 1000], [10, 10])
    assert all(0 <= reply.seconds < 300 for reply in federation.ask([0, 1], send, MODEL).answers)


def test_a_charge_costs_energy_and_money_but_no_time():
    # 1,000 bytes at 500 and at 250 a second: 2 + 4 s at 1.2 W; a megabyte costs 3.
    federation = phones([500, 250], [10, 10], price=3.0)
    clock = federation.clock
    clock.charge(np.array([0, 1]), 1, np.array([1000.0, 1000.0]))
    assert clock.totals.joules == pytest.approx(1.2 * 6)
    assert clock.totals.cost == pytest.approx(3.0 * 2000 / 1e6)
    assert clock.now == 0.0


def test_krum_looks_at_one_neighbour_at_least():
    # Of three parties n - f - 2 is 0 for one hostile party; the scores are then the squared distance to the nearest.
    distances = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 4.0], [9.0, 4.0, 0.0]])
    assert krum_scores(distances, 1).tolist() == [1.0, 1.0, 4.0]
