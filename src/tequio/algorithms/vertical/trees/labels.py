"""What the label holder does while trees grow: hide values, open offers, choose the best splits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.trees.columns import OwnColumns
from tequio.algorithms.vertical.trees.grove import Grove, counted_rows
from tequio.algorithms.vertical.trees.offering import offered_places, taken_split
from tequio.algorithms.vertical.trees.routes import packed
from tequio.algorithms.vertical.trees.sums import Form, PlainAdding, hiding, most_channels
from tequio.errors import DataError, PayloadError
from tequio.federation.task import task
from tequio.learners.trees.boosting import Boosting
from tequio.learners.trees.offers import LossEarned, PurityEarned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.trees.grove import Offers
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.trees.offers import Best

    Settings = Mapping[str, Any]


def plant(party: Party, grove: Grove, form: Form, settings: Settings, *, hide: bool) -> Payload:
    """Begin trees: keep what they grow from, and give the hidden values to be added up by others.

    Channels go into as few blocks as hold them, each of which is hidden as one number a row.
    """
    block_of = _blocks(grove.channels, most_channels(settings, form))
    blocks = [(int(grove.channels[block_of == block].min()), int(grove.channels[block_of == block].max()))
              for block in range(int(block_of.max()) + 1)]
    party.state["growing"] = {"grove": grove.to_payload(), "block_of": block_of, "records": party.state["records"],
                              "blocks": np.array(blocks, dtype=np.int64),
                              "form": list(form)}
    reply: Payload = {"block_of": block_of}
    if hide:
        reply["hidden"] = [hiding(party, settings, end - first, form).hide(grove.values[:, first:end])
                           for first, end in blocks]
    return reply


def _blocks(channels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The block of each tree: trees that look at the same channels share one."""
    first, place = np.unique(channels[:, 0], return_inverse=True)
    each = int(channels[0, 1] - channels[0, 0])
    if each > most:
        raise DataError(f"{each} classes do not fit under this key, which has room for {most}",
                        remedy="use a longer key: algorithm.encryption.bits")
    return np.asarray(place // (most // each) if len(first) > 1 else place, dtype=np.int64)


@task("vertical trees: choose")
def choose(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Open what the others offer for the nodes asked about, and choose the best split of every open node."""
    growing = party.state["growing"]
    grove, splits = Grove.from_payload(growing["grove"]), payload.get("splits")
    if splits is not None:
        grove.descend(splits, f"party '{party.name}'")
    offered = _all_offers(party, grove, payload, settings)
    holders = [party.index, *sorted(int(name) for name in payload["offers"])]
    if splits is None:
        grove.open_roots(offered)
    else:
        grove.open_children(splits, offered, [settings["names"][str(holder)] for holder in holders])
    taken = grove.split(earning_of(settings, len(grove.values)))
    records, own = _own_splits(party, grove, taken, growing["records"], settings)
    party.state["growing"] = {**growing, "grove": grove.to_payload(), "records": records}
    nodes = np.array([node for node, _ in taken], dtype=np.int64)
    return {"trees": grove.tree[nodes], "nodes": nodes, "left": grove.left[nodes],
            "owner": np.array([holders[best.holder] for _, best in taken], dtype=np.int64),
            "offers": np.array([best.offer if best.holder else -1 for _, best in taken], dtype=np.int64), "own": own}


def earning_of(settings: Settings, rows: int) -> LossEarned | PurityEarned:
    """How the worth of a split is reckoned, by the learner."""
    learner = settings["learner"]
    if isinstance(learner, Boosting):
        return LossEarned(learner.growth)
    smallest = learner.min_split if isinstance(learner.min_split, int) else learner.min_split * rows
    return PurityEarned(learner.criterion, max(2, smallest), learner.min_leaf)


def _all_offers(party: Party, grove: Grove, payload: Payload, settings: Settings) -> dict[int, Offers]:
    """For the nodes asked about (and for roots that share their offers), the offers of each holder, own ones first."""
    asked, columns = payload["asked"], OwnColumns.kept_by(party)
    nodes = dict(zip(asked["nodes"].tolist(), asked["trees"].tolist(), strict=True))
    if "splits" not in payload:
        nodes = {int(root): int(root) for root in grove.open}
    found: dict[int, Offers] = {node: [_own_offers(party, grove, columns, tree, node, settings)]
                                for node, tree in nodes.items()}
    for name in sorted(payload["offers"], key=int):
        theirs = _opened(party, grove, payload["offers"][name], asked, settings, name)
        for node, tree in nodes.items():
            # The roots of a block that were not asked about hold the same rows as the one that was.
            source = node if node in theirs else _same_rows(party, asked, tree)
            first, end = grove.channels[tree] - party.state["growing"]["blocks"][_block(party, tree), 0]
            found[node].append(theirs[source][:, first:end])
    return found


def _opened(party: Party, grove: Grove, reply: Payload, asked: Payload, settings: Settings,
            name: str) -> dict[int, NDArray[np.int64]]:
    """A party's left sums of all channels of a block, by node."""
    whose, growing = f"party '{settings['names'][name]}'", party.state["growing"]
    sizes, blocks = _checked_offers(reply, asked, len(growing["blocks"]), whose)
    found: dict[int, NDArray[np.int64]] = {}
    block_of = growing["block_of"][asked["trees"]]
    for block, (first, end) in enumerate(growing["blocks"].tolist()):
        here = np.flatnonzero(block_of == block)
        sums = hiding(party, settings, end - first, Form(*growing["form"])).open(
            blocks[block], int(sizes[here].sum()), whose)
        starts = np.cumsum(sizes[here]) - sizes[here]
        for place, start in zip(here, starts, strict=True):
            found[int(asked["nodes"][place])] = sums[start:start + sizes[place]]
    return found


def _checked_offers(reply: Payload, asked: Payload, count: int, whose: str) -> tuple[NDArray[np.int64], list[Payload]]:
    """How many offers there are for each node, and the blocks that hold them."""
    sizes, blocks = reply.get("sizes"), reply.get("blocks")
    if not isinstance(sizes, np.ndarray) or sizes.dtype != np.int64 or sizes.shape != asked["nodes"].shape or \
            (sizes < 0).any() or not isinstance(blocks, list) or len(blocks) != count:
        raise PayloadError(f"{whose} sent something that is not offers for {len(asked['nodes'])} nodes",
                           remedy="all parties need the same version of tequio")
    return sizes, blocks


def _own_offers(party: Party, grove: Grove, columns: OwnColumns, tree: int, node: int,
                settings: Settings) -> NDArray[np.int64]:
    first, end = grove.channels[tree]
    rows = counted_rows(grove.node_of, grove.weights, tree, node)
    places = offered_places(party, columns, settings, tree)
    return PlainAdding(grove.values[:, first:end]).left_sums(columns, rows, places)


def _own_splits(party: Party, grove: Grove, taken: list[tuple[int, Best]], records: Payload,
                settings: Settings) -> tuple[Payload, Payload]:
    """The label holder's records with those of its own splits among the taken ones, and the ways of their rows."""
    columns, numbers, ways = OwnColumns.kept_by(party), [], []
    growing = {"node_of": grove.node_of, "weights": grove.weights}
    for node, tree, offer in ((node, int(grove.tree[node]), best.offer) for node, best in taken if best.holder == 0):
        place = int(offered_places(party, columns, settings, tree)[offer])
        number, records, way = taken_split(columns, place, records, growing, tree, node)
        numbers.append(number)
        ways.append(way)
    return records, {"records": np.array(numbers, dtype=np.int64), "ways": packed(ways)}


def _block(party: Party, tree: int) -> int:
    return int(party.state["growing"]["block_of"][tree])


def _same_rows(party: Party, asked: Payload, tree: int) -> int:
    """The root that was asked about of a tree's block."""
    blocks = party.state["growing"]["block_of"][asked["trees"]]
    return int(asked["nodes"][blocks == _block(party, tree)][0])
