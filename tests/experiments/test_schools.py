"""Alone, federated and centralised party by party: balanced metrics, what studies read of a party, kept models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from tequio.errors import ConfigError
from tequio.experiments.config.complete import complete
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.scenario import make_scenario
from tequio.learners.kmeans import assign, jaccard_by_match
from tequio.studies.answers import higher_is_better, metric_of
from tequio.studies.comparisons import COMPARISONS, agreement, comparison
from tequio.studies.description import Figure

if TYPE_CHECKING:
    from tequio.experiments.running.results import Result

STUDENTS = {"name": "made-up-students", "students": 300, "groups": "course", "test": 0.0, "one_class": "allow",
            "prepare": ["log1p", "standardise"], "partition": {"name": "domain"}, "split": {"validation": 0.1,
                                                                                             "test": 0.3}}


def run(folder: Any, **keys: Any) -> Result:
    return run_config(complete({"data": STUDENTS, "rounds": 3, "engine": {"workers": 1},
                                "output": {"folder": str(folder)}, **keys}))


@pytest.fixture(scope="module")
def schemes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: run(folder, algorithm={"name": name}) for name in ("alone", "fedavg", "centralised")}


# --- metrics at the parties ------------------------------------------------------------------------------------------

def test_balanced_metrics_at_parties_and_bands_are_those_of_scikit_learn(schemes: dict[str, Result]) -> None:
    result = schemes["fedavg"]
    scenario = make_scenario(result.config)
    scores = []
    for party in range(3):
        test = scenario.population.view(party).test
        chances = scenario.algorithm.learner.predict(result.model, test)
        balanced = balanced_accuracy_score(test.target, chances.argmax(axis=1))
        # Chances are counted in bins of a thousandth, so rows that lie closer are tied.
        assert metric_of(result, "run", f"party.{scenario.population.name(party)}.auc") == pytest.approx(
            roc_auc_score(test.target, chances[:, 1]), abs=0.005)
        scores.append(balanced)
        assert metric_of(result, "run", f"groups.balanced_accuracy.{scenario.population.name(party)}") == \
            pytest.approx(balanced)
    assert result.summary["metrics"]["parties.balanced_accuracy.mean"] == pytest.approx(np.mean(scores))
    assert {"parties.auc.mean", "groups.auc.algebra"} <= set(result.summary["metrics"])
    assert result.parties["category"] == ["algebra", "botany", "chemistry"]


def test_all_schemes_are_judged_by_the_same_rows(schemes: dict[str, Result]) -> None:
    alone, federated, centralised = (result.parties["rows"] for result in schemes.values())
    assert alone == federated == centralised


def test_a_model_of_a_schools_own_is_tried_on_its_own_domain(tmp_path: Any) -> None:
    """Alone, each domain is answered by its own party's model, so the domains' global accuracies differ."""
    data = {**STUDENTS, "test": 0.3}
    alone = run(tmp_path, data=data, algorithm={"name": "alone"}, evaluation={"by_domain": True}).summary["metrics"]
    one = run(tmp_path, data=data, evaluation={"by_domain": True}).summary["metrics"]
    for metric in ("accuracy", "balanced_accuracy"):
        names = [f"global.{course}.{metric}" for course in ("algebra", "botany", "chemistry")]
        assert len({alone[name] for name in names}) == 3
        assert {one[name] for name in names} == {one[f"test.{metric}"]}
        assert np.mean([alone[name] for name in names]) == pytest.approx(alone[f"global.{metric}"])


# --- what studies ask of parties -------------------------------------------------------------------------------------

def test_a_study_reads_a_metric_of_one_party(schemes: dict[str, Result]) -> None:
    result = schemes["alone"]
    assert metric_of(result, "run", "party.botany.accuracy") == result.parties["accuracy"][1]
    assert higher_is_better("party.botany.accuracy")
    assert not higher_is_better("party.botany.loss")
    with pytest.raises(ConfigError, match="no such party; did you mean 'botany'"):
        metric_of(result, "run", "party.botanic.accuracy")
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        metric_of(result, "run", "party.botany.acuracy")


def test_the_share_of_parties_ahead_counts_equals_half(schemes: dict[str, Result]) -> None:
    ahead = COMPARISONS["parties_ahead"].measure
    assert ahead(schemes["alone"], schemes["alone"]) == 0.5
    pairs = zip(schemes["fedavg"].parties["accuracy"], schemes["alone"].parties["accuracy"], strict=True)
    expected = np.mean([0.5 + 0.5 * np.sign(mine - theirs) for mine, theirs in pairs])
    assert ahead(schemes["fedavg"], schemes["alone"]) == pytest.approx(expected)
    assert ahead(schemes["alone"], schemes["fedavg"]) == pytest.approx(1 - expected)


def test_always_giving_the_most_frequent_class(schemes: dict[str, Result], tmp_path: Any) -> None:
    population = make_scenario(schemes["alone"].config).population
    assert np.bincount(population.dataset.target).argmax() == 1  # most drop out
    shares = [population.view(party).test.target.mean() for party in range(3)]
    assert COMPARISONS["majority_at_parties"].measure(schemes["alone"]) == pytest.approx(np.mean(shares))
    assert COMPARISONS["majority_accuracy"].measure(schemes["alone"]) == pytest.approx(np.mean(shares))
    held_out = run(tmp_path, data={**STUDENTS, "test": 0.3}, rounds=1)
    test = make_scenario(held_out.config).test
    assert test is not None
    assert COMPARISONS["majority_accuracy"].measure(held_out) == pytest.approx(test.target.mean())


# --- models of earlier rounds ----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def clusterings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result]:
    """Two of three courses a round, with every round's centroids, and all rows in one place."""
    common = {"algorithm": {"name": "kmeans", "clusters": 3, "initial": "normal"},
              "data": {**STUDENTS, "split": {"validation": 0.0, "test": 0.0}}}
    folder = tmp_path_factory.mktemp("clusters")
    some = run(folder, rounds=5, selector={"name": "random", "count": 2},
               **{**common, "output": {"folder": str(folder), "models_every": 1}})
    return some, run(folder, rounds=30, **common)


def test_models_of_every_round_are_kept_where_asked_for(clusterings: tuple[Result, Result], tmp_path: Any) -> None:
    kept, plain = clusterings
    assert kept.model_rounds == [1, 2, 3, 4, 5]
    assert np.array_equal(kept.model_after(5)["centroids"], kept.model["centroids"])
    assert not np.array_equal(kept.model_after(1)["centroids"], kept.model["centroids"])
    assert plain.model_rounds == []
    assert np.array_equal(plain.model_after(30)["centroids"], plain.model["centroids"])
    with pytest.raises(ConfigError, match=r"did not keep its model of round 2; set output\.models_every = 1"):
        plain.model_after(2)


def test_the_agreement_of_clusters_round_by_round(clusterings: tuple[Result, Result]) -> None:
    some, whole = clusterings
    rows = make_scenario(whole.config).population.dataset
    final = assign(whole.model["centroids"], rows)
    expected = [jaccard_by_match(assign(some.model_after(round)["centroids"], rows), final) for round in range(1, 6)]
    curve = agreement(some, whole)
    assert curve.rounds == (1, 2, 3, 4, 5)
    assert curve.matched == pytest.approx(expected)
    for round, value in zip(curve.rounds, expected, strict=True):
        asked = comparison(f"matched_jaccard@{round}")
        assert asked is not None
        assert asked.measure(some, whole) == pytest.approx(value)
    assert agreement(whole, whole).pairs == (1.0,)


@pytest.mark.parametrize("metric", ["kept_trees@3", "matched_jaccard@last"])
def test_only_clusterings_can_be_asked_for_a_round(metric: str) -> None:
    with pytest.raises(ConfigError, match="cannot be asked for a round"):
        comparison(metric)


def test_a_jaccard_figure_needs_something_to_compare_with() -> None:
    with pytest.raises(ValueError, match="one run for all runs or one for each"):
        Figure(kind="jaccard", runs=["a", "b", "c"], against=["d", "e"])
    assert Figure(kind="jaccard", runs=["a", "b"], against=["d", "e"]).reference("b") == "e"
    assert Figure(kind="jaccard", runs=["a", "b"], against=["d"]).reference("b") == "d"
