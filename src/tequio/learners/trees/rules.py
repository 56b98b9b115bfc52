"""Rules as arrays: what a tree's leaves say, one row a rule.

A rule bounds each column from below and above: low < x <= high. A category c is the interval (c - 1, c], so that rules
of binary and of multiway trees are intersected, compared and matched by the same few array operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.trees.tree import LEAF, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tequio.learners.trees.tree import Tree

_PAIRS_AT_A_TIME = 1 << 22


@dataclass(frozen=True, eq=False)
class Rules:
    """A list of rules.

    kind:     of the trees that the rules come from
    low:      (rules, columns) what a value must be above; minus infinity where it may be anything
    high:     (rules, columns) what a value may not be above; infinity where it may be anything
    votes:    (rules, classes) class shares, summed over the trees that a rule was merged from
    rows:     (rules, classes) training rows behind a rule, summed over the leaves that it was merged from
    support:  (rules,) how many of all parties' rows the rule is estimated to cover
    """

    kind: Kind
    low: NDArray[np.float64] = field(repr=False)
    high: NDArray[np.float64] = field(repr=False)
    votes: NDArray[np.float64] = field(repr=False)
    rows: NDArray[np.float64] = field(repr=False)
    support: NDArray[np.float64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.low)

    @cached_property
    def bound(self) -> NDArray[np.bool_]:
        """(rules, columns): which columns a rule has a condition on."""
        bound: NDArray[np.bool_] = (self.low > -np.inf) | (self.high < np.inf)
        return bound

    @cached_property
    def decisive(self) -> NDArray[np.float64]:
        """The votes, of which ties are settled for the class with more rows behind it."""
        rows = self.rows.sum(axis=1, keepdims=True)
        shares = np.divide(self.rows, rows, out=np.zeros_like(self.rows), where=rows > 0)
        decisive: NDArray[np.float64] = self.votes + 1e-9 * self.votes.sum(axis=1, keepdims=True) * shares
        return decisive

    @property
    def codes(self) -> NDArray[np.int64]:
        """(rules, columns) of a multiway tree's rules: the category that a column must have, -1 where it may be any."""
        return np.where(self.bound, self.high, LEAF).astype(np.int64)

    def take(self, which: NDArray[Any]) -> Rules:
        """Some of the rules, in that order."""
        parts = {part.name: getattr(self, part.name)[which] for part in fields(self) if part.name != "kind"}
        return replace(self, **parts)

    def to_payload(self) -> dict[str, Any]:
        """The rules as a payload: their conditions one by one, since most rules leave most columns alone."""
        rule, column = np.nonzero(self.bound)
        return {"kind": self.kind, "columns": int(self.low.shape[1]), "rule": rule.astype(np.int32),
                "column": column.astype(np.int32), "low": self.low[rule, column], "high": self.high[rule, column],
                "votes": self.votes, "rows": self.rows, "support": self.support}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Rules:
        """The rules back from the payload that a coordinator made."""
        shape, where = (len(payload["support"]), payload["columns"]), (payload["rule"], payload["column"])
        low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
        low[where], high[where] = payload["low"], payload["high"]
        return cls(payload["kind"], low, high, payload["votes"], payload["rows"], payload["support"])


def extract(tree: Tree, columns: int, *, support: NDArray[np.float64] | None = None) -> Rules:
    """One rule a leaf, in the order of `tree.leaves`; its support is what is given, else the leaf's training rows."""
    low, high = np.full((len(tree), columns), -np.inf), np.full((len(tree), columns), np.inf)
    parent, branch = np.nonzero(tree.children != LEAF)
    child = tree.children[parent, branch]
    for depth in range(1, int(tree.depths.max()) + 1):
        level = tree.depths[child] == depth
        _narrow(tree, low, high, parent[level], branch[level], child[level])
    leaves = tree.leaves
    own = tree.counts[leaves].sum(axis=1) if support is None else np.asarray(support, dtype=np.float64)
    return Rules(tree.kind, low[leaves], high[leaves], tree.probabilities[leaves], tree.counts[leaves], own)


def _narrow(tree: Tree, low: NDArray[np.float64], high: NDArray[np.float64], parent: NDArray[np.intp],
            branch: NDArray[np.intp], child: NDArray[Any]) -> None:
    """Give children the bounds of their parents and the condition of the edge between."""
    low[child], high[child] = low[parent], high[parent]
    column, cut = tree.feature[parent], tree.threshold[parent]
    if tree.kind == "multiway":
        low[child, column], high[child, column] = branch - 1.0, branch
        return
    left = branch == 0
    high[child[left], column[left]] = np.minimum(high[child[left], column[left]], cut[left])
    low[child[~left], column[~left]] = np.maximum(low[child[~left], column[~left]], cut[~left])


def matches(rules: Rules, features: NDArray[Any]) -> NDArray[np.bool_]:
    """(rows, rules): which rows satisfy which rules."""
    matched = np.ones((len(features), len(rules)), dtype=bool)
    for column in np.flatnonzero(rules.bound.any(axis=0)):
        which = np.flatnonzero(rules.bound[:, column])
        values = np.asarray(features[:, column], dtype=np.float64)[:, None]
        matched[:, which] &= (values > rules.low[which, column]) & (values <= rules.high[which, column])
    return matched


def compatible_pairs(first: Rules, second: Rules) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Numbers (i, j) of the rules that some row could satisfy both, in order of i, then j, a bounded piece at a time.

    Rules contradict each other if on some column their intervals do not meet. Few different intervals occur on a
    column, so each is compared with the second list once and the answers, packed to bits, are combined rule by rule.
    """
    meets = _meeting_bits(first, second)
    step = max(_PAIRS_AT_A_TIME // max(len(second), 1), 1)
    for start in range(0, len(first), step):
        piece = np.unpackbits(meets[start:start + step], axis=1, count=len(second)).view(bool)
        i, j = np.nonzero(piece)
        yield i + start, j


def _meeting_bits(first: Rules, second: Rules) -> NDArray[np.uint8]:
    """(rules of the first, rules of the second / 8) bits: which pairs meet on every column."""
    meets = np.full((len(first), -(-len(second) // 8)), 255, dtype=np.uint8)
    for column in np.flatnonzero(first.bound.any(axis=0) & second.bound.any(axis=0)):
        which = np.flatnonzero(first.bound[:, column])
        intervals, of_rule = np.unique(np.stack([first.low[which, column], first.high[which, column]], axis=1), axis=0,
                                       return_inverse=True)
        on_column = (intervals[:, :1] < second.high[:, column]) & (second.low[:, column] < intervals[:, 1:])
        meets[which] &= np.packbits(on_column, axis=1)[of_rule.reshape(-1)]
    return meets


def are_disjoint(rules: Rules) -> bool:
    """Whether no row can satisfy two of the rules."""
    return all((i == j).all() for i, j in compatible_pairs(rules, rules))
