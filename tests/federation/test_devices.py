"""Devices: means within their bounds, fluctuation within its bounds, times that follow from both."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.errors import ConfigError
from tequio.federation.devices import Mobile, Resources, consenting
from tequio.federation.rng import truncated_normal, uniform
from tequio.registry import build

PARTIES = np.arange(5000)


def test_means_are_drawn_once_and_rounds_vary_around_them() -> None:
    devices = Mobile(throughput=(1.0, 3.0), speed=(10.0, 100.0))
    still = Mobile(throughput=(1.0, 3.0), speed=(10.0, 100.0), deviation=0.0).resources(0, 1, PARTIES)
    rounds = [devices.resources(0, round, PARTIES) for round in range(1, 4)]
    assert 1e6 < still.throughput.min() < 1.01e6
    assert 2.99e6 < still.throughput.max() < 3e6
    for resources in rounds:
        for name in ("throughput", "speed"):
            ratio = getattr(resources, name) / getattr(still, name)
            assert 0.8 <= ratio.min() < 0.81 < 1.19 < ratio.max() <= 1.2
            # a normal of deviation 0.1 cut at two deviations has a standard deviation of 0.088
            assert ratio.std() == pytest.approx(0.088, abs=0.002)
    assert not np.array_equal(rounds[0].speed, rounds[1].speed)
    assert abs(np.corrcoef(rounds[0].speed / still.speed, rounds[0].throughput / still.throughput)[0, 1]) < 0.05


def test_draws_come_from_the_streams_of_their_names() -> None:
    """Runs can be repeated in other versions: a round's value is mean x (1 + change), mean = low + (high - low) u."""
    devices, parties = Mobile(throughput=(1.0, 3.0), speed=(10.0, 100.0)), np.array([4, 9])
    change = [truncated_normal(uniform(7, f"{what}x", 5, parties), 0.1, 0.2) for what in ("throughput", "speed")]
    drawn = devices.resources(7, 5, parties, "x")
    means = 1e6 * (1 + 2 * uniform(7, "mean throughput", 0, parties)), 10 + 90 * uniform(7, "mean speed", 0, parties)
    np.testing.assert_allclose(drawn.throughput, means[0] * (1 + change[0]), rtol=1e-12)
    np.testing.assert_allclose(drawn.speed, means[1] * (1 + change[1]), rtol=1e-12)
    agreed = np.flatnonzero(uniform(7, "share rows", 0, np.arange(50)) < 0.3)
    assert consenting(Mobile(share_rows=0.3), 7, 50).tolist() == agreed.tolist()


def test_times_follow_from_bytes_and_rows() -> None:
    resources = Resources(np.array([1.4e6, 0.7e6]), np.array([10.0, 100.0]))
    # 101,770 numbers of 32 bits at 1.4 Mbit/s, and 5 epochs of 60 rows
    assert resources.transfer_seconds(4 * 101_770) == pytest.approx([2.32617, 4.65234], abs=1e-5)
    assert resources.training_seconds(300.0).tolist() == [30.0, 3.0]


def test_a_link_that_lets_nothing_through_takes_for_ever_unless_there_is_nothing_to_send() -> None:
    broken = Resources(np.array([0.0]), np.array([0.0]))
    assert broken.transfer_seconds(1.0).tolist() == [np.inf]
    assert broken.transfer_seconds(0.0).tolist() == [0.0]
    assert broken.training_seconds(5.0).tolist() == [np.inf]


def test_consent_is_drawn_once_a_party() -> None:
    devices = Mobile(share_rows=0.01)
    assert len(consenting(devices, 0, 100_000)) == pytest.approx(1000, abs=130)
    assert consenting(devices, 0, 100).tolist() == [party for party in consenting(devices, 0, 1000) if party < 100]
    assert not len(consenting(Mobile(), 0, 100))


@pytest.mark.parametrize("wrong", [{"throughput": [-1, 2]}, {"speed": [1]}, {"variation": 1.0}, {"wait_for": 0},
                                   {"uploads": "both"}])
def test_bad_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        build("devices", "mobile", wrong)
