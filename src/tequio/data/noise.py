"""Noise on a party's features: every party measures the world with an instrument of its own.

A simulation of unlike feature distributions. It protects nobody: it is no mechanism of differential privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge
from scipy import sparse

from tequio.data.dataset import Dataset
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.dataset import Matrix
    from tequio.data.partition import Partition

    Draw = Callable[[int], np.random.Generator]


LARGEST_DENSE = 100_000_000
"""Numbers up to which a sparse dataset may become a dense one, because each of its zeros gains noise."""


@dataclass(frozen=True)
class FeatureNoise:
    """Gaussian noise with a standard deviation of the party's own, drawn between 0 and `largest`.

    Parameters:
        largest: largest standard deviation (0: no noise)
        sign: signed noise, or its absolute value, which shifts the features too
        entries: noise on all entries, which makes sparse data dense, or on stored entries only
    """

    largest: Annotated[float, Ge(0)] = 0.0
    sign: Literal["signed", "absolute"] = "signed"
    entries: Literal["all", "stored"] = "all"


def with_noise(dataset: Dataset, partition: Partition, how: FeatureNoise,
               draw: Draw) -> tuple[Dataset, Partition, NDArray[np.float64]]:
    """The rows that parties hold with noise on them, dealt alike, and each party's standard deviation.

    `draw` gives the generator of a party. The source is left as it is: rows are copied, one party after the other.
    """
    _check(dataset, partition, how)
    pieces, deviations = [], np.zeros(len(partition))
    for party in range(len(partition)):
        rng = draw(party)
        deviations[party] = rng.uniform(0.0, how.largest)
        pieces.append(_noisy(dataset.take(partition.party_rows(party)).features, deviations[party], how, rng))
    features = sparse.vstack(pieces, format="csr") if sparse.issparse(pieces[0]) else np.concatenate(pieces)
    dealt = dataset.take(partition.rows)
    schema = dataset.schema
    target = dealt.target if schema.target.kind != "none" else None
    copied = Dataset.of(schema, features, target, ids=dealt.ids, name=dataset.name,
                        groups=dealt.groups if dataset.source.groups is not None else None,
                        missing=dataset.source.missing)
    return copied, replace(partition, rows=np.arange(len(partition.rows))), deviations


def _check(dataset: Dataset, partition: Partition, how: FeatureNoise) -> None:
    if partition.columns is not None:
        raise DataError("noise is for parties that hold whole rows, and these each hold some columns",
                        remedy="set data.feature_noise.largest = 0")
    if any(feature.categorical for feature in dataset.schema.features):
        raise DataError(f"'{dataset.name}' has categorical columns, to which noise cannot be added",
                        remedy="set data.feature_noise.largest = 0, or choose numeric data")
    numbers = len(partition.rows) * len(dataset.schema.features)
    if dataset.is_sparse and how.entries == "all" and numbers > LARGEST_DENSE:
        raise DataError(f"noise on every entry would make the sparse '{dataset.name}' a dense table of {numbers:,} "
                        f"numbers", remedy="set data.feature_noise.entries = 'stored'")


def _noisy(features: Matrix, deviation: float, how: FeatureNoise, rng: np.random.Generator) -> Matrix:
    if sparse.issparse(features) and how.entries == "stored":
        changed = features.copy()
        changed.data = (changed.data + _noise(changed.data.shape, deviation, how, rng)).astype(np.float32)
        return changed
    dense = features.toarray() if sparse.issparse(features) else features
    return (dense + _noise(dense.shape, deviation, how, rng)).astype(np.float32)


def _noise(shape: tuple[int, ...], deviation: float, how: FeatureNoise, rng: np.random.Generator) -> Matrix:
    noise = deviation * rng.standard_normal(shape, dtype=np.float32)
    return np.abs(noise) if how.sign == "absolute" else noise
