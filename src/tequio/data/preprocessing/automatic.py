"""The steps that `data.prepare = ["auto"]` stands for: what the learner needs and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tequio.data.preprocessing.preparation import Preparation, Statistics
from tequio.errors import ConfigError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tequio.data.dataset import Dataset

Step = str | Mapping[str, Any]
"""A step as a config lists it: its name, or a table of its name and parameters."""

AUTO = "auto"


@register("preparation", AUTO, example='[data]\nprepare = ["auto"]\n')
@dataclass(frozen=True)
class Auto(Preparation):
    """What the learner needs: dates to parts, missing values filled in with a flag, numbers standardised, categories to
    columns of 0 and 1. Trees take tables as they are. Tables of your own get this unless you list other steps.
    """

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """Other steps take its place when the learner is known."""
        raise ConfigError("the step 'auto' depends on the learner, which is not known here",
                          remedy='list the steps: ["impute", "standardise", "one-hot"]')


def settled(wanted: Sequence[Step], dataset: Dataset, takes: Collection[str], *, may_widen: bool = True,
            flags: bool = True) -> list[Step]:
    """The steps without `auto`, for what takes such columns: number, category, missing. Where steps may not widen the
    table, `auto` leaves columns as they are; without `flags`, no column says what was missing.

    Missing values that are to be filled in with medians are, before anything else, where no step says how.
    """
    missing, may_widen = dataset.source.missing, may_widen and len(dataset.schema.shape) == 1
    steps: list[Step] = []
    for step in wanted:
        steps += _automatic(dataset, takes, may_widen, flags) if name_of(step) == AUTO else [step]
    if not missing or dataset.is_sparse or "impute" in map(name_of, steps):
        return steps
    if missing == "median":
        return [{"name": "impute", "indicators": False}, *steps]
    if "missing" not in takes:
        raise ConfigError("values of this table may be missing, and what learns from it cannot do without them",
                          remedy="fill them in: data.missing = 'median', or \"impute\" among the steps of data.prepare")
    return steps


def name_of(step: Step) -> str:
    """The step's name."""
    return step if isinstance(step, str) else str(step.get("name"))


def _automatic(dataset: Dataset, takes: Collection[str], may_widen: bool, flags: bool) -> list[Step]:
    if "number" not in takes or dataset.is_sparse or not may_widen:
        return []
    kinds = {feature.kind for feature in dataset.schema.features}
    impute: Step = "impute" if flags else {"name": "impute", "indicators": False}
    fill: list[Step] = [impute] if dataset.has_missing and "missing" not in takes else []
    if "category" in takes:
        return fill
    steps: list[Step] = ["date-parts"] if "date" in kinds else []
    steps += [{"name": "ordinal", "which": "ordered"}] if "ordered" in kinds else []
    steps += [*fill, "standardise"]
    return steps + (["one-hot"] if kinds & {"category", "hashed"} else [])
