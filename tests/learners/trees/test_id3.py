from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_tables import WALK, categories, walks

from tequio.errors import ConfigError
from tequio.learners.trees import id3
from tequio.learners.trees.id3 import ID3, Categories, counts_of_rows, grow_id3, information_gain
from tequio.learners.trees.tree import LEAF
from tequio.registry import build

RNG = np.random.default_rng(0)


def test_gains_of_the_first_split_by_hand():
    data = walks()
    places = Categories.of(WALK)
    counts_of = counts_of_rows(data.features.astype(int), data.target, places, 2)
    table = counts_of(grow_id3(counts_of, places, 2, min_split=99), np.array([0]))
    assert table[0].tolist() == [[2, 2], [3, 1], [0, 0], [1, 3], [4, 0], [2, 2], [3, 1]]
    # Before: 5 of 8 stay. Wind splits them into 1 of 4 and 4 of 4, the others into 2 of 4 and 3 of 4.
    np.testing.assert_allclose(information_gain(table, places), [[0.048795, 0.548795, 0.048795]], atol=1e-6)


def test_the_whole_tree_by_hand():
    tree = ID3(depth=3).fit(walks(), RNG)
    # wind; weak -> weather (tied with day, which comes later); rain -> day
    assert tree.feature.tolist() == [1, 0, LEAF, LEAF, 2, LEAF, LEAF, LEAF]
    assert tree.children.tolist() == [[1, 2, -1], [3, 4, 5], [-1] * 3, [-1] * 3, [6, 7, -1], *[[-1] * 3] * 3]
    assert tree.counts.tolist() == [[5, 3], [1, 3], [4, 0], [0, 2], [1, 1], [0, 0], [0, 1], [1, 0]]
    assert tree.probabilities[5].tolist() == [0.25, 0.75]  # snow was never met: as all days of weak wind


def test_only_observed_categories_on_request():
    tree = ID3(depth=3, children="observed").fit(walks(), RNG)
    assert tree.children[1].tolist() == [3, 4, LEAF]
    assert len(tree) == 7
    # The row stops where there is no child for it, and gets what the empty child would have said.
    np.testing.assert_array_equal(tree.predict(np.array([[2, 0, 0]])), [[0.25, 0.75]])


def test_depth_is_half_the_columns_unless_told():
    assert ID3().fit(walks(), RNG).depths.max() == 1
    assert ID3(depth=2).fit(walks(), RNG).depths.max() == 2
    one = categories([[0], [1]], [0, 1], [2], 2)
    assert ID3().fit(one, RNG).depths.max() == 1


@pytest.mark.parametrize(("min_split", "splits"), [(2, 3), (3, 2), (5, 1), (9, 0), (0.5, 2), (0.51, 1)])
def test_small_nodes_are_not_split(min_split, splits):
    tree = ID3(depth=3, min_split=min_split).fit(walks(), RNG)
    assert (tree.feature != LEAF).sum() == splits


@pytest.mark.parametrize(("min_leaf", "splits"), [(1, 3), (2, 2), (3, 1), (4, 1), (5, 0)])
def test_leaves_of_few_rows_are_not_made(min_leaf, splits):
    """By hand: wind makes 4 and 4; weather below weak wind 2, 2 and 0 of snow; day below rain 1 and 1."""
    tree = ID3(depth=3, min_leaf=min_leaf).fit(walks(), RNG)
    assert (tree.feature != LEAF).sum() == splits


def test_a_column_that_tells_nothing_is_not_split_on():
    data = categories([[0, 0], [0, 1], [1, 0], [1, 1]] * 3, [0, 0, 0, 1] * 3, [2, 2], 2)
    both = data.take(np.arange(12) % 4 != 3)
    assert len(ID3(depth=2).fit(both, RNG)) == 1  # one class
    exclusive_or = categories([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0], [2, 2], 2)
    assert len(ID3(depth=2).fit(exclusive_or, RNG)) == 1  # no column alone tells anything


def test_a_category_beyond_the_tree_gets_the_shares_of_its_node():
    tree = ID3(depth=3).fit(walks(), RNG)
    np.testing.assert_array_equal(tree.predict(np.array([[7.0, 0, 0], [0, 5, 0]])), [[0.25, 0.75], [0.625, 0.375]])


def test_bad_parameters_are_refused():
    for wrong in ({"min_split": 1}, {"min_split": 1.5}, {"min_split": 0.0}, {"depth": -1}, {"children": "all"}):
        with pytest.raises(ConfigError):
            build("learner", "id3", wrong)
    assert build("learner", "id3", {"min_split": 0.02}).min_split == 0.02


# An ID3 of its own: recursive, a row at a time, as the book has it.

def entropy(labels):
    shares = [labels.count(label) / len(labels) for label in set(labels)]
    return -sum(share * log2(share) for share in shares)


def gain(rows, labels, column):
    after = 0.0
    for value in {row[column] for row in rows}:
        inside = [label for row, label in zip(rows, labels, strict=True) if row[column] == value]
        after += len(inside) / len(rows) * entropy(inside)
    return entropy(labels) - after


def recursive(rows, labels, columns, sizes, depth, min_split, only_observed):
    counts = tuple(sorted((label, labels.count(label)) for label in set(labels)))
    leaf = {"counts": counts}
    if not columns or not depth or len(rows) < min_split or len(set(labels)) < 2:
        return leaf
    gains = [gain(rows, labels, column) for column in columns]
    if max(gains) <= 1e-10:
        return leaf
    chosen = next(column for column, value in zip(columns, gains, strict=True) if value >= max(gains) - 1e-10)
    children = {}
    for value in range(sizes[chosen]):
        part = [index for index, row in enumerate(rows) if row[chosen] == value]
        if part or not only_observed:
            children[value] = recursive([rows[index] for index in part], [labels[index] for index in part],
                                        [column for column in columns if column != chosen], sizes, depth - 1, min_split,
                                        only_observed)
    return {"counts": counts, "feature": chosen, "children": children}


def nested(tree, node=0):
    counts = tuple((label, int(count)) for label, count in enumerate(tree.counts[node]) if count)
    if tree.feature[node] == LEAF:
        return {"counts": counts}
    children = {value: nested(tree, child) for value, child in enumerate(tree.children[node]) if child != LEAF}
    return {"counts": counts, "feature": int(tree.feature[node]), "children": children}


@st.composite
def tables(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    classes = draw(st.integers(2, 3))
    row = st.tuples(*(st.integers(0, size - 1) for size in sizes))
    rows = draw(st.lists(row, min_size=1, max_size=40))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=len(rows), max_size=len(rows)))
    return rows, labels, sizes, classes


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(2, 6), st.sampled_from(["domain", "observed"]))
def test_every_leaf_that_a_row_reaches_has_as_many_rows_as_asked_for(table, min_leaf, children):
    rows, labels, sizes, classes = table
    data = categories(rows, labels, sizes, classes)
    tree = ID3(depth=4, min_leaf=min_leaf, children=children).fit(data, RNG)
    support = tree.counts[tree.leaves].sum(axis=1)
    assert len(tree) == 1 or min(support[support > 0]) >= min_leaf


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(1, 4), st.integers(2, 6), st.sampled_from(["domain", "observed"]))
def test_it_is_the_tree_that_a_recursive_id3_grows(table, depth, min_split, children):
    rows, labels, sizes, classes = table
    learner = ID3(depth=depth, min_split=min_split, children=children)
    tree = learner.fit(categories(rows, labels, sizes, classes), RNG)
    assert nested(tree) == recursive(rows, labels, list(range(len(sizes))), sizes, depth, min_split,
                                     children == "observed")


@settings(max_examples=30, deadline=None)
@given(tables(), st.integers(0, 2**32))
def test_tables_of_parties_add_up_to_the_tree_of_the_pooled_rows(table, seed):
    rows, labels, sizes, classes = table
    codes, labels, places = np.array(rows), np.array(labels), Categories(tuple(sizes))
    party = np.random.default_rng(seed).integers(0, 3, len(rows))
    counters = [counts_of_rows(codes[party == one], labels[party == one], places, classes) for one in range(3)]
    together = grow_id3(lambda tree, nodes: sum(count(tree, nodes) for count in counters), places, classes, depth=4)
    alone = grow_id3(counts_of_rows(codes, labels, places, classes), places, classes, depth=4)
    assert nested(together) == nested(alone)


def test_tables_too_large_for_memory_are_counted_in_parts(monkeypatch):
    draw = np.random.default_rng(3)
    data = categories(draw.integers(0, 4, (500, 5)), draw.integers(0, 3, 500), [4] * 5, 3)
    whole = ID3(depth=4).fit(data, RNG)
    monkeypatch.setattr(id3, "_TABLE_CELLS", 200)
    assert nested(ID3(depth=4).fit(data, RNG)) == nested(whole)
