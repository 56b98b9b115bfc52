import numpy as np
import pytest
from hand_trees import binary, multiway, weather_tree
from tree_tables import WALK, categories

from tequio.data.dataset import Schema, Target
from tequio.learners.trees.explain import Difference, agreement, differences
from tequio.learners.trees.id3 import ID3

AB = Schema.of_numbers(["age", "income"], Target("classes", ("a", "b")))
NONE = [-1, -1]


def test_a_tree_does_not_differ_from_itself():
    tree = weather_tree()
    assert differences(tree, tree, WALK) == []
    assert agreement(tree, tree, np.zeros((3, 3))) == 1.0


def test_every_kind_of_change_is_found_where_it_is():
    first = binary([0, 1, 0, -1, -1, -1, -1], [10, 5, 20, *[np.nan] * 4], [[1, 2], [3, 4], [5, 6], *[NONE] * 4],
                   [[4, 4], [2, 2], [2, 2], [2, 0], [0, 2], [2, 0], [0, 2]])
    second = binary([0, 1, -1, -1, 0, -1, -1], [10, 5, np.nan, np.nan, 3, np.nan, np.nan],
                    [[1, 2], [3, 4], NONE, NONE, [5, 6], NONE, NONE],
                    [[4, 4], [2, 2], [2, 2], [1, 2], [1, 1], [1, 0], [0, 1]])
    assert differences(first, second, AB) == [
        Difference(("age <= 10", "income <= 5"), "other class", "class a", "class b"),
        Difference(("age <= 10", "income > 5"), "grown", "class b", "split on age at 3"),
        Difference(("age > 10",), "pruned", "split on age at 20", "class a")]


def test_below_another_split_nothing_is_compared():
    first = binary([0, -1, -1], [10, np.nan, np.nan], [[1, 2], NONE, NONE], [[1, 1], [1, 0], [0, 1]])
    second = binary([0, -1, -1], [11, np.nan, np.nan], [[1, 2], NONE, NONE], [[1, 1], [0, 1], [1, 0]])
    assert differences(first, second, AB) == [Difference((), "other split", "split on age at 10", "split on age at 11")]


@pytest.mark.parametrize(("turned", "change", "told"), [
    (False, "grown", ("no branch", "class walk")), (True, "pruned", ("class walk", "no branch"))])
def test_a_branch_that_only_one_tree_has_is_told(turned, change, told):
    # Its arrays are narrower where no column with three categories is asked.
    wind = multiway([1, -1], [[1, -1], NONE], [[5, 3], [3, 1]])
    both = multiway([1, -1, -1], [[1, 2, -1], [-1] * 3, [-1] * 3], [[5, 3], [3, 1], [2, 2 + 1]])
    pair = (both, wind) if turned else (wind, both)
    assert differences(*pair, WALK) == [Difference(("wind == strong",), change, *told)]


def test_trees_of_different_kinds_part_at_the_root():
    numeric = binary([0, -1, -1], [0.5, np.nan, np.nan], [[1, 2], NONE, NONE], [[5, 3], [2, 2], [3, 1]])
    assert [found.change for found in differences(weather_tree(), numeric, WALK)] == ["other split"]


def test_agreement_counts_rows():
    first = binary([0, -1, -1], [1.5, np.nan, np.nan], [[1, 2], NONE, NONE], [[1, 1], [1, 0], [0, 1]])
    second = binary([0, -1, -1], [2.5, np.nan, np.nan], [[1, 2], NONE, NONE], [[1, 1], [1, 0], [0, 1]])
    rows = np.array([[1.0, 0], [2.0, 0], [3.0, 0], [4.0, 0]])
    assert agreement(first, second, rows) == 0.75


def test_a_flatter_tree_differs_only_by_what_it_does_not_ask():
    draw = np.random.default_rng(0)
    data = categories(draw.integers(0, 3, (400, 5)), draw.integers(0, 2, 400), [3] * 5, 2)
    deep, flat = (ID3(depth=depth).fit(data, draw) for depth in (4, 2))
    found = differences(flat, deep, data.schema)
    assert len(found) == 9
    assert {(one.change, len(one.path)) for one in found} == {("grown", 2)}
