"""What the federated boosting algorithms share: a common start, and parties that keep their rows' margins up to date.

A party remembers the margins of its training rows, so only trees that it has not yet seen are sent to it. The
coordinator remembers how many that are, because a party may miss rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.trees.fitting import agreed, agreed_rows
from tequio.errors import PayloadError, QuorumError
from tequio.federation.task import task
from tequio.learners.trees.boosted import BoostedTrees, base_margins, gradients, objective_for
from tequio.learners.trees.learner import numeric_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

_BY_NODE = ("feature", "threshold", "children", "value", "gain")

UNSEEN = -1
"""Trees that a party has seen which does not even know the start."""


def common_start(federation: Federation, parties: NDArray[np.int64]) -> BoostedTrees:
    """An ensemble without trees that predicts the class shares, or the mean, of all these parties' rows."""
    objective = objective_for(federation.schema.target)
    totals, rows = common_totals(federation, parties)
    return BoostedTrees(objective, base_margins(objective, totals, rows))


def blank_start(schema: Schema) -> BoostedTrees:
    """An ensemble without trees that takes all classes for equally likely."""
    objective = objective_for(schema.target)
    return BoostedTrees(objective, base_margins(objective, np.ones(schema.target.size), schema.target.size))


def common_totals(federation: Federation, parties: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """Rows of each class, or the sum of the numbers, of all these parties together; and how many rows these are."""
    size = federation.schema.target.size

    def check(payload: Payload, whose: str) -> None:
        totals, rows = payload.get("totals"), payload.get("rows")
        if getattr(totals, "shape", None) != (size,) or not isinstance(rows, int) or rows < 1:
            raise PayloadError(f"{whose} sent totals that are not {size} numbers with the number of rows")

    replies = federation.ask(parties, total_targets, settings=agreed(federation), check=check)
    if not replies:
        raise QuorumError("no party told what its target looks like, so there is nothing to start from",
                          remedy="lower rules.dropout, or find out why parties fail")
    return np.sum([payload["totals"] for payload in replies.payloads], axis=0), int(sum(replies.values("rows")))


@task("boosting: total targets")
def total_targets(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Rows, and rows of each class or the sum of the numbers."""
    rows = agreed_rows(party, settings)
    target = rows.schema.target
    totals = np.array([rows.target.sum()], dtype=np.float64) if target.kind == "number" \
        else np.bincount(rows.target, minlength=target.size)
    return {"totals": totals, "rows": len(rows)}


def nobody_has_seen(federation: Federation) -> NDArray[np.int64]:
    """How many trees each party has seen, at the start."""
    return np.full(len(federation), UNSEEN, dtype=np.int64)


def news(model: Payload, parties: NDArray[np.int64], seen: NDArray[np.int64]) -> dict[int, Payload]:
    """What each party has to be told: the trees of the model that it has not seen."""
    since = {int(count): _since(model, max(int(count), 0)) for count in np.unique(seen[parties])}
    return {int(party): {"news": since[int(seen[party])], "afresh": bool(seen[party] == UNSEEN)} for party in parties}


def with_trees(model: Payload, more: Payload) -> Payload:
    """The ensemble with the trees of another one at its end; both are sound."""
    return {**model, **{name: np.concatenate([model[name], more[name]]) for name in ("sizes", *_BY_NODE)}}


def _since(model: Payload, trees: int) -> Payload:
    """The ensemble without its first trees."""
    nodes = int(model["sizes"][:trees].sum())
    return {**model, "sizes": model["sizes"][trees:], **{name: model[name][nodes:] for name in _BY_NODE}}


def learn_news(party: Party, rows: Dataset, payload: Payload) -> NDArray[np.float64]:
    """At the party: the margins of its rows by all trees so far, which it keeps."""
    model = ensemble_from(payload["news"], rows.schema, "the coordinator")
    features = numeric_rows(rows, "boosted_trees")
    margins = model.margins(features)
    if not payload["afresh"]:
        margins += party.state["margins"] - model.base
    party.state["margins"] = margins
    return margins


def derivatives(party: Party, rows: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At the party: (rows, outputs) first and second derivatives of the loss at the margins that it keeps."""
    return gradients(objective_for(rows.schema.target), party.state["margins"], rows.target)


def ensemble_from(payload: Payload, schema: Schema, whose: str) -> BoostedTrees:
    """The ensemble in a payload, if it is sound and fits the data."""
    return BoostedTrees.from_payload(payload, features=len(schema.features), classes=schema.target.size, whose=whose)
