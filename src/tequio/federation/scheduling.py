"""The arithmetic of a round's time: when uploads end, and which candidates fit before a deadline.

With T_d the time to multicast the model at the pace of the slowest, t_UD a party's training time and t_UL its upload
time, uploads one after another end at Theta_i = max(Theta_{i-1}, t_UD_i) + t_UL_i after the distribution: training is
hidden behind the uploads of others (Nishio and Yonetani, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.federation.devices import Resources

    Times = NDArray[np.float64]
    Coefficient = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]


@dataclass(frozen=True)
class Candidates:
    """Parties that a deadline selector may choose from, with their expected times in this round."""

    parties: NDArray[np.int64]
    training: Times
    upload: Times
    download: Times

    @classmethod
    def of(cls, parties: NDArray[np.int64], resources: Resources, size: float,
           rows: NDArray[np.float64]) -> Candidates:
        """Expected times for a model of `size` bytes and so many rows (passes counted) at each party."""
        transfer = resources.transfer_seconds(size)
        return cls(parties, resources.training_seconds(rows), transfer, transfer)

    def part(self, places: NDArray[Any]) -> Candidates:
        """Some of the candidates, in their order."""
        return Candidates(self.parties[places], self.training[places], self.upload[places], self.download[places])

    def round_seconds(self, places: NDArray[np.int64]) -> Times:
        """How long a round lasts after each upload, if the candidates at these places upload in this order."""
        if not len(places):
            return np.zeros(0)
        ends = upload_ends(self.training[places], self.upload[places])
        return np.asarray(np.maximum.accumulate(self.download[places]) + ends, dtype=np.float64)


def upload_ends(training: Times, upload: Times, *, sequential: bool = True) -> Times:
    """When each upload ends, counted from the moment everybody has the model; in upload order."""
    if not sequential:
        return training + upload
    if not np.isfinite(training + upload).all():
        return _ends_with_blockage(training, upload)
    before = np.cumsum(upload) - upload
    # Theta_i = sum of uploads so far + the longest wait: max over j <= i of (t_UD_j - uploads before j).
    return np.asarray(before + upload + np.maximum.accumulate(np.maximum(training - before, 0.0)), dtype=np.float64)


def _ends_with_blockage(training: Times, upload: Times) -> Times:
    """A party that never gets ready, or whose link lets nothing through, does not keep the others waiting."""
    ends, works = np.full(len(upload), np.inf), np.isfinite(training + upload)
    ends[works] = upload_ends(training[works], upload[works])
    return ends


def fitting(candidates: Candidates, deadline: float, *, coefficient: Coefficient | None = None,
            classes: NDArray[Any] | None = None, legacy: bool = False) -> NDArray[np.int64]:
    """Places of the candidates that a greedy choice takes before the deadline, in the order in which they upload.

    Again and again the candidate that lengthens the round least is tried, and kept if the round still ends before the
    deadline. `coefficient(held, classes)` weighs the increments by what is known of the classes (HybridFL). `legacy`
    keeps one sum of distribution, waiting and upload, as the runs behind the published table did: it hides training
    behind the distribution too, so that a round may last up to one distribution longer than planned.
    """
    left = np.flatnonzero(np.isfinite(candidates.training + candidates.upload + candidates.download))
    taken: list[int] = []
    elapsed = distribution = 0.0
    held = np.zeros(0 if classes is None else classes.shape[1])
    while len(left):
        slower = np.maximum(distribution, candidates.download[left])
        steps = np.maximum(0.0, candidates.training[left] - elapsed) + candidates.upload[left]
        increments = slower - distribution + steps
        weighed = (increments if coefficient is None or classes is None
                   else increments * coefficient(held, classes[left]))
        best = int(np.argmin(weighed))
        place, end = int(left[best]), elapsed + (increments[best] if legacy else slower[best] + steps[best])
        left = np.delete(left, best)
        if end < deadline:
            taken.append(place)
            elapsed = float(end if legacy else elapsed + steps[best])
            distribution = float(slower[best])
            held = held if classes is None else held + classes[place]
    return np.array(taken, dtype=np.int64)


def imbalance(held: NDArray[Any], classes: NDArray[Any], *, root: bool = False) -> NDArray[np.float64]:
    """How unevenly the classes would be represented if each candidate joined those that are held.

    Variance over mean, as HybridFL's formula is printed; with `root` the usual coefficient of variation. A small
    constant lets time decide between candidates that are all perfectly balanced.
    """
    together = held + classes
    mean = together.mean(axis=1)
    spread = together.var(axis=1)
    numerator = np.sqrt(spread) if root else spread
    return np.asarray(np.divide(numerator, mean, out=np.zeros_like(mean), where=mean > 0) + 1e-9, dtype=np.float64)
