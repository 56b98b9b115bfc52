"""Partitions that follow groups in the data: natural, domain and bands."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partitions.groups import Bands, Domain, Natural
from tequio.errors import DataError

TARGET = Target("classes", ("stays", "leaves"))


def table(groups, labels=None) -> Dataset:
    labels = np.zeros(len(groups), int) if labels is None else np.asarray(labels)
    return Dataset.of(Schema.of_numbers(["x"], TARGET), np.zeros((len(groups), 1)), labels, groups=groups)


def deal(partitioner, dataset, seed=0):
    return partitioner.deal(dataset, np.random.default_rng(seed))


def test_natural_has_one_party_for_each_id_called_by_it():
    partition = deal(Natural(), table(["ana", "bea", "ana", "carl", "bea", "ana"]))
    assert partition.names == ("ana", "bea", "carl")
    assert [partition.party_rows(party).tolist() for party in range(3)] == [[0, 2, 5], [1, 4], [3]]


def test_natural_reads_the_id_from_a_categorical_column():
    schema = Schema((Feature("x"), Feature("school", ("north", "south", "west"))), TARGET)
    dataset = Dataset.of(schema, np.array([[0, 2], [0, 0], [0, 2.0]]), np.zeros(3, int))
    partition = deal(Natural(column="school"), dataset)
    assert partition.names == ("north", "west")
    assert partition.party_rows(1).tolist() == [0, 2]


def test_natural_reads_a_numeric_column_of_sparse_data():
    dataset = Dataset.of(Schema.of_numbers(["x", "id"], TARGET), sparse.csr_matrix([[1, 7], [0, 3], [0, 7.0]]),
                         np.zeros(3, int))
    assert deal(Natural(column="id"), dataset).names == ("3", "7")


def test_natural_refuses_or_drops_small_parties():
    dataset = table(["a", "a", "b", "c", "c"])
    with pytest.raises(DataError, match=r"1 of 3 parties have fewer than 2 rows: 'b' \(1\); "
                                        r"set data.partition.small = 'drop'"):
        deal(Natural(minimum_rows=2), dataset)
    dropped = deal(Natural(minimum_rows=2, small="drop"), dataset)
    assert dropped.names == ("a", "c")
    assert dropped.rows.tolist() == [0, 1, 3, 4]
    with pytest.raises(DataError, match=r"none of the 3 groups .* set data.partition.minimum_rows to at most 2"):
        deal(Natural(minimum_rows=3, small="drop"), dataset)


def test_groups_that_are_not_there_are_refused():
    with pytest.raises(DataError, match=r"does not say whose row is whose"):
        deal(Natural(), Dataset.of(Schema.of_numbers(["x"], TARGET), np.zeros((3, 1)), np.zeros(3, int)))
    with pytest.raises(DataError, match=r"no column 'scool'"):
        deal(Natural(column="scool"), table(["a"]))


DOMAINS = table(["mnist"] * 40 + ["usps"] * 12 + ["svhn"] * 20)


def test_domain_gives_each_domain_to_its_parties():
    partition = deal(Domain(), DOMAINS)
    assert partition.names == partition.categories == ("mnist", "svhn", "usps")
    assert partition.sizes.tolist() == [40, 20, 12]


def test_domain_with_several_parties_in_the_order_of_the_names():
    partition = deal(Domain(parties_per_domain={"usps": 1, "mnist": 4}, rows=10), DOMAINS)
    assert partition.names == ("usps", "mnist-0", "mnist-1", "mnist-2", "mnist-3")
    assert partition.categories == ("usps", "mnist", "mnist", "mnist", "mnist")
    assert partition.sizes.tolist() == [10] * 5
    assert len(np.unique(partition.rows)) == 50
    assert all((DOMAINS.groups[partition.party_rows(party)] == partition.categories[party]).all() for party in range(5))


def test_domain_refuses_unknown_domains_and_too_many_rows():
    with pytest.raises(DataError, match=r"no domain 'mnst' in the data; did you mean 'mnist'"):
        deal(Domain(parties_per_domain={"mnst": 1}), DOMAINS)
    with pytest.raises(DataError, match=r"'usps' has 12 rows, but 2 parties take 7 each; set data.partition.rows to at "
                                        r"most 6"):
        deal(Domain(parties_per_domain={"usps": 2}, rows=7), DOMAINS)
    with pytest.raises(DataError, match=r"1 of 3 parties have fewer than 15 rows: 'usps' \(12\)"):
        deal(Domain(minimum_rows=15), DOMAINS)


def students() -> Dataset:
    """Ten students of five enrolments: rates 0, 0.2, 0.8 (both edges are in the middle) and 1."""
    leaves = [0] * 3 + [1] * 2 + [4] * 2 + [5] * 3
    labels = np.concatenate([[1] * count + [0] * (5 - count) for count in leaves])
    return table(np.repeat(np.arange(10), 5), labels)


def test_bands_sort_groups_by_rate_and_cut_each_band():
    partition = deal(Bands(groups_per_party=2), students())
    assert partition.names == ("low-0", "low-1", "medium-0", "medium-1", "high-0", "high-1")
    assert partition.categories == ("low", "low", "medium", "medium", "high", "high")
    assert partition.sizes.tolist() == [10, 5, 10, 10, 10, 5]
    for party, band in enumerate(partition.categories):
        members = set(np.asarray(students().groups)[partition.party_rows(party)])
        assert members <= {"low": {0, 1, 2}, "medium": {3, 4, 5, 6}, "high": {7, 8, 9}}[band]


def test_bands_keep_all_rows_of_a_group_at_one_party():
    partition = deal(Bands(groups_per_party=3), students())
    assert np.array_equal(np.sort(partition.rows), np.arange(50))
    owners = [set(students().groups[partition.party_rows(party)]) for party in range(len(partition))]
    assert sum(len(groups) for groups in owners) == 10


def test_bands_give_the_published_number_of_institutions():
    counts = {0.0: 8723, 0.5: 20567, 1.0: 46687}
    labels = np.concatenate([np.tile([0, 1] if rate == 0.5 else [int(rate)] * 2, number)
                             for rate, number in counts.items()])
    partition = deal(Bands(), table(np.repeat(np.arange(75977), 2), labels))
    bands, institutions = np.unique(partition.categories, return_counts=True)
    assert dict(zip(bands.tolist(), institutions.tolist(), strict=True)) == {"low": 9, "medium": 21, "high": 47}


def test_one_wide_band_deals_groups_at_random():
    partition = deal(Bands(low=0, high=1, groups_per_party=5), students())
    assert partition.categories == ("medium", "medium")
    first = set(students().groups[partition.party_rows(0)])
    assert first not in ({0, 1, 2, 3, 4}, {5, 6, 7, 8, 9})


def test_bands_refuse_what_has_no_rate():
    numbers = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((3, 1)), np.zeros(3), groups=[1, 2, 3])
    with pytest.raises(DataError, match=r"needs classes, 'data' has a target of kind 'number'"):
        deal(Bands(), numbers)
    with pytest.raises(DataError, match=r"no class 'leave'; did you mean 'leaves'"):
        deal(Bands(positive="leave"), students())
    with pytest.raises(DataError, match=r"medium band from 0.8 to 0.2 is empty"):
        deal(Bands(low=0.8, high=0.2), students())
