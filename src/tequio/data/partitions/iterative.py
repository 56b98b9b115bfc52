"""Iterative stratification of multi-label rows, even or skewed label by label.

Sechidis, Tsoumakas, Vlahavas: On the stratification of multi-label data, ECML PKDD 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Gt

from tequio.data.partitions.dealing import AtLeastOne, by_party_numbers, require_rows, top_up
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


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


def stratify_iteratively(labels: NDArray[Any], shares: NDArray[np.float64],
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
