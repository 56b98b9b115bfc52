"""Devices: how fast parties compute and send in a round, and what that costs them.

Nishio, Yonetani: Client selection for federated learning with heterogeneous resources in mobile edge, ICC 2019.
Yoshida, Nishio, Morikura, Yamamoto, Yonetani: Hybrid-FL for wireless networks, ICC 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.federation.counters import truncated_normal, uniform
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]

BITS_A_MEGABIT = 1e6


@dataclass(frozen=True)
class Resources:
    """What some parties have in a round: bits a second on their link, rows a second in training."""

    throughput: NDArray[np.float64]
    speed: NDArray[np.float64]

    def transfer_seconds(self, size: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """How long so many bytes take each party; for ever where nothing gets through."""
        return _ratio(8.0 * np.asarray(size), self.throughput)

    def training_seconds(self, rows: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """How long so many rows (passes counted) take each party."""
        return _ratio(np.asarray(rows), self.speed)


@register("devices", "instant")
@dataclass(frozen=True)
class Instant:
    """Nothing takes virtual time: the run has no clock."""


@register("devices", "mobile", paper="Nishio and Yonetani, 2019; Yoshida et al., 2020")
@dataclass(frozen=True)
class Mobile:
    """Devices with a mean throughput and speed of their own that fluctuate from round to round.

    Means are drawn once a party, uniformly between the two values. In each round both vary around the mean by a
    truncated normal. The model is multicast at the pace of the slowest, training is parallel, and uploads share one
    channel (sequential) or not. Devices of your own derive from this class and override `resources`.

    Parameters:
        throughput: lowest and highest mean throughput, in Mbit a second
        speed: lowest and highest mean speed of training, in rows a second
        deviation: standard deviation of a round's value, as a share of the party's mean
        variation: a round's value is never further from the mean than this share of it
        uploads: one after another, or all at once
        upload_order: uploads in the order that the selector chose, or by the party's number
        deadline: an exchange closes after so many seconds, and who is not done is left out (0: never)
        wait_for: an exchange closes when this share of the asked parties has answered
        share_rows: share of the parties whose settings allow methods such as HybridFL to take rows away
        compute_watts: power drawn while training
        send_watts: power drawn while sending
        receive_watts: power drawn while receiving
        price: what a megabyte costs, in any currency
    """

    throughput: tuple[NotNegative, NotNegative] = (1.4, 1.4)
    speed: tuple[NotNegative, NotNegative] = (10.0, 100.0)
    deviation: NotNegative = 0.1
    variation: Annotated[float, Interval(ge=0, lt=1)] = 0.2
    uploads: Literal["sequential", "parallel"] = "sequential"
    upload_order: Literal["chosen", "party"] = "chosen"
    deadline: NotNegative = 0.0
    wait_for: Annotated[float, Gt(0), Interval(le=1)] = 1.0
    share_rows: Share = 0.0
    compute_watts: NotNegative = 2.0
    send_watts: NotNegative = 1.2
    receive_watts: NotNegative = 0.8
    price: NotNegative = 0.0

    def resources(self, seed: int, round: int, parties: NDArray[np.int64], purpose: str = "") -> Resources:
        """Each party's mean, varied for this round."""
        return Resources(self._drawn("throughput", self.throughput, seed, round, parties, purpose) * BITS_A_MEGABIT,
                         self._drawn("speed", self.speed, seed, round, parties, purpose))

    def _drawn(self, what: str, bounds: tuple[float, float], seed: int, round: int, parties: NDArray[np.int64],
               purpose: str) -> NDArray[np.float64]:
        low, high = bounds
        mean = low + (high - low) * uniform(seed, f"mean {what}", 0, parties)
        change = truncated_normal(uniform(seed, f"{what}{purpose}", round, parties), self.deviation, self.variation)
        found: NDArray[np.float64] = mean * (1.0 + change)
        return found


def consenting(devices: Mobile, seed: int, parties: int) -> NDArray[np.int64]:
    """The parties whose simulated owners let rows go; drawn once a party."""
    if not devices.share_rows:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(uniform(seed, "share rows", 0, np.arange(parties)) < devices.share_rows)


def _ratio(amount: NDArray[np.float64], rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """amount / rate; nothing takes no time even at rate 0, anything else then takes for ever."""
    amount = np.broadcast_to(amount, rate.shape).astype(np.float64)
    return np.divide(amount, rate, out=np.where(amount > 0, np.inf, 0.0), where=rate > 0)
