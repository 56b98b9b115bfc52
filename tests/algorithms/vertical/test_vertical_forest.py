"""The vertical forest: encrypted equals plain, as good as a forest in one place, and it ends by itself."""

from __future__ import annotations

import numpy as np
import pytest
from boosting import PAILLIER, assert_same_model, classes, forest, grown, same_rows
from joint import assert_no_ids, assert_no_labels, assert_no_rows, dealt, federation_of, kept, people, play, said

from tequio.algorithms.vertical.rows import CommonRows
from tequio.algorithms.vertical.trees.skeleton import OwnSplits, OwnTrees
from tequio.algorithms.vertical.trees.vertical_forest import VerticalForest, drawn_rows
from tequio.errors import PartyError
from tequio.federation.algorithm import part_types
from tequio.learners.metrics import summarise
from tequio.learners.trees.forest import RandomForest
from tequio.registry import build


@pytest.mark.parametrize("data", [people(160, columns=6), classes()], ids=["two classes", "three classes"])
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_encrypted_trees_are_those_of_the_twin_split_for_split(data, criterion):
    pytest.importorskip("gmpy2")
    runs = [grown(forest(encryption, {"criterion": criterion, "columns": 0.7}), dealt(data, overlap=0.8, parties=3))
            for encryption in ("plain", PAILLIER)]
    assert_same_model(*runs)


def test_leaves_hold_the_classes_of_the_rows_drawn_for_their_tree():
    population = same_rows(people(100))
    federation, state = grown(forest(), population)
    trees = kept(federation.engine.states()[0], OwnTrees)["trees"]
    rows = state.model["rows"]["train"]
    roots = np.cumsum(trees["sizes"]) - trees["sizes"]
    assert trees["counts"][roots].sum(axis=1).tolist() == [rows] * 4
    for node in np.flatnonzero(trees["owner"] >= 0):
        np.testing.assert_array_equal(trees["counts"][trees["children"][node]].sum(axis=0), trees["counts"][node])
        assert trees["rows"][trees["children"][node]].sum() == trees["rows"][node]


def test_as_many_rows_are_drawn_as_there_are():
    drawn = drawn_rows(5, 200, np.random.default_rng(0))
    assert drawn.shape == (5, 200)
    assert drawn.sum(axis=1).tolist() == [200] * 5
    assert 0.3 < (drawn == 0).mean() < 0.45  # 1/e of the rows are not drawn for a tree
    assert not (drawn[0] == drawn[1]).all()


def test_it_is_as_good_as_a_forest_in_one_place():
    data = build("dataset", "breast-cancer").load().train
    population = same_rows(data)
    algorithm = forest(learner={"trees": 20, "depth": 5}, bins=32, together=10, alignment="agreed")
    federation, state = grown(algorithm, population, rounds=2)
    ours = summarise(data.schema.target, algorithm.evaluate(federation, state, "test", federation.everyone())[0])
    part = kept(federation.engine.states()[0], CommonRows)
    train, test = (part["rows"][part["part"] == code] for code in (0, 2))
    learner = build("learner", "random-forest", {"trees": 20, "depth": 5})
    model = learner.fit(data.take(train), np.random.default_rng(0))
    centre = summarise(data.schema.target, learner.evaluate(model, data.take(test)))
    assert ours["accuracy"] > centre["accuracy"] - 0.03


@pytest.mark.parametrize("voting", ["mean", "majority"])
def test_scores_are_shares_of_the_vote(voting):
    population = same_rows(people(100))
    algorithm = forest(learner={"voting": voting})
    federation, state = grown(algorithm, population)
    scores = algorithm.predict(federation, state)["scores"]
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    if voting == "majority":
        assert set(np.unique(scores * 4)) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_it_ends_when_all_trees_are_grown():
    algorithm = forest(learner={"trees": 5})
    federation = federation_of(dealt(people(80)))
    state = play(algorithm, federation, 2)
    assert (len(state.model["sizes"]), algorithm.finished(state)) == (4, "")
    federation.round += 1
    state = algorithm.round(federation, state)
    assert (len(state.model["sizes"]), algorithm.finished(state)) == (5, "all 5 trees are grown")
    assert algorithm.round(federation, state).model is state.model


def test_messages_show_no_row_id_label_or_threshold():
    pytest.importorskip("gmpy2")
    population = dealt(people(120, columns=6), overlap=0.8)
    federation, state = grown(forest(PAILLIER), population)
    forest(PAILLIER).evaluate(federation, state, "test", federation.everyone())
    engine, states = federation.engine, federation.engine.states()
    assert_no_ids(engine, population)
    assert_no_rows(engine, population)
    assert_no_labels(engine, population, states[0], skip=("vertical.keep", "vertical.choose order"))
    secret = np.concatenate([kept(own, OwnSplits)["records"]["threshold"] for own in states.values()])
    for name, _, _, value in said(engine):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert not np.isin(value, secret).any(), name


def test_numbers_are_no_classes():
    with pytest.raises(PartyError, match="tells classes apart"):
        grown(forest(), same_rows(people(60, target="number")))


def test_only_random_forests_fit():
    assert part_types(VerticalForest) == {"learner": RandomForest}
