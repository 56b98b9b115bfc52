"""Tables of numbers dealt to parties row by row, and asks of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.statistics.exact_sums import ExactSums
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import SMALL_CELLS, Population
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECURE = (build("stage", "secure-sum"),)
ONE_SHOT = (build("stage", "one-shot-sum"),)


class Backwards(InlineEngine):
    """Gives the outcomes of an ask in the reverse order."""

    def collect(self) -> Any:
        outcome = super().collect()
        return type(outcome)(outcome.ticket, tuple(reversed(outcome.replies)), outcome.failures)


def dealt(table: Mapping[str, Any], parties: int | Sequence[Any], stages: Sequence[Any] = (), *,
          rules: Rules | None = None, cells: Mapping[str, float] | None = None, engine: InlineEngine | None = None,
          what: str = "glm") -> ExactSums:
    """Row i belongs to party i mod `parties`, or to those whose rows are given. Texts are levels, sorted."""
    columns = {name: np.asarray(values) for name, values in table.items()}
    domains = {name: tuple(sorted(set(values.tolist()))) for name, values in columns.items()
               if values.dtype.kind in "UO"}
    numbers = [np.array([domains[name].index(one) for one in values.tolist()], dtype=float) if name in domains else
               values.astype(float) for name, values in columns.items()]
    schema = Schema(tuple(Feature(name, domains.get(name)) for name in columns), Target("none"))
    rows = len(numbers[0])
    held = [np.arange(rows)[party::parties] for party in range(parties)] if isinstance(parties, int) else \
        [np.asarray(some, dtype=np.int64) for some in parties]
    data = Dataset.of(schema, np.column_stack(numbers), missing="keep")
    overrides = {party: {SMALL_CELLS: dict(cells)} for party in range(len(held))} if cells else {}
    population = Population(data, Partition.of(held), Split(0.0, 0.0), seed=2, overrides=overrides)
    engine = engine or InlineEngine()
    engine.open(population)
    federation = Federation(population, engine, 2, rules or Rules())
    federation.round = 1
    return ExactSums(what, federation, federation.everyone(), stages)
