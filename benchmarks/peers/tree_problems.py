"""The pieces of work that tree contestants do, and their data. Needs numpy alone.

The tables have the shape of two that papers use, and made-up labels, so that nothing has to be fetched: every
combination of the eight categories of Nursery, and 583 rows of ten skewed measures as in ILPD.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = tuple[NDArray[np.int64] | NDArray[np.float64], NDArray[np.int64]]

SEED = 20240611
NURSERY_SIZES = (3, 5, 4, 4, 3, 2, 3, 3)


@dataclass(frozen=True)
class TreeProblem:
    """One federated tree problem: what is grown, and on how many parties' rows."""

    name: str
    method: str
    parties: int
    trees: int = 1
    forest: int = 0
    depth: int = 4
    learning_rate: float = 0.1


TREE_PROBLEMS: dict[str, TreeProblem] = {
    problem.name: problem
    for problem in (
        TreeProblem("id3", "id3", parties=10),
        # The example of FLEX-Trees: each party grows a forest of 100, of which 10 trees are drawn.
        TreeProblem("forest", "forest", parties=2, trees=10, forest=100, depth=5),
        # As few trees grown as are used, for those who would say that the case above is won by not growing the rest.
        TreeProblem("forest-of-10", "forest", parties=2, trees=10, forest=10, depth=5),
        # The defaults of FLEX-Trees, and a tenth of the trees.
        TreeProblem("boosting", "boosting", parties=2, trees=100, depth=8),
        TreeProblem("boosting-of-10", "boosting", parties=2, trees=10, depth=8),
    )
}


def make_rows(problem: TreeProblem) -> tuple[list[Rows], Rows]:
    """Features and labels of each party, and as many rows again to score the result on; the same in every process."""
    generator = np.random.default_rng(SEED)
    features, labels = nursery() if problem.method == "id3" else liver(generator)
    order = generator.permutation(len(features))
    held_out, train = order[: len(order) // 5], order[len(order) // 5 :]
    parts = [(features[rows], labels[rows]) for rows in np.array_split(train, problem.parties)]
    return parts, (features[held_out], labels[held_out])


def few_rows(parts: list[Rows]) -> list[Rows]:
    """Forty rows of each party, to warm up on."""
    return [(features[:40], labels[:40]) for features, labels in parts]


def nursery() -> Rows:
    """12,960 rows of category codes: one of four classes from a sum of five columns, with one column as a veto."""
    features = np.array(list(product(*(range(size) for size in NURSERY_SIZES))), dtype=np.int64)
    burden = features[:, 0] + features[:, 1] + features[:, 2] // 2 + features[:, 6] + features[:, 5]
    labels = np.where(features[:, 7] == 0, 0, 1 + np.digitize(burden, [3, 6]))
    return features, labels


def liver(generator: np.random.Generator) -> Rows:
    """583 rows of ten skewed numbers, 71 in 100 of the first class."""
    features = generator.lognormal(size=(583, 10)) * np.array([30, 1, 1, 1, 200, 50, 60, 6, 3, 1])
    score = np.log(features[:, 1] * features[:, 5] / features[:, 8]) + 0.7 * generator.normal(size=583)
    return features.round(1), (score > np.quantile(score, 0.71)).astype(np.int64)
