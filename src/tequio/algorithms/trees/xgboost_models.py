"""Federated XGBoost: parties boost in parallel (bagging) or one after the other (cyclic).

Chen, Guestrin: XGBoost: a scalable tree boosting system, KDD 2016, as federated by Flower and NVIDIA FLARE. Unlike
there, the trees that parties grow in parallel count by the share of their party's rows, so that a round is one step of
boosting however many parties take part.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from tequio.algorithms.trees.fitting import (
    UNSEEN,
    AgreedSettings,
    News,
    TreeAlgorithm,
    agreed,
    agreed_rows,
    common_totals,
    nobody_has_seen,
    seen_trees,
)
from tequio.errors import PayloadError
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import Weights, select, weights_by
from tequio.federation.task import Count, Reveals, Rows, record, task
from tequio.learners.trees.places import mixed_rows
from tequio.learners.trees.xgboost_learner import (
    XGBoost,
    XGBoostModel,
    from_bytes,
    to_bytes,
    tree_list,
    with_trees,
    without_first,
)
from tequio.registry import register

if TYPE_CHECKING:

    from tequio.data.dataset import Schema
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.trees.xgboost_learner import XGBoostTrees


@dataclass(frozen=True, kw_only=True)
class FederatedXGBoost(TreeAlgorithm):
    """What both ways share: a common model, of which each party is sent the trees that it has not seen."""

    learner: XGBoost = part()
    trees: Annotated[int, Ge(1)] = 1

    shows_replies: ClassVar[bool] = False

    def start(self, federation: Federation) -> State:
        """A model without trees; numbers start from the mean of all rows."""
        schema, mean = federation.schema, 0.0
        if schema.target.kind == "number":
            totals, rows = common_totals(federation, federation.eligible())
            mean = float(totals[0] / rows)
        return State(XGBoostModel.of(self.learner.start(schema, mean), schema).to_payload(),
                     {"seen": nobody_has_seen(federation)})

    def round(self, federation: Federation, state: State) -> State:
        """The parties whose turn it is boost the model; their trees join it."""
        chosen = select(self, federation, state)
        parties = self.boosting(chosen.parties, federation.round)
        document, seen = from_bytes(state.model["document"]), seen_trees(federation, state, self.attack)
        since = {int(count): to_bytes(without_first(document, max(int(count), 0)))
                 for count in np.unique(seen[parties])}
        each = {int(party): {"news": {"document": since[int(seen[party])]}, "afresh": bool(seen[party] == UNSEEN)}
                for party in parties}
        opened = partial(_new_trees, self, federation.schema)
        settings = BoostSettings(learner=self.learner, trees=self.trees, agreed=agreed(federation))
        replies = federation.ask(parties, boost, each=each, settings=settings, stages=self.poisoning, check=opened)
        seen[replies.parties] = len(tree_list(document))
        for reply, share in zip(replies.payloads, self.shares(replies), strict=True):
            document = with_trees(document, opened(reply).scaled(float(share)))
        return state.next({**state.model, "document": to_bytes(document)}, seen=seen, selector=chosen.memory)

    @abstractmethod
    def boosting(self, chosen: NDArray[np.int64], round: int) -> NDArray[np.int64]:
        """Those of the chosen parties that boost in this round."""

    @abstractmethod
    def shares(self, replies: Replies[BoostReply]) -> NDArray[np.float64]:
        """What the trees of each party count."""


@register("algorithm", "xgboost-bagging", paper="Chen and Guestrin, 2016",
          example='[algorithm]\nname = "xgboost-bagging"\n\n[learner]\nname = "xgboost"\n')
@dataclass(frozen=True, kw_only=True)
class XGBoostBagging(FederatedXGBoost):
    """In every round each party boosts the common XGBoost model on its rows; all their new trees join the model.

    Settings of the trees are those of the learner; its number of trees does not apply. What leaves a party are whole
    trees with the sums of second derivatives in their nodes, which stand for rows.

    Parameters:
        trees: rounds of boosting that a party does in one round
        weights: how much a party's trees count: by its rows (size) or all alike (uniform)
    """

    weights: Weights = "size"

    def boosting(self, chosen: NDArray[np.int64], round: int) -> NDArray[np.int64]:
        """All of them."""
        return chosen

    def shares(self, replies: Replies[BoostReply]) -> NDArray[np.float64]:
        """Together a mean step."""
        weights = weights_by(self.weights, replies)
        shares: NDArray[np.float64] = weights / max(weights.sum(), 1)
        return shares


@register("algorithm", "xgboost-cyclic", paper="Chen and Guestrin, 2016",
          example='[algorithm]\nname = "xgboost-cyclic"\n\n[learner]\nname = "xgboost"\n')
@dataclass(frozen=True, kw_only=True)
class XGBoostCyclic(FederatedXGBoost):
    """The parties take turns: in every round one of them boosts the common XGBoost model on its rows.

    Settings of the trees are those of the learner; its number of trees does not apply. What leaves a party are whole
    trees with the sums of second derivatives in their nodes, which stand for rows.

    Parameters:
        trees: rounds of boosting that a party does in its turn
    """

    def boosting(self, chosen: NDArray[np.int64], round: int) -> NDArray[np.int64]:
        """The next one."""
        turn = (round - 1) % max(len(chosen), 1)
        return chosen[turn:turn + 1]

    def shares(self, replies: Replies[BoostReply]) -> NDArray[np.float64]:
        """A whole step."""
        return np.ones(len(replies))


@record
class BoostSettings(AgreedSettings):
    """How a party boosts, and for how many rounds."""

    learner: XGBoost
    trees: Count


class BoostReply(TypedDict):
    """The new trees in a model of their own, and how many rows they were grown on."""

    kind: str
    document: NDArray[np.uint8]
    rows: Rows


class BoostedMargins(TypedDict, total=False):
    """What a party keeps: the margins of its training rows by all trees so far."""

    margins: NDArray[np.float32]


@task("xgboost: boost", settings=BoostSettings, reply=BoostReply, reveals=Reveals.STRUCTURE)
def boost(party: Party, payload: News, settings: BoostSettings) -> BoostReply:
    """The trees of some rounds of boosting on the party's rows, whose margins it keeps up to date."""
    rows, learner = agreed_rows(party, settings), settings.learner
    start, news = learner.opened(payload["news"], rows.schema, whose="the coordinator")
    features = mixed_rows(rows, "xgboost")
    margins = XGBoostModel.of(with_trees(start, news), rows.schema).margins(features)
    if not payload["afresh"]:
        margins += party.recall(BoostedMargins)["margins"] - XGBoostModel.of(start, rows.schema).margins(features)
    party.keep(BoostedMargins, {"margins": margins})
    trees = learner.boost(margins, rows, settings.trees, party.rng("fit"))
    model = XGBoostModel.of(with_trees(start, trees), rows.schema).to_payload()
    return {"kind": model["kind"], "document": model["document"], "rows": len(rows)}


def _new_trees(algorithm: FederatedXGBoost, schema: Schema, reply: BoostReply, whose: str = "a party") -> XGBoostTrees:
    """The trees in a reply, if they are sound and as many as were asked for."""
    trees = algorithm.learner.opened(reply, schema, whose=whose)[1]
    expected = algorithm.trees * (schema.target.size if schema.target.size > 2 else 1)
    if len(trees) != expected or reply["rows"] < 1:
        raise PayloadError(f"{whose} sent {len(trees)} trees of {reply['rows']} rows instead of {expected} trees")
    return trees
