"""Aggregators that look at each coordinate by itself: median and trimmed mean.

Yin, Chen, Kannan, Bartlett: Byzantine-robust distributed learning: towards optimal statistical rates, ICML 2018.

Both weigh all parties alike: how many rows a hostile party holds is what it says.

Aggregators that bound how far one update can pull the centre: geometric median, centred clipping, norm bounding.

Pillutla, Kakade, Harchaoui: Robust aggregation for federated learning, IEEE TSP 2022.
Karimireddy, He, Jaggi: Learning from history for Byzantine robust optimization, ICML 2021.
Sun, Kairouz, Suresh, McMahan: Can you really backdoor federated learning?, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.federation.aggregation import Aggregator, Combined
from tequio.federation.aggregators.distances import as_update, columns_in_blocks, combination, gram, shares_of
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Updates
    from tequio.federation.payload import Payload


@register("aggregator", "median", paper="Yin et al., 2018")
@dataclass(frozen=True)
class Median(Aggregator):
    """The median of the updates, coordinate by coordinate."""

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """The middle value; of an even number of updates the mean of the two in the middle."""
        matrix, middle = updates.matrix(), len(updates) // 2
        result = np.empty(matrix.shape[1])
        places = [middle] if len(updates) % 2 else [middle - 1, middle]
        for index, block in columns_in_blocks(matrix):
            # Columns as rows: a partition along memory is several times faster than one across it.
            ordered = np.partition(np.ascontiguousarray(block.T), places, axis=1)
            result[index] = ordered[:, places].mean(axis=1)
        return Combined(as_update(result, updates))


def of_buffers(aggregator: Aggregator) -> Aggregator:
    """What makes one of the parties' buffers, which are no weights: the mean, or a median for a robust aggregator."""
    return aggregator if aggregator.linear else Median()


@register("aggregator", "trimmed-mean", paper="Yin et al., 2018")
@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """The mean of each coordinate without its largest and smallest values.

    Parameters:
        trim: share of the updates that is cut off at each end, rounded down
    """

    trim: Annotated[float, Interval(ge=0, lt=0.5)] = 0.2

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """The mean of what is left of each coordinate."""
        matrix = updates.matrix()
        cut = int(self.trim * len(updates) + 1e-9)
        result = np.empty(matrix.shape[1])
        for index, block in columns_in_blocks(matrix):
            result[index] = _trimmed(block, cut)
        return Combined(as_update(result, updates))


def _trimmed(block: NDArray[np.float64], cut: int) -> NDArray[np.float64]:
    ordered = np.ascontiguousarray(block.T)
    if cut:
        ordered = np.partition(ordered, [cut, len(block) - cut - 1], axis=1)
    means: NDArray[np.float64] = ordered[:, cut:len(block) - cut].mean(axis=1)
    return means


@register("aggregator", "geometric-median", paper="Pillutla et al., 2022")
@dataclass(frozen=True)
class GeometricMedian(Aggregator):
    """The point with the least weighted sum of distances to the updates (RFA), by smoothed Weiszfeld steps.

    Parameters:
        steps: most Weiszfeld steps
        smoothing: distances below this share of the cohort's size count as this long
        tolerance: stop when no update's share changes by more
    """

    steps: Annotated[int, Ge(1)] = 100
    smoothing: Annotated[float, Gt(0)] = 1e-6
    tolerance: Annotated[float, Ge(0)] = 1e-9

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Each step weighs an update by its weight over its distance to the last point."""
        matrix = updates.matrix()
        products = gram(matrix)
        floor = self.smoothing * float(np.sqrt(products.diagonal().max(initial=0.0))) or self.smoothing
        shares = shares_of(updates.weights)
        for _ in range(self.steps):
            pull = updates.weights / np.maximum(_distances_to(products, shares), floor)
            after = pull / pull.sum()
            moved, shares = np.abs(after - shares).max(), after
            if moved <= self.tolerance:
                break
        notes = {"parties": updates.parties.tolist(), "shares": shares.tolist()}
        return Combined(as_update(combination(matrix, shares), updates), notes=notes)


def _distances_to(products: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of each row to the sum of share times row."""
    inner = products @ shares
    return np.sqrt(np.maximum(products.diagonal() - 2 * inner + shares @ inner, 0.0))


@register("aggregator", "centred-clipping", paper="Karimireddy et al., 2021")
@dataclass(frozen=True)
class CentredClipping(Aggregator):
    """Steps from the last aggregate towards the updates, none of which may pull farther than a radius.

    Parameters:
        radius: how far one update may pull (0: the median distance of the updates to the centre)
        steps: how often the centre moves in a round
    """

    radius: Annotated[float, Ge(0)] = 0.0
    steps: Annotated[int, Ge(1)] = 3

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Begin at the last round's aggregate (nought at first) and remember where the centre ends."""
        rows = updates.matrix()
        start = memory.get("centre", np.zeros(rows.shape[1]))
        matrix = np.concatenate([start[None].astype(rows.dtype), rows])
        products, shares = gram(matrix), np.eye(len(matrix))[0]
        for _ in range(self.steps):
            shares = self._moved(products, shares)
        centre = combination(matrix, shares)
        return Combined(as_update(centre, updates), memory={"centre": centre})

    def _moved(self, products: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The centre, as shares of (start, update 1, ...), after one step of clipped differences."""
        distances = _distances_to(products, shares)[1:]
        bound = self.radius or float(np.median(distances))
        clip = np.minimum(1.0, bound / np.maximum(distances, np.finfo(float).tiny)) / len(distances)
        moved: NDArray[np.float64] = shares * (1.0 - clip.sum()) + np.concatenate([[0.0], clip])
        return moved


@register("aggregator", "norm-bounding", paper="Sun et al., 2019")
@dataclass(frozen=True)
class NormBounding(Aggregator):
    """The weighted mean of the updates, each shortened to a largest norm.

    Parameters:
        bound: largest norm of an update (0: the median norm of the cohort)
    """

    bound: Annotated[float, Ge(0)] = 0.0

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Long updates keep their direction."""
        matrix = updates.matrix()
        norms = np.array([np.sqrt(np.dot(row, row)) for row in matrix], dtype=np.float64)
        bound = self.bound or float(np.median(norms))
        scale = np.minimum(1.0, bound / np.maximum(norms, np.finfo(float).tiny))
        shares = shares_of(updates.weights) * scale
        return Combined(as_update(combination(matrix, shares), updates), notes={
            "parties": updates.parties.tolist(), "norms": norms.tolist(), "bound": bound})
