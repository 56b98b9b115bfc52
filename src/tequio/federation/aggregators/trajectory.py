"""Where a party's update is expected next: its last one, plus how the change of the model should have changed it.

Byrd, Nocedal, Schnabel: Representations of quasi-Newton matrices and their use in limited memory methods,
Mathematical Programming 63, 1994. Used so by FedRecover (Cao et al., 2023) and FLDetector (Zhang et al., 2022).

The change of the model is taken to be the last aggregate, as it is in federated averaging.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.federation.aggregators.distances import gram, squared_distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Updates
    from tequio.federation.payload import Payload

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

_SHORTEST_STEP = 1e-20
_ABSURD = 1e3


def hessian_product(steps: Matrix, changes: Matrix, vector: Vector) -> Vector:
    """B v, where B is the BFGS matrix of pairs (step, change of the gradient), one a row, the oldest first.

    The curvature of a pair may be negative: the matrix serves to predict, not to descend.
    """
    within = steps @ changes.T
    scale = within[-1, -1] / (steps[-1] @ steps[-1])
    lower = np.tril(within, -1)
    middle = np.block([[-np.diag(within.diagonal()), lower.T], [lower, scale * (steps @ steps.T)]])
    projected = np.concatenate([changes @ vector, scale * (steps @ vector)])
    try:
        solution = np.linalg.solve(middle, projected)
        if not np.allclose(middle @ solution, projected, rtol=1e-6, atol=0.0):
            raise np.linalg.LinAlgError
    except np.linalg.LinAlgError:
        solution = np.linalg.pinv(middle) @ projected
    product: Vector = scale * vector - solution[:len(steps)] @ changes - scale * (solution[len(steps):] @ steps)
    return product


@dataclass(frozen=True)
class Trajectory:
    """What a coordinator remembers of a federation's way: pairs of steps and changes, and who sent what last."""

    parties: NDArray[np.int64]
    previous: Matrix
    mean: Vector
    step: Vector
    steps: Matrix
    changes: Matrix

    @classmethod
    def of(cls, memory: Payload) -> Trajectory | None:
        """Back from an aggregator's memory; nothing before the first round."""
        kept = memory.get("trajectory")
        return cls(**kept) if kept else None

    def to_payload(self) -> dict[str, Any]:
        """For an aggregator's memory."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def discrepancies(self, updates: Updates, matrix: Matrix) -> Vector | None:
        """How far each update is from where it was expected; nothing while there is no history to go by.

        A party that was absent last round gets the median of the others.
        """
        if not len(self.steps):
            return None
        bend = hessian_product(self.steps, self.changes, self.step)
        longest = max(float(np.linalg.norm(row)) for row in matrix)
        known, place = np.isin(updates.parties, self.parties), np.searchsorted(self.parties, updates.parties)
        if not known.any() or not np.linalg.norm(bend) <= _ABSURD * max(longest, np.finfo(float).tiny):
            return None
        gaps = np.array([np.linalg.norm(self.previous[place[row]] + bend - matrix[row]) if known[row] else np.nan
                         for row in range(len(matrix))])
        return np.where(known, gaps, np.nanmedian(gaps))

    def strangeness(self, updates: Updates, matrix: Matrix) -> Vector:
        """How far each party's update has changed from the others' changes, over the cohort's median; alike is 1.

        What all parties share cancels: the expected bend, and the error of a bad one, under which discrepancies of
        honest and hostile parties look alike. A party that was absent last round counts as like the others.
        """
        known, place = np.isin(updates.parties, self.parties), np.searchsorted(self.parties, updates.parties)
        strange = np.ones(len(matrix))
        if known.sum() > 2:
            apart = np.sqrt(squared_distances(gram(matrix[known] - self.previous[place[known]])))
            others = ~np.eye(len(apart), dtype=bool)
            typical = np.median(apart[others].reshape(len(apart), -1), axis=1)
            usual = np.median(typical)
            # Where most parties change alike to the last bit, whoever does not is strange without measure.
            strange[known] = typical / usual if usual > 0 else np.where(typical > 0, np.inf, 1.0)
        return strange


def gone_on(before: Trajectory | None, updates: Updates, matrix: Matrix, aggregate: Vector, history: int) -> Trajectory:
    """The trajectory after a round; the pair of this round enters the history, the oldest beyond `history` leave."""
    order, mean = np.argsort(updates.parties, kind="stable"), matrix.mean(axis=0)
    if before is None:
        steps = changes = np.empty((0, matrix.shape[1]))
    else:
        steps, changes = before.steps, before.changes
        if before.step @ before.step >= _SHORTEST_STEP:
            steps = np.concatenate([steps, before.step[None]])[-history:]
            changes = np.concatenate([changes, (mean - before.mean)[None]])[-history:]
    return Trajectory(updates.parties[order], matrix[order], mean, aggregate, steps, changes)
