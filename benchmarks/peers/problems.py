"""The pieces of work that every contestant does, and their data. Needs numpy alone.

The values are random: what a round costs depends on the shapes and not on what is learnt, and so no data set has to be
fetched. All parties hold the same number of rows, so uniform averaging and averaging by size are the same work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 20240611


@dataclass(frozen=True)
class Problem:
    """One federated training problem: who holds what, and what a chosen party does in a round."""

    name: str
    model: str
    parties: int
    rows: int
    shape: tuple[int, ...]
    cohort: int
    batch: int
    parameters: int
    classes: int = 10
    learning_rate: float = 0.1


PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        Problem("mlp", "mlp", parties=100, rows=600, shape=(784,), cohort=20, batch=20, parameters=101_770),
        Problem("cnn", "cnn", parties=1_000, rows=50, shape=(3, 32, 32), cohort=50, batch=10, parameters=1_626_442),
        Problem("logistic", "logistic", parties=1_000, rows=50, shape=(784,), cohort=50, batch=10, parameters=7_850),
        # Not a race: every party takes part and the weights start at zero, so all contestants must end with the same
        # numbers. `compare.py` runs it before it times anything.
        Problem("check", "logistic", parties=12, rows=50, shape=(784,), cohort=12, batch=10, parameters=7_850),
    )
}


def make_data(problem: Problem) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features ``(parties, rows, *shape)`` in [0, 1) and labels ``(parties, rows)``, the same in every process."""
    generator = np.random.default_rng(SEED)
    features = generator.random((problem.parties, problem.rows, *problem.shape), dtype=np.float32)
    labels = generator.integers(problem.classes, size=(problem.parties, problem.rows), dtype=np.int64)
    return features, labels
