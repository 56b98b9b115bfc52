"""The coordinator's part of growing vertical trees: it carries what one party says to the others, level by level.

It gets to know the shape of the trees, whose each split is and which way rows go; no value, no column, no threshold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tequio.algorithms.vertical.trees.labels import choose
from tequio.algorithms.vertical.trees.offering import divide, end, offer
from tequio.algorithms.vertical.trees.routes import packed, unpacked
from tequio.algorithms.vertical.trees.skeleton import Skeleton, put_in_order
from tequio.learners.trees.walk import LEAF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.payload import Payload


class Grown(NamedTuple):
    """New trees, and the splits of the last level where the label holder has not heard of them yet."""

    trees: Skeleton
    last: Payload | None


class Plan(NamedTuple):
    """How to grow: settings of the tasks, how deep, with whose columns, and how often rows count in each tree."""

    settings: Mapping[str, Any]
    depth: int
    others: Sequence[int]
    weights: NDArray[np.uint8] | None = None


def grow(talk: Conversation, begun: Payload, plan: Plan) -> Grown:
    """Grow the trees that the label holder has begun."""
    growing = _Growing(len(begun["block_of"]))
    splits: Payload | None = None
    asked = _first_roots(begun["block_of"], apart=plan.settings["apart"])
    message: Payload = {name: begun[name] for name in ("hidden", "block_of") if name in begun}
    if plan.weights is not None:
        message["weights"] = plan.weights
    for _ in range(plan.depth):
        offers = _offers(talk, {**message, "asked": asked}, plan)
        news = {} if splits is None else {"splits": splits}
        chosen = talk.tell(talk.roles.label_holder, choose, {"asked": asked, "offers": offers, **news},
                           settings=plan.settings)
        splits = None
        if not len(chosen["nodes"]):
            break
        splits, records = _divided(talk, chosen, plan)
        growing.add(chosen, records)
        asked, message = _lighter(splits), {"splits": splits}
    talk.ask(plan.others, end) if plan.others else None
    return Grown(growing.skeleton(), splits)


def _offers(talk: Conversation, payload: Payload, plan: Plan) -> dict[str, Payload]:
    if not plan.others:
        return {}
    replies = talk.ask(plan.others, offer, payload, settings=plan.settings)
    return {str(reply.party): reply.payload for reply in replies}


def _divided(talk: Conversation, chosen: Payload, plan: Plan) -> tuple[Payload, NDArray[np.int64]]:
    """Let the owners of the chosen splits divide their rows; the splits as all others hear of them, and the records."""
    label_holder, owner = talk.roles.label_holder, chosen["owner"]
    told = {int(party): {name: chosen[name][owner == party] for name in ("trees", "nodes", "offers")}
            for party in np.unique(owner[owner != label_holder])}
    answers = {label_holder: chosen["own"]}
    if told:
        replies = talk.ask(told, divide, each=told, settings=plan.settings)
        answers |= {reply.party: reply.payload for reply in replies}
    ways: list[Any] = [None] * len(owner)
    records = np.zeros(len(owner), dtype=np.int64)
    for party, answer in answers.items():
        places = np.flatnonzero(owner == party)
        records[places] = answer["records"]
        theirs = unpacked(answer["ways"], len(places), f"party '{talk.federation.name(party)}'")
        for place, way in zip(places, theirs, strict=True):
            ways[place] = way
    return {**{name: chosen[name] for name in ("trees", "nodes", "left")}, "ways": packed(ways)}, records


def _first_roots(block_of: NDArray[np.int64], *, apart: bool) -> Payload:
    """The roots to ask about. Those of trees that do not grow apart hold the same rows, so one a block is enough."""
    roots = np.arange(len(block_of)) if apart else np.unique(block_of, return_index=True)[1]
    return {"trees": roots.astype(np.int64), "nodes": roots.astype(np.int64)}


def _lighter(splits: Payload) -> Payload:
    """The child with fewer rows of each split: of the other one, the sums are what remains of their parent's."""
    ways = unpacked(splits["ways"], len(splits["nodes"]), "a party")
    right = np.array([2 * int(way.sum()) > len(way) for way in ways], dtype=np.int64)
    return {"trees": splits["trees"], "nodes": splits["left"] + right}


class _Growing:
    """The shape of the trees as far as the coordinator has heard of it."""

    def __init__(self, trees: int) -> None:
        self.tree, self.owner = list(range(trees)), [LEAF] * trees
        self.record, self.left = [LEAF] * trees, [LEAF] * trees

    def add(self, chosen: Payload, records: NDArray[np.int64]) -> None:
        """Splits of one level, whose children are numbered on from the last node."""
        for tree, node, left, owner, record in zip(*(chosen[name].tolist() for name in ("trees", "nodes", "left",
                                                                                        "owner")), records.tolist(),
                                                   strict=True):
            self.owner[node], self.record[node], self.left[node] = owner, record, left
            self.tree += [tree, tree]
            for values in (self.owner, self.record, self.left):
                values += [LEAF, LEAF]

    def skeleton(self) -> Skeleton:
        return put_in_order(*(np.array(values) for values in (self.tree, self.owner, self.record, self.left)))
