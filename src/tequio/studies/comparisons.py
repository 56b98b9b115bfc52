"""Metrics that studies compute from what finished runs left behind, beyond what the runs themselves report.

They look at fused trees, bytes, k-means clusterings round by round, single parties, and attacks on privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.experiments.running.results import Result
from tequio.experiments.running.scenario import make_scenario
from tequio.learners.kmeans import assign, inertia, jaccard_by_match, jaccard_of_pairs
from tequio.learners.metrics import higher_is_better
from tequio.learners.trees.tree import LEAF
from tequio.probing.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.running.store import Plain
    from tequio.probing.probe import View


@dataclass(frozen=True)
class Comparison:
    """A function of one run, or of a run and the one it is compared with; `by_round` takes an earlier round too."""

    measure: Callable[..., float]
    higher_is_better: bool
    by_round: bool = False


def kept_trees(run: Result) -> float:
    """How many of the parties' trees the filter kept."""
    return float(len(_fusion(run)["kept"]))


def fusion_seconds(run: Result) -> float:
    """How long the coordinator took to make one tree of those that were kept."""
    return float(_fusion(run)["seconds"])


def fused_rules(run: Result) -> float:
    """How many rules the fusion of trees kept."""
    return float(_fusion(run)["rules"])


def _fusion(run: Result) -> Plain:
    """What the run recorded when it fused trees."""
    found = next((event for event in run.events if event["event"] == "fusion"), None)
    if found is None:
        raise ConfigError(f"the run '{run.folder.name}' fused no trees", remedy="ask for another metric")
    return found


def accuracy_lost(run: Result, other: Result) -> float:
    """How much less accurate a run is on the coordinator's test rows than another."""
    return float(other.summary["metrics"]["test.accuracy"] - run.summary["metrics"]["test.accuracy"])


def megabytes_up(run: Result) -> float:
    """What the parties uploaded in all rounds, evaluation left out."""
    return float(run.summary["bytes_up"]) / 1e6


def times_fewer_bytes(run: Result, other: Result) -> float:
    """How many times as much another run uploaded."""
    return float(other.summary["bytes_up"] / run.summary["bytes_up"])


def tree_leaves(run: Result) -> float:
    """How many leaves the run's tree has."""
    tree = run.model.get("tree", run.model)
    if "feature" not in tree:
        raise ConfigError(f"the model of the run '{run.folder.name}' is not a tree", remedy="ask for another metric")
    return float((np.asarray(tree["feature"]) == LEAF).sum())


@dataclass(frozen=True)
class Agreement:
    """How alike a run's clusters are, after each of some rounds, to the final clusters of another run."""

    rounds: tuple[int, ...]
    matched: tuple[float, ...]
    pairs: tuple[float, ...]


def centroids_of(result: Result, round: int | None = None) -> NDArray[np.floating]:
    """The centroids that a k-means run found, or had after a round."""
    model = result.model if round is None else result.model_after(round)
    if "centroids" not in model:
        raise ConfigError(f"the run '{result.folder.name}' has no centroids",
                          remedy="metrics of clusterings need runs of k-means")
    centroids: NDArray[np.floating] = model["centroids"]
    return centroids


def training_inertia(run: Result, round: int | None = None) -> float:
    """Mean squared distance of all parties' rows to their centroids."""
    centroids, rows = centroids_of(run, round), _rows(run)
    return inertia(centroids, rows) / len(rows)


def largest_centroid_distance(run: Result, other: Result, round: int | None = None) -> float:
    """The farthest that centroid k of one run lies from centroid k of the other; both began from the same ones."""
    return float(np.linalg.norm(centroids_of(run, round) - centroids_of(other), axis=1).max())


def matched_jaccard(run: Result, other: Result, round: int | None = None) -> float:
    """Mean Jaccard index of the two clusterings' best-matched clusters, over all parties' rows."""
    rows = _rows(run)
    return jaccard_by_match(assign(centroids_of(run, round), rows), assign(centroids_of(other), rows))


def pair_jaccard(run: Result, other: Result, round: int | None = None) -> float:
    """Pairs of rows together in both clusterings, among those together in at least one, over all parties' rows."""
    rows = _rows(run)
    return jaccard_of_pairs(assign(centroids_of(run, round), rows), assign(centroids_of(other), rows))


def agreement(run: Result, other: Result) -> Agreement:
    """The Jaccard indices of every round whose centroids the run kept."""
    rounds = tuple(run.model_rounds or [run.summary["rounds"]])
    rows = _rows(run)
    final, found = assign(centroids_of(other), rows), [assign(centroids_of(run, round), rows) for round in rounds]
    return Agreement(rounds, tuple(jaccard_by_match(clusters, final) for clusters in found),
                     tuple(jaccard_of_pairs(clusters, final) for clusters in found))


def _rows(run: Result) -> Dataset:
    """All rows that the parties of a run held."""
    return _rows_of(str(run.folder))


@lru_cache(maxsize=1)
def _rows_of(folder: str) -> Dataset:
    # Cells that ask for several rounds of one run come after each other.
    return make_scenario(Result(Path(folder)).config).population.dataset


def parties_ahead(run: Result, other: Result, metric: str) -> float:
    """Share of the parties that do better in one run than in another on their own test rows; equals count half."""
    mine, theirs = (_by_party(result, metric) for result in (run, other))
    common = [party for party in mine if party in theirs]
    if not common:
        raise ConfigError(f"the runs '{run.folder.name}' and '{other.folder.name}' have no party in common",
                          remedy="give both the same data, partition and seed")
    sign = 1 if higher_is_better(metric) else -1
    return fmean(0.5 + 0.5 * float(np.sign(sign * (mine[party] - theirs[party]))) for party in common)


def majority_accuracy(run: Result) -> float:
    """Accuracy of always giving the class that is most frequent among the parties' rows, on the coordinator's test
    rows, or on the parties' own where it has none."""
    scenario = make_scenario(run.config)
    population, test = scenario.population, scenario.test
    if test is not None and len(test):
        return _share(test, _most_frequent(population.dataset))
    return majority_at_parties(run, own=False)


def majority_at_parties(run: Result, *, own: bool = True) -> float:
    """Mean over the parties of the accuracy of always giving the class that is most frequent at the party itself (or
    among all parties' rows), on its own test rows."""
    population = make_scenario(run.config).population
    common = _most_frequent(population.dataset)
    views = [population.view(party) for party in range(len(population))]
    return fmean(_share(view.test, _most_frequent(view.train) if own else common) for view in views if len(view.test))


def _by_party(result: Result, metric: str) -> dict[str, float]:
    """A metric of each party that has it."""
    pairs = zip(result.parties["party"], result.parties[metric], strict=True)
    return {str(party): float(value) for party, value in pairs if isinstance(value, int | float)}


def _most_frequent(rows: Dataset) -> int:
    if rows.schema.target.kind != "classes":
        raise ConfigError("there is no most frequent class where the target has no classes",
                          remedy="ask for another metric")
    return int(np.bincount(rows.target.astype(np.int64), minlength=1).argmax())


def _share(rows: Dataset, code: int) -> float:
    return float((rows.target == code).mean())


def leaked(attack: str, view: View, number: str, **parameters: object) -> Comparison:
    """A number that an attack on privacy, made at a view, comes out with."""
    return Comparison(lambda run: probe(run, attack, view, **parameters)[number], higher_is_better=False)


COMPARISONS = {
    "training_inertia": Comparison(training_inertia, higher_is_better=False, by_round=True),
    "largest_centroid_distance": Comparison(largest_centroid_distance, higher_is_better=False, by_round=True),
    "matched_jaccard": Comparison(matched_jaccard, higher_is_better=True, by_round=True),
    "pair_jaccard": Comparison(pair_jaccard, higher_is_better=True, by_round=True),
    "parties_ahead": Comparison(partial(parties_ahead, metric="accuracy"), higher_is_better=True),
    "parties_ahead_balanced": Comparison(partial(parties_ahead, metric="balanced_accuracy"), higher_is_better=True),
    "majority_accuracy": Comparison(majority_accuracy, higher_is_better=True),
    "majority_at_parties": Comparison(majority_at_parties, higher_is_better=True),
    "kept_trees": Comparison(kept_trees, higher_is_better=True),
    "fusion_seconds": Comparison(fusion_seconds, higher_is_better=False),
    "fused_rules": Comparison(fused_rules, higher_is_better=False),
    "accuracy_lost": Comparison(accuracy_lost, higher_is_better=False),
    "megabytes_up": Comparison(megabytes_up, higher_is_better=False),
    "times_fewer_bytes": Comparison(times_fewer_bytes, higher_is_better=True),
    "tree_leaves": Comparison(tree_leaves, higher_is_better=False),
    "rows_recognised": leaked("gradient-inversion", "released", "success"),
    "rows_recognised_by_coordinator": leaked("gradient-inversion", "coordinator", "success"),
    "row_psnr": leaked("gradient-inversion", "released", "psnr"),
    "row_psnr_at_coordinator": leaked("gradient-inversion", "coordinator", "psnr"),
    "membership_by_lira": leaked("lira", "released", "success"),
    "membership_by_rmia": leaked("rmia", "released", "success"),
    "property_told_to_coordinator": leaked("property-inference", "coordinator", "success"),
    "property_area_at_coordinator": leaked("property-inference", "coordinator", "area"),
    **{f"batch_of_{batch}_recognised": leaked("batch-inversion", "coordinator", "success", batch=batch)
       for batch in (1, 4, 8, 16)},
    "batch_of_4_in_5_steps_recognised": leaked("batch-inversion", "coordinator", "success", batch=4, steps=5),
    "labels_by_length": leaked("label-inference", "party", "norm"),
    "labels_by_direction": leaked("label-inference", "party", "direction"),
    "labels_by_average": leaked("label-inference", "party", "success"),
    "labels_by_completion": leaked("model-completion", "party", "success"),
    "labels_by_semi_supervised_completion": leaked("model-completion", "party", "success", unlabelled=True),
    "labels_by_own_columns": leaked("label-inference", "party", "guess"),
    "labels_by_nodes": leaked("instance-spaces", "party", "success"),
    "labels_by_columns_beside_nodes": leaked("instance-spaces", "party", "guess"),
    "rows_singled_out": leaked("offer-sums", "party", "success"),
    "columns_explained": leaked("feature-inference", "party", "success"),
    "columns_by_own_columns": leaked("feature-inference", "party", "guess"),
    "classes_recognised": leaked("class-reconstruction", "released", "success"),
}
"""By the name under which a cell asks for it."""


def comparison(metric: str) -> Comparison | None:
    """The comparison that a cell's metric asks for, such as `matched_jaccard`, or `matched_jaccard@10` for the model of
    round 10; nothing where it is a metric of the run itself."""
    name, at, round = metric.partition("@")
    known = COMPARISONS.get(name)
    if known is None or not at:
        return known
    if not known.by_round or not round.isdigit():
        raise ConfigError(f"'{metric}': '{name}' cannot be asked for a round '{round}'",
                          remedy="write, for instance, matched_jaccard@10")
    return replace(known, measure=partial(known.measure, round=int(round)))
