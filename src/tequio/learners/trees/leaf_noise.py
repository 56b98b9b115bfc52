"""Noise on the counts that a tree publishes, so that no single row can be told from them.

Each row is in one leaf and of one class, so one row more or less changes one count by one. Whole numbers drawn from the
two-sided geometric distribution (Ghosh, Roughgarden, Sundararajan, 2012) then make the leaves' counts epsilon-
differentially private; what is computed from them stays so. The splits of the tree still depend on the rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.learners.trees.tree import Tree


def with_noisy_counts(tree: Tree, epsilon: float, rng: np.random.Generator) -> Tree:
    """The same tree; counts of its leaves are noisy and not negative, those of inner nodes are sums of them."""
    counts = np.zeros_like(tree.counts)
    shape = (len(tree.leaves), tree.classes)
    counts[tree.leaves] = np.maximum(tree.counts[tree.leaves].round() + two_sided_geometric(epsilon, shape, rng), 0)
    for node in range(len(tree) - 1, 0, -1):  # children come after their parents
        counts[tree.parents[node]] += counts[node]
    if not counts[0].any():
        raise DataError(f"noise for epsilon {epsilon:g} leaves nothing of the tree's counts",
                        remedy="raise algorithm.epsilon, or leave out parties with few rows (rules.minimum_rows)")
    return replace(tree, counts=counts)


def two_sided_geometric(epsilon: float, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers k with probability proportional to exp(-epsilon |k|)."""
    p = -np.expm1(-epsilon)
    return rng.geometric(p, shape) - rng.geometric(p, shape)
