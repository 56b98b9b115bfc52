"""Federated XGBoost: parties boost in parallel (bagging) or one after the other (cyclic).

Chen, Guestrin: XGBoost: a scalable tree boosting system, KDD 2016, as federated by Flower and NVIDIA FLARE. Unlike
there, the trees that parties grow in parallel count by the share of their party's rows, so that a round is one step of
boosting however many parties take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from tequio.algorithms.training import Weights
from tequio.algorithms.trees.boosted_rows import UNSEEN, common_totals, nobody_has_seen
from tequio.algorithms.trees.fitting import agreed, agreed_rows, needed_learner
from tequio.errors import PayloadError
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.task import task
from tequio.learners.flat import check_numeric
from tequio.learners.trees.learner import numeric_rows
from tequio.learners.trees.xgboost_documents import from_bytes, to_bytes, tree_list, with_trees, without_first
from tequio.learners.trees.xgboost_learner import XGBoost, XGBoostModel
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.trees.xgboost_documents import XGBoostTrees


@register("algorithm", "xgboost-bagging", paper="Chen and Guestrin, 2016",
          example='[algorithm]\nname = "xgboost-bagging"\n\n[learner]\nname = "xgboost"\n')
@dataclass(frozen=True, kw_only=True)
class XGBoostBagging(Algorithm):
    """In every round each party boosts the common XGBoost model on its rows; all their new trees join the model.

    Settings of the trees are those of the learner; its number of trees does not apply. What leaves a party are whole
    trees with the sums of second derivatives in their nodes, which stand for rows.

    Parameters:
        trees: rounds of boosting that a party does in one round
        weights: how much a party's trees count: by its rows (size) or all alike (uniform)
    """

    trees: Annotated[int, Ge(1)] = 1
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A model without trees."""
        return _start(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """All chosen parties boost; their trees are scaled to a mean step and join the model."""
        chosen = self.select(federation, state, observed=False)
        replies = _ask(self, federation, state, chosen.parties)
        weights = replies.values("rows") if self.weights == "size" else np.ones(len(replies))
        grown = [_new_trees(self, federation.schema, reply.payload).scaled(float(share))
                 for reply, share in zip(replies, weights / max(weights.sum(), 1), strict=True)]
        return _next(state, replies, grown, selector=chosen.memory)


@register("algorithm", "xgboost-cyclic", paper="Chen and Guestrin, 2016",
          example='[algorithm]\nname = "xgboost-cyclic"\n\n[learner]\nname = "xgboost"\n')
@dataclass(frozen=True, kw_only=True)
class XGBoostCyclic(Algorithm):
    """The parties take turns: in every round one of them boosts the common XGBoost model on its rows.

    Settings of the trees are those of the learner; its number of trees does not apply. What leaves a party are whole
    trees with the sums of second derivatives in their nodes, which stand for rows.

    Parameters:
        trees: rounds of boosting that a party does in its turn
    """

    trees: Annotated[int, Ge(1)] = 1

    def start(self, federation: Federation) -> State:
        """A model without trees."""
        return _start(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """The next of the chosen parties boosts."""
        chosen = self.select(federation, state, observed=False)
        turn = (federation.round - 1) % max(len(chosen.parties), 1)
        replies = _ask(self, federation, state, chosen.parties[turn:turn + 1])
        grown = [_new_trees(self, federation.schema, reply.payload) for reply in replies]
        return _next(state, replies, grown, selector=chosen.memory)


@task("xgboost: boost")
def boost(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The trees of some rounds of boosting on the party's rows, whose margins it keeps up to date."""
    rows, learner = agreed_rows(party, settings), settings["learner"]
    start, news = learner.opened(payload["news"], rows.schema, whose="the coordinator")
    features = numeric_rows(rows, "xgboost")
    margins = XGBoostModel.of(with_trees(start, news), rows.schema).margins(features)
    if not payload["afresh"]:
        margins += party.state["margins"] - XGBoostModel.of(start, rows.schema).margins(features)
    party.state["margins"] = margins
    trees = learner.boost(margins, rows, settings["trees"], party.rng("fit"))
    return {**XGBoostModel.of(with_trees(start, trees), rows.schema).to_payload(), "rows": len(rows)}


def _start(algorithm: XGBoostBagging | XGBoostCyclic, federation: Federation) -> State:
    """A model without trees; numbers start from the mean of all rows."""
    learner, schema = needed_learner(algorithm, XGBoost), federation.schema
    check_numeric(schema, "xgboost")
    mean = 0.0
    if schema.target.kind == "number":
        totals, rows = common_totals(federation, federation.eligible())
        mean = float(totals[0] / rows)
    return State(XGBoostModel.of(learner.start(schema, mean), schema).to_payload(),
                 {"seen": nobody_has_seen(federation)})


def _ask(algorithm: XGBoostBagging | XGBoostCyclic, federation: Federation, state: State,
         parties: NDArray[np.int64]) -> Replies:
    """Let parties boost the model, of which each is sent the trees that it has not seen."""
    document, seen = from_bytes(state.model["document"]), state.memory["seen"]
    since = {int(count): to_bytes(without_first(document, max(int(count), 0))) for count in np.unique(seen[parties])}
    each = {int(party): {"news": {"document": since[int(seen[party])]}, "afresh": bool(seen[party] == UNSEEN)}
            for party in parties}
    settings = {"learner": needed_learner(algorithm, XGBoost), "trees": algorithm.trees, **agreed(federation)}
    return federation.ask(parties, boost, each=each, settings=settings,
                          check=partial(_new_trees, algorithm, federation.schema))


def _new_trees(algorithm: XGBoostBagging | XGBoostCyclic, schema: Schema, payload: Payload,
               whose: str = "a party") -> XGBoostTrees:
    """The trees in a reply, if they are sound and as many as were asked for."""
    trees = needed_learner(algorithm, XGBoost).opened(payload, schema, whose=whose)[1]
    expected, rows = algorithm.trees * (schema.target.size if schema.target.size > 2 else 1), payload.get("rows")
    if len(trees) != expected or not isinstance(rows, int) or rows < 1:
        raise PayloadError(f"{whose} sent {len(trees)} trees of {rows!r} rows instead of {expected} trees")
    return trees


def _next(state: State, replies: Replies, grown: Sequence[XGBoostTrees], **memory: Any) -> State:
    """The model with the new trees, and who has seen which ones."""
    document, seen = from_bytes(state.model["document"]), state.memory["seen"].copy()
    seen[replies.parties] = len(tree_list(document))
    for trees in grown:
        document = with_trees(document, trees)
    return state.next({**state.model, "document": to_bytes(document)}, seen=seen, **memory)
