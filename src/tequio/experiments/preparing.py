"""Preparation of the parties' rows: fitted on training rows only, never on rows that a model is judged by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset
from tequio.data.partition import Partition
from tequio.data.preprocessing import preparations, prepare
from tequio.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.data.preprocessing import Preparation
    from tequio.experiments.tables import Data
    from tequio.federation.population import Population

    Kept = tuple[Dataset | None, ...]


def prepared(population: Population, kept: Kept, how: Data) -> tuple[Population, Kept]:
    """The population and the coordinator's own rows, where it has such, after the config's steps.

    Federated: each party fits its own training rows and the merged statistics are used by all. Local: everyone uses
    statistics of its own rows only, the coordinator those of each of its own sets (it has no others).
    """
    steps = preparations(how.prepare)
    if not steps:
        return population, kept
    if population.partition.columns is not None:
        return _by_column(population, kept, steps)
    if how.prepare_scope == "federated":
        return _together(population, kept, steps, [population.view(party).train for party in range(len(population))])
    return _apart(population, steps), tuple(
        None if rows is None else prepare(steps, [rows], [rows])[0] for rows in kept)


def _together(population: Population, kept: Kept, steps: Sequence[Preparation],
              fit_on: Sequence[Dataset]) -> tuple[Population, Kept]:
    dataset, *rest = prepare(steps, fit_on, [population.dataset, *(rows for rows in kept if rows is not None)])
    changed = iter(rest)
    return _with(population, dataset, population.partition), tuple(
        None if rows is None else next(changed) for rows in kept)


def _apart(population: Population, steps: Sequence[Preparation]) -> Population:
    dealt = replace(population.partition, labels=None)
    parts = [prepare(steps, [population.view(party).train], [dealt.view(population.dataset, party)])[0]
             for party in range(len(population))]
    if any(part.schema != parts[0].schema for part in parts):
        raise DataError("parties that prepare their rows apart end up with different columns",
                        remedy="set data.prepare_scope = 'federated'")
    places = np.split(np.arange(sum(map(len, parts))), np.cumsum([len(part) for part in parts])[:-1])
    dealt = Partition.of(places, names=dealt.names, categories=dealt.categories, labels=population.partition.labels)
    return _with(population, _stacked(parts), dealt)


def _by_column(population: Population, kept: Kept, steps: Sequence[Preparation]) -> tuple[Population, Kept]:
    """Where a party holds some columns, statistics of a column are its holder's own either way."""
    held = population.dataset.take(np.unique(population.partition.rows))
    changed = _together(population, kept, steps, [held])
    if changed[0].schema.names != population.schema.names:
        raise ConfigError("data.prepare changes the columns, which parties that each hold some of them cannot do",
                          remedy="use steps that keep the columns, such as 'standardise'")
    return changed


def _with(population: Population, dataset: Dataset, partition: Partition) -> Population:
    return replace(population, dataset=dataset, partition=partition, _views=type(population._views)())


def _stacked(parts: Sequence[Dataset]) -> Dataset:
    """The rows of all parts, one part after the other."""
    first = parts[0]
    features = [part.features for part in parts]
    joined = sparse.vstack(features, format="csr") if first.is_sparse else np.concatenate(features)
    return Dataset.of(first.schema, joined, _joined(parts, "target") if first.schema.target.kind != "none" else None,
                      ids=_joined(parts, "ids"), groups=_joined(parts, "groups") if first.source.groups is not None
                      else None, name=first.name)


def _joined(parts: Sequence[Dataset], name: str) -> Any:
    return np.concatenate([getattr(part, name) for part in parts])
