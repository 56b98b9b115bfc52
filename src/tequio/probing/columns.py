"""Columns of other parties, read by the label holder: from scores and activations, and from sums over bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from tequio.algorithms.vertical.regression_tasks import OwnWeights
from tequio.algorithms.vertical.trees.offering import OwnColumns, TreeSettings, follow, offered_places, roots_of
from tequio.algorithms.vertical.trees.secureboost import SecureBoost
from tequio.attacks.privacy.columns import differing_by_a_row, explained, learnt_columns, solved_columns
from tequio.errors import ConfigError
from tequio.federation.rng import stream
from tequio.privacy.encryption.plain import Plain
from tequio.probing.overheard import ProbeOfVertical, overheard, without_labels
from tequio.probing.probe import interval
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.experiments.running.results import Result
    from tequio.probing.overheard import Overheard
    from tequio.probing.probe import View

    Floats = NDArray[np.float64]

_DRAWS, _RESAMPLED = 10, 400


@register("probe", "feature-inference", paper="Luo et al., 2021")
@dataclass(frozen=True)
class FeatureInference(ProbeOfVertical):
    """What do another party's columns hold? From its activations or scores, as the label holder gets them.

    `success` is the share of the columns' variance that a regression explains which some known rows are enough to fit,
    `guess` the same from the label holder's own columns alone. In a regression the label holder is given the scores of
    the training rows, as predicting reveals them; `solved` is what it explains with the weights and no known rows.

    Parameters:
        known: rows whose columns the label holder happens to know
        party: whose columns (left out: the first party without labels)
    """

    algorithms: ClassVar[tuple[str, ...]] = ("split-nn", "transfer", "vertical-logistic", "vertical-linear",
                                            "vertical-poisson")
    assumes: ClassVar[str] = "its own columns, activations (split network, transfer) or scores (regression), and " \
                             "some of the other party's rows; for `solved` the other party's weights instead"

    known: Annotated[int, Ge(10)] = 50
    party: str = ""

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """What was seen last of each training row."""
        heard = overheard(result)
        party, holder = without_labels(heard, self.party), heard.roles.label_holder
        columns, own, rng = heard.columns(party), heard.columns(holder), stream(result.config.seed, "probe columns")
        if self.known > len(columns) // 2:
            raise ConfigError(f"of {len(columns)} training rows {self.known} cannot be known",
                              remedy=f"set known = {len(columns) // 2}")
        kept = heard.party(party).recall(OwnWeights).get("weights")  # one for each of several classes
        weights = np.stack(list(kept.values()), axis=1) if isinstance(kept, dict) else kept
        seen = _activations(heard, party) if weights is None else (columns @ weights).reshape(len(columns), -1)
        more: dict[str, float] = {} if weights is None else {
            "solved": explained(columns, solved_columns(weights, seen))}
        found, blind, spread = [], [], []
        for _ in range(_DRAWS):
            known = np.zeros(len(columns), dtype=bool)
            known[rng.choice(len(columns), self.known, replace=False)] = True
            guess = learnt_columns(np.concatenate([own, seen], axis=1), columns, known)
            found.append(explained(columns[~known], guess[~known]))
            nothing = learnt_columns(own, columns, known) if own.shape[1] else np.broadcast_to(0.0, columns.shape)
            blind.append(explained(columns[~known], nothing[~known]))
            for _ in range(_RESAMPLED // _DRAWS):
                rows = rng.choice(np.flatnonzero(~known), int((~known).sum()))
                spread.append(explained(columns[rows], guess[rows]))
        low, high = np.quantile(spread, [0.025, 0.975])
        return {"success": float(np.mean(found)), "low": float(low), "high": float(high),
                "guess": float(np.mean(blind)), "attempts": float(len(columns) - self.known), **more}


_SENT_UP = {"split-nn.top": "activations", "transfer.learn": "represented"}
"""By task of the label holder the field that holds what parties without labels sent up, row by row."""


def _activations(heard: Overheard, party: int) -> Floats:
    """What a party last sent up the network for each training row."""
    seen: Floats | None = None
    for message in heard.sent_to(heard.roles.label_holder):
        if message.task in _SENT_UP:
            given = message.payload[_SENT_UP[message.task]][str(party)]
            seen = np.zeros((len(heard.columns(party)), given.shape[1])) if seen is None else seen
            seen[message.payload["positions"]] = given
    assert seen is not None
    return seen


@register("probe", "offer-sums", paper="Cheng et al., 2021")
@dataclass(frozen=True)
class OfferSums(ProbeOfVertical):
    """Which rows lie alone between two cuts of a column? From the sums that SecureBoost's label holder opens.

    For every row the label holder takes the two sums whose difference is the nearest to the row's own gradient, of all
    nodes that the row reaches. `success` is the share of rows for which that is right: of one column, and with no other
    row of the node between. `guess` is the same for gradients that are dealt to rows at random.

    Parameters:
        trees: of the last rounds, so many are looked at
        party: whose offers (left out: the first party without labels)
    """

    algorithms: ClassVar[tuple[str, ...]] = ("secureboost",)
    assumes: ClassVar[str] = "each row's gradient, which it computes itself, and the sums of all offers"

    trees: Annotated[int, Ge(1)] = 2
    party: str = ""

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """Trees of the last rounds, when gradients tell rows apart."""
        heard = overheard(result)
        party, rng = without_labels(heard, self.party), stream(result.config.seed, "probe offers")
        rows = len(heard.columns(party))
        told, blind = _Best.of(rows), _Best.of(rows)
        for node in _opened(heard, party, result.summary["rounds"] - self.trees):
            told.take(node, node.values)
            blind.take(node, rng.permutation(node.values))
        return {**interval(int(told.right.sum()), rows), "guess": float(blind.right.mean())}


@dataclass(frozen=True)
class _Node:
    """What the label holder knows of a node, and the bins that it does not know.

    rows:    the rows there
    values:  their gradients and second derivatives
    sums:    of the rows left of each place, of none, and of all
    column:  of each place, and `left`, (places, rows) whether a row is left of it; -1 for none and all
    """

    rows: NDArray[np.intp]
    values: Floats
    sums: Floats
    column: NDArray[np.int64]
    left: NDArray[np.bool_]

    def is_alone(self, row: int, first: int, second: int) -> bool:
        """Whether that row and no other of the node lies between two places of one column."""
        mine, other = self.column[first], self.column[second]
        between = self.left[first] ^ self.left[second]
        return bool((mine == other or -1 in (mine, other)) and between[row] and between.sum() == 1)


@dataclass(frozen=True)
class _Best:
    """For each row by how much its best claim misses, and whether it is right."""

    missed: Floats
    right: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: int) -> _Best:
        return cls(np.full(rows, np.inf), np.zeros(rows, dtype=bool))

    def take(self, node: _Node, values: Floats) -> None:
        """Claims of a node, where they are better than those so far."""
        claims = differing_by_a_row(node.sums, values)
        for place, row in enumerate(node.rows):
            if claims.missed[place] < self.missed[row]:
                self.missed[row] = claims.missed[place]
                self.right[row] = node.is_alone(place, int(claims.first[place]), int(claims.second[place]))


def _opened(heard: Overheard, party: int, after: int) -> Iterator[_Node]:
    """The nodes that a party offered splits for, and their siblings, in rounds after some."""
    algorithm = heard.algorithm
    assert isinstance(algorithm, SecureBoost)
    settings = TreeSettings(learner=algorithm.learner, columns=algorithm.learner.columns, encryption=Plain(),
                            apart=algorithm.learner.columns < 1, names={})
    columns = OwnColumns.kept_by(heard.party(party))
    values = node_of = None
    known: dict[int, Floats] = {}
    for message in heard.sent_to(heard.roles.label_holder):
        if message.round <= after:
            continue
        if message.task == "secureboost: derive" and "hidden" in message.reply:
            values = np.concatenate([block["values"] for block in message.reply["hidden"]], axis=1).astype(np.float64)
            node_of, known = roots_of(values.shape[1] // 2, len(values)), {}
        if message.task != "vertical trees: choose" or values is None or node_of is None:
            continue
        asked = message.payload["asked"]
        parents: dict[int, tuple[int, int]] = {}
        if "splits" in message.payload:
            splits = message.payload["splits"]
            node_of = follow(node_of, splits, "the attacker")
            parents = {int(left) + side: (int(node), int(left) + 1 - side) for side in (0, 1)
                       for node, left in zip(splits["nodes"], splits["left"], strict=True)}
        offers = message.payload["offers"][str(party)]
        every = np.concatenate([block["sums"] for block in offers["blocks"]], axis=1).astype(np.float64)
        each = np.split(every, np.cumsum(offers["sizes"])[:-1])
        for tree, node, sums in zip(asked["trees"].tolist(), asked["nodes"].tolist(), each, strict=True):
            own = slice(2 * tree, 2 * tree + 2)
            places = offered_places(heard.party(party, message.round), columns, settings, tree)
            parent, sibling = parents.get(node, (-1, -1))
            known[node] = sums[:, own]
            known |= {sibling: known[parent] - known[node]} if node in parents and parent in known else {}
            for one in {node, sibling} & known.keys():
                yield _node(node_of[tree], one, values[:, own], known[one], columns, places)


def _node(node_of: NDArray[np.int32], node: int, values: Floats, sums: Floats, columns: OwnColumns,
          places: NDArray[np.int64]) -> _Node:
    """A node with two more sums: of nothing, and of all of its rows."""
    rows = np.flatnonzero(node_of == node)
    left = np.stack([columns.left_of(int(place), rows) for place in places])
    ends = np.stack([np.zeros(len(rows), bool), np.ones(len(rows), bool)])
    return _Node(rows, values[rows], np.concatenate([sums, np.zeros((1, 2)), values[rows].sum(axis=0)[None]]),
                 np.concatenate([columns.bins.column[places], [-1, -1]]), np.concatenate([left, ends]))
