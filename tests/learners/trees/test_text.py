from __future__ import annotations

import json

import numpy as np
import pytest
from tree_tables import WALK, numbers, walks

from tequio.data.dataset import Feature, Schema, Target
from tequio.errors import DataError
from tequio.learners.trees.forest import Cart
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.rules import extract
from tequio.learners.trees.text import from_json, plain_rules, rules_json, rules_text, to_json, tree_text
from tequio.learners.trees.tree import LEAF, Tree

RNG = np.random.default_rng(0)
AGES = Schema((Feature("age"), Feature("fee")), Target("classes", ("no", "yes")))


def ages():
    """age <= 30 ? no : (age <= 50.5 ? yes : no)."""
    return Tree("binary", np.array([0, LEAF, 0, LEAF, LEAF], np.int32), np.array([30, np.nan, 50.5, np.nan, np.nan]),
                np.array([[1, 2], [LEAF] * 2, [3, 4], [LEAF] * 2, [LEAF] * 2], np.int32),
                np.array([[5, 2], [3, 0], [2, 2], [0, 2], [2, 0]], float))


def test_a_tree_as_text():
    assert tree_text(ID3(depth=3).fit(walks(), RNG), WALK).splitlines() == [
        "all rows: 8 rows, split on wind",
        "wind == weak: 4 rows, split on weather",
        "|   weather == sun: walk (100 % of 2 rows)",
        "|   weather == rain: 2 rows, split on day",
        "|   |   day == free: walk (100 % of 1 row)",
        "|   |   day == work: stay (100 % of 1 row)",
        "|   weather == snow: walk (75 % of 0 rows)",
        "wind == strong: stay (100 % of 4 rows)"]
    assert tree_text(ages(), AGES).splitlines() == [
        "all rows: 7 rows, split on age", "age <= 30: no (100 % of 3 rows)", "age > 30: 4 rows, split on age",
        "|   age <= 50.5: yes (100 % of 2 rows)", "|   age > 50.5: no (100 % of 2 rows)"]


def test_a_leaf_alone_as_text():
    assert tree_text(ID3().fit(walks().take([0, 1]), RNG), WALK) == "all rows: walk (100 % of 2 rows)"


def test_rules_of_a_tree_as_text_and_json():
    rules = plain_rules(extract(ages(), 2), AGES)
    assert rules_text(rules).splitlines() == [
        "1. if age <= 30 then no  (100 % of 3 rows)",
        "2. if 30 < age <= 50.5 then yes  (100 % of 2 rows)",
        "3. if age > 50.5 then no  (100 % of 2 rows)"]
    assert json.loads(rules_json(rules)) == rules
    assert rules[1] == {"if": ["30 < age <= 50.5"], "then": "yes", "shares": {"no": 0.0, "yes": 1.0}, "support": 2.0}
    assert rules_json([]) == "[]"


def test_rules_of_a_multiway_tree_name_categories():
    rules = plain_rules(extract(ID3(depth=3).fit(walks(), RNG), 3), WALK)
    assert rules_text(rules).splitlines() == [
        "1. if wind == strong then stay  (100 % of 4 rows)",
        "2. if weather == sun and wind == weak then walk  (100 % of 2 rows)",
        "3. if weather == rain and wind == weak and day == free then walk  (100 % of 1 row)",
        "4. if weather == rain and wind == weak and day == work then stay  (100 % of 1 row)",
        "5. if weather == snow and wind == weak then walk  (75 % of 0 rows)"]
    alone = plain_rules(extract(ID3().fit(walks().take([0, 1]), RNG), 3), WALK)
    assert rules_text(alone) == "1. if anything then walk  (100 % of 2 rows)"


def test_json_has_names_and_no_codes():
    document = json.loads(to_json(ID3(depth=3).fit(walks(), RNG), WALK))
    assert (document["kind"], document["classes"]) == ("multiway", ["stay", "walk"])
    assert document["tree"]["split"] == "wind"
    assert document["tree"]["children"]["strong"] == {"node": 2, "counts": {"stay": 4}}
    assert document["tree"]["children"]["weak"]["children"]["snow"] == {"node": 5, "counts": {}}
    assert json.loads(to_json(ages(), AGES))["tree"]["children"][">"]["threshold"] == 50.5


def same(first, second):
    return first.kind == second.kind and all(
        np.array_equal(getattr(first, name), getattr(second, name), equal_nan=True)
        for name in ("feature", "threshold", "children", "counts"))


def test_json_gives_the_same_tree_back():
    data = numbers(300, digits=2)
    cart = Cart(depth=7).fit(data, RNG)
    assert same(from_json(to_json(cart, data.schema), data.schema), cart)
    for learner in (ID3(depth=3), ID3(), ID3(depth=3, children="observed"), ID3(min_split=99)):
        tree = learner.fit(walks(), RNG)
        assert same(from_json(to_json(tree, WALK), WALK), tree)
    weighted = ID3(depth=3).fit(walks(), RNG, weights=np.full(8, 0.3))
    assert same(from_json(to_json(weighted, WALK), WALK), weighted)


@pytest.mark.parametrize(("wrong", "right", "complaint"), [
    ('"stay",\n  "walk"', '"walk",\n  "stay"', "classes"), ('"wind"', '"wing"', "did you mean 'wind'"),
    ('"snow"', '"show"', "did you mean 'snow'"), ('"stay": 4', '"stat": 4', "did you mean 'stay'"),
    ('"stay": 4', '"stay": -4', "negative"), ('"stay": 4', '"stay": NaN', "not finite"),
    ('"node": 5', '"node": 2', "not numbered"), ('"node": 5', '"node": "five"', "not a tree"),
    ('"kind": "multiway"', '"kind": "ternary"', "ternary"), ('"kind": "multiway"', '"kind": "binary"', "not a tree"),
    ("{", "[", "not a tree"), ('"tree"', '"bush"', "not a tree")])
def test_json_that_is_not_a_sound_tree_is_refused(wrong, right, complaint):
    text = to_json(ID3(depth=3).fit(walks(), RNG), WALK)
    assert wrong in text
    with pytest.raises(DataError, match=complaint):
        from_json(text.replace(wrong, right, 1), WALK)


def test_a_binary_tree_with_a_broken_threshold_is_refused():
    with pytest.raises(DataError, match="threshold"):
        from_json(to_json(ages(), AGES).replace("50.5", "NaN"), AGES)
    with pytest.raises(DataError, match="column 'wide'"):
        from_json(to_json(ages(), AGES).replace('"age"', '"wide"'), AGES)
    multiway = '{"kind": "multiway", "classes": ["no", "yes"], "tree": {"node": 0, "counts": {}, "split": "age", ' \
               '"children": {"30": {"node": 1, "counts": {}}}}}'
    with pytest.raises(DataError, match="'age' is numeric"):
        from_json(multiway, AGES)
