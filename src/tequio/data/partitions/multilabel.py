"""Parties that know different labels of one multi-label problem.

Iterative stratification of multi-label rows, even or skewed label by label.

Sechidis, Tsoumakas, Vlahavas: On the stratification of multi-label data, ECML PKDD 2011.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.data.partition import AtLeastOne, Partition, by_party_numbers, require_rows, top_up
from tequio.errors import ConfigError, DataError, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset

    Numbers = list[NDArray[np.int64]]


REDRAWS = 50


@register("partition", "label-sets", paper="Delgado and Moyano, 2024")
@dataclass(frozen=True)
class LabelSets:
    """Every party knows other labels: random disjoint label sets, or overlapping ones, and its own rows.

    Rows are shuffled and cut into equal parts (the last party gets what is left over), and labels are dealt at random.
    A party sees only its own labels; rows that have none of them are dropped, as in the thesis, or kept as negatives.

    Parameters:
        parties: how many parties there are; not needed where `sizes` or `sets` say it
        sizes: how many labels each party knows; nearly equal numbers when left out
        sets: the labels of each party by name, which may have some in common; dealt at random when left out
        shared: what share of the labels all parties know; the others are dealt
        rows: deal rows at random, or by iterative stratification so that each label is spread evenly
        unlabelled: what becomes of a party's rows that have none of its labels
        minimum_rows: fewest rows a party may have (5 leave a row for each part of a 60/20/20 split)
        small: with a party below that: refuse, draw labels and rows again (at most 50 times), or leave the party out
    """

    parties: AtLeastOne = 2
    sizes: tuple[AtLeastOne, ...] = ()
    sets: tuple[tuple[str, ...], ...] = ()
    shared: Annotated[float, Interval(ge=0, le=1)] = 0.0
    rows: Literal["random", "iterative"] = "random"
    unlabelled: Literal["drop", "keep"] = "drop"
    minimum_rows: Annotated[int, Ge(1)] = 5
    small: Literal["error", "redraw", "leave_out"] = "error"

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each party its labels and its rows."""
        if dataset.schema.target.kind != "multilabel":
            raise DataError(f"the partition 'label-sets' needs a multi-label target, '{dataset.name}' has one of kind "
                            f"'{dataset.schema.target.kind}'", remedy="choose another dataset or another partition")
        require_rows(dataset, self._count(), 1)
        for _ in range(REDRAWS if self.small == "redraw" else 1):
            partition = self._draw(dataset, rng)
            if partition.sizes.min() >= self.minimum_rows:
                break
        if self.small == "leave_out":
            partition = _without_small(partition, self.minimum_rows)
        partition.check(self.minimum_rows)
        return partition

    def _count(self) -> int:
        counts = {len(given) for given in (self.sizes, self.sets) if given}
        if len(counts) > 1:
            raise ConfigError(f"data.partition.sizes is for {len(self.sizes)} parties and sets for {len(self.sets)}",
                              remedy="give one of them")
        return counts.pop() if counts else self.parties

    def _draw(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        labels = self._labels(dataset, rng)
        if self.rows == "iterative":
            dealt = stratify_iteratively(dataset.target, np.full(len(labels), 1 / len(labels)), rng)
            rows = [np.flatnonzero(dealt == party) for party in range(len(labels))]
        else:
            rows = _cut(rng.permutation(len(dataset)), len(labels))
        if self.unlabelled == "drop":
            known = dataset.target
            rows = [mine[known[mine][:, own].any(axis=1)] for mine, own in zip(rows, labels, strict=True)]
        return Partition.of(rows, labels=tuple(labels))

    def _labels(self, dataset: Dataset, rng: np.random.Generator) -> Numbers:
        names = dataset.schema.target.names
        if self.sets:
            return [_named(own, names) for own in self.sets]
        common = round(self.shared * len(names))
        order, sizes = rng.permutation(len(names)), self._sizes(len(names) - common)
        own = np.split(order[common:], np.cumsum(sizes)[:-1])
        # In the order in which they are drawn, as in the thesis: argmax agreement looks at the first positive label.
        return [np.concatenate([order[:common], mine]) for mine in own]

    def _sizes(self, labels: int) -> list[int]:
        count = self._count()
        if self.sizes:
            if sum(self.sizes) != labels:
                raise ConfigError(f"data.partition.sizes deals {sum(self.sizes)} labels, and there are {labels} to "
                                  "deal", remedy="make the sizes sum to that")
            return list(self.sizes)
        if labels < count and not self.shared:
            raise DataError(f"{count} parties cannot each have a label of their own: there are {labels}",
                            remedy="use fewer parties, or a larger data.partition.shared")
        return [labels // count + (party < labels % count) for party in range(count)]


def _cut(order: NDArray[np.int64], parties: int) -> Numbers:
    """Equal parts; what is left over goes to the last one."""
    size = len(order) // parties
    return [np.sort(part) for part in np.split(order, np.arange(1, parties) * size)]


def _named(own: tuple[str, ...], names: tuple[str, ...]) -> NDArray[np.int64]:
    if not own:
        raise ConfigError("data.partition.sets has a party without labels", remedy="give it at least one")
    for name in own:
        if name not in names:
            raise DataError(f"there is no label '{name}'", remedy=nearest(name, names))
    return np.array(sorted({names.index(name) for name in own}), dtype=np.int64)


def _without_small(partition: Partition, minimum_rows: int) -> Partition:
    """The parties that have rows enough, under the numbers they had."""
    kept = np.flatnonzero(partition.sizes >= minimum_rows)
    if not len(kept):
        raise DataError(f"no party has {minimum_rows} rows with one of its labels",
                        remedy="use fewer parties, or a smaller data.partition.minimum_rows")
    assert partition.labels is not None
    left = Partition.of([partition.party_rows(int(party)) for party in kept],
                        names=tuple(partition.name(int(party)) for party in kept))
    return replace(left, labels=tuple(partition.labels[party] for party in kept))


@register("partition", "iterative", paper="Sechidis et al., 2011")
@dataclass(frozen=True)
class Iterative:
    """Deal multi-label rows so that every label is spread evenly or, with `alpha`, in Dirichlet shares of its own.

    Labels are dealt rarest first: each row of a label goes to the party that lacks most of that label, then most of
    all rows. All rows are dealt, each to one party, and every party knows all labels.

    Parameters:
        parties: how many parties there are
        alpha: concentration of the shares in which each label is dealt (label skew); equal shares when left out
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 10
    alpha: Annotated[float, Gt(0)] | None = None
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give every row to a party."""
        kind = dataset.schema.target.kind
        if kind not in ("multilabel", "classes"):
            raise DataError(f"the partition 'iterative' needs labels, '{dataset.name}' has a target of kind '{kind}'",
                            remedy="choose another partition")
        require_rows(dataset, self.parties, self.minimum_rows)
        labels = dataset.target if kind == "multilabel" else np.eye(dataset.schema.target.size, dtype=np.int8)[
            dataset.target]
        even = np.full(self.parties, 1 / self.parties)
        shares = even if self.alpha is None else rng.dirichlet(np.full(self.parties, self.alpha), labels.shape[1])
        dealt = stratify_iteratively(labels, shares, rng)
        return by_party_numbers(top_up(dealt, self.parties, self.minimum_rows, rng), self.parties)


def stratify_iteratively(labels: Array, shares: NDArray[np.float64],
                         rng: np.random.Generator) -> NDArray[np.int64]:
    """A party number for each row. `shares` are (parties,) for all labels, or (labels, parties)."""
    positive = np.asarray(labels) > 0
    wanted_labels = positive.sum(axis=0)[:, None] * np.broadcast_to(shares, (positive.shape[1], shares.shape[-1]))
    wanted_rows = np.full(shares.shape[-1], len(positive) / shares.shape[-1]) if shares.ndim > 1 else \
        len(positive) * shares
    wanted_labels, wanted_rows = wanted_labels.copy(), wanted_rows.astype(np.float64)
    party_of_row = np.full(len(positive), -1, dtype=np.int64)
    left, luck = positive.sum(axis=0), rng.random(len(positive))
    while (left > 0).any():
        label = int(np.where(left > 0, left, np.iinfo(np.int64).max).argmin())
        rows = np.flatnonzero(positive[:, label] & (party_of_row < 0))
        for row in rows[np.argsort(luck[rows])]:
            party = _neediest(wanted_labels[label], wanted_rows, rng)
            party_of_row[row] = party
            wanted_labels[positive[row], party] -= 1
            wanted_rows[party] -= 1
        left -= positive[rows].sum(axis=0)
    for row in np.flatnonzero(party_of_row < 0):
        party_of_row[row] = party = _neediest(wanted_rows, wanted_rows, rng)
        wanted_rows[party] -= 1
    return party_of_row


def _neediest(first: NDArray[np.float64], second: NDArray[np.float64], rng: np.random.Generator) -> int:
    """The party that lacks most by the first measure; ties go by the second, then by chance."""
    tied = np.flatnonzero(first >= first.max() - 1e-9)
    tied = tied[second[tied] >= second[tied].max() - 1e-9]
    return int(tied[0] if len(tied) == 1 else rng.choice(tied))
