"""Jaccard indices of two clusterings, by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import jaccard_score
from sklearn.metrics.cluster import pair_confusion_matrix

from tequio.errors import DataError
from tequio.learners.kmeans import jaccard_by_match, jaccard_by_number, jaccard_of_pairs, overlaps

clusterings = st.integers(2, 40).flatmap(lambda rows: st.tuples(*[
    st.lists(st.integers(0, 4), min_size=rows, max_size=rows) for _ in range(2)]))


def test_by_hand() -> None:
    first, second = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 2]
    assert overlaps(first, second).tolist() == [[2, 1, 0], [0, 2, 0], [0, 0, 1]]
    assert jaccard_by_number(first, second) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert jaccard_by_match(first, second) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    # Together in the first: 3 + 1 pairs; in the second: 1 + 3; in both: {0,1} and {3,4}.
    assert jaccard_of_pairs(first, second) == pytest.approx(2 / 6)


@given(clusterings)
def test_identical_clusterings_score_one_under_any_names(pair: tuple[list[int], list[int]]) -> None:
    clustering = np.array(pair[0])
    renamed = np.array([3, 0, 4, 1, 2])[clustering]
    assert jaccard_by_number(clustering, clustering) == 1.0
    assert jaccard_by_match(clustering, renamed) == pytest.approx(1.0)
    assert jaccard_of_pairs(clustering, renamed) == 1.0


@settings(deadline=None)
@given(clusterings)
def test_equal_to_scikit_learn_and_symmetric(pair: tuple[list[int], list[int]]) -> None:
    first, second = pair
    assert jaccard_by_number(first, second) == pytest.approx(jaccard_score(first, second, average="macro"))
    (_, apart), (also_apart, together) = pair_confusion_matrix(first, second)
    either = together + apart + also_apart
    assert jaccard_of_pairs(first, second) == pytest.approx(together / either if either else 1.0)
    for index in (jaccard_by_number, jaccard_by_match, jaccard_of_pairs):
        assert index(first, second) == pytest.approx(index(second, first))
    assert jaccard_by_match(first, second) >= jaccard_by_number(first, second) - 1e-12


def test_a_swap_of_names_only_lowers_the_index_by_number() -> None:
    first, second = [0, 0, 1, 1], [1, 1, 0, 0]
    assert (jaccard_by_number(first, second), jaccard_by_match(first, second)) == (0.0, 1.0)


def test_clusters_that_nobody_is_in_do_not_count() -> None:
    assert jaccard_by_number([0, 0, 7], [0, 0, 7]) == 1.0
    assert jaccard_by_match([0, 0, 7], [1, 1, 1]) == pytest.approx(2 / 3 / 2)


def test_clusterings_of_other_rows_are_refused() -> None:
    with pytest.raises(DataError, match="not of the same rows"):
        jaccard_of_pairs([0, 1], [0, 1, 1])
    with pytest.raises(DataError, match="no rows"):
        jaccard_by_match([], [])
