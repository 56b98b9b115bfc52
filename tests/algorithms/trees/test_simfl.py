"""SimFL: similar rows are found without rows, and each party in its turn boosts with everybody's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rivals import CONTINUE, blobs, exchanges, federation, kept, numbers, one_more, replies_changed, run, spoilt_at

from parts import Parts
from tequio.algorithms.trees import simfl
from tequio.algorithms.trees.simfl import FedGBDT, SimFL, draw_functions, most_similar, relabelled
from tequio.errors import PartyError, QuorumError
from tequio.learners.trees.boosted import BoostedTrees
from tequio.learners.trees.boosting import Boosting


def algorithm(hashing: str = "p_stable", width: float = 0.5, tables: int = 12, **settings: Any) -> SimFL:
    learner = Boosting(**{"depth": 3, "bins": 16, "learning_rate": 0.3, **settings})
    return SimFL(hashing=hashing, width=width, tables=tables, **Parts(learner=learner))


@given(seed=st.integers(0, 2**32), own=st.integers(1, 30), others=st.integers(1, 30), tables=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_nobody_shares_more_buckets_than_the_row_that_is_found(seed: int, own: int, others: int, tables: int) -> None:
    draw = np.random.default_rng(seed)
    mine, theirs = (draw.integers(0, 3, (rows, tables)).astype(np.int32) for rows in (own, others))
    found = most_similar(mine, theirs, draw)
    shared = (mine[:, None] == theirs[None]).sum(axis=2)
    np.testing.assert_array_equal(shared[np.arange(own), found], shared.max(axis=1))


def test_rows_that_are_equally_similar_are_found_equally_often() -> None:
    mine = np.zeros((6000, 2), dtype=np.int32)
    theirs = np.array([[0, 0], [1, 1], [0, 0], [0, 0], [0, 1]], dtype=np.int32)
    counts = np.bincount(most_similar(mine, theirs, np.random.default_rng(0)), minlength=5)
    assert counts[[1, 4]].tolist() == [0, 0]
    np.testing.assert_allclose(counts[[0, 2, 3]], 2000, atol=150)


@pytest.mark.parametrize("kind", ["p_stable", "hyperplane"])
def test_near_rows_share_more_buckets_than_far_ones(kind: Any) -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(300, 5)) * [1, 10, 100, 1, 1] + 50
    functions = draw_functions(kind, 40, 4, 2.0, rows.mean(axis=0), rows.std(axis=0), draw)
    near, far = rows + 0.01 * rows.std(axis=0), draw.permutation(rows)
    shared = [(functions.buckets(rows) == functions.buckets(other)).mean() for other in (near, far)]
    assert shared[0] > 0.95
    assert shared[1] < 0.5


def test_a_bucket_of_a_p_stable_table_is_a_slab_of_the_given_width() -> None:
    draw = np.random.default_rng(0)
    functions = draw_functions("p_stable", 1, 8, 3.0, np.array([10.0]), np.array([2.0]), draw)
    edge = np.linspace(0, 60, 6001)[:, None]
    steps = np.flatnonzero(np.diff(functions.buckets(edge)[:, 0]))
    slope = abs(functions.directions[0, 0, 0])
    np.testing.assert_allclose(np.diff(edge[steps, 0]), 3.0 / slope, atol=0.02)


def test_new_labels_tell_only_who_shares_a_bucket() -> None:
    first, second = np.array([[-7, 900], [3, 900]], np.int32), np.array([[3, 41]], np.int32)
    labels = np.concatenate(relabelled([first, second]))
    assert [len(part) for part in relabelled([first, second])] == [2, 1]
    before = np.concatenate([first, second])
    np.testing.assert_array_equal(labels[:, None] == labels[None], before[:, None] == before[None])
    assert labels.min() == 0
    assert labels.max() < 3


@pytest.mark.parametrize("classes", [2, 3, None])
def test_two_parties_with_the_same_rows_boost_as_one_whose_rows_count_twice(classes: int | None) -> None:
    once = blobs(150, classes)
    order = np.random.default_rng(2).permutation(150)
    twice = numbers(np.concatenate([once.features, once.features[order]]),
                    np.concatenate([once.target, once.target[order]]), classes)
    state = run(algorithm(), federation(twice, [np.arange(150), np.arange(150, 300)]), rounds=4)
    alone = Boosting(trees=4, depth=3, bins=16, learning_rate=0.3).fit(once, np.random.default_rng(0),
                                                                       weights=np.full(150, 2.0))
    together = BoostedTrees.from_payload(state.model, features=4, classes=classes or 1)
    assert len(together) == len(alone) == 4 * (3 if classes == 3 else 1)
    np.testing.assert_allclose(together.margins(once.features), alone.margins(once.features), rtol=1e-9)


def test_all_gradients_arrive_and_stand_behind_the_most_similar_row() -> None:
    data, lent = blobs(120), {}
    asking = federation(data, 3)
    state = algorithm().start(asking)
    with replies_changed(simfl.lend_gradients, lambda party, reply: lent.setdefault(party.index, reply) and reply):
        one_more(algorithm(), asking, state)
    assert sorted(lent) == [1, 2]  # it is the turn of party 0, whose own gradients stay at home
    share = data.target.mean()
    for party, reply in lent.items():
        rows = asking.population.view(party).train
        behind = kept(asking, simfl.SimilarRows)[party]["similar"][:, 0]
        expected = np.zeros(40)
        np.add.at(expected, behind, share - rows.target)
        np.testing.assert_allclose(reply["sums"]["gradient"][:, 0], expected, atol=1e-12)
        np.testing.assert_allclose(reply["sums"]["curvature"].sum(), 40 * share * (1 - share))


def test_the_parties_take_turns() -> None:
    asking, turns = federation(blobs(90), 3), []
    facts = exchanges(asking)
    with replies_changed(simfl.grow_next, lambda party, reply: turns.append(party.index) or reply):
        run(algorithm(), asking, rounds=5)
    assert turns == [0, 1, 2, 0, 1]
    assert [fact["asked"] for fact in facts if fact["task"] == "simfl: lend gradients"] == [2] * 5


def test_one_table_fewer_than_columns_by_default() -> None:
    seen = []
    with replies_changed(simfl.hash_rows, lambda party, reply: seen.append(reply["buckets"].shape) or reply):
        algorithm(tables=0).start(federation(blobs(60, columns=7), 2))
    assert seen == [(30, 6), (30, 6)]


WRONG_BUCKETS = {"no buckets": None, "too few tables": np.zeros((5, 3), np.int32),
                 "fractions": np.zeros((5, 12)), "no rows": np.zeros((0, 12), np.int32)}


@pytest.mark.parametrize("wrong", WRONG_BUCKETS)
def test_corrupted_buckets_are_named_or_left_out(wrong: str) -> None:
    with replies_changed(simfl.hash_rows, spoilt_at(1, {"buckets": WRONG_BUCKETS[wrong]})):
        with pytest.raises(PartyError, match=r"party '1' (sent something that is not buckets .* in 12|.*its reply)"):
            algorithm().start(federation(blobs(60), 3))
        asking = federation(blobs(60), 3, rules=CONTINUE)
        state = run(algorithm(), asking, rounds=2)
    assert state.memory["places"].tolist() == [0, -1, 1]
    assert len(state.model["sizes"]) == 2



def test_nobody_in_the_hash_tables_is_an_error() -> None:
    with replies_changed(simfl.hash_rows, lambda party, reply: {}), \
            pytest.raises(QuorumError, match="no party hashed its rows"):
        algorithm().start(federation(blobs(60), 3, rules=CONTINUE))


@pytest.mark.parametrize("wrong", ["nothing", "two trees", "a tree on a column that does not exist"])
def test_corrupted_trees_are_named_or_the_turn_is_lost(wrong: str) -> None:
    learner = Boosting(trees=2, depth=1)
    two = learner.fit(blobs(60), np.random.default_rng(0)).to_payload()
    one = Boosting(trees=1, depth=1).fit(blobs(60), np.random.default_rng(0)).to_payload()
    reply = {"nothing": {}, "two trees": two}.get(wrong, {**one, "feature": np.array([9, -1, -1], np.int32)})
    with replies_changed(simfl.grow_next, spoilt_at(0, {"model": reply})):
        with pytest.raises(PartyError, match=r"party '0' failed in round 1 at task 'simfl: grow next trees'"):
            run(algorithm(), federation(blobs(60), 2))
        state = run(algorithm(), federation(blobs(60), 2, rules=CONTINUE), rounds=2)
    assert len(state.model["sizes"]) == 1


def test_corrupted_sums_are_named_or_left_out() -> None:
    wrong = {"sums": {"gradient": np.zeros((3, 1)), "curvature": np.zeros((3, 1))}}
    with replies_changed(simfl.lend_gradients, spoilt_at(2, wrong)):
        with pytest.raises(PartyError, match=r"party '2' sent 'gradient' of shape"):
            run(algorithm(), federation(blobs(60), 3))
        assert len(run(algorithm(), federation(blobs(60), 3, rules=CONTINUE)).model["sizes"]) == 1


def test_five_rows_and_one_class_are_enough() -> None:
    data = blobs(120)
    one_class = np.flatnonzero(data.target == 1)[:5]
    rest = np.setdiff1d(np.arange(120), one_class)
    state = run(algorithm(), federation(data, [one_class, rest]), rounds=20)
    model = BoostedTrees.from_payload(state.model, features=4, classes=2)
    assert (model.predict(data.features).argmax(axis=1) == data.target).mean() > 0.85


def test_fedgbdt_is_simfl_with_hyperplanes() -> None:
    data = blobs(160)
    learner = Boosting(depth=2, bins=8)
    models = [run(kind(tables=4, **more, **Parts(learner=learner)), federation(data, 3), rounds=3).model
              for kind, more in ((FedGBDT, {}), (SimFL, {"hashing": "hyperplane"}), (SimFL, {}))]
    np.testing.assert_array_equal(models[0]["value"], models[1]["value"])
    assert not np.array_equal(models[0]["value"], models[2]["value"])
