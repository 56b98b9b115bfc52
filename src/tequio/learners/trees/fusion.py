"""Many rule lists into one: every two rules that do not contradict each other become a rule that both vote for.

The product of the lists grows with every tree, so it is bounded by design. Lists are merged two by two in a balanced
order, so that every tree goes through equally few merges. Of a pair of rules only its numbers and its estimated rows
are kept until it is known which pairs stay. Beyond the budget, pairs that no party's rows support are dropped, and those
of least support are folded: the rule of the first list that they refine stays as it is, with the mean of their votes.
So no region is lost, and which share of the rows is told by a mean only is counted.

The rows of a merged rule are estimated from what each list says of its own rules alone: of all ways to deal the rows of a
class to pairs that agree with both lists, the one of largest entropy, found by iterative proportional fitting (Deming
and Stephan, 1940). Contradictions are the zeros of that table. Parties need to tell no more than how many rows of each
class they have in each leaf of each tree, sums that say nothing about where a row lies in two trees at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from tequio.errors import DataError
from tequio.learners.trees.rules import Rules, compatible_pairs, stacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]

IntervalMerge = Literal["intersection", "least_restrictive"]
Weighting = Literal["sum", "halving", "samples"]

_FITTING_STEPS = 10
_INNER = 80  # before the last merge lists are cut so that their product is this many budgets: time stays linear
_TINY = 1e-200


@dataclass(frozen=True)
class Fusing:
    """How rule lists are merged.

    interval_merge:  bounds of a merged rule: intersection (both hold) or least_restrictive (of two bounds on the same
                     side the looser one, as the source words it; merged rules then overlap)
    weighting:       votes of a merged rule: sum (every tree alike), halving (the mean, merge by merge) or samples (by
                     training rows)
    budget:          most rules kept
    """

    interval_merge: IntervalMerge = "intersection"
    weighting: Weighting = "sum"
    budget: int = 3000


@dataclass
class Losses:
    """What the budget cost.

    pairs:        the largest number of compatible pairs in a merge
    unsupported:  pairs dropped that no party's rows support
    folded:       pairs that the rule of the better tree stands for now
    cut:          rules lost altogether, which only a budget below the size of a single tree needs
    fidelity:     share of all parties' rows that are estimated to meet a rule whose votes are exact
    lost:         share of all parties' rows that are estimated to meet no rule
    """

    pairs: int = 0
    unsupported: int = 0
    folded: int = 0
    cut: int = 0
    fidelity: float = 1.0
    lost: float = 0.0


def fuse(lists: Sequence[Rules], how: Fusing | None = None) -> tuple[Rules, Losses]:
    """All lists merged into one, neighbours first. Where pairs are folded, the first list of two keeps its rules."""
    if not lists:
        raise DataError("there are no rules to merge", remedy="keep at least one tree")
    how, losses = how or Fusing(), Losses()
    level = [replace(rules, votes=rules.rows) for rules in lists] if how.weighting == "samples" else list(lists)
    inner = min(how.budget, int((_INNER * how.budget) ** 0.5))
    while len(level) > 1:
        most = how.budget if len(level) == 2 else inner
        merged = [_merge(first, second, how, most, losses)
                  for first, second in zip(level[::2], level[1::2], strict=False)]
        level = merged + level[2 * len(merged):]
    rules = _cut(level[0], how.budget, losses)
    total = max(float(own.support.sum()) for own in lists)
    if total > 0:
        losses.fidelity = min(float(rules.support[rules.exact].sum()) / total, 1.0)
        losses.lost = max(1.0 - float(rules.support.sum()) / total, 0.0)
    return rules, losses


def joint_rows(pairs: Pairs, first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """(pairs, classes): the rows of each pair (i, j), given those of every rule (rules, classes) of both lists."""
    columns = [_fitted(pairs, first[:, label], second[:, label]) for label in range(first.shape[1])]
    return np.stack(columns, axis=1)


def _fitted(pairs: Pairs, first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    i, j = pairs
    table = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(len(first), len(second)))
    turned = table.T.tocsr()
    before = after = np.ones(len(second))
    row_factor = np.ones(len(first))
    for _ in range(_FITTING_STEPS):
        row_factor = _ratio(first, table @ after)
        scale = row_factor.max(initial=0.0) or 1.0
        row_factor, before = row_factor / scale, after * scale
        after = _ratio(second, turned @ row_factor)
    # Estimates of earlier merges may not agree on any table; halfway between the two lists is fair to both.
    fitted = row_factor[i] * (before[j] + after[j]) / 2
    total = min(first.sum(), second.sum())
    return fitted * (total / fitted.sum()) if fitted.sum() > 0 else fitted


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio: NDArray[np.float64] = np.divide(part, whole, out=np.zeros(part.shape), where=whole > _TINY)
    return ratio


def _merge(first: Rules, second: Rules, how: Fusing, most: int, losses: Losses) -> Rules:
    i, j = (np.concatenate(numbers) for numbers in zip(*compatible_pairs(first, second), strict=True))
    covered = joint_rows((i, j), first.covered, second.covered)
    losses.pairs = max(losses.pairs, len(i))
    # A rule that contradicts the whole other list is kept as it is, so that its region is not lost.
    alone = [rules.take(np.setdiff1d(np.arange(len(rules)), met)) for rules, met in ((first, i), (second, j))]
    room = most - sum(map(len, alone))
    kept, folded = _divided(covered.sum(axis=1), room, room - len(first) + len(alone[0]), losses)
    parts = [_merged(first.take(i[kept]), second.take(j[kept]), how, covered[kept])]
    if len(folded):
        parts.append(_folded(first, second, (i[folded], j[folded]), how, covered[folded]))
    return without_duplicates(_cut(stacked([*parts, *alone]), most, losses))


def _divided(support: NDArray[np.float64], room: int, room_with_folded: int,
             losses: Losses) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which pairs stay and which are folded, each in their order; those left out have no support."""
    order = np.argsort(-support, kind="stable")
    supported = int((support > 0).sum())
    if len(order) <= room:
        return np.arange(len(order)), order[:0]
    stay = max(room, 0) if supported <= room else max(room_with_folded, 0)
    folded = order[stay:max(supported, stay)]
    losses.folded += len(folded)
    losses.unsupported += len(order) - stay - len(folded)
    return np.sort(order[:stay]), np.sort(folded)


def _merged(first: Rules, second: Rules, how: Fusing, covered: NDArray[np.float64]) -> Rules:
    """Rule k of the first list merged with rule k of the second."""
    low, high = np.maximum(first.low, second.low), np.minimum(first.high, second.high)
    if how.interval_merge == "least_restrictive":
        low = np.where(np.isinf(first.low) | np.isinf(second.low), low, np.minimum(first.low, second.low))
        high = np.where(np.isinf(first.high) | np.isinf(second.high), high, np.maximum(first.high, second.high))
    return Rules(first.kind, low, high, _voted(first.votes, second.votes, how), first.rows + second.rows, covered,
                 first.exact & second.exact)


def _folded(first: Rules, second: Rules, pairs: Pairs, how: Fusing, covered: NDArray[np.float64]) -> Rules:
    """The rules of the first list that these pairs refine, each with the mean votes of its pairs."""
    of_rule, place = np.unique(pairs[0], return_inverse=True)
    own, support = first.take(of_rule), covered.sum(axis=1)
    share = (support / _summed(support, place, len(of_rule))[place])[:, None]
    votes = _summed(share * second.votes[pairs[1]], place, len(of_rule))
    rows = _summed(share * second.rows[pairs[1]], place, len(of_rule))
    return replace(own, votes=_voted(own.votes, votes, how), rows=own.rows + rows,
                   covered=_summed(covered, place, len(of_rule)), exact=np.zeros(len(own), dtype=bool))


def _voted(first: NDArray[np.float64], second: NDArray[np.float64], how: Fusing) -> NDArray[np.float64]:
    return (first + second) / 2 if how.weighting == "halving" else first + second


def _cut(rules: Rules, most: int, losses: Losses) -> Rules:
    """The rules of most support, in their order."""
    if len(rules) <= most:
        return rules
    losses.cut += len(rules) - most
    return rules.take(np.sort(np.argsort(-rules.support, kind="stable")[:most]))


def without_duplicates(rules: Rules) -> Rules:
    """Rules of the same conditions as one, at the place of the first: votes, training rows and covered rows add up."""
    bounds = np.concatenate([rules.low, rules.high], axis=1)
    _, first, of_rule = np.unique(bounds, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(rules):
        return rules
    order = np.argsort(first)
    place = np.argsort(order)[of_rule.reshape(-1)]
    sums = {name: _summed(getattr(rules, name), place, len(first)) for name in ("votes", "rows", "covered")}
    means = _summed((~rules.exact).astype(np.float64), place, len(first))
    return replace(rules.take(first[order]), **sums, exact=means == 0)


def _summed(values: NDArray[np.float64], place: NDArray[Any], places: int) -> NDArray[np.float64]:
    total = np.zeros((places, *values.shape[1:]))
    np.add.at(total, place, values)
    return total
