import numpy as np
import pytest
from hand_trees import binary, multiway, weather_tree
from tree_tables import WALK, numbers

from tequio.data.dataset import Feature, Schema, Target
from tequio.learners.trees.boosted import BoostedTrees, RegressionTree
from tequio.learners.trees.explain import Condition, explain
from tequio.learners.trees.forest import Cart, Forest
from tequio.learners.trees.tree import LEAF
from tequio.learners.trees.votes import Panel, boosted_from_xgboost, ensemble_importance, votes_on

ABC = Schema.of_numbers(["age", "income"], Target("classes", ("a", "b", "c"), "kind"))
AB = Schema.of_numbers(["age", "income"], Target("classes", ("a", "b"), "kind"))


def test_conditions_come_in_the_order_in_which_the_tree_asks():
    why = explain(weather_tree(), np.array([0.0, 0.0, 1.0]), WALK)
    assert str(why) == "{ weather == sun, wind == weak } -> walk"
    assert why.nodes == (0, 1, 3)
    assert why.shares == {"stay": 0.0, "walk": 1.0}
    assert why.support == 2
    assert why.fallback == ""


@pytest.mark.parametrize(("value", "unmet"), [(2.0, "weather == snow"), (np.nan, "weather is missing or unknown"),
                                              (7.0, "weather is missing or unknown")])
def test_a_tree_without_a_branch_says_so_and_answers_with_the_rows_that_came_as_far(value, unmet):
    why = explain(weather_tree(), np.array([value, 0.0, 0.0]), WALK)
    assert why.to_plain() == {"conditions": [], "prediction": "stay", "shares": {"stay": 5 / 8, "walk": 3 / 8},
                              "support": 8.0, "fallback": f"no branch for {unmet}"}


def test_a_branch_that_no_training_row_took_says_so():
    tree = multiway([0, -1, -1], [[1, 2, -1], [-1] * 3, [-1] * 3], [[5, 3], [0, 0], [5, 3]])
    why = explain(tree, np.array([0.0, 0.0, 0.0]), WALK)
    assert (why.support, why.shares["stay"]) == (0, 5 / 8)
    assert why.fallback == "no training row came as far, so it answers with those that came nearest"


def test_a_column_may_be_asked_twice():
    tree = binary([0, 0, -1, -1, -1], [32.5, 18, np.nan, np.nan, np.nan], [[1, 2], [3, 4], *[[-1, -1]] * 3],
                  [[2, 2], [2, 1], [0, 1], [2, 0], [0, 1]])
    assert str(explain(tree, np.array([32.5, 0.0]), AB)) == "{ age <= 32.5, age > 18 } -> b"


@pytest.mark.parametrize(("value", "told"), [("<=0.5", "age <=0.5"), ("(0.5, 9.5]", "age == (0.5, 9.5]"),
                                             (">9.5", "age >9.5"), ("old", "age == old")])
def test_categories_that_are_bins_read_as_such(value, told):
    assert str(Condition("age", "==", value)) == told


def test_explanations_agree_with_predictions():
    data = numbers(300)
    tree = Cart(depth=6).fit(data, np.random.default_rng(0))
    for row, shares in zip(data.features[:50], tree.predict(data.features[:50]), strict=True):
        why = explain(tree, row, data.schema)
        assert why.prediction == data.schema.target.names[shares.argmax()]
        column = {feature: float(value) for feature, value in zip(data.schema.names, row, strict=True)}
        assert all(eval(f"{column[step.feature]} {step.relation} {step.value}") for step in why.conditions
                   if abs(column[step.feature] - float(step.value)) > 1e-4)


def _stump(cut, left, right):
    """Asks whether the age is at most the cut."""
    return binary([0, -1, -1], [cut, np.nan, np.nan], [[1, 2], [-1, -1], [-1, -1]],
                  [np.add(left, right), left, right])


def _step(cut, left, right, gain=1.0):
    return RegressionTree(np.array([0, LEAF, LEAF], np.int32), np.array([cut, 0.0, 0.0]),
                          np.array([[1, 2], [LEAF, LEAF], [LEAF, LEAF]], np.int32), np.array([0.0, left, right]),
                          np.array([gain, 0.0, 0.0]))


def test_trees_of_a_forest_vote():
    forest = Forest((_stump(10, [1, 0, 0], [0, 1, 0]), _stump(20, [1, 3, 0], [0, 1, 0]),
                     _stump(5, [1, 0, 0], [0, 0, 4])))
    found = votes_on(forest, np.array([8.0, 0.0]), ABC)
    assert found.votes == {"a": 1, "b": 1, "c": 1}
    assert found.shares == pytest.approx({"a": 1.25 / 3, "b": 0.75 / 3, "c": 1 / 3})
    assert found.prediction == "a"
    assert str(found) == "1 for a, 1 for b, 1 for c of 3 trees -> a"


def test_a_panel_votes_by_weight():
    panel = Panel((_stump(10, [3, 1], [0, 1]), Forest((_stump(10, [0, 1], [1, 0]),))), np.array([0.25, 0.75]))
    found = votes_on(panel, np.array([8.0, 0.0]), AB)
    assert found.votes == {"a": 1, "b": 1}
    assert found.shares == pytest.approx({"a": 0.75 * 0.25, "b": 0.25 * 0.25 + 0.75})
    assert found.prediction == "b"
    assert ensemble_importance(panel, 2).tolist() == [1.0, 0.0]


def test_boosted_trees_push_for_and_against():
    steps = (_step(10, -1.0, 1.0), _step(20, 0.5, 0.0), _step(5, 1.0, 2.0))
    two = votes_on(BoostedTrees("logistic", np.zeros(1), steps), np.array([8.0, 0.0]), AB)
    assert two.votes == {"a": 1, "b": 2}
    assert two.shares["b"] == pytest.approx(1 / (1 + np.exp(-1.5)))
    three = votes_on(BoostedTrees("softmax", np.zeros(3), (*steps, *steps)), np.array([8.0, 0.0]), ABC)
    assert three.votes == {"a": 0, "b": 2, "c": 2}
    assert three.prediction == "c"


def test_a_number_is_pushed_up_and_down():
    model = BoostedTrees("squared", np.array([10.0]), (_step(10, -1.0, 1.0), _step(20, 0.5, 0.0)))
    found = votes_on(model, np.array([8.0, 0.0]), Schema((Feature("age"), Feature("income")), Target("number")))
    assert (found.prediction, found.votes, found.shares) == ("9.5", {"lower": 1, "higher": 1}, {})


@pytest.mark.parametrize("classes", [2, 3])
def test_an_xgboost_model_in_our_form_predicts_the_same(classes):
    pytest.importorskip("xgboost")
    from tequio.learners.trees.xgboost_learner import XGBoost

    data = numbers(300, classes=classes, digits=1)
    model = XGBoost(trees=5, depth=3).fit(data, np.random.default_rng(0))
    ours = boosted_from_xgboost(model.document.tolist(), data.schema)
    assert len(ours) == 5 * (1 if classes == 2 else classes)
    np.testing.assert_allclose(ours.predict(data.features), model.predict(data.features), atol=1e-6)
