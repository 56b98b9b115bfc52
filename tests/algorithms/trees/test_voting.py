"""A vote of different models: the mean of their class probabilities, whoever made them and whatever they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rivals import CONTINUE, blobs, federation, replies_changed, run, spoilt_at, with_columns_of

import tequio
from parts import Parts
from tequio.algorithms.trees.voting import Voting, train_member, vote
from tequio.data.partition import Split
from tequio.errors import ConfigError, DataError, PartyError
from tequio.federation import payload
from tequio.federation.rng import stream
from tequio.learners.learner import LocalTraining
from tequio.learners.metrics import merge, tally
from tequio.registry import build

LOCAL = LocalTraining(epochs=3, learning_rate=0.1)


def algorithm(*learners: Any, **settings: Any) -> Voting:
    return Voting(learners=learners, **settings, **Parts(learner=build("learner", "cart"), local=LOCAL))


def test_it_is_the_mean_of_a_tree_and_a_linear_model() -> None:
    data = blobs(200, classes=3)
    asking = federation(data, 2, seed=5)
    state = run(algorithm("cart", "sgd-classifier"), asking)
    tree_rows, linear_rows = (asking.population.view(party).train for party in (0, 1))
    from sklearn.tree import DecisionTreeClassifier

    seed = int(stream(5, "fit", 1, 0).integers(2**31))
    tree = DecisionTreeClassifier(max_depth=5, random_state=seed)
    tree.fit(tree_rows.features.astype(np.float32), tree_rows.target)
    linear = build("learner", "sgd-classifier")
    model = linear.train(linear.initial(data.schema, stream(5, "initial model", 1, 1)), linear_rows, LOCAL,
                         stream(5, "train", 1, 1)).model
    expected = (tree.predict_proba(data.features.astype(np.float32)) + linear.predict(model, data)) / 2
    np.testing.assert_allclose(vote(algorithm("cart", "sgd-classifier").offered, state.model, data), expected)


def test_parties_choose_among_what_is_offered_and_the_rest_are_dealt_in_turn() -> None:
    overrides = {0: {"learner": "sgd-classifier"}, 3: {"learner": "cart"}, 2: {"learner": ""}}
    asking = federation(blobs(), 4, overrides=overrides)
    state = run(algorithm({"name": "cart", "depth": 2}, "sgd-classifier"), asking)
    assert [member["learner"] for member in state.model["members"]] == [1, 1, 0, 0]
    assert [spec["$component"][1] for spec in state.model["learners"]] == ["cart", "sgd-classifier"]
    assert state.model["learners"][0]["parameters"]["depth"] == 2


def test_without_an_offer_all_take_the_learner_of_the_config() -> None:
    state = run(algorithm(), federation(blobs(), 3))
    assert [member["model"]["kind"] for member in state.model["members"]] == ["binary"] * 3


def test_a_config_says_who_chooses_what(tmp_path: Any) -> None:
    result = tequio.run({"rounds": 1, "data": {"name": "iris", "partition": {"name": "iid", "parties": 3}},
                         "algorithm": {"name": "voting", "learners": ["cart", {"name": "sgd-classifier"}]},
                         "overrides": {"0": {"learner": "sgd-classifier"}, "1": {"learner": "cart"}},
                         "engine": {"name": "local", "workers": 1}, "output": {"folder": str(tmp_path)}})
    assert [member["learner"] for member in result.model["members"]] == [1, 0, 0]
    assert result.summary["metrics"]["test.accuracy"] > 0.5


def test_a_party_cannot_choose_what_is_not_offered() -> None:
    asking = federation(blobs(), 2, overrides={1: {"learner": "torch"}})
    with pytest.raises(PartyError, match=r"party '1' wants the learner 'torch', which is not offered"):
        run(algorithm("cart", "sgd-classifier"), asking)


def test_models_count_by_their_score_and_without_one_as_the_mean() -> None:
    scores = {0: 0.9, 1: 0.6, 2: None}
    asking = federation(blobs(90), 3, split=Split(validation=0.2, test=0.0))
    with replies_changed(train_member, lambda party, reply: {**reply, "score": scores[party.index]}):
        state = run(algorithm(weights="score"), asking)
    np.testing.assert_allclose(state.model["weights"], np.array([0.9, 0.6, 0.75]) / 2.25)


def test_the_score_is_that_on_the_validation_rows() -> None:
    data = blobs(300)
    asking = federation(data, 2, split=Split(validation=0.3, test=0.0))
    state = run(algorithm(weights="score"), asking)
    accuracies = []
    for party, member in enumerate(state.model["members"]):
        rows = asking.population.view(party).validation
        guesses = build("learner", "cart").predict(member["model"], rows).argmax(axis=1)
        accuracies.append((guesses == rows.target).mean())
    np.testing.assert_allclose(state.model["weights"], np.array(accuracies) / sum(accuracies))


def test_a_party_with_one_class_and_five_rows_takes_part() -> None:
    data = blobs(200, classes=3)
    five = np.flatnonzero(data.target == 2)[:5]
    state = run(algorithm("cart"), federation(data, [five, np.setdiff1d(np.arange(200), five)]))
    first = vote(algorithm("cart").offered, {**state.model, "weights": np.array([1.0, 0.0])}, data)
    np.testing.assert_array_equal(first, np.tile([0.0, 0.0, 1.0], (200, 1)))


def test_parties_tallies_add_up_to_the_coordinators() -> None:
    data, how = blobs(120), algorithm("cart", "sgd-classifier")
    asking = federation(data, 3)
    state = run(how, asking)
    parts = how.evaluate(asking, state, "train", asking.everyone())
    whole, together = how.score(asking, state, data), merge(parts.values())
    np.testing.assert_array_equal(together["confusion"], whole["confusion"])
    assert whole["confusion"].tolist() == tally(
        data.schema.target, vote(how.offered, state.model, data), data.target)["confusion"].tolist()


def test_before_anybody_trained_there_is_nothing_to_score() -> None:
    asking, how = federation(blobs(60), 2), algorithm("cart")
    state = how.start(asking)
    assert how.evaluate(asking, state, "train", asking.everyone()) == {}
    assert how.score(asking, state, blobs(10)) is None


def test_the_model_survives_the_wire() -> None:
    data, how = blobs(120), algorithm("cart", "sgd-classifier")
    state = run(how, federation(data, 3))
    again = payload.decode(payload.encode(state.model))
    np.testing.assert_array_equal(vote(how.offered, again, data), vote(how.offered, state.model, data))


WRONG = {"a learner that was not offered": {"learner": 7}, "no model": {"model": None},
         "a model of another kind": {"model": {"coef": np.zeros((2, 4)), "intercept": np.zeros(2)}},
         "a score above 1": {"score": 40.0}}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_corrupted_member_is_named_or_left_out(wrong: str) -> None:
    with replies_changed(train_member, spoilt_at(1, WRONG[wrong])):
        with pytest.raises(PartyError, match=r"party '1' failed .* 'voting: train': (party '1' sent|.*its reply)"):
            run(algorithm("cart"), federation(blobs(90), 3))
        state = run(algorithm("cart"), federation(blobs(90), 3, rules=CONTINUE))
    assert [member["party"] for member in state.model["members"]] == ["0", "2"]


def test_another_order_of_columns_is_named() -> None:
    asking = federation(blobs(90), 3)
    with_columns_of(asking, 0, [3, 1, 2, 0])
    with pytest.raises(PartyError, match=r"column 0 is 'x3' instead of 'x0'"):
        run(algorithm("cart"), asking)


def test_what_cannot_work_is_said() -> None:
    asking = federation(blobs(90), 3)
    with pytest.raises(ConfigError, match="cannot be weighed by 'loss', of which less is better"):
        algorithm("cart", weights="score", metric="loss").start(asking)
    with pytest.raises(DataError, match=r"no party has validation rows.*data\.split\.validation"):
        run(algorithm("cart", weights="score"), asking)
    with pytest.raises(ConfigError, match="there is no learner called 'kart'; did you mean 'cart'"):
        algorithm("kart").start(asking)
    validated = federation(blobs(90), 3, split=Split(validation=0.3, test=0.0))
    with pytest.raises(PartyError, match="cannot be weighed by 'r2' here"):
        run(replace(algorithm("cart", weights="score"), metric="r2"), validated)
