"""Metrics that studies compute from what finished runs left behind, beyond what the runs themselves report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError
from tequio.experiments.probing.probes import probe
from tequio.experiments.scenario import make_scenario
from tequio.learners.clusterings import jaccard_by_match, jaccard_of_pairs
from tequio.learners.kmeans import assign, inertia
from tequio.learners.trees.walk import LEAF

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.probing.target import View
    from tequio.experiments.results import Result


@dataclass(frozen=True)
class Comparison:
    """A function of one run, or of a run and the one it is compared with."""

    measure: Callable[..., float]
    higher_is_better: bool


def centroids_of(result: Result) -> NDArray[Any]:
    """The centroids that a k-means run found."""
    if "centroids" not in result.model:
        raise ConfigError(f"the run '{result.folder.name}' has no centroids",
                          remedy="metrics of clusterings need runs of k-means")
    centroids: NDArray[Any] = result.model["centroids"]
    return centroids


def training_inertia(run: Result) -> float:
    """Mean squared distance of all parties' rows to their centroids."""
    centroids, rows = centroids_of(run), _rows(run)
    return inertia(centroids, rows) / len(rows)


def largest_centroid_distance(run: Result, other: Result) -> float:
    """The farthest that centroid k of one run lies from centroid k of the other; both began from the same ones."""
    return float(np.linalg.norm(centroids_of(run) - centroids_of(other), axis=1).max())


def matched_jaccard(run: Result, other: Result) -> float:
    """Mean Jaccard index of the two clusterings' best-matched clusters, over all parties' rows."""
    rows = _rows(run)
    return jaccard_by_match(assign(centroids_of(run), rows), assign(centroids_of(other), rows))


def pair_jaccard(run: Result, other: Result) -> float:
    """Pairs of rows together in both clusterings, among those together in at least one, over all parties' rows."""
    rows = _rows(run)
    return jaccard_of_pairs(assign(centroids_of(run), rows), assign(centroids_of(other), rows))


def kept_trees(run: Result) -> float:
    """How many of the parties' trees the filter kept."""
    return float(len(_fusion(run)["kept"]))


def fusion_seconds(run: Result) -> float:
    """How long the coordinator took to make one tree of those that were kept."""
    return float(_fusion(run)["seconds"])


def fused_rules(run: Result) -> float:
    """How many rules the fusion of trees kept."""
    return float(_fusion(run)["rules"])


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


def leaked(attack: str, view: View, number: str) -> Comparison:
    """A number that an attack on privacy, made at a view, comes out with."""
    return Comparison(lambda run: probe(run, attack, view)[number], higher_is_better=False)


COMPARISONS = {
    "training_inertia": Comparison(training_inertia, higher_is_better=False),
    "largest_centroid_distance": Comparison(largest_centroid_distance, higher_is_better=False),
    "matched_jaccard": Comparison(matched_jaccard, higher_is_better=True),
    "pair_jaccard": Comparison(pair_jaccard, higher_is_better=True),
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
    "membership_advantage": leaked("membership-inference", "released", "advantage"),
    "membership_area": leaked("membership-inference", "released", "area"),
    "membership_area_by_shadows": leaked("membership-inference", "released", "shadow_area"),
    "property_told_to_coordinator": leaked("property-inference", "coordinator", "success"),
    "property_area_at_coordinator": leaked("property-inference", "coordinator", "area"),
    "classes_recognised": leaked("class-reconstruction", "released", "success"),
}
"""By the name under which a cell asks for it."""


def _fusion(run: Result) -> dict[str, Any]:
    """What the run recorded when it fused trees."""
    found = next((event for event in run.events if event["event"] == "fusion"), None)
    if found is None:
        raise ConfigError(f"the run '{run.folder.name}' fused no trees", remedy="ask for another metric")
    return found


def _rows(run: Result) -> Dataset:
    """All rows that the parties of a run held."""
    return make_scenario(run.config).population.dataset
