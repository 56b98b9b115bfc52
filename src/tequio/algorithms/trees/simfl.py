"""SimFL (FedGBDT): parties take turns at boosting, each with the gradients of all parties' similar rows.

Li, Wen, He: Practical federated gradient boosting decision trees, AAAI 2020.

Before training, all parties hash their rows with the same locality-sensitive functions. From the common hash tables
each party finds, for every row of its own and every other party, the most similar row there. In its turn a party builds
a tree on its own rows; row q counts with the sums G_q and H_q of the derivatives of all rows, anywhere, whose most
similar row at this party is q. Here the sums of the other parties are added up before they reach the party whose turn
it is, which the paper leaves to that party.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.algorithms.analytics.columns import Scope
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.algorithms.trees.boosted_rows import (
    common_start,
    derivatives,
    ensemble_from,
    learn_news,
    news,
    nobody_has_seen,
    with_trees,
)
from tequio.algorithms.trees.fitting import agreed, agreed_rows, needed_learner
from tequio.algorithms.trees.hashing import HashFunctions, Hashing, draw_functions, most_similar, relabelled
from tequio.errors import PayloadError, QuorumError
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.task import task
from tequio.learners.flat import check_numeric
from tequio.learners.trees.bins import Bins, RowHistograms, quantile_cuts
from tequio.learners.trees.boosted import BoostedTrees, objective_for
from tequio.learners.trees.boosting import Boosting, drawn_columns, grow_tree
from tequio.learners.trees.learner import numeric_rows
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies

ABSENT = -1
"""The place of a party that is not in the hash tables, or could not look for similar rows."""


@register("algorithm", "simfl", paper="Li, Wen and He, 2020",
          example='[algorithm]\nname = "simfl"\n\n[learner]\nname = "boosted_trees"\ndepth = 5\n')
@dataclass(frozen=True, kw_only=True)
class SimFL(Algorithm):
    """Boosted trees, each grown by one party in its turn, with the gradients of similar rows of all parties.

    A round is one turn: a tree, or a tree a class where there are more than two. Settings of the trees are those of the
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

    hashing: Hashing = "p_stable"
    tables: Annotated[int, Ge(0)] = 0
    bits: Annotated[int, Interval(ge=1, le=30)] = 8
    width: Annotated[float, Gt(0)] = 4.0

    def start(self, federation: Federation) -> State:
        """The common hash tables; each party learns from them which rows elsewhere are similar to its own."""
        needed_learner(self, Boosting)
        check_numeric(federation.schema, "simfl")
        model = common_start(federation, federation.eligible())
        functions = self._functions(federation)
        replies = federation.ask(federation.eligible(), hash_rows, asdict(functions), settings=agreed(federation),
                                 check=partial(_check_buckets, len(functions.directions)))
        return State(model.to_payload(), {"seen": nobody_has_seen(federation),
                                          **self._introduce(federation, replies)})

    def round(self, federation: Federation, state: State) -> State:
        """The next party's turn: it gets the sums of the others' gradients and grows the next trees."""
        chosen = self.select(federation, state, observed=False)
        taking_part = chosen.parties[state.memory["places"][chosen.parties] != ABSENT]
        if not len(taking_part):
            return state.next(selector=chosen.memory)
        turn = int(taking_part[(federation.round - 1) % len(taking_part)])
        told, each = state.memory["seen"].copy(), news(state.model, taking_part, state.memory["seen"])
        lent, sums = self._borrow(federation, state, turn, taking_part[taking_part != turn], each)
        replies = federation.ask([turn], grow_next, sums, each=each,
                                 settings={"learner": needed_learner(self, Boosting), **agreed(federation)},
                                 check=partial(_check_trees, federation.schema, len(state.model["base"])))
        told[[*lent.parties, *replies.parties]] = len(state.model["sizes"])
        model = with_trees(state.model, replies[0].payload["model"]) if replies else None
        return state.next(model, seen=told, selector=chosen.memory)

    def _borrow(self, federation: Federation, state: State, turn: int, others: NDArray[np.int64],
                each: dict[int, Payload]) -> tuple[Replies, Payload]:
        """Who lent gradients to the party whose turn it is, and their sums."""
        place = int(state.memory["places"][turn])
        shape = (int(state.memory["sizes"][place]), len(state.model["base"]))
        lent = federation.ask(others, lend_gradients, {"place": place, "rows": shape[0]}, each=each,
                              settings=agreed(federation), stages=self.parts.stages,
                              check=None if self.parts.stages else partial(_check_sums, shape))
        return lent, {name: sum((payload["update"][name] for payload in lent.payloads), np.zeros(shape))
                      for name in ("gradient", "curvature")}

    def _functions(self, federation: Federation) -> HashFunctions:
        summary = summarise_columns(federation, scope=Scope(federation.eligible()))
        tables = self.tables or max(min(len(federation.schema.features) - 1, 40), 1)
        return draw_functions(self.hashing, tables, self.bits, self.width, summary["mean"], summary["sd"],
                              federation.rng("hash functions"))

    def _introduce(self, federation: Federation, replies: Replies) -> dict[str, NDArray[np.int64]]:
        """Hand the common hash tables to the parties that are in them; gives each one's place there, and its rows."""
        if not replies:
            raise QuorumError("no party hashed its rows, so there are no similar ones to find",
                              remedy="find out why: the run's events name the causes")
        codes = relabelled([payload["buckets"] for payload in replies.payloads])
        sizes = np.array([len(part) for part in codes])
        each = {int(party): {"place": place} for place, party in enumerate(replies.parties)}
        ready = federation.ask(replies.parties, find_similar, {"buckets": np.concatenate(codes), "sizes": sizes},
                               each=each).parties
        places = np.full(len(federation), ABSENT)
        places[ready] = np.searchsorted(replies.parties, ready)
        return {"places": places, "sizes": sizes}


@task("simfl: hash rows")
def hash_rows(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The bucket of each row in each table."""
    return {"buckets": HashFunctions(**payload).buckets(numeric_rows(agreed_rows(party, settings), "simfl"))}


@task("simfl: find similar rows")
def find_similar(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """For each own row the most similar one at every party (at home: the row itself), by number; the party keeps it."""
    parts = np.split(payload["buckets"], np.cumsum(payload["sizes"])[:-1])
    own, rng = parts[payload["place"]], party.rng("similar rows")
    similar = [np.arange(len(own), dtype=np.int32) if place == payload["place"] else most_similar(own, part, rng)
               for place, part in enumerate(parts)]
    party.state["similar"] = np.stack(similar, axis=1)
    return {}


@task("simfl: lend gradients")
def lend_gradients(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Per row of the party whose turn it is: the sums of the derivatives of the own rows that are similar to it."""
    rows = agreed_rows(party, settings)
    learn_news(party, rows, payload)
    behind = party.state["similar"][:, payload["place"]]
    sums = [np.stack([np.bincount(behind, column, payload["rows"]) for column in values.T], axis=1)
            for values in derivatives(party, rows)]
    return {"update": {"gradient": sums[0], "curvature": sums[1]}}


@task("simfl: grow next trees")
def grow_next(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The next tree of each output, on the own rows, which count with all gradients behind them."""
    rows, learner = agreed_rows(party, settings), settings["learner"]
    learn_news(party, rows, payload)
    own_gradient, own_curvature = derivatives(party, rows)
    features, rng = numeric_rows(rows, "simfl"), party.rng("columns")
    histograms = RowHistograms(features, Bins(quantile_cuts(features, learner.bins)))
    trees = [grow_tree(histograms.of(gradient, curvature), histograms.bins, learner.growth,
                       columns=drawn_columns(features.shape[1], learner.columns, rng))
             for gradient, curvature in zip((own_gradient + payload["gradient"]).T,
                                            (own_curvature + payload["curvature"]).T, strict=True)]
    return {"model": BoostedTrees(objective_for(rows.schema.target), np.zeros(len(trees)), tuple(trees)).to_payload()}


def _check_buckets(tables: int, payload: Payload, whose: str) -> None:
    buckets = payload.get("buckets")
    if not isinstance(buckets, np.ndarray) or buckets.ndim != 2 or buckets.shape[1] != tables or not len(buckets) \
            or buckets.dtype != np.int32:
        raise PayloadError(f"{whose} sent something that is not buckets of its rows in {tables} hash tables")


def _check_sums(shape: tuple[int, int], payload: Payload, whose: str) -> None:
    update = payload.get("update")
    sums = [update.get(name) for name in ("gradient", "curvature")] if isinstance(update, dict) else [None]
    if any(not isinstance(values, np.ndarray) or values.shape != shape for values in sums):
        raise PayloadError(f"{whose} sent something that is not sums of gradients of shape {shape}")


def _check_trees(schema: Schema, outputs: int, payload: Payload, whose: str) -> None:
    grown = ensemble_from(payload.get("model", {}), schema, whose)
    if len(grown) != outputs:
        raise PayloadError(f"{whose} sent {len(grown)} trees instead of {outputs}")
