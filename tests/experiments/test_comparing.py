"""Comparisons of published values: figures of the sources, which test is taken and why, and what is warned of."""

from __future__ import annotations

import numpy as np
import pytest

import published_ranks as published
from tequio.errors import ConfigError, DataError
from tequio.experiments.comparing.comparing import choose_test, compare, compare_values
from tequio.experiments.comparing.values import Values, means_of_problems, read_values

METHODS = ("FedAvg", "FedProx", "SCAFFOLD", "APFL", "FLProtector")
FIVE_DOMAINS = [[96.4, 96.3, 96.1, 97.7, 97.6], [74.3, 71.6, 76.5, 82.4, 84.5], [58.4, 53.5, 67.8, 76.4, 77.1],
                [65.3, 60.8, 71.5, 86.7, 87.9], [96.2, 94.0, 96.1, 98.3, 98.7]]
"""Local accuracy of five parties with five domains; two misprints are corrected as the mean and the box plot say."""

ONE_STRANGER = [[70.7, 71.7, 79.2, 82.3, 85.4], [46.3, 49.2, 70.8, 76.8, 77.3], [63.0, 57.6, 72.9, 84.3, 86.9],
                [97.6, 97.4, 97.7, 98.8, 98.7], [92.0, 87.1, 93.8, 97.0, 97.1], [57.2, 58.3, 66.6, 82.9, 80.8],
                [52.9, 49.7, 54.0, 84.1, 85.8], [89.4, 87.9, 95.2, 98.0, 98.1], [98.4, 98.6, 98.4, 97.8, 98.2],
                [85.0, 85.0, 82.4, 83.5, 77.2]]
"""Local accuracy of the one party of another domain; the last two rows, of one domain only, follow from the means."""


def matrix(rows, methods, **more):
    return Values(tuple(methods), tuple(str(row) for row in range(len(rows))), ("0",) * len(rows),
                  np.array(rows, dtype=float), "accuracy", **more)


@pytest.fixture(scope="module")
def f1(tmp_path_factory):
    """179 rows with the ranks that the thesis prints of F1-macro on common test rows."""
    return published.write_rows(tmp_path_factory.mktemp("published") / "f1.csv", published.F1)


@pytest.fixture(scope="module")
def agreement(tmp_path_factory):
    """The same of what it calls subset accuracy, which is agreement of the highest score with the first label."""
    return published.write_rows(tmp_path_factory.mktemp("published") / "agreement.csv", published.AGREEMENT)


def test_the_published_aggregations_of_179_seeds(f1):
    found = compare(f1, only=["aggregation*"], over="seeds")
    assert found.friedman.statistic == pytest.approx(10.6955, abs=5e-5)
    assert found.friedman.p == pytest.approx(0.004759, abs=5e-7)
    ranks = dict(zip(found.ranking.methods, found.ranking.ranks, strict=True))
    assert ranks == pytest.approx({"aggregation 0": 1.8128, "aggregation 1": 2.1536, "aggregation 2": 2.0335}, abs=5e-5)
    assert found.ranking.critical_difference == pytest.approx(0.2477, abs=5e-5)
    assert found.groups == [("aggregation 0", "aggregation 2"), ("aggregation 2", "aggregation 1")]
    assert {(pair.first, pair.second) for pair in found.pairs if pair.differ} == {("aggregation 0", "aggregation 1")}


def test_the_published_contest_of_federated_and_local_models(f1):
    found = compare(f1, only=["aggregation 2", "no federation"], over="seeds")
    assert found.ranking.statistic == pytest.approx(76.4749, abs=5e-5)
    assert found.ranking.p == pytest.approx(2.23e-18, rel=5e-3)
    assert found.ranking.ranks == pytest.approx((1.8268, 1.1732), abs=5e-5)
    assert found.ranking.critical_difference == pytest.approx(0.1465, abs=5e-5)
    [pair] = found.pairs
    assert (pair.first, pair.wins, pair.ties, pair.losses) == ("no federation", 148, 0, 31)


def test_the_published_tests_of_agreement(agreement):
    three = compare(agreement, only=["aggregation*"], over="seeds")
    assert three.friedman.statistic == pytest.approx(9.5978, abs=5e-5)
    assert three.friedman.p == pytest.approx(0.008239, abs=5e-7)
    ranks = dict(zip(three.ranking.methods, three.ranking.ranks, strict=True))
    assert ranks == pytest.approx({"aggregation 0": 1.8156, "aggregation 1": 2.1285, "aggregation 2": 2.0559}, abs=5e-5)
    two = compare(agreement, only=["aggregation 2", "no*"], over="seeds")
    assert two.ranking.statistic == pytest.approx(5.3687, abs=5e-5)
    assert two.ranking.p == pytest.approx(0.020501, abs=5e-7)
    assert two.ranking.ranks == pytest.approx((1.4134, 1.5866), abs=5e-5)
    assert (two.pairs[0].wins, two.pairs[0].losses) == (105, 74)
def test_the_published_means_of_data_sets_rather_than_seeds():
    found = compare_values(matrix([row[:3] for row in published.F1_MEANS], published.METHODS[:3]))
    assert found.rows == 10
    assert found.friedman.p == pytest.approx(0.497, abs=5e-4)
    assert "No difference shown" in found.verdict
    [pair] = compare_values(matrix([row[2:] for row in published.F1_MEANS], published.METHODS[2:])).pairs
    assert pair.wilcoxon == pytest.approx(0.0137, abs=5e-5)


def test_seeds_of_a_problem_become_their_mean(f1):
    values = read_values(f1)
    means = means_of_problems(values)
    assert list(means.problems) == list(published.SEEDS)
    mine = np.array([problem == "20NG" for problem in values.problems])
    assert means.matrix[1] == pytest.approx(values.matrix[mine].mean(axis=0))


def test_the_published_tests_of_five_domains():
    found = compare_values(matrix(FIVE_DOMAINS, METHODS), against="FLProtector")
    # 17.49 is printed, which no rounding of the printed table gives; 17.28 follows from it, with and without misprints
    assert found.friedman.statistic == pytest.approx(17.28)
    assert found.friedman.p == pytest.approx(0.0017, abs=5e-5)
    p = {pair.second if pair.first == "FLProtector" else pair.first: pair.wilcoxon for pair in found.pairs}
    assert p == pytest.approx({"APFL": 0.125, "FedAvg": 0.0625, "FedProx": 0.0625, "SCAFFOLD": 0.0625})
    assert any("cannot fall below 0.0625" in caution for caution in found.cautions)


def test_the_published_tests_of_one_stranger():
    found = compare_values(matrix(ONE_STRANGER, METHODS), against="FLProtector")
    assert found.friedman.corrected == pytest.approx(14.40, abs=0.005)
    assert found.friedman.corrected_p == pytest.approx(0.0061, abs=5e-5)
    p = {pair.second if pair.first == "FLProtector" else pair.first: pair.wilcoxon for pair in found.pairs}
    assert p["FedAvg"] == pytest.approx(0.0195, abs=5e-5)
    assert p["FedProx"] == pytest.approx(0.0137, abs=5e-5)
    assert p["SCAFFOLD"] == pytest.approx(0.0273, abs=5e-5)
    only_strangers = compare_values(matrix(ONE_STRANGER[:8], METHODS), against="FLProtector")
    assert sorted(pair.wilcoxon for pair in only_strangers.pairs) == pytest.approx([0.0078, 0.0078, 0.0078, 0.1953],
                                                                                    abs=5e-5)


@pytest.mark.parametrize(("methods", "rows", "against", "test"), [
    (2, 1, "", "none"), (2, 9, "", "wilcoxon"), (3, 9, "", "nemenyi"), (3, 9, "a", "wilcoxon-holm")])
def test_which_test_is_taken_and_why(methods, rows, against, test):
    chosen, why = choose_test(methods, rows, against)
    assert chosen == test
    assert why.endswith(".")
    assert why.count(".") == 1


def test_holm_and_not_the_single_p_decides_against_a_control():
    rng = np.random.default_rng(0)
    rows = rng.random((8, 1)) + np.array([[0.0, 0.0, 0.02, 0.0]]) + rng.normal(scale=0.01, size=(8, 4))
    found = compare_values(matrix(rows, "abcd"), against="c")
    assert found.test == "wilcoxon-holm"
    for pair in found.pairs:
        assert "c" in (pair.first, pair.second)
        assert pair.holm >= pair.wilcoxon
        assert pair.differ == (found.friedman.f_p <= 0.05 and pair.holm <= 0.05)


def test_methods_are_joined_as_the_omnibus_test_decided():
    rows = [[1, 0, 3, 2], [1, 2, 3, 0], [0, 1, 3, 2], [0, 3, 2, 1], [3, 1, 0, 2], [1, 2, 3, 0], [0, 2, 3, 1],
            [0, 1, 3, 2]]
    found = compare_values(matrix(rows, "abcd"))
    assert found.friedman.p == pytest.approx(0.0503, abs=5e-5)
    assert found.friedman.f_p == pytest.approx(0.0377, abs=5e-5)
    assert found.groups == found.ranking.groups()
    level = compare_values(matrix(np.tile([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], (3, 1)), "abc"))
    assert level.groups == [("a", "b", "c")]


def test_less_is_better_turns_ranks_and_differences():
    rows = [[1.0, 2.0], [1.0, 3.0], [2.0, 4.0]]
    found = compare_values(matrix(rows, ["quick", "slow"], higher_is_better=False))
    assert [standing.method for standing in found.standings] == ["quick", "slow"]
    [pair] = found.pairs
    assert (pair.first, pair.wins, pair.losses) == ("quick", 3, 0)
    assert pair.difference.mean == pytest.approx(5 / 3)


def test_a_single_row_is_shown_but_not_tested():
    found = compare_values(matrix([[0.9, 0.8, 0.7]], "abc"))
    assert (found.test, found.pairs, found.ranking) == ("none", (), None)
    assert [(one.method, one.rank) for one in found.standings] == [("a", 1.0), ("b", 2.0), ("c", 3.0)]
    assert found.to_dict()["standings"][0]["values"]["sd"] is None


def test_seeds_of_several_problems_are_said_to_depend_on_each_other():
    rows = np.random.default_rng(0).random((8, 2))
    values = Values(("a", "b"), ("x",) * 4 + ("y",) * 4, tuple("01230123"), rows, "test.accuracy")
    found = compare_values(values)
    assert found.over == "seeds"
    assert any("depend on each other" in caution for caution in found.cautions)
    assert any("Every row is the mean" in caution for caution in compare_values(values, over="problems").cautions)
    one = Values(("a", "b"), ("x",) * 8, tuple("01234567"), rows, "test.accuracy")
    assert any("one problem" in caution for caution in compare_values(one).cautions)


def test_picking_settings_on_test_rows_is_warned_of():
    rows = np.random.default_rng(0).random((12, 2))
    facts = {"methods": ("rate 0.1", "rate 0.01"), "problems": ("x",) * 12, "matrix": rows,
             "seeds": tuple(map(str, range(12)))}
    tuned = Values(metric="test.accuracy", settings=("local.learning_rate",), **facts)
    assert any("picks on the test set" in caution for caution in compare_values(tuned).cautions)
    for allowed in (Values(metric="validation.accuracy", settings=("local.learning_rate",), **facts),
                    Values(metric="test.accuracy", settings=("algorithm.name",), **facts)):
        assert not any("test set" in caution for caution in compare_values(allowed).cautions)


def test_the_same_values_give_the_same_comparison(f1):
    assert compare(f1).to_dict() == compare(f1).to_dict()


@pytest.mark.parametrize(("text", "message"), [
    ("a,b\n", "not a table"), ("a,b\n1\n", "not a table"), ("a,b\n1,x\n2,3\n", "'x' in line 2 of column 'b'"),
    ("a\n1\n2\n", "fewer than two"), ("a,b\n1,nan\n2,3\n", "'nan' in line 2"), ("", "not a table")])
def test_a_table_that_is_none_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "values.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_values(path)


def test_tables_with_semicolons_and_without_names_are_read(tmp_path):
    path = tmp_path / "values.csv"
    path.write_text("﻿;first;second\nx_1;0,5;1\n".replace("0,5", "0.5") + "x_2;0.25;0.75\n", encoding="utf-8")
    values = read_values(path)
    assert values.methods == ("first", "second")
    assert values.problems == ("x_1", "x_2")
    path.write_text("seed,a,b\n1,0.5,0.6\n2,0.4,0.3\n")
    values = read_values(path)
    assert (values.problems, values.seeds, values.methods) == (("", ""), ("1", "2"), ("a", "b"))


def test_an_unknown_method_is_told_the_nearest(f1):
    with pytest.raises(ConfigError, match="aggregation 1"):
        compare(f1, against="agregation 1")
    with pytest.raises(ConfigError, match="two are needed"):
        compare(f1, only=["no*"])
