"""What every holder of columns does while trees grow: bins, offers, and dividing rows where its offer was taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.rows import asked_rows, common_rows
from tequio.algorithms.vertical.trees.columns import NO_RECORDS, OwnColumns, ways_of, with_record
from tequio.algorithms.vertical.trees.grove import counted_rows, roots_of
from tequio.algorithms.vertical.trees.routes import follow, packed
from tequio.algorithms.vertical.trees.sums import adding
from tequio.errors import PayloadError
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    Settings = Mapping[str, Any]


@task("vertical trees: bin")
def put_into_bins(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Put the own columns of the common training rows into bins, which nobody else gets to see."""
    columns = OwnColumns.of(common_rows(party, "train"), settings["bins"], "vertical trees")
    party.state["columns"] = columns.to_payload()
    party.state["records"] = NO_RECORDS
    return {}


@task("vertical trees: offer")
def offer(party: Party, payload: Payload, settings: Settings) -> Payload:
    """For each node asked about, what the rows left of each possible split add up to: hidden, and in secret order."""
    growing = _planted(party, payload) if "hidden" in payload else _descended(party, payload)
    party.state["growing"] = growing
    columns, asked = OwnColumns.kept_by(party), payload["asked"]
    adders = [adding(hidden, party, settings) for hidden in growing["hidden"]]
    offers: list[list[Any]] = [[] for _ in adders]
    sizes = np.zeros(len(asked["nodes"]), dtype=np.int64)
    for place, (tree, node) in enumerate(zip(asked["trees"].tolist(), asked["nodes"].tolist(), strict=True)):
        block, places = int(growing["block_of"][tree]), offered_places(party, columns, settings, tree)
        rows = counted_rows(growing["node_of"], growing["weights"], tree, node)
        offers[block].append(adders[block].left_sums(columns, rows, places))
        sizes[place] = len(places)
    return {"sizes": sizes, "blocks": [adder.send(sums) for adder, sums in zip(adders, offers, strict=True)]}


@task("vertical trees: divide")
def divide(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Where an offer was taken: remember the split, and say which way the rows go; what it looks at stays here."""
    growing, columns = party.state["growing"], OwnColumns.kept_by(party)
    records, numbers, ways = growing["records"], [], []
    for tree, node, chosen in zip(*(payload[name].tolist() for name in ("trees", "nodes", "offers")), strict=True):
        places = offered_places(party, columns, settings, tree)
        if not 0 <= chosen < len(places):
            raise PayloadError(f"party '{party.name}' is told that its offer {chosen} was taken, and made "
                               f"{len(places)}", remedy="all parties need the same version of tequio")
        number, records, way = taken_split(columns, int(places[chosen]), records, growing, tree, node)
        numbers.append(number)
        ways.append(way)
    party.state["growing"] = {**growing, "records": records}
    return {"records": np.array(numbers, dtype=np.int64), "ways": packed(ways)}


@task("vertical trees: end")
def end(party: Party, payload: Payload, settings: Settings) -> Payload:
    """The trees are grown: keep the splits that were taken, and forget everything else about them."""
    growing = party.state.pop("growing", None)
    if growing is not None:
        party.state["records"] = growing["records"]
    return {}


@task("vertical trees: route")
def route(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Of some own splits and the rows that reach them: which rows go left. Other rows' bits say nothing."""
    rows, whose = asked_rows(party, payload), f"party '{party.name}'"
    ways = [ways_of(party.state["records"], int(record), rows, whose) for record in payload["records"]]
    bits = np.packbits(np.stack(ways), axis=1) if ways else np.zeros((0, -(-len(rows) // 8)), np.uint8)
    if bits.shape != payload["reach"].shape:
        raise PayloadError(f"{whose} has {len(rows)} of the rows asked about, and is asked for another number",
                           remedy="align the parties' rows again")
    return {"ways": bits & payload["reach"]}


def offered_places(party: Party, columns: OwnColumns, settings: Settings, tree: int) -> NDArray[np.int64]:
    """The splits that the party offers for a tree, in the order in which it offers them.

    Drawn from the party's stream of this round, so that the same order comes out whenever it is needed. Trees that do
    not grow apart share it, and with it the offers for their roots.
    """
    return columns.offered(settings["columns"], party.rng(f"offers of tree {tree if settings['apart'] else 0}"))


def taken_split(columns: OwnColumns, place: int, records: Payload, growing: Payload, tree: int,
                node: int) -> tuple[int, Payload, NDArray[np.bool_]]:
    """The number of the record of a split that was taken, the records with it, and which rows of the node go left."""
    place = columns.lowest_equal(place, counted_rows(growing["node_of"], growing["weights"], tree, node))
    number, records = with_record(records, columns, place)
    return number, records, columns.left_of(place, np.flatnonzero(growing["node_of"][tree] == node))


def _planted(party: Party, payload: Payload) -> Payload:
    """What a party remembers while trees grow; leftovers of trees that did not come to their end are dropped."""
    rows, trees = OwnColumns.kept_by(party).codes.shape[1], len(payload["block_of"])
    weights = payload.get("weights")
    return {"hidden": payload["hidden"], "block_of": payload["block_of"], "node_of": roots_of(trees, rows),
            "weights": np.ones((trees, rows), np.uint8) if weights is None else weights,
            "records": party.state["records"]}


def _descended(party: Party, payload: Payload) -> Payload:
    growing = party.state.get("growing")
    if growing is None:
        raise PayloadError(f"party '{party.name}' is asked to go on with a tree that it has not begun",
                           remedy="go on from the last checkpoint: tequio run --resume RUN")
    return {**growing, "node_of": follow(growing["node_of"], payload["splits"], f"party '{party.name}'")}
