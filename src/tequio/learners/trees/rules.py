"""Rules as arrays, one row per rule: what a tree's leaves say, and many lists of rules fused into one.

A rule bounds each column from below and above: low < x <= high. A category c is the interval (c - 1, c], so that rules
of binary and of multiway trees are intersected, compared and matched by the same few array operations. Rules of mixed
trees also say which categories a column may have, and whether it may be missing.

To fuse lists, every two rules that do not contradict each other become a rule that both vote for. The product of the
lists grows with every tree, so it is bounded by design. Lists are merged two by two in a balanced order, so that every
tree goes through equally few merges. Of a pair of rules only its numbers and its estimated support are kept until it is
known which pairs stay. Beyond the budget rules that no party's rows support go first, then those of least support, and
what is lost is counted.

The support of a merged rule is estimated from what each list says of its own rules alone: of all ways to deal rows to
pairs that agree with both lists, the one of largest entropy, found by iterative proportional fitting (Deming and
Stephan, 1940). Contradictions are the zeros of that table. Trees of similar data share many of their upper splits, so
the zeros tell much.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import DataError
from tequio.learners.trees.tree import LEAF, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.learners.learner import Payload, Received
    from tequio.learners.trees.tree import Tree

IntervalMerge = Literal["intersection", "least_restrictive"]
Weighting = Literal["sum", "halving", "samples"]

_PAIRS_AT_A_TIME = 1 << 22
_FITTING_STEPS = 30
_NOTHING = 1e-100
_INNER = 4096  # before the last merge lists are cut so that their product is this many budgets: time stays linear


@dataclass(frozen=True, eq=False)
class Rules:
    """A list of rules.

    kind:     of the trees that the rules come from
    low:      (rules, columns) what a value must be above; minus infinity where it may be anything
    high:     (rules, columns) what a value may not be above; infinity where it may be anything
    votes:    (rules, classes) class shares, summed over the trees that a rule was merged from
    rows:     (rules, classes) training rows behind a rule, summed over the leaves that it was merged from
    support:  (rules,) how many of all parties' rows the rule is estimated to cover
    allowed:  (rules, columns, places) of mixed trees: which categories a column may have, all of them where it holds
              numbers; the last place is for missing values. An interval without numbers ends before it begins
    gaps:     (columns,) of mixed trees: where any of them met missing values
    sets:     of mixed trees: the columns that they split into two sets of categories, with the categories of one
    means:    the rules predict numbers: votes are the sum of the trees' means, and how many trees these are
    """

    kind: Kind
    low: NDArray[np.float64] = field(repr=False)
    high: NDArray[np.float64] = field(repr=False)
    votes: NDArray[np.float64] = field(repr=False)
    rows: NDArray[np.float64] = field(repr=False)
    support: NDArray[np.float64] = field(repr=False)
    allowed: NDArray[np.bool_] | None = field(default=None, repr=False)
    gaps: NDArray[np.bool_] | None = field(default=None, repr=False)
    means: bool = False
    sets: frozenset[tuple[int, tuple[int, ...]]] = field(default=frozenset(), repr=False)

    def __len__(self) -> int:
        return len(self.low)

    @cached_property
    def bound(self) -> NDArray[np.bool_]:
        """(rules, columns): which columns a rule has a condition on."""
        bound: NDArray[np.bool_] = (self.low > -np.inf) | (self.high < np.inf)
        return bound if self.allowed is None else bound | ~self.allowed.all(axis=2)

    @cached_property
    def value(self) -> NDArray[np.float64]:
        """(rules,) the number that each predicts, where they predict numbers."""
        value: NDArray[np.float64] = self.votes[:, 0] / self.votes[:, 1]
        return value

    @cached_property
    def decisive(self) -> NDArray[np.float64]:
        """The votes, of which ties are settled for the class with more rows behind it; numbers have none."""
        if self.means:
            return self.value[:, None]
        rows = self.rows.sum(axis=1, keepdims=True)
        shares = np.divide(self.rows, rows, out=np.zeros_like(self.rows), where=rows > 0)
        decisive: NDArray[np.float64] = self.votes + 1e-9 * self.votes.sum(axis=1, keepdims=True) * shares
        return decisive

    @property
    def codes(self) -> NDArray[np.int64]:
        """(rules, columns) of a multiway tree's rules: the category that a column must have, -1 where it may be any."""
        return np.where(self.bound, self.high, LEAF).astype(np.int64)

    def take(self, which: Array) -> Rules:
        """Some of the rules, in that order."""
        parts = {name: getattr(self, name)[which] for name in _BY_RULE if getattr(self, name) is not None}
        return replace(self, **parts)

    def to_payload(self) -> Payload:
        """The rules as a payload: their conditions one by one, since most rules leave most columns alone."""
        rule, column = np.nonzero(self.bound)
        return {"kind": self.kind, "columns": int(self.low.shape[1]), "rule": rule.astype(np.int32),
                "column": column.astype(np.int32), "low": self.low[rule, column], "high": self.high[rule, column],
                "votes": self.votes, "rows": self.rows, "support": self.support,
                **({} if self.allowed is None else {"allowed": self.allowed[rule, column], "gaps": self.gaps}),
                **({"means": True} if self.means else {})}

    @classmethod
    def from_payload(cls, payload: Received) -> Rules:
        """The rules back from the payload that a coordinator made."""
        shape, where = (len(payload["support"]), payload["columns"]), (payload["rule"], payload["column"])
        low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
        low[where], high[where] = payload["low"], payload["high"]
        allowed = np.ones((*shape, payload["allowed"].shape[1]), dtype=bool) if "allowed" in payload else None
        if allowed is not None:
            allowed[where] = payload["allowed"]
        return cls(payload["kind"], low, high, payload["votes"], payload["rows"], payload["support"], allowed,
                   payload.get("gaps"), bool(payload.get("means")))


_BY_RULE = ("low", "high", "votes", "rows", "support", "allowed")


def extract(tree: Tree, columns: int, *, support: NDArray[np.float64] | None = None) -> Rules:
    """One rule a leaf, in the order of `tree.leaves`; its support is what is given, else the leaf's training rows."""
    low, high = np.full((len(tree), columns), -np.inf), np.full((len(tree), columns), np.inf)
    allowed = None if tree.missing is None else np.ones((len(tree), columns, tree.children.shape[1] + 1), dtype=bool)
    parent, branch = np.nonzero(tree.branches != LEAF)
    child = tree.branches[parent, branch]
    for depth in range(1, int(tree.depths.max()) + 1):
        level = tree.depths[child] == depth
        _narrow(tree, low, high, parent[level], branch[level], child[level])
        if allowed is not None:
            _allow(tree, allowed, parent[level], child[level])
    leaves = tree.leaves
    own = tree.counts[leaves].sum(axis=1) if support is None else np.asarray(support, dtype=np.float64)
    gaps = None if tree.missing is None else np.isin(np.arange(columns), tree.feature[tree.missing != LEAF])
    votes = tree.probabilities[leaves] if tree.value is None else \
        np.stack([tree.value[leaves], np.ones(len(leaves))], axis=1)
    return Rules(tree.kind, *_settled(low[leaves], high[leaves]), votes, tree.counts[leaves], own,
                 None if allowed is None else allowed[leaves], gaps, tree.value is not None, _sets_of(tree))


def _sets_of(tree: Tree) -> frozenset[tuple[int, tuple[int, ...]]]:
    if tree.missing is None:
        return frozenset()
    in_two = (tree.feature != LEAF) & np.isnan(tree.threshold) & ((tree.branches != LEAF).sum(axis=1) == 2)
    sides = [(node, tree.children[node] == tree.branches[node].max()) for node in np.flatnonzero(in_two).tolist()]
    return frozenset((int(tree.feature[node]), tuple(np.flatnonzero(side).tolist())) for node, side in sides)


def _narrow(tree: Tree, low: NDArray[np.float64], high: NDArray[np.float64], parent: NDArray[np.intp],
            branch: NDArray[np.intp], child: Array) -> None:
    """Give children the bounds of their parents and the condition of the edge between."""
    low[child], high[child] = low[parent], high[parent]
    column, cut = tree.feature[parent], tree.threshold[parent]
    if tree.kind == "multiway":
        low[child, column], high[child, column] = branch - 1.0, branch
        return
    left, right = (branch == 0) & ~np.isnan(cut), (branch != 0) & ~np.isnan(cut)
    high[child[left], column[left]] = np.minimum(high[child[left], column[left]], cut[left])
    low[child[right], column[right]] = np.maximum(low[child[right], column[right]], cut[right])


def _allow(tree: Tree, allowed: NDArray[np.bool_], parent: NDArray[np.intp], child: Array) -> None:
    """The same for categories and missing values of a mixed tree."""
    allowed[child] = allowed[parent]
    column, categories = tree.feature[parent], np.isnan(tree.threshold[parent])
    kept = np.ones((len(child), allowed.shape[2]), dtype=bool)
    kept[categories, :-1] = tree.children[parent[categories]] == child[categories][:, None]
    kept[:, -1] = tree.default[parent] == child
    allowed[child, column] &= kept


def _settled(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of which those that leave no number are all alike: only missing values get there, and nothing meets them.
    """
    empty = low >= high
    return np.where(empty, np.inf, low), np.where(empty, -np.inf, high)


def mixed_form(tree: Tree) -> Tree:
    """The same tree as a mixed one; missing values go to the child with most rows."""
    return tree if tree.missing is not None else replace(tree, kind="mixed", missing=np.full(len(tree), LEAF, np.int32))


def matches(rules: Rules, features: Array) -> NDArray[np.bool_]:
    """(rows, rules): which rows satisfy which rules."""
    matched = np.ones((len(features), len(rules)), dtype=bool)
    for column in np.flatnonzero(rules.bound.any(axis=0)):
        which = np.flatnonzero(rules.bound[:, column])
        values = np.asarray(features[:, column], dtype=np.float64)[:, None]
        inside = (values > rules.low[which, column]) & (values <= rules.high[which, column])
        if rules.allowed is not None:
            missing, allowed = np.isnan(values), rules.allowed[which, column]
            is_category = ~allowed[:, :-1].all()
            codes = np.where(missing, 0, values if is_category else 0)[:, 0].astype(np.int64)
            inside = np.where(missing, allowed[:, -1], inside & allowed[:, codes].T)
        matched[:, which] &= inside
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
        conditions, of_rule = np.unique(_conditions(first.take(which), int(column)), axis=0, return_inverse=True)
        on_column = (conditions[:, :1] < second.high[:, column]) & (second.low[:, column] < conditions[:, 1:2])
        if second.allowed is not None:
            together = conditions[:, None, 2:].astype(bool) & second.allowed[:, column]
            on_column &= together[:, :, :-1].any(axis=2)
            if first.gaps is not None and first.gaps[column]:
                on_column |= together[:, :, -1]
        meets[which] &= np.packbits(on_column, axis=1)[of_rule.reshape(-1)]
    return meets


def _conditions(rules: Rules, column: int) -> NDArray[np.float64]:
    """(rules, numbers) what rules say of a column: its bounds, and of mixed trees what is allowed."""
    bounds = np.stack([rules.low[:, column], rules.high[:, column]], axis=1)
    return bounds if rules.allowed is None else np.concatenate([bounds, rules.allowed[:, column]], axis=1)


def are_disjoint(rules: Rules) -> bool:
    """Whether no row can satisfy two of the rules."""
    return all((i == j).all() for i, j in compatible_pairs(rules, rules))


@dataclass(frozen=True)
class Fusing:
    """How rule lists are merged.

    interval_merge:  bounds of a merged rule: intersection (both hold) or least_restrictive (of two bounds on the same
                     side the looser one, as the source words it; merged rules then overlap)
    weighting:       votes of a merged rule: sum (every tree alike), halving (their mean) or samples (by rows)
    budget:          most rules kept
    """

    interval_merge: IntervalMerge = "intersection"
    weighting: Weighting = "sum"
    budget: int = 3000


@dataclass
class Losses:
    """What the budget cost.

    unsupported:  rules dropped that no party's rows support
    supported:    other rules dropped
    pairs:        the largest number of compatible pairs in a merge
    coverage:     share of the support that stayed through all merges: on so many rows rules of all trees decide
    """

    unsupported: int = 0
    supported: int = 0
    pairs: int = 0
    coverage: float = 1.0


def fuse(lists: Sequence[Rules], how: Fusing | None = None) -> tuple[Rules, Losses]:
    """All lists merged into one, neighbours first."""
    if not lists:
        raise DataError("there are no rules to merge", remedy="keep at least one tree")
    how, losses = how or Fusing(), Losses()
    level = [replace(rules, votes=_by_rows(rules)) for rules in lists] if how.weighting == "samples" else list(lists)
    level = alike(level)
    while len(level) > 1:
        most = how.budget if len(level) == 2 else min(how.budget, int((_INNER * how.budget) ** 0.5))
        merged = [_merge(first, second, how, most, losses)
                  for first, second in zip(level[::2], level[1::2], strict=False)]
        level = merged + level[2 * len(merged):]
    return level[0].take(_within(level[0].support, how.budget, losses)), losses


def _by_rows(rules: Rules) -> NDArray[np.float64]:
    return rules.rows * rules.votes if rules.means else rules.rows


def joint_support(i: NDArray[np.intp], j: NDArray[np.intp], first: NDArray[np.float64],
                  second: NDArray[np.float64]) -> NDArray[np.float64]:
    """The support of each pair (i, j), given the support of every rule of both lists; never more than either's."""
    fitted = np.ones(len(i))
    for _ in range(_FITTING_STEPS):
        fitted *= _ratio(first, _sums(i, fitted, first))[i]
        fitted *= _ratio(second, _sums(j, fitted, second))[j]
    # Where both lists cannot be met (their trees saw different rows), the smaller one counts.
    fitted *= np.minimum(_ratio(first, _sums(i, fitted, first)), 1.0)[i]
    return fitted


def _sums(of_rule: NDArray[np.intp], fitted: NDArray[np.float64], rules: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(of_rule, fitted, len(rules)).astype(np.float64)


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """part / whole; 0 where the whole is nothing, or has become so small that only rounding is left of it."""
    enough = whole > _NOTHING * max(float(whole.max(initial=0.0)), _NOTHING)
    ratio: NDArray[np.float64] = np.divide(part, whole, out=np.zeros_like(part, dtype=np.float64), where=enough)
    return ratio


def _merge(first: Rules, second: Rules, how: Fusing, most: int, losses: Losses) -> Rules:
    i, j = (np.concatenate(numbers) for numbers in zip(*compatible_pairs(first, second), strict=True))
    # A rule that contradicts the whole other list is kept as it is, so that its region is not lost.
    alone = [np.setdiff1d(np.arange(len(rules)), met) for rules, met in ((first, i), (second, j))]
    support = joint_support(i, j, first.support, second.support)
    losses.pairs = max(losses.pairs, len(i))
    everything = np.concatenate([support, first.support[alone[0]], second.support[alone[1]]])
    kept = _within(everything, most, losses)
    pairs, left, right = np.split(kept, np.searchsorted(kept, [len(i), len(i) + len(alone[0])]))
    left, right = alone[0][left - len(i)], alone[1][right - len(i) - len(alone[0])]
    merged = _merged(first.take(i[pairs]), second.take(j[pairs]), how, support[pairs])
    return without_duplicates(stacked([merged, first.take(left), second.take(right)]))


def _within(support: NDArray[np.float64], most: int, losses: Losses) -> NDArray[np.intp]:
    """Which rules stay, in their order: those of most support, of equal ones the first."""
    order = np.argsort(-support, kind="stable")
    dropped = support[order[most:]]
    losses.unsupported += int((dropped <= 0).sum())
    losses.supported += int((dropped > 0).sum())
    losses.coverage *= 1 - float(dropped.sum() / support.sum()) if dropped.any() else 1.0
    return np.sort(order[:most])


def _merged(first: Rules, second: Rules, how: Fusing, support: NDArray[np.float64]) -> Rules:
    """Rule k of the first list merged with rule k of the second."""
    low, high = np.maximum(first.low, second.low), np.minimum(first.high, second.high)
    if how.interval_merge == "least_restrictive":
        low = np.where(np.isinf(first.low) | np.isinf(second.low), low, np.minimum(first.low, second.low))
        high = np.where(np.isinf(first.high) | np.isinf(second.high), high, np.maximum(first.high, second.high))
    votes = first.votes + second.votes
    if first.allowed is None or second.allowed is None:
        return Rules(first.kind, low, high, votes / 2 if how.weighting == "halving" else votes,
                     first.rows + second.rows, support, means=first.means)
    return Rules(first.kind, *_settled(low, high), votes / 2 if how.weighting == "halving" else votes,
                 first.rows + second.rows, support, first.allowed & second.allowed, first.gaps, first.means,
                 first.sets)


def _either(first: NDArray[np.bool_] | None, second: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    return first if second is None else second if first is None else first | second


def without_duplicates(rules: Rules) -> Rules:
    """Rules of the same conditions as one, at the place of the first: votes, rows and support add up."""
    bounds = np.concatenate([rules.low, rules.high], axis=1)
    if rules.allowed is not None:
        bounds = np.concatenate([bounds, np.packbits(rules.allowed.reshape(len(rules), -1), axis=1)], axis=1)
    _, first, of_rule = np.unique(bounds, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(rules):
        return rules
    order = np.argsort(first)
    place = np.argsort(order)[of_rule.reshape(-1)]
    sums = {name: _summed(getattr(rules, name), place, len(first)) for name in ("votes", "rows", "support")}
    return replace(rules.take(first[order]), votes=sums["votes"], rows=sums["rows"], support=sums["support"])


def _summed(values: NDArray[np.float64], place: Array, places: int) -> NDArray[np.float64]:
    total = np.zeros((places, *values.shape[1:]))
    np.add.at(total, place, values)
    return total


def stacked(lists: Sequence[Rules]) -> Rules:
    """The rules of all lists, one list after the other."""
    parts: dict[str, Any] = {name: np.concatenate([getattr(rules, name) for rules in lists]) for name in _BY_RULE
                             if getattr(lists[0], name) is not None}
    return replace(lists[0], **parts)


def alike(lists: Sequence[Rules]) -> list[Rules]:
    """The same lists of rules of mixed trees with room for equally many categories, and the gaps of all of them."""
    most = max((rules.allowed.shape[2] for rules in lists if rules.allowed is not None), default=0)
    gaps = reduce(_either, [rules.gaps for rules in lists])
    sets = frozenset[tuple[int, tuple[int, ...]]]().union(*(rules.sets for rules in lists))
    return [replace(_with_room(rules, most), gaps=gaps, sets=sets) for rules in lists]


def _with_room(rules: Rules, places: int) -> Rules:
    if rules.allowed is None or rules.allowed.shape[2] == places:
        return rules
    categories, missing = rules.allowed[:, :, :-1], rules.allowed[:, :, -1:]
    # A column that was split has no more categories than there is room for.
    more = np.repeat(categories.all(axis=2, keepdims=True), places - rules.allowed.shape[2], axis=2)
    return replace(rules, allowed=np.concatenate([categories, more, missing], axis=2))
