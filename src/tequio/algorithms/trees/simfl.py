"""SimFL (FedGBDT): parties take turns at boosting, each with the gradients of all parties' similar rows.

Li, Wen, He: Practical federated gradient boosting decision trees, AAAI 2020.

Before training, all parties hash their rows with the same locality-sensitive functions: rows that are near each other
fall into the same buckets more often than others. From the common hash tables each party finds, for every row of its
own and every other party, the most similar row there. In its turn a party builds a tree on its own rows; row q counts
with the sums G_q and H_q of the derivatives of all rows, anywhere, whose most similar row at this party is q. Here the
sums of the other parties are added up before they reach the party whose turn it is, which the paper leaves to that
party.

Datar, Immorlica, Indyk, Mirrokni: Locality-sensitive hashing scheme based on p-stable distributions, SCG 2004.
Charikar: Similarity estimation techniques from rounding algorithms, STOC 2002 (random hyperplanes).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypedDict

import numpy as np
from annotated_types import Ge, Gt, Interval
from numpy.typing import NDArray

from tequio.algorithms.analytics.columns import Scope
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.algorithms.trees.fitting import (
    AgreedSettings,
    News,
    SummingTrees,
    agreed,
    agreed_rows,
    check_sums,
    common_start,
    derivatives,
    ensemble_from,
    learn_news,
    news,
    nobody_has_seen,
    seen_trees,
    with_trees,
)
from tequio.errors import PayloadError, QuorumError
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import select
from tequio.federation.payload import Payload
from tequio.federation.sums import SumsReply, sum_over_rows
from tequio.federation.task import Done, NoSettings, Reveals, Sums, record, task
from tequio.learners.learner import check_numeric
from tequio.learners.trees.bins import Bins, RowHistograms, quantile_cuts
from tequio.learners.trees.boosted import BoostedTrees, objective_for
from tequio.learners.trees.boosting import Boosting, drawn_columns, grow_tree
from tequio.learners.trees.learner import numeric_rows
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.data.dataset import Array, Schema
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party

Codes = NDArray[np.int32]
"""(rows, tables) the bucket of each row in each hash table."""

Hashing = Literal["p_stable", "hyperplane"]

ABSENT = -1
"""The place of a party that is not in the hash tables, or could not look for similar rows."""


@register("algorithm", "simfl", paper="Li, Wen and He, 2020",
          example='[algorithm]\nname = "simfl"\n\n[learner]\nname = "boosted-trees"\ndepth = 5\n')
@dataclass(frozen=True, kw_only=True)
class SimFL(SummingTrees):
    """Boosted trees, each grown by one party in its turn, with the gradients of similar rows of all parties.

    A round is one turn: a tree, or one per class where there are more than two. Settings of the trees are those of the
    learner; its number of trees does not apply, rounds do. No row leaves a party, but this does:
    to the coordinator, the bucket of each row in each table, which with the hash functions known bounds the row in as
    many directions as there are tables (so keep them fewer than columns); each column's mean, spread and extremes;
    class counts; and in each turn the sums of gradients that a party lends, which the coordinator adds up;
    to all parties, which rows, by party and number, share buckets, under arbitrary labels; and the trees;
    to the party whose turn it is, for each of its rows the sum of the others' gradients behind it. Where one row alone
    stands behind it, that is this row's gradient and so its class.

    Parameters:
        hashing: p_stable (buckets along random directions) or hyperplane (sides of random planes)
        tables: hash tables (0: one fewer than columns, at most 40)
        bits: planes of a table, for hyperplanes
        width: of a bucket in standard deviations, for p_stable
    """

    learner: Boosting = part()
    hashing: Hashing = "p_stable"
    tables: Annotated[int, Ge(0)] = 0
    bits: Annotated[int, Interval(ge=1, le=30)] = 8
    width: Annotated[float, Gt(0)] = 4.0

    shows_replies: ClassVar[bool] = False

    def start(self, federation: Federation) -> State:
        """The common hash tables; each party learns from them which rows elsewhere are similar to its own."""
        check_numeric(federation.schema, "simfl")
        model = common_start(federation, federation.eligible())
        summary = summarise_columns(federation, scope=Scope(federation.eligible()))
        tables = self.tables or max(min(len(federation.schema.features) - 1, 40), 1)
        functions = draw_functions(self.hashing, tables, self.bits, self.width, summary["mean"], summary["sd"],
                                   federation.rng("hash functions"))
        replies = federation.ask(federation.eligible(), hash_rows, asdict(functions),
                                 settings=AgreedSettings(agreed=agreed(federation)),
                                 check=partial(_check_buckets, tables))
        return State(model.to_payload(), {"seen": nobody_has_seen(federation), **_introduce(federation, replies)})

    def round(self, federation: Federation, state: State) -> State:
        """The next party's turn: it gets the sums of the others' gradients and grows the next trees."""
        chosen = select(self, federation, state)
        taking_part = chosen.parties[state.memory["places"][chosen.parties] != ABSENT]
        if not len(taking_part):
            return state.next(selector=chosen.memory)
        turn = int(taking_part[(federation.round - 1) % len(taking_part)])
        seen = seen_trees(federation, state, self.attack)
        each = news(state.model, taking_part, seen)
        index = int(state.memory["places"][turn])
        shape = (int(state.memory["sizes"][index]), len(state.model["base"]))
        lent = sum_over_rows(federation, taking_part[taking_part != turn], lend_gradients,
                             {"index": index, "rows": shape[0]}, each=each, stages=self.way, check=check_sums,
                             settings=AgreedSettings(agreed=agreed(federation)),
                             shapes={"gradient": shape, "curvature": shape})
        replies = federation.ask([turn], grow_next, lent.arrays, each=each, stages=self.poisoning,
                                 settings=TurnSettings(learner=self.learner, agreed=agreed(federation)),
                                 check=partial(_check_trees, federation.schema, shape[1]))
        seen[[*lent.parties, *replies.parties]] = len(state.model["sizes"])
        model = with_trees(state.model, replies[0].payload["model"]) if replies else None
        return state.next(model, seen=seen, selector=chosen.memory)


@register("algorithm", "fedgbdt", paper="Li, Wen and He, 2020",
          example='[algorithm]\nname = "fedgbdt"\nbits = 8\n\n[learner]\nname = "boosted-trees"\ndepth = 8\n')
@dataclass(frozen=True, kw_only=True)
class FedGBDT(SimFL):
    """FedGBDT of the library FLEX-Trees: SimFL with rows alike that lie on the same sides of random planes.

    A round is one party's turn: a tree, or one per class where there are more than two. Its trees there have depth 8,
    a learning rate of 0.1 and a penalty of 1, which are settings of the learner. What leaves a party is what `simfl`
    says, with sides of planes instead of buckets along directions.

    Parameters:
        hashing: hyperplane (sides of random planes) or p_stable (buckets along random directions)
        tables: hash tables (0: one fewer than columns, at most 40)
        bits: planes of a table, for hyperplanes
        width: of a bucket in standard deviations, for p_stable
    """

    hashing: Hashing = "hyperplane"


def _introduce(federation: Federation, replies: Replies[BucketsReply]) -> dict[str, NDArray[np.int64]]:
    """Hand the common hash tables to the parties that are in them; gives each one's place there, and its rows."""
    if not replies:
        raise QuorumError("no party hashed its rows, so there are no similar ones to find",
                          remedy="find out why: the run's events name the causes")
    codes = relabelled([reply["buckets"] for reply in replies.payloads])
    sizes = np.array([len(rows) for rows in codes])
    each = {int(party): {"index": index} for index, party in enumerate(replies.parties)}
    ready = federation.ask(replies.parties, find_similar, {"buckets": np.concatenate(codes), "sizes": sizes},
                           settings=NoSettings(), each=each).parties
    places = np.full(len(federation), ABSENT)
    places[ready] = np.searchsorted(replies.parties, ready)
    return {"places": places, "sizes": sizes}


@record
class TurnSettings(AgreedSettings):
    """How the party whose turn it is grows its trees."""

    learner: Boosting


class HashPayload(TypedDict):
    """Hash functions, as `HashFunctions` holds them."""

    directions: NDArray[np.float64]
    offsets: NDArray[np.float64]
    width: float


class BucketsReply(TypedDict):
    """The bucket of each row in each table."""

    buckets: Codes


class TablesPayload(TypedDict):
    """The buckets of all parties' rows, how many rows each has, and the place of the receiving party among them."""

    buckets: Codes
    sizes: NDArray[np.int64]
    index: int


class LendPayload(News):
    """The place of the party whose turn it is, and how many rows it has."""

    index: int
    rows: int


class TurnPayload(News):
    """The sums of the others' gradients behind each row of the party whose turn it is."""

    gradient: NDArray[np.float64]
    curvature: NDArray[np.float64]


class TreesReply(TypedDict):
    """The trees of a turn, in a model of their own."""

    model: Payload


class SimilarRows(TypedDict, total=False):
    """What a party keeps: (rows, parties) for each own row the number of the most similar one at every party."""

    similar: NDArray[np.int32]


@task("simfl: hash rows", settings=AgreedSettings, reply=BucketsReply, reveals=Reveals.SCORES)
def hash_rows(party: Party, payload: HashPayload, settings: AgreedSettings) -> BucketsReply:
    """The bucket of each row in each table."""
    return {"buckets": HashFunctions(**payload).buckets(numeric_rows(agreed_rows(party, settings), "simfl"))}


@task("simfl: find similar rows", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def find_similar(party: Party, payload: TablesPayload, settings: NoSettings) -> Done:
    """For each own row the most similar one at every party (at home: the row itself), by number; the party keeps it."""
    tables = np.split(payload["buckets"], np.cumsum(payload["sizes"])[:-1])
    own, rng = tables[payload["index"]], party.rng("similar rows")
    similar = [np.arange(len(own), dtype=np.int32) if index == payload["index"] else most_similar(own, others, rng)
               for index, others in enumerate(tables)]
    party.keep(SimilarRows, {"similar": np.stack(similar, axis=1)})
    return {}


@task("simfl: lend gradients", settings=AgreedSettings, reply=SumsReply, reveals=Sums())
def lend_gradients(party: Party, payload: LendPayload, settings: AgreedSettings) -> SumsReply:
    """Per row of the party whose turn it is: the sums of the derivatives of the own rows that are similar to it."""
    rows = agreed_rows(party, settings)
    learn_news(party, rows, payload)
    behind = party.recall(SimilarRows)["similar"][:, payload["index"]]
    # Rows that a hostile party has added since the tables were made come last. They are similar to no known row.
    gradient, curvature = (np.stack([np.bincount(behind, column, payload["rows"])
                                     for column in values[:len(behind)].T], axis=1, dtype=np.float64)
                           for values in derivatives(party, rows))
    return {"sums": {"gradient": gradient, "curvature": curvature}}


@task("simfl: grow next trees", settings=TurnSettings, reply=TreesReply, reveals=Reveals.STRUCTURE)
def grow_next(party: Party, payload: TurnPayload, settings: TurnSettings) -> TreesReply:
    """The next tree of each output, on the own rows, which count with all gradients behind them."""
    rows, learner = agreed_rows(party, settings), settings.learner
    learn_news(party, rows, payload)
    gradient, curvature = (values.copy() for values in derivatives(party, rows))
    gradient[:len(payload["gradient"])] += payload["gradient"]
    curvature[:len(payload["curvature"])] += payload["curvature"]
    features, rng = numeric_rows(rows, "simfl"), party.rng("columns")
    histograms = RowHistograms(features, Bins(quantile_cuts(features, learner.bins)))
    trees = [grow_tree(histograms.of(first, second), histograms.bins, learner.growth,
                       columns=drawn_columns(features.shape[1], learner.columns, rng))
             for first, second in zip(gradient.T, curvature.T, strict=True)]
    return {"model": BoostedTrees(objective_for(rows.schema.target), np.zeros(len(trees)), tuple(trees)).to_payload()}


def _check_buckets(tables: int, reply: BucketsReply, whose: str) -> None:
    buckets = reply["buckets"]
    if buckets.ndim != 2 or buckets.shape[1] != tables or not len(buckets) or buckets.dtype != np.int32:
        raise PayloadError(f"{whose} sent something that is not buckets of its rows in {tables} hash tables")


def _check_trees(schema: Schema, outputs: int, reply: TreesReply, whose: str) -> None:
    grown = ensemble_from(reply["model"], schema, whose)
    if len(grown) != outputs:
        raise PayloadError(f"{whose} sent {len(grown)} trees instead of {outputs}")


_PAIRS_AT_A_TIME = 1 << 22


@dataclass(frozen=True, eq=False)
class HashFunctions:
    """Hash functions that all parties share.

    directions:  (tables, bits, columns) random directions, already divided by the columns' spreads
    offsets:     (tables, bits) added to a row's projections
    width:       of a bucket along a direction; 0 for hyperplanes, of which only the side matters
    """

    directions: NDArray[np.float64] = field(repr=False)
    offsets: NDArray[np.float64] = field(repr=False)
    width: float

    def buckets(self, rows: Array) -> Codes:
        """The bucket of each row in each table."""
        tables, bits, columns = self.directions.shape
        projections = rows @ self.directions.reshape(-1, columns).T + self.offsets.reshape(-1)
        if self.width:
            return np.floor(projections / self.width).clip(-2**31, 2**31 - 1).astype(np.int32)
        sides = (projections > 0).reshape(len(rows), tables, bits)
        return (sides @ (1 << np.arange(bits))).astype(np.int32)


def draw_functions(kind: Hashing, tables: int, bits: int, width: float, mean: NDArray[np.float64],
                   sd: NDArray[np.float64], rng: np.random.Generator) -> HashFunctions:
    """Random functions for columns of these means and spreads; a constant column does not matter."""
    bits = bits if kind == "hyperplane" else 1
    scale = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)
    directions = rng.standard_normal((tables, bits, len(sd))) * scale
    shift = rng.uniform(0, width, (tables, bits)) if kind == "p_stable" else 0.0
    return HashFunctions(directions, shift - directions @ mean, width if kind == "p_stable" else 0.0)


def relabelled(codes: Sequence[Codes]) -> list[Codes]:
    """The same buckets of several parties' rows under arbitrary numbers, which tell only who shares one."""
    whole = np.concatenate(codes)
    labels = np.stack([np.unique(column, return_inverse=True)[1] for column in whole.T], axis=1).astype(np.int32)
    return np.split(labels, np.cumsum([len(rows) for rows in codes])[:-1])


def most_similar(own: Codes, others: Codes, rng: np.random.Generator) -> NDArray[np.int32]:
    """For each own row the other row that shares most buckets with it; one at random where several do."""
    mine, my_group = np.unique(own, axis=0, return_inverse=True)
    groups, group, sizes = np.unique(others, axis=0, return_inverse=True, return_counts=True)
    members, starts = np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes
    luck, similar = rng.random(len(own)), np.empty(len(own), dtype=np.int32)
    order = np.argsort(my_group, kind="stable")
    for chunk in np.array_split(order, -(-len(own) * len(groups) // _PAIRS_AT_A_TIME)):
        distinct, index = np.unique(my_group[chunk], return_inverse=True)
        # Tied rows are told apart by a running count: the luck of a row says which of them it gets.
        tied = np.cumsum(_nearest(mine[distinct], groups) * sizes, axis=1)
        rank = (luck[chunk] * tied[index, -1]).astype(np.int64)
        chosen = (tied[index] > rank[:, None]).argmax(axis=1)
        within = rank - np.where(chosen > 0, tied[index, np.maximum(chosen, 1) - 1], 0)
        similar[chunk] = members[starts[chosen] + within]
    return similar


def _nearest(mine: Codes, groups: Codes) -> NDArray[np.bool_]:
    """(mine, groups): which groups share as many buckets as any does."""
    shared = np.zeros((len(mine), len(groups)), dtype=np.int16)
    for table in range(mine.shape[1]):
        shared += mine[:, table, None] == groups[None, :, table]
    nearest: NDArray[np.bool_] = shared == shared.max(axis=1, keepdims=True)
    return nearest
