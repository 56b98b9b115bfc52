"""The parts that vertical trees are made of: routes, shapes, bins of ciphertexts, forms of numbers, predictions."""

from __future__ import annotations

import numpy as np
import pytest
from boosting import boosting, grown, same_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from joint import dealt, federation_of, people

from tequio.algorithms.vertical.trees.offering import OwnColumns, follow, packed, unpacked
from tequio.algorithms.vertical.trees.skeleton import Skeleton, put_in_order
from tequio.algorithms.vertical.trees.sums import Form, PlainAdding, fixed_point
from tequio.data.dataset import Dataset
from tequio.errors import DataError, PayloadError
from tequio.learners.trees.bins import Bins


@given(st.lists(st.lists(st.booleans(), max_size=20), max_size=5))
def test_ways_come_back_as_they_went(ways):
    arrays = [np.array(way, dtype=bool) for way in ways]
    back = unpacked(packed(arrays), len(arrays), "a party")
    assert [way.tolist() for way in back] == ways


@pytest.mark.parametrize("wrong", [{}, {"sizes": np.array([3])},
                                   {"sizes": np.array([3]), "bits": np.zeros(2, np.uint8)},
                                   {"sizes": np.array([-3]), "bits": np.zeros(0, np.uint8)},
                                   {"sizes": np.array([3.0]), "bits": np.zeros(1, np.uint8)}])
def test_ways_that_are_none_are_refused(wrong):
    with pytest.raises(PayloadError, match="party 'x' sent something"):
        unpacked(wrong, 1, "party 'x'")


def test_rows_follow_their_ways():
    node_of = np.array([[0, 0, 0, 0], [1, 1, 1, 1]], dtype=np.int32)
    splits = {"trees": np.array([1]), "nodes": np.array([1]), "left": np.array([2]),
              "ways": packed([np.array([True, False, False, True])])}
    assert follow(node_of, splits, "party 'x'").tolist() == [[0, 0, 0, 0], [2, 3, 3, 2]]
    with pytest.raises(PayloadError, match="party 'x' has 4 rows at node 1 of a tree, others have 3"):
        follow(node_of, {**splits, "ways": packed([np.array([True, False, False])])}, "party 'x'")


def test_trees_that_grew_side_by_side_are_put_in_order():
    # Two roots; tree 1 is split first (into 2 and 3), then tree 0 (into 4 and 5).
    trees = put_in_order(np.array([0, 1, 1, 1, 0, 0]), np.array([7, 5, -1, -1, -1, -1]),
                         np.array([0, 3, -1, -1, -1, -1]), np.array([4, 2, -1, -1, -1, -1]))
    assert trees.sizes.tolist() == [3, 3]
    assert trees.owner.tolist() == [7, -1, -1, 5, -1, -1]
    assert trees.children.tolist() == [[1, 2], [-1, -1], [-1, -1], [4, 5], [-1, -1], [-1, -1]]
    both = trees.plus(trees)
    assert Skeleton.from_payload(both.to_payload(), 8).children[6].tolist() == [7, 8]


@pytest.mark.parametrize("change", [{"owner": np.array([9, -1, -1], np.int32)}, {"sizes": np.array([2], np.int32)},
                                    {"children": np.array([[1, 1], [-1, -1], [-1, -1]], np.int32)},
                                    {"children": np.array([[0, 2], [-1, -1], [-1, -1]], np.int32)},
                                    {"record": np.array([0.5, 1, 2])}])
def test_shapes_that_are_no_trees_are_refused(change):
    sound = {"sizes": np.array([3], np.int32), "owner": np.array([0, -1, -1], np.int32),
             "record": np.array([0, -1, -1], np.int32), "children": np.array([[1, 2], [-1, -1], [-1, -1]], np.int32)}
    Skeleton.from_payload(sound, 2)
    with pytest.raises(PayloadError):
        Skeleton.from_payload({**sound, **change}, 2)


@given(st.integers(1, 5_000_000), st.floats(0.01, 1e6))
def test_sums_over_all_rows_are_exact_in_double_precision(rows, largest):
    form = Form.of_sums(rows, largest)
    sum_bits = np.log2(largest * rows) + form.fraction
    assert sum_bits <= 52
    assert sum_bits <= form.slot - 2 or largest < 1


def test_gradients_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match="not finite"):
        fixed_point(np.array([1.0, np.nan]), 8)


def test_of_equal_cuts_the_lowest_is_taken():
    columns = OwnColumns(np.array([[0, 0, 3, 4]], np.uint8), Bins((np.array([1.0, 2.0, 3.0, 4.0]),)))
    rows = np.arange(4)
    assert [columns.lowest_equal(place, rows) for place in range(4)] == [0, 0, 0, 3]


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_sums_of_ciphertexts_open_to_the_plain_sums(data):
    pytest.importorskip("gmpy2")
    from tequio.algorithms.vertical.trees.encrypted_sums import EncryptedAdding, EncryptedHiding
    from tequio.privacy.encryption.numbers import seeded

    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    rows, sizes = data.draw(st.integers(1, 60)), data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    codes = np.stack([draw.integers(0, size, rows) for size in sizes]).astype(np.uint8)
    columns = OwnColumns(codes, Bins(tuple(np.arange(size - 1.0) for size in sizes)))
    values = draw.integers(-1000, 1000, (rows, 2))
    chosen = np.sort(draw.choice(rows, draw.integers(0, rows + 1), replace=True))
    secret, form = _secret(), Form(0, 30)
    places = draw.permutation(columns.places)
    hiding = EncryptedHiding(secret, seeded(draw), 2, form)
    received = secret.public.receive(hiding.hide(values)["rows"], "a party")
    adding = EncryptedAdding(secret.public, received, seeded(draw))
    sent = adding.send([adding.left_sums(columns, chosen, places)])
    plain = PlainAdding(values).left_sums(columns, chosen, places)
    np.testing.assert_array_equal(hiding.open(sent, len(places), "a party"), plain)
    by_hand = [values[chosen[codes[columns.bins.column[place], chosen] <= place -
                             columns.bins.starts[columns.bins.column[place]]]].sum(axis=0) for place in places]
    np.testing.assert_array_equal(plain, np.array(by_hand).reshape(-1, 2))


def _secret(known=[]):  # noqa: B006 - one key for all examples
    if not known:
        from tequio.privacy.encryption.numbers import seeded
        from tequio.registry import build

        known.append(build("encryption", "paillier", {"bits": 1024}).generate(seeded(np.random.default_rng(0))))
    return known[0]


def test_columns_share_cells_only_where_that_saves_multiplications():
    pytest.importorskip("gmpy2")
    from tequio.algorithms.vertical.trees.encrypted_sums import column_groups

    assert [len(group) for group in column_groups([32] * 10, 20_000)] == [2] * 5
    assert [len(group) for group in column_groups([32] * 4, 1500)] == [1] * 4
    assert [len(group) for group in column_groups([2] * 8, 20_000)] == [8]
    assert sorted(column for group in column_groups([3, 32, 2, 7], 900) for column in group) == [0, 1, 2, 3]


def test_new_rows_are_predicted_with_everybody_online():
    known, new = people(200, columns=6, seed=1), people(90, columns=6, seed=2)
    algorithm = boosting(learner={"learning_rate": 0.5})
    federation, state = grown(algorithm, same_rows(known), rounds=4)
    later = federation_of(dealt(new, overlap=0.6, parties=2))
    later.engine.restore(federation.engine.states())
    answer = algorithm.predict(later, state)
    mine = later.population.partition.view(later.population.dataset, 0)
    assert len(answer["scores"]) == 54  # the ids that both parties have
    right = answer["scores"].argmax(axis=1) == mine.target[answer["rows"]]
    assert right.mean() > 0.7


def test_a_party_hears_only_which_rows_reach_its_own_splits():
    population = dealt(people(120, columns=6), parties=3)
    federation, state = grown(boosting(), population)
    federation.engine.messages.clear()
    boosting().evaluate(federation, state, "test", federation.everyone())
    asked = [(receiver, payload) for name, sender, receiver, payload in federation.engine.messages
             if name == "vertical trees: route" and sender == "coordinator"]
    for party in range(3):
        records = np.concatenate([payload["records"] for receiver, payload in asked if receiver == party])
        assert set(records.tolist()) <= set(state.model["record"][state.model["owner"] == party].tolist())
    for _, sender, _, payload in federation.engine.messages:
        if "ways" in payload and sender != "coordinator":
            reach = next(told["reach"] for receiver, told in asked if receiver == sender and
                         told["reach"].shape == payload["ways"].shape and not (payload["ways"] & ~told["reach"]).any())
            assert reach.shape == payload["ways"].shape


def test_rows_of_the_coordinators_own_can_be_tried():
    population = same_rows(people(150, columns=6))
    federation, state = grown(boosting(), population, rounds=3)
    rows = people(40, columns=6, seed=3)
    tally = boosting().score(federation, state, Dataset.of(rows.schema, rows.features, rows.target))
    assert tally["rows"] == 40
