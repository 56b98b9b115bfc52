"""The coordinator's part of vertical trees: it carries what one party says to the others, level by level.

It gets to know the shape of the trees, whose each split is and which way rows go; no value, no column, no threshold.
Predictions need the parties too: rows go down all trees at once, and each split's owner says which way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.rows import RowCount, RowRequest, asked_rows
from tequio.algorithms.vertical.trees.labels import choose
from tequio.algorithms.vertical.trees.offering import divide, end, offer, packed, route, unpacked
from tequio.algorithms.vertical.trees.skeleton import put_in_order
from tequio.federation.task import NoSettings, Reveals, task
from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.trees.labels import Chosen, GrownRequest, Planted
    from tequio.algorithms.vertical.trees.offering import Divided, Nodes, Offers, Splits, TreeSettings
    from tequio.algorithms.vertical.trees.skeleton import Skeleton
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party


class Plan(NamedTuple):
    """How to grow: settings of the tasks, how deep, with whose columns, and how often rows count in each tree."""

    settings: TreeSettings
    depth: int
    others: Sequence[int]
    weights: NDArray[np.uint8] | None = None


class Grown(NamedTuple):
    """New trees, and the splits of the last level where the label holder does not know them yet."""

    trees: Skeleton
    last: Splits | None

    @property
    def request(self) -> GrownRequest:
        """The same, for the label holder."""
        trees = self.trees.to_payload()
        return {"grown": trees} if self.last is None else {"grown": trees, "splits": self.last}


def grow(talk: Conversation, planted: Planted, plan: Plan) -> Grown:
    """Grow the trees that the label holder has begun."""
    growing = _Growing(len(planted["block_of"]))
    splits: Splits | None = None
    asked = _first_roots(planted["block_of"], apart=plan.settings.apart)
    message: Payload = dict(planted)
    if plan.weights is not None:
        message["weights"] = plan.weights
    for _ in range(plan.depth):
        offers: dict[str, Offers] = {}
        if plan.others:
            replies = talk.ask(plan.others, offer, {**message, "asked": asked}, settings=plan.settings)
            offers = {str(reply.party): reply.payload for reply in replies}
        news = {} if splits is None else {"splits": splits}
        chosen = talk.ask_one(talk.roles.label_holder, choose, {"asked": asked, "offers": offers, **news},
                              settings=plan.settings)
        splits = None
        if not len(chosen["nodes"]):
            break
        splits, records = _divided(talk, chosen, plan)
        growing.add(chosen, records)
        asked, message = _lighter(splits), {"splits": splits}
    if plan.others:
        talk.ask(plan.others, end)
    return Grown(growing.skeleton(), splits)


def _divided(talk: Conversation, chosen: Chosen, plan: Plan) -> tuple[Splits, NDArray[np.int64]]:
    """Let the owners of the chosen splits divide their rows; the splits as all others get them, and the records."""
    label_holder, owner = talk.roles.label_holder, chosen["owner"]
    taken = {int(party): {"trees": chosen["trees"][owner == party], "nodes": chosen["nodes"][owner == party],
                          "offers": chosen["offers"][owner == party]}
             for party in np.unique(owner[owner != label_holder])}
    answers: dict[int, Divided] = {label_holder: chosen["own"]}
    if taken:
        replies = talk.ask(taken, divide, each=taken, settings=plan.settings)
        answers |= {reply.party: reply.payload for reply in replies}
    ways: dict[int, NDArray[np.bool_]] = {}
    records = np.zeros(len(owner), dtype=np.int64)
    for party, answer in answers.items():
        indices = np.flatnonzero(owner == party)
        records[indices] = answer["records"]
        theirs = unpacked(answer["ways"], len(indices), f"party '{talk.federation.name(party)}'")
        ways.update(zip(indices.tolist(), theirs, strict=True))
    return {"trees": chosen["trees"], "nodes": chosen["nodes"], "left": chosen["left"],
            "ways": packed([ways[index] for index in range(len(owner))])}, records


def _first_roots(block_of: NDArray[np.int64], *, apart: bool) -> Nodes:
    """The roots to ask about. Those of trees that do not grow apart hold the same rows: one per block is enough."""
    roots = np.arange(len(block_of)) if apart else np.unique(block_of, return_index=True)[1]
    return {"trees": roots.astype(np.int64), "nodes": roots.astype(np.int64)}


def _lighter(splits: Splits) -> Nodes:
    """The child with fewer rows of each split: of the other one, the sums are what remains of their parent's."""
    ways = unpacked(splits["ways"], len(splits["nodes"]), "a party")
    right = np.array([2 * int(way.sum()) > len(way) for way in ways], dtype=np.int64)
    return {"trees": splits["trees"], "nodes": splits["left"] + right}


class _Growing:
    """The shape of the trees as far as the coordinator knows it."""

    def __init__(self, trees: int) -> None:
        self.tree, self.owner = list(range(trees)), [LEAF] * trees
        self.record, self.left = [LEAF] * trees, [LEAF] * trees

    def add(self, chosen: Chosen, records: NDArray[np.int64]) -> None:
        """Splits of one level, whose children are numbered on from the last node."""
        for tree, node, left, owner, record in zip(chosen["trees"].tolist(), chosen["nodes"].tolist(),
                                                   chosen["left"].tolist(), chosen["owner"].tolist(),
                                                   records.tolist(), strict=True):
            self.owner[node], self.record[node], self.left[node] = owner, record, left
            self.tree += [tree, tree]
            for values in (self.owner, self.record, self.left):
                values += [LEAF, LEAF]

    def skeleton(self) -> Skeleton:
        return put_in_order(*(np.array(values) for values in (self.tree, self.owner, self.record, self.left)))


class ReachedLeaves(TypedDict):
    """(trees, rows) the leaf where each row ends."""

    leaves: NDArray[np.int32]


def leaves_reached(talk: Conversation, trees: Skeleton, request: Mapping[int, RowRequest]) -> NDArray[np.int32]:
    """(trees, rows) the leaf where each row of a request ends.

    A party learns which rows reach its own splits and answers for these only; it does not learn where they end.
    """
    label_holder = talk.roles.label_holder
    rows = talk.ask_one(label_holder, count_asked, request[label_holder])["rows"]
    here = np.repeat(trees.roots.astype(np.int32)[:, None], rows, axis=1)
    while True:
        open_nodes = np.unique(here)
        open_nodes = open_nodes[trees.owner[open_nodes] != LEAF]
        if not len(open_nodes):
            return here
        here = _one_level_down(talk, trees, request, here, open_nodes)


def _one_level_down(talk: Conversation, trees: Skeleton, request: Mapping[int, RowRequest], here: NDArray[np.int32],
                    open_nodes: NDArray[np.int32]) -> NDArray[np.int32]:
    tree_of = np.searchsorted(trees.roots, open_nodes, side="right") - 1
    reach = here[tree_of] == open_nodes[:, None]
    bits, owner = np.packbits(reach, axis=1), trees.owner[open_nodes]
    each = {int(party): {**request[int(party)], "records": trees.record[open_nodes[owner == party]],
                         "reach": bits[owner == party]} for party in np.unique(owner)}
    below = here.copy()
    for reply in talk.ask(each, route, each=each):
        indices = np.flatnonzero(owner == reply.party)
        ways = np.unpackbits(reply.payload["ways"], axis=1, count=here.shape[1]).astype(bool)
        for index, way in zip(indices, ways, strict=True):
            arrived, (left, right) = reach[index], trees.children[open_nodes[index]]
            below[tree_of[index], arrived] = np.where(way[arrived], left, right)
    return below


@task("vertical trees: count rows", settings=NoSettings, reply=RowCount, reveals=Reveals.COUNTS)
def count_asked(party: Party, payload: RowRequest, settings: NoSettings) -> RowCount:
    """At the label holder: how many rows a request means."""
    return {"rows": len(asked_rows(party, payload))}


describe(count_asked, rows="how many rows are meant")
