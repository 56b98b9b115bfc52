"""Federated k-means.

Kumar, Karthik, Nair: Federated k-means clustering: a novel edge AI based approach for privacy preservation, CCEM 2020.
The rule for sizes is corrected as in Lloyd's method: sizes restart every epoch, and a cluster that nobody has rows in
stays where it was. With `history` centroids also weigh what they saw in earlier rounds (Sculley, 2010).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.algorithms.analytics.columns import Scope
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.errors import ConfigError
from tequio.federation import models
from tequio.federation.aggregation import Mean, Updates
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.task import task
from tequio.learners import kmeans
from tequio.learners.flat import check_numeric
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies

    Centroids = NDArray[np.float64]


@register("algorithm", "kmeans", paper="Kumar et al., 2020")
@dataclass(frozen=True, kw_only=True)
class FederatedKMeans(Algorithm):
    """Parties move the centroids towards their rows; the coordinator takes the mean, cluster by cluster, by rows.

    Only centroids and counts leave a party. A centroid that stands for one or two rows nearly is those rows: raise
    `minimum_count` where that matters. The start looks at federated statistics of the columns, whose smallest and
    largest values are those of single rows; `normal` uses means and spreads only, and given centroids use nothing.

    Parameters:
        clusters: how many centroids
        initial: draw the first centroids between the columns' extremes (uniform), or by their mean and sd (normal)
        centroids: the first centroids themselves, one list of numbers each (none: draw them)
        coordinator_rate: how far the coordinator moves centroids towards the parties' mean in a round
        party_rate: how far a party moves centroids towards its rows
        epochs: passes over a party's rows in a round
        batch: rows a batch at a party (0: all rows in one batch)
        history: centroids keep the weight of all rows that moved them in earlier rounds
        minimum_count: a party tells nothing of clusters in which it has fewer rows
    """

    clusters: Annotated[int, Ge(1)] = 10
    initial: Literal["uniform", "normal"] = "uniform"
    centroids: tuple[tuple[float, ...], ...] = ()
    coordinator_rate: Annotated[float, Interval(gt=0, le=1)] = 1.0
    party_rate: Annotated[float, Interval(gt=0, le=1)] = 1.0
    epochs: Annotated[int, Ge(1)] = 1
    batch: Annotated[int, Ge(0)] = 0
    history: bool = False
    minimum_count: Annotated[int, Ge(1)] = 1

    @property
    def learner(self) -> kmeans.KMeans:
        """Assigns rows and measures distances; what parties do in a round is this algorithm's own task."""
        return kmeans.KMeans(self.clusters, self.party_rate)

    def start(self, federation: Federation) -> State:
        """Centroids as given, or drawn from statistics of the parties' columns."""
        check_numeric(federation.schema, "kmeans")
        if self.centroids:
            return State({"centroids": self._given(len(federation.schema.features))})
        summary = summarise_columns(federation, scope=Scope(minimum_count=self.minimum_count))
        return State(kmeans.initialise(self.initial, summary, self.clusters, federation.rng("initial model")))

    def round(self, federation: Federation, state: State) -> State:
        """Send the centroids, collect counts and moved centroids, merge them."""
        chosen = self.select(federation, state)
        settings = {"epochs": self.epochs, "batch": self.batch, "party_rate": self.party_rate,
                    "minimum_count": self.minimum_count}
        replies = federation.ask(chosen.parties, move_centroids, {"centroids": state.model["centroids"]},
                                 settings=settings)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        old: Centroids = state.model["centroids"]
        counts, sums = _totals(federation, replies, old)
        weight = state.memory.get("weight", np.zeros(len(old))) if self.history else np.zeros(len(old))
        moved = _merged(old, counts + weight, sums + weight[:, None] * old)
        centroids = (1 - self.coordinator_rate) * old + self.coordinator_rate * moved
        memory: dict[str, Any] = {"weight": weight + counts} if self.history else {}
        return self.conclude(federation, state, chosen, replies, {"centroids": centroids}, **memory)

    def _given(self, columns: int) -> Centroids:
        if {len(centroid) for centroid in self.centroids} != {columns} or len(self.centroids) != self.clusters:
            raise ConfigError(f"the centroids given are not {self.clusters} lists of {columns} numbers, one a column",
                              remedy="set algorithm.clusters to their number")
        return np.array(self.centroids, dtype=np.float64)


@task("kmeans: move centroids")
def move_centroids(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Rows behind each centroid and where they move it; a cluster of too few rows is told as empty and unmoved."""
    received: Centroids = payload["centroids"]
    counts, moved = kmeans.local_step(received, party.data.train, settings["epochs"], settings["batch"],
                                      settings["party_rate"], party.rng("kmeans"))
    told = counts >= settings["minimum_count"]
    return {"counts": np.where(told, counts, 0), "centroids": np.where(told[:, None], moved, received)}


def _totals(federation: Federation, replies: Replies, old: Centroids) -> tuple[NDArray[np.float64], Centroids]:
    """Rows behind each cluster at all parties, and the sum over parties of count times centroid."""
    shapes = {"counts": np.zeros(len(old)), "centroids": old}
    for reply in replies:
        models.check_shapes(reply.payload, shapes, f"party '{federation.name(reply.party)}'")
    sums = [{"counts": payload["counts"].astype(np.float64), "sums": payload["counts"][:, None] * payload["centroids"]}
            for payload in replies.payloads]
    updates = Updates(replies.parties, sums, np.ones(len(replies)))
    combined = federation.topology.combine(updates, Mean(), {})
    if combined.notes:
        federation.record("aggregation", {"round": federation.round, **combined.notes})
    return len(replies) * combined.update["counts"], len(replies) * combined.update["sums"]


def _merged(old: Centroids, weights: NDArray[np.float64], sums: Centroids) -> Centroids:
    """Sum over weight where there is any, and the old centroid elsewhere."""
    behind = (weights > 0)[:, None]
    return np.where(behind, sums / np.where(behind, weights[:, None], 1.0), old)
