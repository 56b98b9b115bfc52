"""How finished runs of k-means compare: their centroids, and how alike they put rows into clusters, round by round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError
from tequio.experiments.results import Result
from tequio.experiments.scenario import make_scenario
from tequio.learners.clusterings import jaccard_by_match, jaccard_of_pairs
from tequio.learners.kmeans import assign, inertia

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset


@dataclass(frozen=True)
class Agreement:
    """How alike a run's clusters are, after each of some rounds, to the final clusters of another run."""

    rounds: tuple[int, ...]
    matched: tuple[float, ...]
    pairs: tuple[float, ...]


def centroids_of(result: Result, round: int | None = None) -> NDArray[Any]:
    """The centroids that a k-means run found, or had after a round."""
    model = result.model if round is None else result.model_after(round)
    if "centroids" not in model:
        raise ConfigError(f"the run '{result.folder.name}' has no centroids",
                          remedy="metrics of clusterings need runs of k-means")
    centroids: NDArray[Any] = model["centroids"]
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
