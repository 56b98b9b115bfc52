"""Metrics that studies compute from what finished runs left behind, beyond what the runs themselves report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError
from tequio.experiments.probing.probes import probe
from tequio.experiments.studies.clusterings import (
    largest_centroid_distance,
    matched_jaccard,
    pair_jaccard,
    training_inertia,
)
from tequio.experiments.studies.party_metrics import majority_accuracy, majority_at_parties, parties_ahead
from tequio.learners.trees.walk import LEAF

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.experiments.probing.target import View
    from tequio.experiments.results import Result


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
    "membership_advantage": leaked("membership-inference", "released", "advantage"),
    "membership_area": leaked("membership-inference", "released", "area"),
    "membership_area_by_shadows": leaked("membership-inference", "released", "shadow_area"),
    "property_told_to_coordinator": leaked("property-inference", "coordinator", "success"),
    "property_area_at_coordinator": leaked("property-inference", "coordinator", "area"),
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


def _fusion(run: Result) -> dict[str, Any]:
    """What the run recorded when it fused trees."""
    found = next((event for event in run.events if event["event"] == "fusion"), None)
    if found is None:
        raise ConfigError(f"the run '{run.folder.name}' fused no trees", remedy="ask for another metric")
    return found
