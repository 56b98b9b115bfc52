"""Statistics, k-means and trees from totals: as in the open under 'secure-sum', within the stated error under noise."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tequio
from tequio.algorithms.trees import histogram_gbdt
from tequio.errors import ConfigError, QuorumError
from tequio.experiments.running.results import read_model
from tequio.privacy.accounting import Release, epsilon_of

HIDDEN = [{"name": "secure-sum"}]
COLUMNS = 4
BOUNDS = {name: [-6.0, 6.0] for name in "abcd"}


def rows(count=400, categories=False):
    draw = np.random.default_rng(5)
    values = draw.standard_normal((count, COLUMNS))
    values[:, 1] = np.rint(values[:, 1])  # many ties, and noughts
    truth = values @ np.array([1.0, -2.0, 0.5, 0.0]) > 0
    levels = np.array(["low", "middle", "high"])
    columns = {name: levels[np.digitize(column, [-0.5, 0.5])] if categories else column
               for name, column in zip("abcd", values.T, strict=True)}
    return {**columns, "y": np.where(truth, "yes", "no")}


def run(folder, algorithm, stages=(), *, categories=False, parties=5, **more):
    return tequio.run(data={"name": rows(categories=categories), "target": "y", "test": 0.0, "prepare": [],
                            "split": {"validation": 0.0, "test": 0.0},
                            "partition": {"name": "iid", "parties": parties}},
                      algorithm=algorithm, stages=list(stages), evaluation={"every": 99},
                      engine={"workers": 1}, output={"folder": str(folder)}, **{"rounds": 2, **more})


def statistics(folder, stages=(), **more):
    return run(folder, {"name": "statistics", **more.pop("algorithm", {})}, stages, **{"rounds": 1, **more}).model


def test_hidden_statistics_are_those_of_the_pooled_rows(tmp_path):
    open_, hidden = statistics(tmp_path), statistics(tmp_path, HIDDEN)
    for name in ("rows", "min", "max", "edges", "histograms", "quantiles", "quantile_widths", "label_counts"):
        np.testing.assert_array_equal(hidden[name], open_[name], err_msg=name)
    for name in ("mean", "sd", "variance"):
        np.testing.assert_allclose(hidden[name], open_[name], rtol=1e-13, atol=1e-14)
    values = np.stack([rows()[name] for name in "abcd"], axis=1)
    np.testing.assert_array_equal(hidden["min"], values.min(axis=0))
    np.testing.assert_allclose(hidden["mean"], values.mean(axis=0), rtol=0, atol=1e-15)
    off = hidden["quantiles"] - np.quantile(values, [0.25, 0.5, 0.75], axis=0, method="inverted_cdf").T
    assert ((off >= 0) & (off <= 1e-3 * np.ptp(values, axis=0)[:, None])).all()


TREES = {"name": "boosted-trees", "depth": 2, "bins": 8}
RUNS = {
    "federated-id3": ({"name": "federated-id3"}, {"learner": "id3", "rounds": 1, "categories": True}),
    "histogram-gbdt": ({"name": "histogram-gbdt"}, {"learner": TREES}),
    "kmeans": ({"name": "kmeans", "clusters": 3}, {})}


@pytest.mark.parametrize(("name", "stage"), [*((name, "secure-sum") for name in RUNS),
                                             ("federated-id3", "one-shot-sum")])
def test_a_hidden_run_gives_the_model_of_the_open_one(tmp_path, name, stage):
    algorithm, more = RUNS[name]
    open_, hidden = (run(tmp_path, algorithm, stages, **more) for stages in ((), [{"name": stage}]))
    if name == "federated-id3":
        assert hidden.summary["model_sha256"] == open_.summary["model_sha256"]
    for key, values in read_model(open_.folder).items():
        if isinstance(values, np.ndarray):
            np.testing.assert_allclose(read_model(hidden.folder)[key], values, rtol=1e-12, atol=1e-14)


def test_a_party_that_is_lost_within_a_tree_stops_a_hidden_run(tmp_path, monkeypatch):
    """The totals of a level with it and without it would be its own."""
    work, asked = histogram_gbdt.sum_gradients.run, []

    def fail_once(party, payload, settings):
        asked.append(party.index)
        if party.index == 1 and asked.count(1) > 1:
            raise OSError("the line is dead")
        return work(party, payload, settings)

    object.__setattr__(histogram_gbdt.sum_gradients, "run", fail_once)
    try:
        with pytest.raises(QuorumError, match="1 of 5 parties were lost in round 1, and a hidden sum without them"):
            run(tmp_path, *RUNS["histogram-gbdt"][:1], HIDDEN, learner=TREES, rules={"on_failure": "continue"})
    finally:
        object.__setattr__(histogram_gbdt.sum_gradients, "run", work)


def test_noised_statistics_are_within_the_error_that_the_table_states(tmp_path):
    exact = statistics(tmp_path)
    off = []
    for seed in range(6):
        noised = statistics(tmp_path, [{"name": "dp-sums", "noise": 0.3}], algorithm={"bounds": BOUNDS}, seed=seed)
        for row, true in zip(noised["table"], exact["table"], strict=True):
            assert (row["low"], row["high"]) == (-6.0, 6.0)
            for key in ("rows", "mean", "q0.25", "q0.5", "q0.75"):
                off.append(((row[key] - true[key]) / row[f"{key}_se"], key))
        off += [((count - true) / noised["label_error"], "label")
                for count, true in zip(noised["label_counts"], exact["label_counts"], strict=True)]
    assert [(round(one, 1), key) for one, key in off if abs(one) > 5] == []
    spread = [one for one, key in off if key in ("rows", "mean", "label")]
    assert 0.75 < np.std(spread) < 1.25  # 60 draws of a standard deviation


def test_every_reply_of_noised_statistics_is_paid_for(tmp_path):
    for stages in ([{"name": "dp-sums", "noise": 3.0}], [{"name": "dp-sums", "noise": 3.0}, *HIDDEN]):
        result = run(tmp_path, {"name": "statistics", "bounds": BOUNDS, "quantiles": []}, stages, rounds=1)
        assert result.privacy["releases"] == 3  # moments, histograms, labels
        assert result.privacy["epsilon"] == pytest.approx(epsilon_of({Release(3.0): 3}, 1e-5))


@pytest.mark.parametrize(("algorithm", "more", "releases"), [
    ("federated-id3", {"learner": {"name": "id3", "depth": 2}, "categories": True}, 2),
    ({"name": "statistics", "bounds": BOUNDS, "quantiles": []}, {}, 3)])
def test_a_budget_is_spent_on_the_one_round_in_which_anything_is_asked(tmp_path, algorithm, more, releases):
    found = run(tmp_path, algorithm, ["dp-sums"], rounds=10, privacy={"epsilon": 4.0}, **more)
    assert found.summary["rounds"] == 1
    assert found.privacy["releases"] == releases
    assert found.privacy["epsilon"] == pytest.approx(4.0, rel=0.01)
    assert epsilon_of({Release(found.privacy["noise"]): releases}, 1e-5) == pytest.approx(4.0, rel=0.01)


def test_a_noised_tree_counts_with_the_noise_of_all_parties(tmp_path):
    """Its root counts each class over the categories of the first column, at five parties: the noise of 3 x 5 cells."""
    learner = {"learner": {"name": "id3", "depth": 1}, "categories": True, "rounds": 1}
    exact, off = run(tmp_path, "federated-id3", **learner).model, []
    for seed in range(8):
        noised = run(tmp_path, "federated-id3", [{"name": "dp-sums", "noise": 0.5}], **learner, seed=seed).model
        off += list(np.subtract(noised["counts"][0], exact["counts"][0]))
        assert noised["feature"][0] == exact["feature"][0] == 1  # 'b', which says most
    expected = 0.5 * COLUMNS ** 0.5 * 15 ** 0.5
    assert np.abs(off).max() < 4 * expected
    assert 0.6 < np.std(off) / expected < 1.5  # 16 draws of a standard deviation


def test_a_noised_tree_whose_levels_need_more_tables_than_are_paid_for_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tequio.learners.trees.id3._TABLE_CELLS", 12 * 2)
    more = {"learner": {"name": "id3", "depth": 2}, "categories": True, "rounds": 1}
    run(tmp_path, "federated-id3", **more)
    with pytest.raises(ConfigError, match=r"the budget pays for one table per level; set learner\.depth = 1"):
        run(tmp_path, "federated-id3", ["dp-sums"], privacy={"epsilon": 4.0}, **more)


@pytest.mark.parametrize(("algorithm", "stages", "why"), [
    ({}, ["dp-sums"], "lets more cross .*bounds of 'statistics'"),
    ({"bounds": BOUNDS, "minimum_count": 2}, ["dp-sums"], "set algorithm.minimum_count = 1"),
    ({"bounds": BOUNDS}, HIDDEN, "algorithm.bounds would do nothing"),
    ({"bounds": {**BOUNDS, "e": [0, 1]}}, [{"name": "dp-sums", "noise": 1.0}], r"algorithm.bounds.e would do nothing")])
def test_bounds_act_or_are_refused(tmp_path, algorithm, stages, why):
    with pytest.raises(ConfigError, match=why):
        statistics(tmp_path, [{"name": one} if isinstance(one, str) else one for one in stages], algorithm=algorithm)


@pytest.mark.parametrize("stages", [(), HIDDEN])
def test_quantiles_with_a_minimum_count_are_near_where_a_policy_rounds_every_count(tmp_path, stages):
    """What a policy takes off each count was added up over the cells of a bracket."""
    found = statistics(tmp_path, stages, algorithm={"minimum_count": 5, "columns": ["a", "c"]},
                       policy={"minimum_count": 5})
    values = np.stack([rows()["a"], rows()["c"]])
    ranks = [(column[:, None] <= told).mean(axis=0) for column, told in zip(values, found["quantiles"], strict=True)]
    # Groups of 5 neighbours at each of 5 parties with 80 rows, and counts in multiples of 5
    np.testing.assert_allclose(ranks, [[0.25, 0.5, 0.75]] * 2, atol=0.07)


@pytest.mark.data
@pytest.mark.skipif("TEQUIO_DATA" not in os.environ, reason="needs the real table")
def test_hidden_statistics_of_adult_equal_pandas(tmp_path):
    keys = {"data": {"name": "adult", "test": 0.0, "split": {"validation": 0.0, "test": 0.0},
                     "partition": {"name": "iid", "parties": 20}}, "algorithm": "statistics", "rounds": 1,
            "engine": {"workers": 1}, "output": {"folder": str(tmp_path)}}
    hidden = tequio.run(**keys, stages=HIDDEN).model
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(Path(os.environ["TEQUIO_DATA"]) / "adult" / "adult.csv.gz", keep_default_na=False)
    table = table[table["split"] == "train"]
    for index, name in enumerate(hidden["columns"]):
        column = table[name]
        assert hidden["rows"][index] == len(column)
        assert (hidden["min"][index], hidden["max"][index]) == (column.min(), column.max())
        assert hidden["mean"][index] == pytest.approx(column.mean(), rel=1e-14)
        assert hidden["sd"][index] == pytest.approx(column.std(ddof=0), rel=1e-13)
        off = hidden["quantiles"][index] - column.quantile([0.25, 0.5, 0.75], interpolation="lower").to_numpy()
        assert ((off >= 0) & (off <= 1e-3 * (column.max() - column.min()))).all()
        counts = pandas.cut(column, hidden["edges"][index], right=False, include_lowest=True).value_counts(sort=False)
        counts.iloc[-1] += (column == column.max()).sum()  # a last cell holds its upper edge
        assert list(hidden["histograms"][index]) == counts.tolist()
    for name, counts in hidden["categories"].items():
        told = dict(zip(hidden["domains"][name], counts, strict=True))
        assert told == table[name].value_counts().to_dict()
