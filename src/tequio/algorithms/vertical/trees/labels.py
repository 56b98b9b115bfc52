"""What the label holder does while trees grow: hide values, open offers, choose the best splits, keep the leaves.

It alone knows what the rows of a node add up to, and what leaves say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.trees.encrypted_sums import hiding
from tequio.algorithms.vertical.trees.offering import (
    ASKED,
    NODES,
    SPLITS,
    SUMS,
    Divided,
    Nodes,
    Offers,
    OwnColumns,
    Splits,
    TreeSettings,
    counted_rows,
    follow,
    offered_places,
    packed,
    roots_of,
    taken_split,
)
from tequio.algorithms.vertical.trees.skeleton import OwnSplits, OwnTrees, Records, Skeleton, order_by_tree
from tequio.algorithms.vertical.trees.sums import Form, KeySettings, PlainAdding, most_channels
from tequio.errors import DataError, PayloadError
from tequio.federation.payload import Payload
from tequio.federation.task import Reveals, record, task
from tequio.learners.learner import Arrays
from tequio.learners.trees.bins import LossEarned, PurityEarned, best_offer
from tequio.learners.trees.boosting import Boosting
from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.federation.population import Party
    from tequio.learners.trees.bins import Best, Earning

    LeftSums = list[NDArray[np.int64]]
    """What is offered for one node, by holder: the label holder's own first."""


@dataclass
class Grove:
    """Trees that grow side by side. Nodes are numbered through; node i is the root of tree i.

    values:     (rows, channels) what is added up of each row, in units of 2^-fraction
    weights:    (trees, rows) how often a row counts in a tree
    channels:   (trees, 2) the first channel of a tree, and the one after its last
    node_of:    (trees, rows) where each row is
    tree, left, sums, gain:  of each node: its tree, its left child, its rows' sums and what its split earned
    open:       nodes that are to be split, with what was offered for each in `offers`
    """

    values: NDArray[np.int64]
    weights: NDArray[np.uint8]
    channels: NDArray[np.int64]
    fraction: int
    node_of: NDArray[np.int32]
    tree: NDArray[np.int64]
    left: NDArray[np.int64]
    sums: NDArray[np.int64]
    gain: NDArray[np.float64]
    open: NDArray[np.int64]
    offers: list[LeftSums]

    @classmethod
    def planted(cls, values: NDArray[np.int64], channels: NDArray[np.int64], fraction: int,
                weights: NDArray[np.uint8]) -> Grove:
        """Roots only, of which each holds all rows."""
        trees = len(channels)
        sums = [(values[:, first:end] * weights[tree, :, None]).sum(axis=0)
                for tree, (first, end) in enumerate(channels)]
        return cls(values, weights, channels, fraction, roots_of(trees, len(values)), np.arange(trees),
                   np.full(trees, LEAF), np.stack(sums), np.zeros(trees), np.arange(trees), [])

    def to_payload(self) -> Payload:
        """For the label holder's private state."""
        return dict(vars(self))

    def descend(self, splits: Splits, whose: str) -> None:
        """Take the rows down to the children of the nodes that were split, and add them up there.

        What was offered for a split may hold noise, or be wrong: from here on the rows themselves count.
        """
        self.node_of, self.sums = follow(self.node_of, splits, whose), self.sums.copy()
        for tree, left in zip(splits["trees"].tolist(), splits["left"].tolist(), strict=True):
            first, end = self.channels[tree]
            for node in (left, left + 1):
                rows = counted_rows(self.node_of, self.weights, tree, node)
                self.sums[node] = self.values[rows, first:end].sum(axis=0)

    def open_roots(self, offered: Mapping[int, LeftSums]) -> None:
        """The first offers: one for each root."""
        self.offers = [offered[node] for node in self.open.tolist()]

    def open_children(self, splits: Splits, offered: Mapping[int, LeftSums], names: Sequence[str]) -> None:
        """Offers for both children of each split from those for one: the other's are what is left of the parent's.

        `names` are those of the holders, for an error about one that does not offer the same splits at every node.
        """
        before = dict(zip(self.open.tolist(), self.offers, strict=True))
        self.open, self.offers = np.zeros(2 * len(splits["nodes"]), np.int64), []
        for index, (parent, left) in enumerate(zip(splits["nodes"].tolist(), splits["left"].tolist(), strict=True)):
            self.open[2 * index:2 * index + 2] = left, left + 1
            for child, sibling in ((left, left + 1), (left + 1, left)):
                self.offers.append(offered[child] if child in offered else
                                   _what_is_left(before[parent], offered[sibling], names))

    def split(self, earning: Earning) -> list[tuple[int, Best]]:
        """Split the open nodes where an offer earns enough; says which, and by which offer."""
        unit, taken = np.float64(2.0 ** -self.fraction), []
        self.left, self.gain = self.left.copy(), self.gain.copy()
        for node, offers in zip(self.open.tolist(), self.offers, strict=True):
            best = best_offer(earning, [left * unit for left in offers], self.sums[node] * unit)
            if best is not None:
                self._grow(node, offers[best.holder][best.offer], best.gain)
                taken.append((node, best))
        return taken

    def _grow(self, node: int, left_sums: NDArray[np.int64], gain: float) -> None:
        self.left[node], self.gain[node] = len(self.left), gain
        self.tree = np.append(self.tree, [self.tree[node]] * 2)
        self.left = np.append(self.left, [LEAF] * 2)
        self.gain = np.append(self.gain, [0.0] * 2)
        self.sums = np.concatenate([self.sums, left_sums[None], (self.sums[node] - left_sums)[None]])


def _what_is_left(whole: LeftSums, part: LeftSums, names: Sequence[str]) -> LeftSums:
    for name, first, second in zip(names, whole, part, strict=True):
        if first.shape != second.shape:
            raise PayloadError(f"party '{name}' offers {len(second)} splits for a node, and {len(first)} for its "
                               "parent", remedy="begin the round again; if it recurs, do not trust that party")
    return [first - second for first, second in zip(whole, part, strict=True)]


class GrowingGrove(TypedDict, total=False):
    """What the label holder keeps while trees grow.

    block_of:  the block of hidden values that each tree looks at
    blocks:    the first channel of each block, and the one after its last
    form:      of the hidden numbers
    """

    grove: Payload
    block_of: NDArray[np.int64]
    blocks: NDArray[np.int64]
    form: list[int]
    records: Records


@record
class PlantSettings(KeySettings):
    """Whether other parties add values up, so that they have to be hidden."""

    hide: bool


class TreesSoFar(TypedDict):
    """How many trees the run has, and how often a row counts in each of the next ones."""

    trees: int
    weights: NotRequired[NDArray[np.uint8]]


class Planted(TypedDict):
    """The values that others add up, hidden, and which block of them each tree looks at."""

    block_of: NDArray[np.int64]
    hidden: NotRequired[list[Payload]]


def plant(party: Party, grove: Grove, form: Form, settings: PlantSettings) -> Planted:
    """Begin trees: keep what they grow from, and give the hidden values to be added up by others.

    Channels go into as few blocks as hold them, each of which is hidden as one number per row.
    """
    block_of = _blocks(grove.channels, most_channels(settings.encryption, form))
    blocks = [(int(grove.channels[block_of == block].min()), int(grove.channels[block_of == block].max()))
              for block in range(int(block_of.max()) + 1)]
    party.keep(GrowingGrove, {
        "grove": grove.to_payload(), "block_of": block_of, "blocks": np.array(blocks, dtype=np.int64),
        "form": list(form), "records": party.recall(OwnSplits)["records"]})
    if not settings.hide:
        return {"block_of": block_of}
    hidden = [hiding(party, settings.encryption, end - first, form).hide(grove.values[:, first:end])
              for first, end in blocks]
    return {"block_of": block_of, "hidden": hidden}


def _blocks(channels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The block of each tree: trees that look at the same channels share one."""
    first, number = np.unique(channels[:, 0], return_inverse=True)
    each = int(channels[0, 1] - channels[0, 0])
    if each > most:
        raise DataError(f"{each} classes do not fit under this key, which has room for {most}",
                        remedy="use a longer key: algorithm.encryption.bits")
    return np.asarray(number // (most // each) if len(first) > 1 else number, dtype=np.int64)


class ChooseRequest(TypedDict):
    """What the others offer for some nodes, by the number of the party, and the splits that were made last."""

    asked: Nodes
    offers: dict[str, Offers]
    splits: NotRequired[Splits]


class Chosen(Nodes):
    """Nodes to split: their left children, whose split is taken and which offer, and the label holder's own splits."""

    left: NDArray[np.int64]
    owner: NDArray[np.int64]
    offers: NDArray[np.int64]
    own: Divided


@task("vertical trees: choose", settings=TreeSettings, reply=Chosen, reveals=Reveals.STRUCTURE)
def choose(party: Party, payload: ChooseRequest, settings: TreeSettings) -> Chosen:
    """Open what the others offer for the nodes asked about, and choose the best split of every open node."""
    growing = party.recall(GrowingGrove)
    grove, splits = Grove(**growing["grove"]), payload.get("splits")
    if splits is not None:
        grove.descend(splits, f"party '{party.name}'")
    offered = _all_offers(party, grove, growing, payload, settings)
    holders = [party.index, *sorted(int(name) for name in payload["offers"])]
    if splits is None:
        grove.open_roots(offered)
    else:
        grove.open_children(splits, offered, [settings.names[str(holder)] for holder in holders])
    taken = grove.split(_earning(settings, len(grove.values)))
    records, own = _own_splits(party, grove, taken, growing["records"], settings)
    party.keep(GrowingGrove, {"grove": grove.to_payload(), "records": records})
    nodes = np.array([node for node, _ in taken], dtype=np.int64)
    return {"trees": grove.tree[nodes], "nodes": nodes, "left": grove.left[nodes],
            "owner": np.array([holders[best.holder] for _, best in taken], dtype=np.int64),
            "offers": np.array([best.offer if best.holder else -1 for _, best in taken], dtype=np.int64), "own": own}


def _earning(settings: TreeSettings, rows: int) -> Earning:
    """How the worth of a split is reckoned, by the learner."""
    learner = settings.learner
    if isinstance(learner, Boosting):
        return LossEarned(learner.growth)
    smallest = learner.min_split if isinstance(learner.min_split, int) else learner.min_split * rows
    return PurityEarned(learner.criterion, max(2, smallest), learner.min_leaf)


def _all_offers(party: Party, grove: Grove, growing: GrowingGrove, payload: ChooseRequest,
                settings: TreeSettings) -> dict[int, LeftSums]:
    """For the nodes asked about (and for roots that share their offers), the offers of each holder, own ones first."""
    asked, columns, block_of = payload["asked"], OwnColumns.kept_by(party), growing["block_of"]
    nodes = dict(zip(asked["nodes"].tolist(), asked["trees"].tolist(), strict=True))
    if "splits" not in payload:
        nodes = {int(root): int(root) for root in grove.open}
    found: dict[int, LeftSums] = {}
    for node, tree in nodes.items():
        first, end = grove.channels[tree]
        rows = counted_rows(grove.node_of, grove.weights, tree, node)
        places = offered_places(party, columns, settings, tree)
        found[node] = [PlainAdding(grove.values[:, first:end]).left_sums(columns, rows, places)]
    for name in sorted(payload["offers"], key=int):
        theirs = _opened(party, growing, payload["offers"][name], asked, settings, name)
        for node, tree in nodes.items():
            # The roots of a block that were not asked about hold the same rows as the one that was.
            same_rows = node if node in theirs else int(
                asked["nodes"][block_of[asked["trees"]] == block_of[tree]][0])
            first, end = grove.channels[tree] - growing["blocks"][block_of[tree], 0]
            found[node].append(theirs[same_rows][:, first:end])
    return found


def _opened(party: Party, growing: GrowingGrove, reply: Offers, asked: Nodes, settings: TreeSettings,
            name: str) -> dict[int, NDArray[np.int64]]:
    """A party's left sums of all channels of a block, by node."""
    whose, sizes, blocks = f"party '{settings.names[name]}'", reply["sizes"], reply["blocks"]
    if sizes.dtype != np.int64 or sizes.shape != asked["nodes"].shape or (sizes < 0).any() or \
            len(blocks) != len(growing["blocks"]):
        raise PayloadError(f"{whose} sent something that is not offers for {len(asked['nodes'])} nodes",
                           remedy="all parties need the same version of tequio")
    found: dict[int, NDArray[np.int64]] = {}
    block_of = growing["block_of"][asked["trees"]]
    for block, (first, end) in enumerate(growing["blocks"].tolist()):
        here = np.flatnonzero(block_of == block)
        sums = hiding(party, settings.encryption, end - first, Form(*growing["form"])).open(
            blocks[block], int(sizes[here].sum()), whose)
        starts = np.cumsum(sizes[here]) - sizes[here]
        for index, start in zip(here, starts, strict=True):
            found[int(asked["nodes"][index])] = sums[start:start + sizes[index]]
    return found


def _own_splits(party: Party, grove: Grove, taken: list[tuple[int, Best]], records: Records,
                settings: TreeSettings) -> tuple[Records, Divided]:
    """The label holder's records with those of its own splits among the taken ones, and the ways of their rows."""
    columns, numbers, ways = OwnColumns.kept_by(party), [], []
    for node, tree, offer in ((node, int(grove.tree[node]), best.offer) for node, best in taken if best.holder == 0):
        place = int(offered_places(party, columns, settings, tree)[offer])
        number, records, way = taken_split(columns, place, records, grove.node_of, grove.weights, tree, node)
        numbers.append(number)
        ways.append(way)
    return records, {"records": np.array(numbers, dtype=np.int64), "ways": packed(ways)}


class GrownRequest(TypedDict):
    """The shape of trees that came to their end, and their last splits where the label holder does not know them."""

    grown: Arrays
    splits: NotRequired[Splits]


class GrownLeaves(NamedTuple):
    """Trees that have come to their end: what they grew from, their shape, and the order of their nodes in it."""

    grove: Grove
    trees: Skeleton
    order: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """How many rows reach each node, in the order of the shape."""
        counts = np.bincount(self.grove.node_of.ravel(), minlength=len(self.order))
        for node in np.flatnonzero(self.grove.left >= 0)[::-1]:  # children come after their parents
            counts[node] = counts[self.grove.left[node]] + counts[self.grove.left[node] + 1]
        return counts[self.order]


def grown_leaves(party: Party, payload: GrownRequest) -> GrownLeaves:
    """Take the rows to the last leaves, and keep the own splits that were taken."""
    growing = party.recall(GrowingGrove)
    grove = Grove(**growing["grove"])
    if "splits" in payload:
        grove.descend(payload["splits"], f"party '{party.name}'")
    trees, order = Skeleton.of(payload["grown"]), order_by_tree(grove.tree)
    if len(trees.owner) != len(order):
        raise PayloadError(f"party '{party.name}' has grown {len(order)} nodes but received {len(trees.owner)}",
                           remedy="resume from the last checkpoint: tequio run --resume RUN")
    party.keep(OwnSplits, {"records": growing["records"]})
    party.forget(GrowingGrove)
    return GrownLeaves(grove, trees, order)


def keep_trees(party: Party, grown: GrownLeaves, says: Arrays, margins: NDArray[np.float64] | None = None) -> None:
    """Add trees to those that the label holder keeps, with what their nodes say and the margins that they lead to."""
    new = {**{name: values[grown.order] for name, values in says.items()}, "rows": grown.rows,
           "gain": grown.grove.gain[grown.order]}
    kept = party.recall(OwnTrees)
    before = kept.get("trees") or {**Skeleton.empty().to_payload(), **{name: values[:0] for name, values in
                                                                       new.items()}}
    after: OwnTrees = {"trees": {**Skeleton.of(before).plus(grown.trees).to_payload(),
                                 **{name: np.concatenate([before[name], values]) for name, values in new.items()}}}
    after["before"] = {"trees": before}
    if margins is not None:
        after["margins"], after["before"]["margins"] = margins, kept["margins"]
    party.keep(OwnTrees, after)


def require_trees(party: Party, count: int) -> None:
    """Go on from that many trees: if the last ones never reached the coordinator, take them back."""
    kept = party.recall(OwnTrees)
    if _count(kept) == count:
        return
    before = kept.get("before")
    if before is None or _count(before) != count:
        raise PayloadError(f"party '{party.name}' keeps {_count(kept)} trees, and the run has {count}",
                           remedy="restore the party's state of this run, or train again")
    party.keep(OwnTrees, before)


def _count(kept: OwnTrees) -> int:
    return len(kept["trees"]["sizes"]) if "trees" in kept else 0


describe(choose, asked=ASKED, splits=SPLITS, offers=SUMS, **NODES, left="numbers of the new nodes",
         owner="whose split was the best", own="which rows go left at splits of the label holder")
