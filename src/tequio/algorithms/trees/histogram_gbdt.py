"""Gradient boosting from summed histograms: every tree is that of the pooled rows.

The histogram method of Chen and Guestrin (XGBoost: a scalable tree boosting system, KDD 2016), whose sums are taken
over the parties. Bins lie between federated quantiles. For every level of a tree each party sends, for each open node
and each bin of each column, the sums of its rows' first and second derivatives; the coordinator looks at nothing but
the sums over the parties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from tequio.algorithms.analytics.columns import Scope
from tequio.algorithms.analytics.quantiles import find_quantiles
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.algorithms.trees.fitting import (
    AgreedSettings,
    News,
    SummingTrees,
    agreed,
    agreed_rows,
    blank_start,
    check_sums,
    common_start,
    derivatives,
    learn_news,
    news,
    nobody_has_seen,
    seen_trees,
    with_trees,
)
from tequio.errors import QuorumError
from tequio.federation.algorithm import Disclosure, State, part
from tequio.federation.averaging import select
from tequio.federation.sums import SumsReply, if_hidden, sum_over_rows
from tequio.federation.task import Count, Done, Reveals, Sums, record, task
from tequio.learners.learner import Arrays, check_numeric
from tequio.learners.trees.bins import Bins
from tequio.learners.trees.boosted import BoostedTrees, RegressionTree
from tequio.learners.trees.boosting import Boosting, drawn_columns, grow_tree
from tequio.learners.trees.learner import numeric_rows
from tequio.registry import register

if TYPE_CHECKING:


    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.federation.stages import Stage

    Derivatives = tuple[NDArray[np.float64], NDArray[np.float64]]


@register("algorithm", "histogram-gbdt", paper="Chen and Guestrin, 2016",
          example='[algorithm]\nname = "histogram-gbdt"\n\n[learner]\nname = "boosted-trees"\nbins = 64\n')
@dataclass(frozen=True, kw_only=True)
class HistogramGBDT(SummingTrees):
    """Gradient-boosted trees of all parties' rows, from sums of gradients by bin; a round adds a tree (one per class).

    Settings of the trees are those of the learner; its number of trees does not apply, rounds do. The same trees, up to
    rounding, as if all rows were in one place and in the same bins. What leaves a party: how its numbers are spread
    (for the bins), the smallest and largest of each column, its class counts, and sums of gradients by node and bin.
    A node or bin that holds a single row reveals that row's gradient and so its class.

    Parameters:
        tolerance: how far a cut between bins may be off its quantile, as a share of the column's range
        low: smallest value of all columns, known beforehand
        high: largest value of all columns; above `low`, bins lie evenly between both and the first prediction is the
            same for all, so that nothing need be asked of the parties but sums of gradients (at `low`: ask)
    """

    learner: Boosting = part()
    tolerance: Annotated[float, Interval(gt=0, lt=1)] = 1e-3
    low: float = 0.0
    high: float = 0.0

    shows_replies: ClassVar[bool] = False
    sums_only: ClassVar[bool] = True

    def start(self, federation: Federation) -> State:
        """Bins and class shares, or the mean, of all parties' rows."""
        check_numeric(federation.schema, "histogram-gbdt")
        if self.high > self.low:
            model = blank_start(federation.schema)
            even = np.linspace(self.low, self.high, self.learner.bins + 1)[1:-1]
            cuts = [even] * len(federation.schema.features)
        else:
            way = if_hidden(self.stages)
            model = common_start(federation, federation.eligible(), way)
            bins = common_cuts(federation, self.learner.bins, self.tolerance, way)
            cuts = [np.asarray(column) for column in bins.cuts]
        return State(model.to_payload(), {"cuts": cuts, "seen": nobody_has_seen(federation)})

    def disclosure(self, schema: Schema) -> Disclosure | None:
        """Sums of gradients, level by level; of classes, whose gradients are bounded, and without asking for bins."""
        if self.high <= self.low or schema.target.kind != "classes":
            return None
        trees = 1 if len(schema.target.names) == 2 else len(schema.target.names)
        return Disclosure(moves=row_moves(schema), releases=trees * self.learner.depth)

    def round(self, federation: Federation, state: State) -> State:
        """Send the parties the last trees, then grow the next ones level by level."""
        chosen = select(self, federation, state)
        seen, bins = seen_trees(federation, state, self.attack), Bins(tuple(state.memory["cuts"]))
        ready = federation.ask(chosen.parties, get_ready, {"cuts": list(bins.cuts)},
                               settings=AgreedSettings(agreed=agreed(federation)), stages=self.poisoning,
                               each=news(state.model, chosen.parties, seen)).parties
        seen[ready] = len(state.model["sizes"])
        if not len(ready):
            return state.next(selector=chosen.memory)
        rng, grown = federation.rng("columns"), []
        for output in range(len(state.model["base"])):
            columns = drawn_columns(len(bins.cuts), self.learner.columns, rng)
            ready, tree = self._grow(federation, ready, bins, output, columns)
            grown.append(tree)
        more = BoostedTrees(state.model["objective"], state.model["base"], tuple(grown)).to_payload()
        return state.next(with_trees(state.model, more), seen=seen, selector=chosen.memory)

    def _grow(self, federation: Federation, parties: NDArray[np.int64], bins: Bins, output: int,
              columns: NDArray[np.bool_] | None) -> tuple[NDArray[np.int64], RegressionTree]:
        """One tree. A party that fails on the way is left out, and the tree is grown anew without its rows."""
        settings = OutputSettings(output=output, agreed=agreed(federation))

        def summed(tree: RegressionTree, nodes: NDArray[np.int64]) -> Derivatives:
            arrays = {name: getattr(tree, name) for name in ("feature", "threshold", "children", "value", "gain")}
            shape = (len(nodes), bins.total)
            found = sum_over_rows(federation, parties, sum_gradients, {"tree": arrays, "nodes": nodes},
                                  settings=settings, shapes={"gradient": shape, "curvature": shape}, stages=self.way,
                                  check=check_sums)
            if len(found) < len(parties):
                raise _Lost(found.parties)
            # Noise may make second derivatives negative, which they are not.
            return found["gradient"], np.maximum(found["curvature"], 0.0)

        try:
            return parties, grow_tree(summed, bins, self.learner.growth, columns=columns)
        except _Lost as lost:
            if not len(lost.remaining):
                raise QuorumError(f"all parties failed while a tree grew in round {federation.round}",
                                  remedy="find out why: the run's events name the causes") from None
            return self._grow(federation, lost.remaining, bins, output, columns)


class _Lost(Exception):
    """A party that had begun a tree no longer answers."""

    def __init__(self, remaining: NDArray[np.int64]) -> None:
        super().__init__()
        self.remaining = remaining


def common_cuts(federation: Federation, bins: int, tolerance: float, stages: tuple[Stage, ...] = ()) -> Bins:
    """Cuts of every column at federated quantiles."""
    scope = Scope(federation.eligible(), stages=stages)
    summary, shares = summarise_columns(federation, scope=scope), (np.arange(1, bins) / bins).tolist()
    ranges = summary["min"], summary["max"]
    found = find_quantiles(federation, shares, tolerance=tolerance, scope=scope, ranges=ranges)
    return Bins(tuple(np.unique(values[values < largest])
                      for values, largest in zip(found.values, summary["max"], strict=True)))


class CutsAndNews(News):
    """Where the bins are cut, and the trees that the party has not seen."""

    cuts: Sequence[NDArray[np.float64]]


class BinnedRows(TypedDict, total=False):
    """What a party keeps: the bins, and the bin of each row by column."""

    cuts: Sequence[NDArray[np.float64]]
    codes: NDArray[np.integer]


@task("histogram-gbdt: get ready", settings=AgreedSettings, reply=Done, reveals=Reveals.NOTHING)
def get_ready(party: Party, payload: CutsAndNews, settings: AgreedSettings) -> Done:
    """Put the rows into bins, once, and bring their margins up to date."""
    rows = agreed_rows(party, settings)
    if payload["afresh"]:
        codes = Bins(tuple(payload["cuts"])).codes(numeric_rows(rows, "histogram-gbdt"))
        party.keep(BinnedRows, {"codes": codes, "cuts": payload["cuts"]})
    learn_news(party, rows, payload)
    return {}


@record
class OutputSettings(AgreedSettings):
    """For which output of the model a tree is grown."""

    output: Count


class OpenNodes(TypedDict):
    """A tree and those of its nodes whose rows are to be summed."""

    tree: Arrays
    nodes: NDArray[np.int64]


def row_moves(schema: Schema) -> dict[str, float]:
    """A row counts once in every column. Gradients of classes are bounded, those of numbers are not."""
    share = len(schema.features) ** 0.5 if schema.target.kind == "classes" else inf
    return {"gradient": share, "curvature": share / 4}


@task("histogram-gbdt: sum gradients", settings=OutputSettings, reply=SumsReply,
      reveals=Sums(lambda settings, schema: row_moves(schema)))
def sum_gradients(party: Party, payload: OpenNodes, settings: OutputSettings) -> SumsReply:
    """(nodes, bins of all columns) sums of the first and of the second derivatives of the rows at these nodes."""
    rows, kept = agreed_rows(party, settings), party.recall(BinnedRows)
    tree, nodes = RegressionTree(**payload["tree"]), payload["nodes"]
    slots = np.full(len(tree), -1, dtype=np.intp)
    slots[nodes] = np.arange(len(nodes))
    slot = slots.take(tree.walk.find(numeric_rows(rows, "histogram-gbdt")))
    here = np.flatnonzero(slot >= 0)
    gradient, curvature = (values[here, settings.output] for values in derivatives(party, rows))
    bins, codes = Bins(tuple(kept["cuts"])), kept["codes"][:, here]
    return {"sums": {"gradient": _by_bin(gradient, slot[here], codes, len(nodes), bins),
                     "curvature": _by_bin(curvature, slot[here], codes, len(nodes), bins)}}


def _by_bin(values: NDArray[np.float64], slot: NDArray[np.intp], codes: NDArray[np.integer], slots: int,
            bins: Bins) -> NDArray[np.float64]:
    """(slots, bins of all columns) sums of the rows' values, each of which counts once in every column."""
    sums = np.empty((slots, bins.total))
    for column, start, size in zip(codes, bins.starts, bins.sizes, strict=True):
        sums[:, start:start + size] = np.bincount(slot * size + column, values, slots * size).reshape(slots, size)
    return sums
