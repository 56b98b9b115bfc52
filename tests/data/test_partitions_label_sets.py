"""Parties that know different labels: label sets, iterative stratification, and what happens to rows without labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partitions.multilabel import Iterative, LabelSets, stratify_iteratively
from tequio.errors import ConfigError, DataError
from tequio.federation.population import Population, Split


def labelled(labels) -> Dataset:
    labels = np.asarray(labels, dtype=np.int8)
    names = tuple(f"l{number}" for number in range(labels.shape[1]))
    return Dataset.of(Schema.of_numbers(["x"], Target("multilabel", names)), np.arange(len(labels))[:, None] * 1.0,
                      labels)


def random_labels(rows: int, labels: int, seed: int = 0, density: float = 0.3) -> Dataset:
    return labelled(np.random.default_rng(seed).random((rows, labels)) < density)


def deal(partitioner, dataset, seed=0):
    return partitioner.deal(dataset, np.random.default_rng(seed))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_sets_of_the_given_sizes_are_disjoint_and_cover_all_labels(seed, sizes):
    data = random_labels(200, sum(sizes), seed)
    partition = deal(LabelSets(sizes=tuple(sizes), unlabelled="keep"), data, seed)
    assert [len(own) for own in partition.labels] == sizes
    assert sorted(np.concatenate(partition.labels)) == list(range(sum(sizes)))
    assert sorted(partition.rows) == list(range(200))
    assert partition.sizes[:-1].tolist() == [200 // len(sizes)] * (len(sizes) - 1)  # what is left goes to the last


def test_another_seed_deals_other_labels():
    data = random_labels(60, 12)
    assert any((first != second).any() for first, second in zip(
        deal(LabelSets(parties=3), data, 1).labels, deal(LabelSets(parties=3), data, 2).labels, strict=True))


def test_a_party_sees_its_own_labels_and_no_row_without_any():
    data = random_labels(300, 6, density=0.2)
    partition = deal(LabelSets(sizes=(4, 2)), data)
    for party, own in enumerate(partition.labels):
        view = partition.view(data, party)
        assert view.schema.target.names == tuple(f"l{label}" for label in own)
        np.testing.assert_array_equal(view.target, data.target[partition.party_rows(party)][:, own])
        assert view.target.any(axis=1).all()
    assert partition.sizes[1] < partition.sizes[0] < 150


def test_overlapping_sets_by_share_and_by_name():
    data = random_labels(100, 10)
    shared = deal(LabelSets(parties=2, shared=0.4, unlabelled="keep"), data).labels
    assert len(np.intersect1d(*shared)) == 4
    assert len(np.union1d(*shared)) == 10
    named = deal(LabelSets(sets=(("l0", "l1"), ("l1", "l9"))), data).labels
    assert [own.tolist() for own in named] == [[0, 1], [1, 9]]
    everyone = deal(LabelSets(parties=3, shared=1.0), data).labels
    assert all(sorted(own) == list(range(10)) for own in everyone)


@pytest.mark.parametrize(("given", "message"), [
    ({"sizes": (3, 3)}, "deals 6 labels, and there are 5"),
    ({"parties": 6}, "6 parties cannot each have a label"),
    ({"sizes": (3, 2), "sets": (("l0",),)}, "sizes is for 2 parties and sets for 1"),
    ({"sets": (("l0",), ("l7",))}, "there is no label 'l7'"),
    ({"sets": (("l0",), ())}, "a party without labels")])
def test_what_cannot_be_dealt_is_refused(given, message):
    with pytest.raises((ConfigError, DataError), match=message):
        deal(LabelSets(**given), random_labels(50, 5))


def test_label_sets_need_labels():
    classes = Dataset.of(Schema.of_numbers(["x"], Target("classes", ("a", "b"))), np.zeros((4, 1)), [0, 1, 0, 1])
    with pytest.raises(DataError, match="needs a multi-label target"):
        deal(LabelSets(), classes)


NEVER = labelled(np.column_stack([np.ones(60), np.zeros(60), np.zeros(60)]))
"""One label is in all rows, two never occur."""


def test_parties_whose_labels_never_occur_are_refused_by_name():
    with pytest.raises(DataError, match=r"2 of 3 parties have fewer than 5 rows: '1' \(0\), '2' \(0\)"):
        deal(LabelSets(sets=(("l0",), ("l1",), ("l2",))), NEVER)


def test_parties_whose_labels_never_occur_can_be_left_out():
    partition = deal(LabelSets(sets=(("l0",), ("l1",), ("l2",)), small="leave_out"), NEVER)
    assert [partition.name(party) for party in range(len(partition))] == ["0"]
    assert partition.labels[0].tolist() == [0]
    with pytest.raises(DataError, match="no party has 5 rows"):
        deal(LabelSets(sets=(("l1",), ("l2",)), small="leave_out"), NEVER)


def test_parties_whose_labels_never_occur_can_keep_their_rows_as_negatives():
    partition = deal(LabelSets(sets=(("l0",), ("l1",)), unlabelled="keep"), NEVER)
    assert partition.sizes.tolist() == [30, 30]
    assert partition.view(NEVER, 0).target.all()
    assert not partition.view(NEVER, 1).target.any()


def test_labels_are_drawn_again_until_every_party_has_rows():
    rare = np.zeros((400, 4), dtype=np.int8)
    rare[:, 0] = rare[::2, 1] = 1
    rare[:3, 2] = rare[:3, 3] = 1
    data, how = labelled(rare), {"sizes": (2, 2), "minimum_rows": 20}
    failing = next(seed for seed in range(50) if _refused(LabelSets(**how), data, seed))
    partition = deal(LabelSets(**how, small="redraw"), data, failing)
    assert partition.sizes.min() >= 20
    with pytest.raises(DataError, match="fewer than 300 rows"):
        deal(LabelSets(sizes=(2, 2), minimum_rows=300, small="redraw"), data)


def _refused(partitioner, data, seed) -> bool:
    try:
        deal(partitioner, data, seed)
    except DataError:
        return True
    return False


def test_five_rows_leave_one_for_each_part_of_the_thesis_split():
    data = labelled(np.ones((5, 2)))
    population = Population(data, deal(LabelSets(parties=1), data), Split(validation=0.2, test=0.2, stratify=False))
    view = population.view(0)
    assert [len(part) for part in (view.train, view.validation, view.test)] == [3, 1, 1]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), parties=st.integers(2, 5))
def test_iterative_stratification_spreads_rare_labels_evenly(seed, parties):
    rng = np.random.default_rng(seed)
    labels = rng.random((300, 6)) < np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.6])
    dealt = stratify_iteratively(labels, np.full(parties, 1 / parties), rng)
    counts = np.stack([labels[dealt == party].sum(axis=0) for party in range(parties)])
    assert np.ptp(counts[:, labels.sum(axis=0).argmin()]) <= 1  # the rarest is dealt first
    assert np.ptp(counts, axis=0).max() <= 0.2 * len(labels) / parties
    assert np.ptp(np.bincount(dealt)) <= 15


def test_iterative_stratification_beats_random_dealing():
    labels = np.random.default_rng(3).random((400, 20)) < 0.03
    rng = np.random.default_rng(0)
    even = stratify_iteratively(labels, np.full(4, 0.25), rng)
    chance = rng.permutation(400) % 4
    spreads = [np.ptp([labels[dealt == party].sum(axis=0) for party in range(4)], axis=0).mean()
               for dealt in (even, chance)]
    assert spreads[0] < 0.5 * spreads[1]


def test_skewed_shares_are_met_label_by_label():
    labels = np.eye(2, dtype=np.int8)[np.arange(200) % 2]
    shares = np.array([[0.9, 0.1], [0.2, 0.8]])
    dealt = stratify_iteratively(labels, shares, np.random.default_rng(0))
    counts = np.stack([labels[dealt == party].sum(axis=0) for party in range(2)])
    assert counts.T.tolist() == [[90, 10], [20, 80]]
    partition = deal(Iterative(parties=3, alpha=0.1), random_labels(300, 4))
    assert sorted(partition.rows) == list(range(300))
    assert partition.sizes.min() >= 1


def test_label_views_compose_and_keep_to_labels():
    data = random_labels(20, 5)
    twice = data.select_labels([1, 3, 4]).take([2, 0]).select_labels([2, 0])
    assert twice.schema.target.names == ("l4", "l1")
    np.testing.assert_array_equal(twice.target, data.target[[2, 0]][:, [4, 1]])
    numbers = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((2, 1)), [0.0, 1.0])
    with pytest.raises(DataError, match="no labels to choose"):
        numbers.select_labels([0])
