"""Federated statistics equal those of the pooled rows, and tell nothing of parties or cells that are too small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from tequio.algorithms.analytics.columns import Scope, categorical_columns, count_rows, numeric_columns
from tequio.algorithms.analytics.counting import count_categories, count_histograms, count_labels, even_edges
from tequio.algorithms.analytics.quantiles import CELLS, find_quantiles
from tequio.algorithms.analytics.statistics import Statistics
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, DataError
from tequio.federation import payload as payloads
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population

if TYPE_CHECKING:
    from tequio.federation.exchange import Outcome

seeds = st.integers(0, 2**32 - 1)
CITIES = ("oaxaca", "puebla", "tuxtla")


class Listening(InlineEngine):
    """Keeps every reply that leaves a party."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def collect(self) -> Outcome:
        outcome = super().collect()
        self.heard.extend(outcome.replies)
        return outcome


def federated(dataset: Dataset, sizes: list[int], *, split: Split | None = None, rules: Rules | None = None,
              **extra: Any) -> Federation:
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    population = Population(dataset, Partition.of(rows, **extra), split or Split(0.0, 0.0), seed=2)
    engine = Listening()
    engine.open(population)
    return Federation(population, engine, 2, rules or Rules())


def edges_of(federation: Federation, bins: int) -> Any:
    summary = summarise_columns(federation)
    return even_edges(summary["min"], summary["max"], bins)


def table(rows: int, seed: int = 0) -> Dataset:
    """Two numeric columns of very different sizes, one categorical, one of whole numbers with many ties."""
    rng = np.random.default_rng(seed)
    features = np.stack([1e6 + rng.standard_normal(rows), rng.integers(0, 3, rows),
                         rng.exponential(2.0, rows), rng.integers(0, 5, rows)], axis=1)
    schema = Schema((Feature("height"), Feature("city", CITIES), Feature("wait"), Feature("visits")),
                    Target("classes", ("no", "yes", "maybe")))
    return Dataset.of(schema, features, rng.integers(0, 3, rows))


@settings(max_examples=30, deadline=None)
@given(seed=seeds, sizes=st.lists(st.integers(0, 12), min_size=1, max_size=9).filter(any))
def test_summaries_equal_those_of_the_pooled_rows(seed: int, sizes: list[int]) -> None:
    data = table(sum(sizes), seed)
    summary = summarise_columns(federated(data, sizes))
    pooled = data.features[:, [0, 2, 3]]
    assert summary["rows"].tolist() == [sum(sizes)] * 3
    np.testing.assert_allclose(summary["mean"], pooled.mean(axis=0), rtol=1e-13)
    # The first column's mean is a million times its spread: sums of squares alone would lose all digits.
    np.testing.assert_allclose(summary["variance"], pooled.var(axis=0), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(summary["sd"], pooled.std(axis=0), rtol=1e-9, atol=1e-8)
    np.testing.assert_array_equal(summary["min"], pooled.min(axis=0))
    np.testing.assert_array_equal(summary["max"], pooled.max(axis=0))


def test_hand_worked_summary_of_named_columns() -> None:
    data = Dataset.of(Schema.of_numbers("ab", Target("none")), np.array([[1.0, 10], [3.0, 10], [8.0, 40]]))
    summary = summarise_columns(federated(data, [2, 1]), ("b", "a"))
    assert {name: values.tolist() for name, values in summary.items()} == {
        "rows": [3, 3], "mean": [20.0, 4.0], "variance": [200.0, pytest.approx(26 / 3)],
        "sd": [pytest.approx(200**0.5), pytest.approx((26 / 3) ** 0.5)], "min": [10.0, 1.0], "max": [40.0, 8.0]}


@settings(max_examples=25, deadline=None)
@given(seed=seeds, sizes=st.lists(st.integers(1, 12), min_size=1, max_size=7), bins=st.integers(1, 12))
def test_histograms_equal_numpys(seed: int, sizes: list[int], bins: int) -> None:
    data = table(sum(sizes), seed)
    federation = federated(data, sizes)
    edges = edges_of(federation, bins)
    counts = count_histograms(federation, edges).counts
    for column, of_column, row_of_edges in zip((0, 2, 3), counts, edges, strict=True):
        np.testing.assert_array_equal(of_column, np.histogram(data.features[:, column], row_of_edges)[0])
        assert of_column.sum() == sum(sizes)


def test_a_constant_column_has_a_histogram() -> None:
    data = Dataset.of(Schema.of_numbers("a", Target("none")), np.full((5, 1), 3.0))
    federation = federated(data, [2, 3])
    edges = edges_of(federation, 2)
    assert edges.tolist() == [[2.5, 3.0, 3.5]]
    assert count_histograms(federation, edges).counts.tolist() == [[0, 5]]


@pytest.mark.parametrize("edges", [[[0.0, 1.0]], [[0.0], [0.0], [0.0]], [[1.0, 0.0]] * 3, [0.0, 1.0]])
def test_edges_that_make_no_sense_are_refused(edges: Any) -> None:
    with pytest.raises(DataError, match="edges of shape"):
        count_histograms(federated(table(6), [6]), edges)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, sizes=st.lists(st.integers(1, 12), min_size=1, max_size=7),
       tolerance=st.sampled_from([0.1, 1e-3, 1e-9]))
def test_quantiles_are_within_their_tolerance(seed: int, sizes: list[int], tolerance: float) -> None:
    data = table(sum(sizes), seed)
    shares = [0.0, 0.25, 0.5, 0.9, 1.0]
    found = find_quantiles(federated(data, sizes), shares, tolerance=tolerance)
    for index, column in enumerate((0, 2, 3)):
        values = data.features[:, column]
        exact = np.quantile(values, shares, method="inverted_cdf")
        error = found.values[index] - exact
        assert (error >= 0).all()
        assert (error <= found.width[index]).all()
        assert (found.width[index] <= np.maximum(tolerance * np.ptp(values), np.spacing(np.abs(values).max()))).all()


def test_the_seventh_of_a_hundred_rows_is_the_seventh() -> None:
    """0.07 * 100 is above 7 in floating point."""
    data = Dataset.of(Schema.of_numbers("a", Target("none")), np.arange(1.0, 101.0)[:, None])
    assert find_quantiles(federated(data, [50, 50]), [0.07], tolerance=1e-12).values == pytest.approx(7.0, abs=1e-9)


def test_quantiles_take_few_asks() -> None:
    federation = federated(table(200), [50] * 4)
    find_quantiles(federation, [0.5], tolerance=1e-6)
    # one summary, then as many refinements as powers of CELLS make a million
    assert federation._tickets == 1 + int(np.ceil(6 / np.log10(CELLS)))


def test_quantiles_survive_parties_that_vanish() -> None:
    federation = federated(table(4000), [20] * 200, rules=Rules(dropout=0.2, quorum=0.5))
    asks = iter(range(1, 1000))

    def next_round(kind: str, facts: dict[str, Any]) -> None:
        federation.round = next(asks)  # drop-outs are drawn anew for every ask

    federation.record = next_round
    found = find_quantiles(federation, [0.1, 0.5, 0.9], ("wait",), tolerance=1e-2)
    exact = np.quantile(table(4000).features[:, 2], [0.1, 0.5, 0.9])
    np.testing.assert_allclose(found.values[0], exact, atol=0.25)


@pytest.mark.parametrize("wrong", [{"shares": [0.5, 1.2]}, {"shares": [-0.1]}, {"shares": [float("nan")]},
                                   {"shares": [0.5], "tolerance": 0.0}])
def test_quantiles_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="quantiles"):
        find_quantiles(federated(table(6), [6]), **wrong)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, sizes=st.lists(st.integers(1, 12), min_size=1, max_size=7))
def test_categories_labels_and_rows_equal_pooled_counts(seed: int, sizes: list[int]) -> None:
    data = table(sum(sizes), seed)
    federation = federated(data, sizes)
    counts, _ = count_categories(federation)
    assert counts.keys() == {"city"}
    assert counts["city"].tolist() == np.bincount(data.features[:, 1].astype(int), minlength=3).tolist()
    assert count_labels(federation).counts.tolist() == np.bincount(data.target, minlength=3).tolist()
    assert count_rows(federation) == sum(sizes)


def test_labels_of_a_multi_label_target() -> None:
    truth = np.array([[1, 0], [1, 1], [1, 0]])
    data = Dataset.of(Schema.of_numbers("a", Target("multilabel", ("red", "round"))), np.zeros((3, 1)), truth)
    assert count_labels(federated(data, [1, 2])).counts.tolist() == [3, 1]
    with pytest.raises(ConfigError, match="'none' has no labels"):
        count_labels(federated(Dataset.of(Schema.of_numbers("a", Target("none")), np.zeros((3, 1))), [3]))


def test_only_the_part_in_scope_is_looked_at() -> None:
    data = table(40)
    federation = federated(data, [20, 20], split=Split(0.0, 0.25))
    assert count_rows(federation) == 30
    assert count_rows(federation, Scope(part="test")) == 10
    assert count_rows(federation, Scope([1], part="test")) == 5
    together = [summarise_columns(federation, scope=Scope(part=part)) for part in ("train", "test")]
    mean = (30 * together[0]["mean"] + 10 * together[1]["mean"]) / 40
    np.testing.assert_allclose(mean, data.features[:, [0, 2, 3]].mean(axis=0), rtol=1e-12)


def test_small_parties_stay_silent() -> None:
    data = table(33)
    federation = federated(data, [10, 3, 20])
    summary = summarise_columns(federation, scope=Scope(minimum_count=5))
    spoken = data.features[np.r_[0:10, 13:33]][:, [0, 2, 3]]
    assert summary["rows"].tolist() == [30] * 3
    np.testing.assert_allclose(summary["mean"], spoken.mean(axis=0))
    # The mean of the five largest values of a party, and not that of a single row.
    five = [np.sort(data.features[rows][:, [0, 2, 3]], axis=0)[-5:] for rows in (np.r_[0:10], np.r_[13:33])]
    np.testing.assert_allclose(summary["max"], np.max([rows.mean(axis=0) for rows in five], axis=0), rtol=1e-12)
    assert count_rows(federation, Scope(minimum_count=11)) == 20
    with pytest.raises(DataError, match=r"no party has rows to report on in column 'height'.*\(21\)"):
        summarise_columns(federation, scope=Scope(minimum_count=21))


def test_small_cells_are_told_as_empty() -> None:
    """Party 0 has 4 and 1 rows in the two cells, party 1 has 2 and 6: with a minimum of 2 the single row disappears
    from the categories, and counts as the neighbours that it is grouped with in the histogram."""
    values = np.array([0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1], dtype=float)
    data = Dataset.of(Schema((Feature("kind", ("low", "high")), Feature("level")), Target("classes", ("n", "y"))),
                      np.stack([values, values], axis=1), values.astype(int))
    federation = federated(data, [5, 8])
    scope = Scope(minimum_count=2)
    assert count_histograms(federation, [[0.0, 0.5, 1.0]], scope=scope).counts.tolist() == [[7, 6]]
    assert count_categories(federation, scope=scope)[0]["kind"].tolist() == [6, 6]
    assert count_labels(federation, scope).counts.tolist() == [6, 6]
    assert all(counts.tolist() != [4, 1] for reply in federation.engine.heard
               for counts in reply.payload["sums"].values())


def test_no_reply_tells_of_fewer_rows_than_the_minimum() -> None:
    federation = federated(table(400), [40] * 10)
    found = find_quantiles(federation, [0.1, 0.5], tolerance=1e-9, scope=Scope(minimum_count=4))
    counts = [reply.payload["sums"]["up_to"] for reply in federation.engine.heard if "sums" in reply.payload]
    assert len(counts) >= 20
    for up_to in counts:
        for told in (up_to, np.diff(up_to, axis=-1)):
            assert not ((told > 0) & (told < 4)).any()
    # Brackets close in on the means of groups, and never on the value of a row.
    values = table(400).features[:, 2]
    assert np.abs(found.values[1][:, None] - values).min() > 1e-6 * np.ptp(values)


def test_edges_that_others_choose_show_no_value_of_a_row() -> None:
    """Seven values, of which groups of three have the means 1, 5 and those left over belong to the last group."""
    values = np.array([0.0, 1, 2, 3, 5, 7, 5])
    data = Dataset.of(Schema.of_numbers("a", Target("none")), values[:, None])
    federation, scope = federated(data, [7]), Scope(minimum_count=3)
    for edge in (0.0, 0.5, 0.999):
        assert count_histograms(federation, [[-9.0, edge, 9.0]], scope=scope).counts.tolist() == [[0, 7]]
    for edge in (1.5, 3.5, 4.5):
        assert count_histograms(federation, [[-9.0, edge, 9.0]], scope=scope).counts.tolist() == [[3, 4]]
    assert count_histograms(federation, [[-9.0, 3.5, 9.0]]).counts.tolist() == [[4, 3]]


def test_columns_held_by_different_parties() -> None:
    """A vertical partition: each column is counted where it is held."""
    data = Dataset.of(Schema.of_numbers("abc", Target("none")), np.arange(12.0).reshape(4, 3))
    partition = {"columns": (np.array([2, 0]), np.array([1])), "holds_target": (False, False)}
    population = Population(data, Partition.of([np.arange(4), np.arange(4)], **partition), Split(0.0, 0.0))
    engine = InlineEngine()
    engine.open(population)
    summary = summarise_columns(Federation(population, engine))
    assert summary["rows"].tolist() == [4, 4, 4]
    assert summary["mean"].tolist() == [4.5, 5.5, 6.5]
    found = find_quantiles(Federation(population, engine), [0.5], tolerance=1e-9)
    np.testing.assert_allclose(found.values[:, 0], [3.0, 4.0, 5.0], atol=1e-7)


def test_images_and_sparse_tables() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.random((12, 1, 2, 2)).astype(np.float32)
    images = Dataset.of(Schema.of_images((1, 2, 2), ("a", "b")), pixels, rng.integers(0, 2, 12))
    np.testing.assert_allclose(summarise_columns(federated(images, [5, 7]))["mean"],
                               pixels.reshape(12, 4).astype(float).mean(axis=0))
    counts = sparse.random(20, 6, density=0.3, format="csr", rng=rng)
    words = Dataset.of(Schema.of_numbers("abcdef", Target("none")), counts)
    summary = summarise_columns(federated(words, [8, 12]), ("f", "b"))
    np.testing.assert_allclose(summary["sd"], counts.toarray()[:, [5, 1]].std(axis=0))


def test_columns_are_chosen_by_kind() -> None:
    schema = table(3).schema
    assert numeric_columns(schema) == ("height", "wait", "visits")
    assert categorical_columns(schema) == ("city",)
    with pytest.raises(ConfigError, match="column 'city' is categorical"):
        numeric_columns(schema, ("wait", "city"))
    with pytest.raises(ConfigError, match="column 'wait' is numeric"):
        categorical_columns(schema, ("wait",))
    with pytest.raises(DataError, match="no column 'weight'; did you mean 'height'"):
        numeric_columns(schema, ("weight",))


def test_the_algorithm_gives_a_table_and_further_rounds_change_nothing() -> None:
    data = table(60)
    federation = federated(data, [10, 20, 30])
    algorithm = Statistics(quantiles=(0.5,), bins=4, tolerance=1e-6)
    state = algorithm.round(federation, algorithm.start(federation))
    model = algorithm.result(state)
    assert payloads.decode(payloads.encode(model)).keys() == model.keys()
    wait = data.features[:, 2]
    row = {line["column"]: line for line in model["table"]}["wait"]
    median = float(np.quantile(wait, 0.5, method="inverted_cdf"))
    assert row == {"column": "wait", "rows": 60, "mean": pytest.approx(wait.mean()), "sd": pytest.approx(wait.std()),
                   "min": wait.min(), "q0.5": pytest.approx(median, abs=1e-5), "max": wait.max()}
    assert model["histograms"].sum(axis=1).tolist() == [60, 60, 60]
    assert [line["column"] for line in model["table"]] == ["height", "wait", "visits", "city"]
    counts = np.bincount(data.features[:, 1].astype(int), minlength=3).tolist()
    assert model["table"][3] == {"column": "city", "rows": 60, "counts": dict(zip(CITIES, counts, strict=True))}
    assert dict(zip(model["labels"], model["label_counts"], strict=True)).keys() == {"no", "yes", "maybe"}
    asked = federation._tickets
    assert algorithm.round(federation, state) is state
    assert federation._tickets == asked
    assert algorithm.evaluate(federation, state, "test", np.arange(3)) == {}
    assert algorithm.score(federation, state, data) is None


@pytest.mark.parametrize(("columns", "told"), [(("city",), ["city"]), (("wait",), ["wait"]),
                                               (("city", "height"), ["height", "city"])])
def test_the_algorithm_looks_at_named_columns_only(columns: tuple[str, ...], told: list[str]) -> None:
    federation = federated(table(30), [15, 15])
    algorithm = Statistics(columns=columns)
    model = algorithm.round(federation, algorithm.start(federation)).model
    assert [line["column"] for line in model["table"]] == told


def test_the_algorithm_names_a_column_that_is_not_there() -> None:
    federation = federated(table(30), [15, 15])
    with pytest.raises(DataError, match="no column 'citty'; did you mean 'city'"):
        Statistics(columns=("citty",)).round(federation, Statistics().start(federation))


def test_nothing_but_totals_leaves_a_party() -> None:
    """No reply of a party is larger than the statistics asked for, however many rows it holds."""
    sizes = []
    for rows in (100, 2000):
        federation = federated(table(rows), [rows // 2, rows // 2])
        algorithm = Statistics(tolerance=0.1)
        algorithm.round(federation, algorithm.start(federation))
        sizes.append(max(reply.bytes_up for reply in federation.engine.heard))
    assert sizes[0] == sizes[1]
