"""Preparations of a dataset, by the names that the config key `data.prepare` uses.

    steps = preparations(["standardise"])
    train, test = prepare(steps, [train], [train, test])

A preparation is fitted on some rows and looks at no others. Where parties may share statistics, each fits its own rows
and the merged statistics equal those of the pooled rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tequio import registry
from tequio.data.preprocessing import categories, filling, informing, scaling  # noqa: F401 - they register their steps
from tequio.data.preprocessing.automatic import settled
from tequio.data.preprocessing.mapped_rows import apply, apply_to_all, in_blocks
from tequio.data.preprocessing.preparation import Preparation, Statistics
from tequio.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.dataset import Dataset


__all__ = ["Fitted", "Preparation", "Statistics", "fit_and_prepare", "fit_together", "preparations", "prepare",
           "settled"]


@dataclass(frozen=True)
class Fitted:
    """Steps with what they were fitted to, so that rows that come later are prepared like those of the training."""

    steps: tuple[Preparation, ...] = ()
    statistics: tuple[Statistics, ...] = ()

    def apply(self, dataset: Dataset) -> Dataset:
        """The prepared rows."""
        for step, fitted in zip(self.steps, self.statistics, strict=True):
            dataset = apply(step, dataset, fitted)
        return dataset

    def to_payload(self) -> dict[str, Any]:
        """As plain data and arrays."""
        tables = [{"name": registry.name_of(type(step)), **asdict(step)}  # type: ignore[call-overload]
                  for step in self.steps]
        return {"steps": tables, "statistics": [dict(fitted) for fitted in self.statistics]}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Fitted:
        """Back from plain data."""
        return cls(tuple(preparations(payload["steps"])), tuple(payload["statistics"]))


def preparations(wanted: Sequence[str | Mapping[str, object]]) -> list[Preparation]:
    """The steps that a config lists: names, or tables of a name and parameters."""
    return [_step({"name": item} if isinstance(item, str) else dict(item)) for item in wanted]


def fit_together(step: Preparation, parts: Sequence[Dataset]) -> Statistics:
    """One step's statistics over the rows of several parties, each fitted alone and then merged."""
    if not parts:
        raise DataError("a preparation needs rows to be fitted on")
    fitted = [step.fit(block) for part in parts for block in in_blocks(part)]
    return fitted[0] if len(fitted) == 1 else step.merge(fitted)


def prepare(steps: Sequence[Preparation], fit_on: Sequence[Dataset], datasets: Sequence[Dataset]) -> list[Dataset]:
    """Fit the steps one after the other on `fit_on` (the training rows, by party) and apply them to `datasets`."""
    return fit_and_prepare(steps, fit_on, datasets)[1]


def fit_and_prepare(steps: Sequence[Preparation], fit_on: Sequence[Dataset],
                    datasets: Sequence[Dataset]) -> tuple[Fitted, list[Dataset]]:
    """The same, with what the steps were fitted to."""
    fit_on, prepared, kept = list(fit_on), list(datasets), []
    for step in steps:
        statistics = fit_together(step, fit_on)
        prepared, fit_on = apply_to_all(step, statistics, prepared, fit_on)
        kept.append({name: values for name, values in statistics.items() if name in step.needed})
    return Fitted(tuple(steps), tuple(kept)), prepared


def _step(item: dict[str, object]) -> Preparation:
    name = str(item.pop("name", None))
    try:
        registry.find("preparation", name)
    except ConfigError:
        known = registry.names("preparation")
        same = [other for other in known if _letters(other) == _letters(name)]
        raise ConfigError(f"data.prepare: there is no step '{name}'",
                          remedy=f"its name is '{same[0]}'" if same else nearest(name, known)) from None
    step: Preparation = registry.build("preparation", name, item, where="data.prepare")
    return step


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "")
