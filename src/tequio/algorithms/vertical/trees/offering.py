"""What every holder of columns does while trees grow: bins, offers, and dividing rows where its offer was taken.

What a split looks at never leaves the party: others know it by the number of its record alone. Which way rows go at a
node that was split is one bit per row, in the order of the rows at the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.rows import RowRequest, asked_rows, common_rows
from tequio.algorithms.vertical.trees.encrypted_sums import adding
from tequio.algorithms.vertical.trees.skeleton import OwnSplits, Records
from tequio.algorithms.vertical.trees.sums import Form, KeySettings
from tequio.errors import PayloadError
from tequio.federation.payload import Payload
from tequio.federation.task import Done, NoSettings, Reveals, Sums, record, task
from tequio.learners.trees.bins import Bins, quantile_cuts
from tequio.learners.trees.boosting import Boosting
from tequio.learners.trees.forest import RandomForest
from tequio.learners.trees.learner import numeric_rows
from tequio.noise.sampling import discrete_gaussian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.dataset import Dataset
    from tequio.federation.population import Party

_NO_RECORDS: Records = {"column": np.zeros(0, np.int32), "threshold": np.zeros(0)}


@record
class TreeSettings(KeySettings):
    """How trees grow.

    columns:  share of its columns that a party offers splits of
    apart:    whether every tree has its own draw of columns, so that no two share their offers
    names:    of the parties, by their numbers
    noise:    standard deviation of the noise on a bin's sums of gradients
    """

    learner: Boosting | RandomForest
    columns: float
    apart: bool
    names: dict[str, str]
    noise: float = 0.0


class Ways(TypedDict):
    """For each of several nodes how many rows it has, and one bit per row: whether it goes left."""

    sizes: NDArray[np.int64]
    bits: NDArray[np.uint8]


class Nodes(TypedDict):
    """Some nodes, and the tree of each."""

    trees: NDArray[np.int64]
    nodes: NDArray[np.int64]


class Splits(Nodes):
    """Nodes that were split, the left child of each, and which way its rows went."""

    left: NDArray[np.int64]
    ways: Ways


class BinnedColumns(TypedDict, total=False):
    """A party's columns in bins, as it keeps them."""

    codes: NDArray[np.unsignedinteger]
    cuts: list[NDArray[np.float64]]


class Growing(TypedDict, total=False):
    """What a party without labels keeps while trees grow."""

    hidden: list[Payload]
    block_of: NDArray[np.int64]
    node_of: NDArray[np.int32]
    weights: NDArray[np.uint8]
    records: Records


@dataclass(frozen=True, eq=False)
class OwnColumns:
    """(columns, rows) the bin of each number, and the bins."""

    codes: NDArray[np.unsignedinteger]
    bins: Bins

    @classmethod
    def of(cls, rows: Dataset, most_bins: int, algorithm: str) -> OwnColumns:
        """The columns of some rows, in at most that many bins each."""
        features = numeric_rows(rows, algorithm) if len(rows.schema.features) else np.zeros((len(rows), 0))
        bins = Bins(quantile_cuts(features, most_bins))
        return cls(bins.codes(features) if bins.cuts else np.zeros((0, len(rows)), np.uint8), bins)

    @classmethod
    def kept_by(cls, party: Party) -> OwnColumns:
        """As the party keeps them in its private state."""
        kept = party.recall(BinnedColumns)
        return cls(kept["codes"], Bins(tuple(kept["cuts"])))

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Places of the bins above which a column can be cut: all but the last of each column."""
        last = np.zeros(self.bins.total if self.bins.cuts else 0, dtype=bool)
        if self.bins.cuts:
            last[self.bins.starts + self.bins.sizes - 1] = True
        return np.flatnonzero(~last)

    def offered(self, share: float, rng: np.random.Generator) -> NDArray[np.int64]:
        """Places of the splits that are offered for a tree: those of a share of the columns, in a random order.

        The order keeps the receiver from seeing at once which offers belong to one column, and which to a larger cut.
        """
        places = self.places
        if share < 1 and self.bins.cuts:
            columns = len(self.bins.cuts)
            drawn = rng.permutation(columns)[:max(round(share * columns), 1)]
            places = places[np.isin(self.bins.column[places], drawn)]
        return rng.permutation(places)

    def lowest_equal(self, place: int, rows: NDArray[np.intp]) -> int:
        """The lowest place of the same column that sends the same of these rows left.

        Offers in random order are equally good there; the lowest is what growing in one place would take.
        """
        column = int(self.bins.column[place])
        codes = self.codes[column, rows]
        left = codes[codes <= place - self.bins.starts[column]]
        return int(self.bins.starts[column] + left.max()) if len(left) else place

    def left_of(self, place: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these rows go left where a column is cut above a place."""
        column = int(self.bins.column[place])
        left: NDArray[np.bool_] = self.codes[column, rows] <= place - self.bins.starts[column]
        return left


@record
class BinSettings:
    """The most bins of a column."""

    bins: int


@task("vertical trees: bin", settings=BinSettings, reply=Done, reveals=Reveals.NOTHING)
def put_into_bins(party: Party, payload: Payload, settings: BinSettings) -> Done:
    """Put the own columns of the common training rows into bins, which nobody else gets to see."""
    columns = OwnColumns.of(common_rows(party, "train"), settings.bins, "vertical trees")
    party.keep(BinnedColumns, {"codes": columns.codes, "cuts": list(columns.bins.cuts)})
    party.keep(OwnSplits, {"records": _NO_RECORDS})
    return {}


class OfferRequest(TypedDict):
    """Nodes to offer splits for: at first with hidden values to add up, then with the splits that were made last."""

    asked: Nodes
    hidden: NotRequired[list[Payload]]
    block_of: NotRequired[NDArray[np.int64]]
    weights: NotRequired[NDArray[np.uint8]]
    splits: NotRequired[Splits]


class Offers(TypedDict):
    """How many splits are offered for each node, and what the rows left of each add up to, hidden, by block."""

    sizes: NDArray[np.int64]
    blocks: list[Payload]


@task("vertical trees: offer", settings=TreeSettings, reply=Offers, reveals=Sums())
def offer(party: Party, payload: OfferRequest, settings: TreeSettings) -> Offers:
    """For each node asked about, what the rows left of each possible split add up to: hidden, and in secret order."""
    growing = _planted(party, payload) if "hidden" in payload else _descended(party, payload)
    party.keep(Growing, growing)
    columns, asked = OwnColumns.kept_by(party), payload["asked"]
    adders = [adding(hidden, party, settings.encryption) for hidden in growing["hidden"]]
    offers: list[list[Any]] = [[] for _ in adders]
    sizes = np.zeros(len(asked["nodes"]), dtype=np.int64)
    for index, (tree, node) in enumerate(zip(asked["trees"].tolist(), asked["nodes"].tolist(), strict=True)):
        block, places = int(growing["block_of"][tree]), offered_places(party, columns, settings, tree)
        rows = counted_rows(growing["node_of"], growing["weights"], tree, node)
        noise = _noise(party, columns, adders[block].channels, node, settings) if settings.noise else None
        offers[block].append(adders[block].left_sums(columns, rows, places, noise))
        sizes[index] = len(places)
    return {"sizes": sizes, "blocks": [adder.send(sums) for adder, sums in zip(adders, offers, strict=True)]}


def _noise(party: Party, columns: OwnColumns, channels: int, node: int, settings: TreeSettings) -> NDArray[np.int64]:
    """Discrete Gaussian noise on the sums of each bin at a node: no difference of two offers is then that of a row."""
    assert isinstance(settings.learner, Boosting)
    form = Form.of_gradients(columns.codes.shape[1], 1.0, settings.noise, settings.learner.bins)
    coins = party.coins(f"noise at node {node}")
    shape = (columns.bins.total if columns.bins.cuts else 0, channels)
    return discrete_gaussian(coins, float(np.ldexp(settings.noise, form.fraction)), shape)


class TakenOffers(Nodes):
    """Which of a party's offers were taken, and for which nodes."""

    offers: NDArray[np.int64]


class Divided(TypedDict):
    """Numbers of the records of new splits, and which way rows go at them."""

    records: NDArray[np.int64]
    ways: Ways


@task("vertical trees: divide", settings=TreeSettings, reply=Divided, reveals=Reveals.STRUCTURE)
def divide(party: Party, payload: TakenOffers, settings: TreeSettings) -> Divided:
    """Where an offer was taken: remember the split, and say which way the rows go; what it looks at stays here."""
    growing, columns = party.recall(Growing), OwnColumns.kept_by(party)
    records, numbers, ways = growing["records"], [], []
    for tree, node, chosen in zip(payload["trees"].tolist(), payload["nodes"].tolist(), payload["offers"].tolist(),
                                  strict=True):
        places = offered_places(party, columns, settings, tree)
        if not 0 <= chosen < len(places):
            raise PayloadError(f"party '{party.name}' made {len(places)} offers, but offer {chosen} was taken",
                               remedy="all parties need the same version of tequio")
        number, records, way = taken_split(columns, int(places[chosen]), records, growing["node_of"],
                                           growing["weights"], tree, node)
        numbers.append(number)
        ways.append(way)
    party.keep(Growing, {"records": records})
    return {"records": np.array(numbers, dtype=np.int64), "ways": packed(ways)}


@task("vertical trees: end", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def end(party: Party, payload: Payload, settings: NoSettings) -> Done:
    """The trees are grown: keep the splits that were taken, and forget everything else about them."""
    growing = party.recall(Growing)
    if growing:
        party.keep(OwnSplits, {"records": growing["records"]})
        party.forget(Growing)
    return {}


class RouteRequest(RowRequest):
    """Numbers of own splits, and one bit per row: whether it reaches the split."""

    records: NDArray[np.int32]
    reach: NDArray[np.uint8]


class Routes(TypedDict):
    """One bit per row: whether it goes left at a split."""

    ways: NDArray[np.uint8]


@task("vertical trees: route", settings=NoSettings, reply=Routes, reveals=Reveals.SCORES)
def route(party: Party, payload: RouteRequest, settings: NoSettings) -> Routes:
    """Of some own splits and the rows that reach them: which rows go left. Other rows' bits say nothing."""
    rows, whose = asked_rows(party, payload), f"party '{party.name}'"
    records = party.recall(OwnSplits)["records"]
    ways = [_left_at(records, int(number), rows, whose) for number in payload["records"]]
    bits = np.packbits(np.stack(ways), axis=1) if ways else np.zeros((0, -(-len(rows) // 8)), np.uint8)
    if bits.shape != payload["reach"].shape:
        raise PayloadError(f"{whose} has {len(rows)} of the rows asked about, and is asked for another number",
                           remedy="align the parties' rows again")
    return {"ways": bits & payload["reach"]}


def offered_places(party: Party, columns: OwnColumns, settings: TreeSettings, tree: int) -> NDArray[np.int64]:
    """The splits that the party offers for a tree, in the order in which it offers them.

    Drawn from the party's stream of this round, so that the same order comes out whenever it is needed. Trees that do
    not grow apart share it, and with it the offers for their roots.
    """
    return columns.offered(settings.columns, party.rng(f"offers of tree {tree if settings.apart else 0}"))


def taken_split(columns: OwnColumns, place: int, records: Records, node_of: NDArray[np.int32],
                weights: NDArray[np.uint8], tree: int, node: int) -> tuple[int, Records, NDArray[np.bool_]]:
    """The number of the record of a split that was taken, the records with it, and which rows of the node go left."""
    place = columns.lowest_equal(place, counted_rows(node_of, weights, tree, node))
    more: Records = {"column": np.append(records["column"], columns.bins.column[place]).astype(np.int32),
                     "threshold": np.append(records["threshold"], columns.bins.threshold[place])}
    return len(records["column"]), more, columns.left_of(place, np.flatnonzero(node_of[tree] == node))


def roots_of(trees: int, rows: int) -> NDArray[np.int32]:
    """(trees, rows) all rows at the roots."""
    return np.repeat(np.arange(trees, dtype=np.int32)[:, None], rows, axis=1)


def counted_rows(node_of: NDArray[np.int32], weights: NDArray[np.uint8], tree: int, node: int) -> NDArray[np.intp]:
    """The rows at a node of a tree, each as often as it counts."""
    rows = np.flatnonzero(node_of[tree] == node)
    return np.repeat(rows, weights[tree, rows])


def packed(ways: Sequence[NDArray[np.bool_]]) -> Ways:
    """The ways of the rows of several nodes as they travel."""
    every = np.concatenate(ways) if ways else np.zeros(0, dtype=bool)
    return {"sizes": np.array([len(way) for way in ways], dtype=np.int64), "bits": np.packbits(every)}


def unpacked(ways: Mapping[str, object], nodes: int, whose: str) -> list[NDArray[np.bool_]]:
    """The ways back, one array per node; anything but that many is refused."""
    sizes, bits = ways.get("sizes"), ways.get("bits")
    if not isinstance(sizes, np.ndarray) or not isinstance(bits, np.ndarray) or sizes.shape != (nodes,) or \
            sizes.dtype != np.int64 or bits.dtype != np.uint8 or (sizes < 0).any() or \
            bits.shape != (-(-int(sizes.sum()) // 8),):
        raise PayloadError(f"{whose} sent something that does not say which way the rows of {nodes} nodes go",
                           remedy="all parties need the same version of tequio")
    every = np.unpackbits(bits, count=int(sizes.sum())).astype(bool)
    return np.split(every, np.cumsum(sizes)[:-1]) if nodes else []


def follow(node_of: NDArray[np.int32], splits: Splits, whose: str) -> NDArray[np.int32]:
    """(trees, rows) nodes where rows are after some nodes were split, from those where they were before.

    Node `nodes[i]` of tree `trees[i]` sends its rows to `left[i]` or to the node after that, as `ways` says.
    """
    after = node_of.copy()
    nodes = splits["nodes"]
    for tree, node, left, way in zip(splits["trees"], nodes, splits["left"],
                                     unpacked(splits["ways"], len(nodes), "the coordinator"), strict=True):
        rows = np.flatnonzero(node_of[tree] == node)
        if len(rows) != len(way):
            raise PayloadError(f"{whose} has {len(rows)} rows at node {node} of a tree, others have {len(way)}",
                               remedy="align the parties' rows again: start a new run")
        after[tree, rows] = np.where(way, left, left + 1)
    return after


def _left_at(records: Records, number: int, rows: Dataset, whose: str) -> NDArray[np.bool_]:
    """Which rows go left at a record of the party's own."""
    if not 0 <= number < len(records["column"]):
        raise PayloadError(f"{whose} is asked for split {number} and keeps {len(records['column'])} of them",
                           remedy="its private state is not that of this run: restore it, or train again")
    column, threshold = int(records["column"][number]), float(records["threshold"][number])
    left: NDArray[np.bool_] = numeric_rows(rows, "vertical trees")[:, column] <= threshold
    return left


def _planted(party: Party, payload: OfferRequest) -> Growing:
    """What a party remembers while trees grow; leftovers of trees that did not come to their end are dropped."""
    rows, trees = OwnColumns.kept_by(party).codes.shape[1], len(payload["block_of"])
    weights = payload.get("weights")
    return {"hidden": payload["hidden"], "block_of": payload["block_of"], "node_of": roots_of(trees, rows),
            "weights": np.ones((trees, rows), np.uint8) if weights is None else weights,
            "records": party.recall(OwnSplits)["records"]}


def _descended(party: Party, payload: OfferRequest) -> Growing:
    growing = party.recall(Growing)
    if not growing:
        raise PayloadError(f"party '{party.name}' is asked to continue a tree that it has not begun",
                           remedy="resume from the last checkpoint: tequio run --resume RUN")
    return {**growing, "node_of": follow(growing["node_of"], payload["splits"], f"party '{party.name}'")}


HIDDEN = "each row's gradient and second derivative, or class: encrypted (in clear with encryption 'plain')"
BLOCK_OF = "how values are packed"
SUMS = "what the rows left of each possible split add up to, for the label holder only: encrypted, in secret order"
ASKED = "nodes of the growing trees whose splits are to be offered"
SPLITS = "which way rows went at the nodes that were split last: it groups rows whose labels are alike"
NODES = {"trees": "in which tree a node was split", "nodes": "which node was split"}
WEIGHTS = "how often a row counts in each tree"
_RECORDS = "numbers of splits; what they look at, only their owner knows"
describe(offer, hidden=HIDDEN, block_of=BLOCK_OF, weights=WEIGHTS, asked=ASKED, splits=SPLITS, blocks=SUMS,
         sizes="how many splits the party offers: its columns times their bins")
describe(divide, **NODES, offers="which of the party's own offers were taken", records=_RECORDS,
         ways="which rows of a node go left")
describe(route, records=_RECORDS, reach="which rows reach the receiver's splits", ways="which of these rows go left")
