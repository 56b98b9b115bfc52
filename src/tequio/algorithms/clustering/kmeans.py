"""Federated k-means.

Kumar, Karthik, Nair: Federated k-means clustering: a novel edge AI based approach for privacy preservation, CCEM 2020.
The rule for sizes is corrected as in Lloyd's method: sizes restart every epoch, and a cluster without rows stays where
it was. With `history` centroids also weigh what they saw in earlier rounds (Sculley, 2010).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypedDict

import numpy as np
from annotated_types import Ge, Interval

from tequio.algorithms.analytics.columns import Scope
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.data.dataset import Dataset, Schema
from tequio.errors import ConfigError, PayloadError
from tequio.federation.aggregation import Mean, Updates
from tequio.federation.algorithm import Algorithm, Attacked, Disclosure, State, part
from tequio.federation.averaging import finish_round, select
from tequio.federation.selection import AllParties, Selector
from tequio.federation.stages import Stage
from tequio.federation.sums import Named, SumsReply, if_hidden, sum_over_rows
from tequio.federation.task import LARGEST_COUNT, Count, Sums, record, task
from tequio.federation.topology import ClientServer, Hierarchical, Topology
from tequio.learners import kmeans
from tequio.learners.learner import as_doubles, check_numeric, flat_features
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party

    Centroids = NDArray[np.float64]


@register("algorithm", "kmeans", paper="Kumar et al., 2020")
@dataclass(frozen=True, kw_only=True)
class FederatedKMeans(Algorithm):
    """Parties move the centroids towards their rows; the coordinator takes the mean, cluster by cluster, by rows.

    Only counts and sums by cluster leave a party. A sum that stands for one or two rows nearly is those rows: raise
    `minimum_count` where that matters, or add noise by the stage 'dp-sums'. The start looks at federated statistics of
    the columns, whose smallest and largest values are those of single rows; `normal` uses means and spreads only, and
    given centroids use nothing.

    Parameters:
        clusters: how many centroids
        initial: draw the first centroids between the columns' extremes (uniform), or by their mean and sd (normal)
        centroids: the first centroids themselves, one list of numbers each (none: draw them)
        coordinator_rate: how far the coordinator moves centroids towards the parties' mean in a round
        party_rate: how far a party moves centroids towards its rows
        epochs: passes over a party's rows in a round
        batch: rows per batch at a party (0: all rows in one batch)
        history: centroids keep the weight of all rows that moved them in earlier rounds
        minimum_count: a party reports clusters in which it has fewer rows as empty
        radius: rows longer than this are shortened to it, which bounds what one row can do (0: they stay)
    """

    selector: Selector = part(factory=AllParties)
    stages: tuple[Stage, ...] = part(())
    attack: Stage | None = part(None)
    clusters: Annotated[int, Ge(1)] = 10
    initial: Literal["uniform", "normal"] = "uniform"
    centroids: tuple[tuple[float, ...], ...] = ()
    coordinator_rate: Annotated[float, Interval(gt=0, le=1)] = 1.0
    party_rate: Annotated[float, Interval(gt=0, le=1)] = 1.0
    epochs: Annotated[int, Ge(1)] = 1
    batch: Annotated[int, Ge(0)] = 0
    history: bool = False
    minimum_count: Annotated[int, Ge(1)] = 1
    radius: Annotated[float, Ge(0)] = 0.0

    topologies: ClassVar[tuple[type[Topology], ...]] = (ClientServer, Hierarchical)
    attackable: ClassVar[frozenset[Attacked]] = frozenset({"updates", "cohort"})  # labels of rows do not matter here
    sends: ClassVar[frozenset[Literal["updates", "sums"]]] = frozenset({"sums"})
    sums_only: ClassVar[bool] = True
    adoptable: ClassVar[bool] = False  # without local training settings no party makes centroids of its own

    @property
    def scorer(self) -> kmeans.KMeans:
        """Assigns rows and measures distances; what parties do in a round is this algorithm's own task."""
        return kmeans.KMeans(self.clusters, self.party_rate)

    @property
    def also_sent(self) -> tuple[object, ...]:
        """What judges the centroids."""
        return (self.scorer,)

    def start(self, federation: Federation) -> State:
        """Centroids as given, or drawn from statistics of the parties' columns."""
        check_numeric(federation.schema, "kmeans")
        if self.centroids:
            return State({"centroids": self._given(len(federation.schema.features))})
        scope = Scope(minimum_count=self.minimum_count, stages=if_hidden(self.stages))
        summary = summarise_columns(federation, scope=scope)
        statistics = {"min": summary["min"], "max": summary["max"], "mean": summary["mean"], "sd": summary["sd"]}
        return State(kmeans.initialise(self.initial, statistics, self.clusters, federation.rng("initial model")))

    def disclosure(self, schema: Schema) -> Disclosure | None:
        """Counts and sums of rows by cluster, if rows are bounded, centroids given, and sums those of single steps."""
        plain = self.party_rate == 1 and self.epochs == 1 and not self.batch and self.minimum_count == 1
        if not plain or not self.radius or not self.centroids:
            return None
        return Disclosure(moves=_moved(self._settings, schema))

    def round(self, federation: Federation, state: State) -> State:
        """Send the centroids, collect counts and moved centroids, merge them."""
        chosen = select(self, federation, state)
        # The attack first, so that every other stage sees what is really sent.
        way = self.stages if self.attack is None else (self.attack, *self.stages)
        old: Centroids = state.model["centroids"]
        found = sum_over_rows(federation, chosen.parties, move_centroids, {"centroids": old}, settings=self._settings,
                              shapes={"counts": old.shape[:1], "sums": old.shape}, stages=way, check=_check_counts,
                              add=partial(_along_topology, federation), roster=False)
        replies = found.replies
        if not len(found):
            return finish_round(self, federation, state, chosen, replies)
        counts, sums = found["counts"], found["sums"]
        weight = state.memory.get("weight", np.zeros(len(old))) if self.history else np.zeros(len(old))
        moved = _merged(old, counts + weight, sums + weight[:, None] * old)
        centroids = (1 - self.coordinator_rate) * old + self.coordinator_rate * moved
        after = finish_round(self, federation, state, chosen, replies, {"centroids": centroids})
        return after.next(weight=weight + counts) if self.history else after

    @property
    def _settings(self) -> MoveSettings:
        return MoveSettings(epochs=self.epochs, batch=self.batch, party_rate=self.party_rate,
                            minimum_count=self.minimum_count, radius=self.radius)

    def _given(self, columns: int) -> Centroids:
        if {len(centroid) for centroid in self.centroids} != {columns} or len(self.centroids) != self.clusters:
            raise ConfigError(f"the centroids given are not {self.clusters} lists of {columns} numbers, one per column",
                              remedy="set algorithm.clusters to their number")
        return np.array(self.centroids, dtype=np.float64)


@record
class MoveSettings:
    """How a party moves centroids; see the parameters of the algorithm."""

    epochs: Count
    batch: Count
    party_rate: float
    minimum_count: Count
    radius: float


class CentroidsPayload(TypedDict):
    """Where the centroids are."""

    centroids: Centroids


def _moved(settings: MoveSettings, schema: Schema) -> dict[str, float]:
    """A row is in one cluster, and as long as the radius allows. With a minimum it may bring back those left out."""
    few = settings.minimum_count > 1
    return {"counts": inf if few else 1.0, "sums": inf if few else settings.radius or inf}


def _check_counts(sums: Named, whose: str) -> None:
    """Refuse counts of rows that are negative or broken; under stages they may carry noise."""
    counts = sums["counts"]
    if (counts < 0).any() or (counts % 1).any() or (counts > LARGEST_COUNT).any():
        raise PayloadError(f"{whose} sent something that is not counts of rows by cluster")


@task("kmeans: move centroids", settings=MoveSettings, reply=SumsReply, reveals=Sums(_moved))
def move_centroids(party: Party, payload: CentroidsPayload, settings: MoveSettings) -> SumsReply:
    """`counts` of rows behind each centroid, and as `sums` these counts times where the rows move it; a cluster of too
    few rows counts as empty."""
    rows = shortened(party.data.train, settings.radius) if settings.radius else party.data.train
    counts, moved = kmeans.local_step(payload["centroids"], rows, settings.epochs, settings.batch,
                                      settings.party_rate, party.rng("kmeans"))
    reported = np.where(counts >= settings.minimum_count, counts, 0).astype(np.float64)
    return {"sums": {"counts": reported, "sums": reported[:, None] * moved}}


def shortened(rows: Dataset, radius: float) -> Dataset:
    """The rows, those that are longer than the radius shortened to it."""
    values = as_doubles(flat_features(rows))
    lengths = np.sqrt(np.asarray(values.multiply(values).sum(axis=1)).ravel()) if rows.is_sparse else \
        np.linalg.norm(values, axis=1)
    shares = np.minimum(1.0, radius / np.maximum(lengths, radius))
    shorter = values.multiply(shares[:, None]).tocsr() if rows.is_sparse else values * shares[:, None]
    schema = Schema.of_numbers(rows.schema.names, rows.schema.target)
    return Dataset.of(schema, shorter, rows.target if schema.target.kind != "none" else None, name=rows.name)


def _along_topology(federation: Federation, replies: Replies[SumsReply]) -> Named:
    """Rows behind each cluster at all parties, and the sum over parties of count times centroid, group by group."""
    sums = [{name: values.astype(np.float64) for name, values in reply["sums"].items()} for reply in replies.payloads]
    updates = Updates(replies.parties, sums, np.ones(len(replies)))
    combined = federation.topology.combine(updates, Mean(), {})
    if combined.notes:
        federation.record("aggregation", {"round": federation.round, **combined.notes})
    return {name: len(replies) * values for name, values in combined.update.items()}


def _merged(old: Centroids, weights: NDArray[np.float64], sums: Centroids) -> Centroids:
    """Sum over weight where there is any, and the old centroid elsewhere."""
    behind = (weights > 0)[:, None]
    return np.where(behind, sums / np.where(behind, weights[:, None], 1.0), old)
