"""What every partition promises: determinism, disjoint rows, cover, minimum rows, and clear refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio import registry as components
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partitions.label_skew import ClassWeights, Dirichlet, Shards
from tequio.data.partitions.rows import Custom, Iid, Pooled, Quantity, Sampled
from tequio.errors import ConfigError, DataError

CLASSES = ("a", "b", "c", "d", "e")


def table(labels, groups=None) -> Dataset:
    labels = np.asarray(labels)
    schema = Schema.of_numbers(["x", "y"], Target("classes", CLASSES))
    return Dataset.of(schema, np.zeros((len(labels), 2)), labels, groups=groups)


def random_table(rows: int, seed: int = 0) -> Dataset:
    return table(np.random.default_rng(seed).integers(0, len(CLASSES), rows))


def deal(partitioner, dataset, seed=0):
    return partitioner.deal(dataset, np.random.default_rng(seed))


def class_counts(dataset, partition) -> np.ndarray:
    return np.array([np.bincount(partition.view(dataset, party).target, minlength=len(CLASSES))
                     for party in range(len(partition))])


COVERING = [Iid, Dirichlet, Quantity, ClassWeights, lambda **given: Iid(stratified=True, **given),
            lambda **given: Shards(equal_sizes=True, **given), lambda **given: Shards(classes_per_party=5, **given)]


@pytest.mark.parametrize("make", COVERING)
@settings(max_examples=25, deadline=None)
@given(parties=st.integers(1, 12), rows=st.integers(120, 300), seed=st.integers(0, 10_000))
def test_every_row_is_with_exactly_one_party(make, parties, rows, seed):
    partition = deal(make(parties=parties), random_table(rows, seed), seed)
    assert len(partition) == parties
    assert np.array_equal(np.sort(partition.rows), np.arange(rows))


@settings(max_examples=25, deadline=None)
@given(parties=st.integers(1, 20), held=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_no_row_is_dealt_twice_where_classes_are_chosen(parties, held, seed):
    for make in (Shards, ClassWeights):
        partition = deal(make(parties=parties, classes_per_party=held), random_table(400, seed), seed)
        assert len(np.unique(partition.rows)) == len(partition.rows)


@pytest.mark.parametrize("partitioner", [Iid(4), Iid(4, replacement=True), Dirichlet(4), Shards(4), Quantity(4),
                                         ClassWeights(4, 2), Sampled(4, 9), Pooled()])
def test_the_same_stream_deals_the_same_and_another_does_not(partitioner):
    dataset = random_table(200)
    first, again, other = deal(partitioner, dataset, 7), deal(partitioner, dataset, 7), deal(partitioner, dataset, 8)
    assert np.array_equal(first.rows, again.rows)
    assert np.array_equal(first.offsets, again.offsets)
    assert isinstance(partitioner, Pooled) or not np.array_equal(first.rows, other.rows)


@pytest.mark.parametrize("make", [Iid, Dirichlet, Shards, Quantity, ClassWeights])
def test_too_few_rows_for_the_parties_is_refused_with_the_number_that_would_do(make):
    with pytest.raises(DataError, match=r"has 19 rows, but 4 parties with at least 5 rows each need 20; "
                                        r"set data.partition.parties = 3"):
        deal(make(parties=4, minimum_rows=5), random_table(19))


@pytest.mark.parametrize("make", [Dirichlet, Shards, ClassWeights, lambda: Iid(stratified=True)])
def test_label_skew_without_labels_is_refused(make):
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("none")), np.zeros((50, 1)))
    with pytest.raises(DataError, match=r"no target to sort rows by; choose a partition that does not look at labels"):
        deal(make(), dataset)


def test_rows_are_numbered_within_the_view_that_is_dealt():
    view = table([0, 1, 2, 3, 4] * 4).take(np.arange(10, 20))
    partition = deal(Iid(2), view)
    dealt = np.concatenate([partition.view(view, party).ids for party in range(2)])
    assert sorted(dealt) == list(range(10, 20))


def test_iid_sizes_differ_by_at_most_one():
    assert deal(Iid(4), random_table(10)).sizes.tolist() == [3, 3, 2, 2]


def test_stratified_iid_counts_differ_by_at_most_one_in_size_and_in_every_class():
    dataset = table([0] * 7 + [1] * 5 + [2] * 9)
    partition = deal(Iid(4, stratified=True), dataset)
    counts = class_counts(dataset, partition)
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
    assert sorted(partition.sizes.tolist()) == [5, 5, 5, 6]


def test_iid_with_replacement_shares_rows_between_parties_but_never_twice_with_one():
    partition = deal(Iid(10, replacement=True), random_table(100))
    assert partition.sizes.tolist() == [10] * 10
    assert all(len(np.unique(partition.party_rows(party))) == 10 for party in range(10))
    assert len(np.unique(partition.rows)) < 100


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 100_000), parties=st.integers(2, 30), alpha=st.sampled_from([0.05, 0.3, 1.0, 10.0]))
def test_minimum_rows_hold_for_any_seed(seed, parties, alpha):
    dataset = random_table(160, seed)
    for make in (Dirichlet, Quantity):
        partition = deal(make(parties=parties, alpha=alpha, minimum_rows=5), dataset, seed)
        assert partition.sizes.min() >= 5
        assert np.array_equal(np.sort(partition.rows), np.arange(160))


def test_the_minimum_can_be_met_exactly():
    assert deal(Dirichlet(32, alpha=0.01, minimum_rows=5), random_table(160)).sizes.tolist() == [5] * 32


def test_quantity_gives_the_minimum_then_dirichlet_shares_and_the_remainder_to_the_largest():
    shares = np.random.default_rng(3).dirichlet(np.ones(4))
    expected = 5 + np.floor(shares * (100 - 20)).astype(int)
    expected[expected.argmax()] += 100 - expected.sum()
    partition = deal(Quantity(4, minimum_rows=5), random_table(100), seed=3)
    assert partition.sizes.tolist() == expected.tolist()


def test_sampled_is_compact_and_draws_with_replacement():
    partition = deal(Sampled(parties=1000, rows=20), random_table(30))
    assert partition.rows.dtype == np.int32
    assert partition.sizes.tolist() == [20] * 1000
    counts = np.bincount(partition.rows, minlength=30)
    assert counts.min() > 500
    assert any(len(np.unique(partition.party_rows(party))) < 20 for party in range(5))


def test_pooled_is_the_whole_dataset_in_its_order():
    dataset = random_table(12)
    view = deal(Pooled(), dataset).view(dataset, 0)
    assert np.array_equal(view.target, dataset.target)


def odd_rows_to_the_second_party(dataset, rng):
    return np.arange(len(dataset)) % 2


def test_custom_takes_a_function_or_its_place():
    dataset = random_table(5)
    for function in (odd_rows_to_the_second_party, f"{__name__}:odd_rows_to_the_second_party"):
        partition = deal(Custom(function), dataset)
        assert [partition.party_rows(party).tolist() for party in range(2)] == [[0, 2, 4], [1, 3]]


def test_custom_leaves_out_rows_marked_minus_one():
    partition = deal(Custom(lambda dataset, rng: [1, -1, 0, 1]), random_table(4))
    assert [partition.party_rows(party).tolist() for party in range(2)] == [[2], [0, 3]]


@pytest.mark.parametrize(("answer", "message"), [
    ([0, 1], r"returned shape \(2,\) for 4 rows"),
    ([0.0, 1.0, 1.0, 0.0], "returned values of type float64"),
    ([-1, -1, -1, -1], "gave no row to a party"),
    ([-2, 0, 0, 0], "returned the party number -2"),
    ([0, 2, 2, 0], "1 of 3 parties have fewer than 1 rows: '1'"),
])
def test_custom_refuses_answers_that_are_no_partition(answer, message):
    with pytest.raises(DataError, match=message):
        deal(Custom(lambda dataset, rng: answer), random_table(4))


@pytest.mark.parametrize("place", ["nowhere.at.all:deal", "math:no_such_thing", "math", "math:pi"])
def test_custom_names_a_function_that_cannot_be_had(place):
    with pytest.raises(ConfigError, match=place):
        deal(Custom(place), random_table(4))


@pytest.mark.parametrize(("name", "parameters", "message"), [
    ("dirichlet", {"alpha": 0}, "alpha"),
    ("iid", {"parties": 0}, "parties"),
    ("class-weights", {"classes_per_part": 2}, "did you mean 'classes_per_party'"),
    ("natural", {"small": "ignore"}, "small"),
    ("columns", {"overlap": 1.5}, "overlap"),
])
def test_parameters_are_checked_when_built_from_a_config(name, parameters, message):
    with pytest.raises(ConfigError, match=message):
        components.build("partition", name, parameters)
