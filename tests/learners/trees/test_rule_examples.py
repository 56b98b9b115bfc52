"""The worked examples of the source: which rules of two parties merge, what comes out, and how a tree is grown."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.learners.trees.growing import Growing, grow
from tequio.learners.trees.rules import Fusing, Rules, fuse

HEALTH, CHILDREN, HOUSING = 0, 1, 2
RECOMMEND, NOT_RECOMMEND = 0, 1


def categorical(*rules, columns=3):
    """Rules from pairs of {column: category} and class shares."""
    low, high = np.full((len(rules), columns), -np.inf), np.full((len(rules), columns), np.inf)
    for number, (conditions, _) in enumerate(rules):
        for column, code in conditions.items():
            low[number, column], high[number, column] = code - 1, code
    votes = np.array([shares for _, shares in rules], dtype=np.float64)
    return Rules("multiway", low, high, votes, 10 * votes, 10 * votes.sum(axis=1))


def numeric(*rules, columns=2):
    """Rules from pairs of {column: (low, high)} and class shares."""
    low, high = np.full((len(rules), columns), -np.inf), np.full((len(rules), columns), np.inf)
    for number, (conditions, _) in enumerate(rules):
        for column, (below, above) in conditions.items():
            low[number, column], high[number, column] = below, above
    votes = np.array([shares for _, shares in rules], dtype=np.float64)
    return Rules("binary", low, high, votes, 10 * votes, 10 * votes.sum(axis=1))


def conditions(rules):
    return [{int(column): (rules.low[number, column], rules.high[number, column])
             for column in np.flatnonzero(rules.bound[number])} for number in range(len(rules))]


def test_rules_that_share_a_condition_merge_and_it_appears_once():
    first = categorical(({HEALTH: RECOMMEND, CHILDREN: 2}, [0.2, 0.8]))
    second = categorical(({HEALTH: RECOMMEND, HOUSING: 1}, [0.4, 0.6]))
    merged, _ = fuse([first, second])
    assert merged.codes.tolist() == [[RECOMMEND, 2, 1]]
    np.testing.assert_allclose(merged.votes, [[0.6, 1.4]])
    assert merged.votes.argmax(axis=1).tolist() == [1]


def test_rules_that_ask_for_different_categories_do_not_merge():
    first = categorical(({HEALTH: RECOMMEND}, [1, 0]), ({HEALTH: NOT_RECOMMEND}, [0, 1]))
    second = categorical(({HEALTH: RECOMMEND, HOUSING: 0}, [1, 0]), ({HEALTH: NOT_RECOMMEND, HOUSING: 1}, [0, 1]))
    merged, _ = fuse([first, second])
    assert merged.codes[:, [HEALTH, HOUSING]].tolist() == [[RECOMMEND, 0], [NOT_RECOMMEND, 1]]


@pytest.mark.parametrize(("merge", "bound"), [("intersection", 35.0), ("least_restrictive", 32.5)])
def test_bounds_on_the_same_side(merge, bound):
    first, second = numeric(({0: (32.5, np.inf)}, [0, 1])), numeric(({0: (35.0, np.inf)}, [0, 1]))
    merged, _ = fuse([first, second], Fusing(interval_merge=merge))
    assert conditions(merged) == [{0: (bound, np.inf)}]
    assert merged.votes.tolist() == [[0, 2]]


@pytest.mark.parametrize("merge", ["intersection", "least_restrictive"])
def test_a_bound_that_only_one_rule_has_stays_as_it_is(merge):
    first, second = numeric(({0: (32.5, np.inf)}, [0, 1])), numeric(({1: (-np.inf, 7.0)}, [1, 0]))
    merged, _ = fuse([first, second], Fusing(interval_merge=merge))
    assert conditions(merged) == [{0: (32.5, np.inf), 1: (-np.inf, 7.0)}]


def test_intervals_that_do_not_meet_contradict_each_other_and_both_regions_are_kept():
    first, second = numeric(({0: (-np.inf, 32.5)}, [1, 0])), numeric(({0: (35.0, np.inf)}, [0, 1]))
    merged, _ = fuse([first, second])
    assert conditions(merged) == [{0: (-np.inf, 32.5)}, {0: (35.0, np.inf)}]
    assert merged.votes.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(("weighting", "votes"), [
    ("sum", [1.0, 2.0]), ("samples", [10.0, 20.0]),
    ("halving", [0.25, 0.75])])  # (first + second) / 2, and then with the third
def test_how_votes_add_up(weighting, votes):
    lists = [numeric(({}, shares)) for shares in ([1, 0], [0, 1], [0, 1])]
    merged, _ = fuse(lists, Fusing(weighting=weighting))
    assert merged.votes.tolist() == [votes]


def test_rules_of_the_same_conditions_become_one():
    same = categorical(({HEALTH: 0}, [0.9, 0.1]), ({HEALTH: 1}, [0.2, 0.8]))
    merged, _ = fuse([same, same])
    assert len(merged) == 2
    np.testing.assert_allclose(merged.votes, [[1.8, 0.2], [0.4, 1.6]])


def test_the_root_splits_where_the_entropy_of_the_rules_falls_most():
    # Column 1 tells the classes apart; column 0 does not.
    rules = categorical(({0: 0, 1: 0}, [1, 0]), ({0: 0, 1: 1}, [0, 1]), ({0: 1, 1: 0}, [1, 0]), ({0: 1, 1: 1}, [0, 1]))
    tree, _ = grow(rules)
    assert tree.feature.tolist() == [1, -1, -1]
    assert tree.counts[1:].argmax(axis=1).tolist() == [0, 1]


def test_a_rule_without_a_condition_on_the_split_goes_to_every_child():
    rules = categorical(({0: 0}, [1, 0]), ({0: 1}, [0, 1]), ({1: 0}, [0, 1]))
    tree, _ = grow(rules, Growing(depth=1))
    assert tree.feature[0] == 0
    np.testing.assert_allclose(tree.probabilities[1:], [[0.5, 0.5], [0, 1]], atol=1e-8)


def test_one_rule_without_conditions_is_a_leaf_for_everything():
    tree, _ = grow(numeric(({}, [0.3, 0.7])))
    assert len(tree) == 1
    np.testing.assert_allclose(tree.predict(np.array([[1.0, -5.0]])), [[0.3, 0.7]], atol=1e-8)


def test_rules_survive_as_a_payload():
    rules = numeric(({0: (1.0, 2.0)}, [1, 0]), ({1: (-np.inf, 7.0)}, [0, 1]), ({}, [0.5, 0.5]))
    back = Rules.from_payload(rules.to_payload())
    assert conditions(back) == conditions(rules)
    for name in ("votes", "rows", "support"):
        np.testing.assert_array_equal(getattr(back, name), getattr(rules, name))
