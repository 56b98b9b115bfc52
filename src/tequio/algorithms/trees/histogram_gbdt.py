"""Gradient boosting from summed histograms: every tree is that of the pooled rows.

The histogram method of Chen and Guestrin (XGBoost: a scalable tree boosting system, KDD 2016), whose sums are taken
over the parties. Bins lie between federated quantiles. For every level of a tree each party sends, for each open node
and each bin of each column, the sums of its rows' first and second derivatives; the coordinator looks at nothing but
the sums over the parties, so they may be summed securely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Interval

from tequio.algorithms.analytics.columns import Scope
from tequio.algorithms.analytics.quantiles import find_quantiles
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.algorithms.trees.boosted_rows import (
    blank_start,
    common_start,
    derivatives,
    learn_news,
    news,
    nobody_has_seen,
    with_trees,
)
from tequio.algorithms.trees.fitting import agreed, agreed_rows, needed_learner
from tequio.errors import PayloadError, QuorumError
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.task import task
from tequio.learners.flat import check_numeric
from tequio.learners.trees.bins import Bins
from tequio.learners.trees.boosted import BoostedTrees, RegressionTree
from tequio.learners.trees.boosting import Boosting, drawn_columns, grow_tree
from tequio.learners.trees.learner import numeric_rows
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    Sums = tuple[NDArray[np.float64], NDArray[np.float64]]


@register("algorithm", "histogram-gbdt", paper="Chen and Guestrin, 2016",
          example='[algorithm]\nname = "histogram-gbdt"\n\n[learner]\nname = "boosted_trees"\nbins = 64\n')
@dataclass(frozen=True, kw_only=True)
class HistogramGBDT(Algorithm):
    """Gradient-boosted trees of all parties' rows, from sums of gradients by bin; a round adds a tree (a tree a class).

    Settings of the trees are those of the learner; its number of trees does not apply, rounds do. The same trees, up to
    rounding, as if all rows were in one place and in the same bins. What leaves a party: how its numbers are spread
    (for the bins), the smallest and largest of each column, its class counts, and sums of gradients by node and bin.
    A node or bin that holds a single row tells that row's gradient and so its class.

    Parameters:
        tolerance: how far a cut between bins may be off its quantile, as a share of the column's range
        low: smallest value of all columns, known beforehand
        high: largest value of all columns; above `low`, bins lie evenly between both and the first prediction is the
            same for all, so that nothing need be asked of the parties but sums of gradients (at `low`: ask)
    """

    tolerance: Annotated[float, Interval(gt=0, lt=1)] = 1e-3
    low: float = 0.0
    high: float = 0.0

    def start(self, federation: Federation) -> State:
        """Bins and class shares, or the mean, of all parties' rows."""
        learner = needed_learner(self, Boosting)
        check_numeric(federation.schema, "histogram-gbdt")
        if self.high > self.low:
            model = blank_start(federation.schema)
            even = np.linspace(self.low, self.high, learner.bins + 1)[1:-1]
            cuts = [even] * len(federation.schema.features)
        else:
            model = common_start(federation, federation.eligible())
            cuts = [np.asarray(column) for column in common_cuts(federation, learner.bins, self.tolerance).cuts]
        return State(model.to_payload(), {"cuts": cuts, "seen": nobody_has_seen(federation)})

    def crossing(self, schema: Schema) -> Crossing | None:
        """Sums of gradients, level by level; of classes, whose gradients are bounded, and without asking for bins."""
        if self.high <= self.low or schema.target.kind != "classes":
            return None
        trees = 1 if len(schema.target.names) == 2 else len(schema.target.names)
        share = len(schema.features) ** 0.5  # a row counts once in every column
        return Crossing(moves={"gradient": share, "curvature": share / 4},
                        releases=trees * needed_learner(self, Boosting).depth)

    def round(self, federation: Federation, state: State) -> State:
        """Tell the parties the last trees, then grow the next ones level by level."""
        chosen, learner = self.select(federation, state, observed=False), needed_learner(self, Boosting)
        seen, bins = state.memory["seen"].copy(), Bins(tuple(state.memory["cuts"]))
        ready = federation.ask(chosen.parties, get_ready, {"cuts": list(bins.cuts)}, settings=agreed(federation),
                               each=news(state.model, chosen.parties, seen)).parties
        seen[ready] = len(state.model["sizes"])
        if not len(ready):
            return state.next(selector=chosen.memory)
        rng, grown = federation.rng("columns"), []
        for output in range(len(state.model["base"])):
            columns = drawn_columns(len(bins.cuts), learner.columns, rng)
            ready, tree = self._grow(federation, ready, bins, output, columns)
            grown.append(tree)
        more = BoostedTrees(state.model["objective"], state.model["base"], tuple(grown)).to_payload()
        return state.next(with_trees(state.model, more), seen=seen, selector=chosen.memory)

    def _grow(self, federation: Federation, parties: NDArray[np.int64], bins: Bins, output: int,
              columns: NDArray[np.bool_] | None) -> tuple[NDArray[np.int64], RegressionTree]:
        """One tree. A party that fails on the way is left out, and the tree is grown anew without its rows."""
        growth, settings = needed_learner(self, Boosting).growth, {"output": output, **agreed(federation)}

        def summed(tree: RegressionTree, nodes: NDArray[np.int64]) -> Sums:
            replies = federation.ask(parties, sum_gradients, {"tree": _plain(tree), "nodes": nodes}, settings=settings,
                                     stages=self.parts.stages,
                                     check=None if self.parts.stages else _sums_of((len(nodes), bins.total)))
            if len(replies) < len(parties):
                raise _Lost(replies.parties)
            updates = [payload["update"] for payload in replies.payloads]
            # Noise may make second derivatives negative, which they are not.
            return _added(updates, "gradient"), np.maximum(_added(updates, "curvature"), 0.0)

        try:
            return parties, grow_tree(summed, bins, growth, columns=columns)
        except _Lost as lost:
            if not len(lost.remaining):
                raise QuorumError(f"all parties failed while a tree grew in round {federation.round}",
                                  remedy="find out why: the run's events name the causes") from None
            return self._grow(federation, lost.remaining, bins, output, columns)


def common_cuts(federation: Federation, bins: int, tolerance: float) -> Bins:
    """Cuts of every column at federated quantiles."""
    scope = Scope(federation.eligible())
    summary, shares = summarise_columns(federation, scope=scope), (np.arange(1, bins) / bins).tolist()
    found = find_quantiles(federation, shares, tolerance=tolerance, scope=scope, summary=summary)
    return Bins(tuple(np.unique(values[values < largest])
                      for values, largest in zip(found.values, summary["max"], strict=True)))


@task("histogram-gbdt: get ready")
def get_ready(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Put the rows into bins, once, and bring their margins up to date."""
    rows = agreed_rows(party, settings)
    if payload["afresh"]:
        party.state["codes"] = Bins(tuple(payload["cuts"])).codes(numeric_rows(rows, "histogram-gbdt"))
        party.state["cuts"] = payload["cuts"]
    learn_news(party, rows, payload)
    return {}


@task("histogram-gbdt: sum gradients")
def sum_gradients(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """(nodes, bins of all columns) sums of the first and of the second derivatives of the rows at these nodes."""
    rows, bins = agreed_rows(party, settings), Bins(tuple(party.state["cuts"]))
    tree = RegressionTree(**payload["tree"])
    slots = np.full(len(tree), -1, dtype=np.intp)
    slots[payload["nodes"]] = np.arange(len(payload["nodes"]))
    slot = slots.take(tree.walk.find(numeric_rows(rows, "histogram-gbdt")))
    here = np.flatnonzero(slot >= 0)
    gradient, curvature = (values[here, settings["output"]] for values in derivatives(party, rows))
    places = slot[here], party.state["codes"][:, here], len(payload["nodes"]), bins
    return {"update": {"gradient": _by_bin(gradient, *places), "curvature": _by_bin(curvature, *places)}}


def _by_bin(values: NDArray[np.float64], slot: NDArray[np.intp], codes: NDArray[Any], slots: int,
            bins: Bins) -> NDArray[np.float64]:
    """(slots, bins of all columns) sums of the rows' values, each of which counts once in every column."""
    sums = np.empty((slots, bins.total))
    for column, start, size in zip(codes, bins.starts, bins.sizes, strict=True):
        sums[:, start:start + size] = np.bincount(slot * size + column, values, slots * size).reshape(slots, size)
    return sums


class _Lost(Exception):
    """A party that had begun a tree no longer answers."""

    def __init__(self, remaining: NDArray[np.int64]) -> None:
        super().__init__()
        self.remaining = remaining


def _plain(tree: RegressionTree) -> Payload:
    return {name: getattr(tree, name) for name in ("feature", "threshold", "children", "value", "gain")}


def _added(updates: list[Payload], name: str) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.sum([update[name] for update in updates], axis=0)
    return total


def _sums_of(shape: tuple[int, ...]) -> Callable[[Payload, str], None]:
    def check(payload: Payload, whose: str) -> None:
        update = payload.get("update")
        sums = [update.get(name) for name in ("gradient", "curvature")] if isinstance(update, dict) else [None]
        if any(getattr(values, "shape", None) != shape for values in sums):
            raise PayloadError(f"{whose} sent something that is not sums of gradients of shape {shape}")

    return check
