"""Trees written by hand that tests of explanations share."""

from __future__ import annotations

import numpy as np

from tequio.learners.trees.tree import Tree


def multiway(feature, children, counts):
    """A tree that splits categories."""
    return Tree("multiway", np.array(feature, np.int32), np.full(len(feature), np.nan), np.array(children, np.int32),
                np.array(counts, float))


def binary(feature, threshold, children, counts):
    """A tree that splits numbers."""
    return Tree("binary", np.array(feature, np.int32), np.array(threshold, float), np.array(children, np.int32),
                np.array(counts, float))


def weather_tree():
    """Over the columns of `tree_tables.WALK`: asks for the weather (it knows no snow), under the sun for the wind."""
    return multiway([0, 1, -1, -1, -1], [[1, 2, -1], [3, 4, -1], [-1] * 3, [-1] * 3, [-1] * 3],
                    [[5, 3], [2, 2], [3, 1], [0, 2], [2, 0]])
