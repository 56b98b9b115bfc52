from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.errors import PayloadError
from tequio.learners.trees.tree import LEAF, Tree

NAN = float("nan")


def binary():
    """x0 <= 0.5 ? (x1 <= 2 ? [3, 1] : [0, 4]) : [2, 2]."""
    return Tree("binary", np.array([0, 1, LEAF, LEAF, LEAF], np.int32), np.array([0.5, 2.0, NAN, NAN, NAN]),
                np.array([[1, 2], [3, 4], [LEAF] * 2, [LEAF] * 2, [LEAF] * 2], np.int32),
                np.array([[5, 7], [3, 5], [2, 2], [3, 1], [0, 4]], float))


def multiway():
    """x0 of three categories, of which 1 has no child and 2 was never met."""
    return Tree("multiway", np.array([0, LEAF, LEAF], np.int32), np.full(3, NAN),
                np.array([[1, LEAF, 2], [LEAF] * 3, [LEAF] * 3], np.int32), np.array([[4, 4], [4, 0], [0, 0]], float))


def test_rows_go_left_up_to_the_threshold():
    rows = np.array([[0.5, 2.0], [0.5, 2.1], [0.51, 0.0], [-9, -9]])
    assert binary().find(rows).tolist() == [3, 4, 2, 3]
    np.testing.assert_array_equal(binary().predict(rows), [[0.75, 0.25], [0, 1], [0.5, 0.5], [0.75, 0.25]])


def test_a_missing_number_goes_right():
    assert binary().find(np.array([[NAN, 0.0], [0.0, NAN]])).tolist() == [2, 4]


def test_a_category_without_a_child_stays_at_the_node():
    rows = np.array([[0.0], [1.0], [2.0], [3.0], [-1.0], [NAN]])
    assert multiway().find(rows).tolist() == [1, 0, 2, 0, 0, 0]
    assert multiway().stuck(rows).tolist() == [False, True, False, True, True, True]
    assert multiway().find(rows[:4].astype(np.int64)).tolist() == [1, 0, 2, 0]


def test_a_node_that_no_row_reached_has_the_shares_of_its_parent():
    np.testing.assert_array_equal(multiway().probabilities, [[0.5, 0.5], [1, 0], [0.5, 0.5]])
    nowhere = Tree("multiway", np.array([LEAF], np.int32), np.full(1, NAN), np.full((1, 1), LEAF, np.int32),
                   np.zeros((1, 4)))
    np.testing.assert_array_equal(nowhere.probabilities, [[0.25] * 4])


def test_depths_parents_and_leaves():
    assert binary().depths.tolist() == [0, 1, 1, 2, 2]
    assert binary().parents.tolist() == [LEAF, 0, 0, 1, 1]
    assert binary().leaves.tolist() == [2, 3, 4]
    assert binary().support.tolist() == [12, 8, 4, 4, 4]


def test_many_rows_are_found_as_one_by_one():
    draw = np.random.default_rng(0)
    tree, rows = random_tree(draw, 301), draw.normal(size=(20_000, 5))
    found = tree.find(rows)
    for row in range(0, len(rows), 997):
        node = 0
        while tree.feature[node] != LEAF:
            node = tree.children[node, int(rows[row, tree.feature[node]] > tree.threshold[node])]
        assert found[row] == node
    np.testing.assert_array_equal(tree.find(np.asfortranarray(rows)), found)
    assert tree.find(rows[:0]).tolist() == []


def random_tree(draw, nodes):
    """A binary tree that splits a random leaf at a time, so it is as uneven as chance has it."""
    feature, children = np.full(nodes, LEAF, np.int32), np.full((nodes, 2), LEAF, np.int32)
    for new in range(1, nodes, 2):
        leaf = draw.choice(np.flatnonzero(feature[:new] == LEAF))
        feature[leaf], children[leaf] = draw.integers(5), (new, new + 1)
    threshold = np.where(feature == LEAF, NAN, draw.normal(size=nodes))
    return Tree("binary", feature, threshold, children, draw.random((nodes, 3)))


@given(st.integers(0, 2**32), st.integers(0, 20))
def test_a_payload_gives_the_same_tree_back(seed, splits):
    tree = random_tree(np.random.default_rng(seed), 2 * splits + 1)
    back = Tree.from_payload(tree.to_payload(), features=5, classes=3)
    for name in ("feature", "threshold", "children", "counts"):
        np.testing.assert_array_equal(getattr(back, name), getattr(tree, name))


def test_a_payload_of_lists_is_as_good():
    plain = {name: values if isinstance(values, str) else values.tolist()
             for name, values in multiway().to_payload().items()}
    np.testing.assert_array_equal(Tree.from_payload(plain, features=1, classes=2).children, multiway().children)


CORRUPTED = {
    "other classes": ({"counts": np.ones((5, 3))}, "3 classes instead of 2"),
    "negative count": ({"counts": -np.ones((5, 2))}, "negative"),
    "infinite count": ({"counts": np.full((5, 2), np.inf)}, "not finite"),
    "a cycle": ({"children": np.array([[1, 2], [0, 4], [-1, -1], [-1, -1], [-1, -1]])}, "cycle"),
    "a node that is its own child": ({"children": np.array([[0, 2], [3, 4], [-1, -1], [-1, -1], [-1, -1]])}, "cycle"),
    "two parents": ({"children": np.array([[1, 3], [3, 4], [-1, -1], [-1, -1], [-1, -1]])}, "two parents"),
    "no parent": ({"feature": np.array([0, -1, -1, -1, -1]),
                   "children": np.array([[1, 2], [-1, -1], [-1, -1], [-1, -1], [-1, -1]])}, "two parents or none"),
    "a child beyond the end": ({"children": np.array([[1, 2], [3, 9], [-1, -1], [-1, -1], [-1, -1]])}, "not exist"),
    "a leaf with children": ({"feature": np.array([0, -1, -1, -1, -1])}, "leaf has children"),
    "half a split": ({"children": np.array([[1, 2], [3, -1], [-1, -1], [-1, -1], [-1, -1]])}, "lacks a child"),
    "three children": ({"children": np.full((5, 3), -1)}, "room for 3"),
    "NaN threshold": ({"threshold": np.array([0.5, NAN, 0, 0, 0])}, "threshold"),
    "infinite threshold": ({"threshold": np.array([0.5, np.inf, 0, 0, 0])}, "threshold"),
    "unknown column": ({"feature": np.array([0, 7, -1, -1, -1])}, "column that does not exist"),
    "half a column": ({"feature": np.array([0.5, 1, -1, -1, -1])}, "whole numbers"),
    "a number too large": ({"children": np.full((5, 2), 2**40)}, "whole numbers"),
    "too few thresholds": ({"threshold": np.zeros(4)}, "do not fit"),
    "no nodes": ({"feature": np.zeros(0, np.int32)}, "do not fit"),
    "a number for an array": ({"feature": 3}, "do not fit"),
    "words": ({"counts": np.array([["a", "b"]] * 5)}, "not numbers"),
    "unknown kind": ({"kind": "ternary"}, "ternary"),
    "a list for a kind": ({"kind": ["binary"]}, "kind"),
}


@pytest.mark.parametrize("what", CORRUPTED)
def test_a_corrupted_tree_is_refused_by_name(what):
    change, complaint = CORRUPTED[what]
    with pytest.raises(PayloadError, match=f"party '7' sent .*{complaint}"):
        Tree.from_payload({**binary().to_payload(), **change}, features=2, classes=2, whose="party '7'")


@pytest.mark.parametrize("payload", [{}, {"kind": "binary"}, [1, 2]])
def test_something_else_is_no_tree(payload):
    with pytest.raises(PayloadError, match="not a tree"):
        Tree.from_payload(payload, features=2, classes=2)


def test_a_multiway_node_needs_a_child():
    payload = {**multiway().to_payload(), "children": np.full((3, 3), LEAF)}
    with pytest.raises(PayloadError, match="lacks a child"):
        Tree.from_payload(payload, features=1, classes=2)
