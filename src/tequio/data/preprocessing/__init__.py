"""Preparations of a dataset, by the names that the config key `data.prepare` uses.

    steps = preparations(["standardise"])
    train, test = prepare(steps, [train], [train, test])

A preparation is fitted on some rows and looks at no others. Where parties may share statistics, each fits its own rows
and the merged statistics equal those of the pooled rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tequio.data.preprocessing.categories import Discretise, Drop, OneHot, Ordinal, Regroup
from tequio.data.preprocessing.preparation import Preparation, Statistics
from tequio.data.preprocessing.scaling import Log1p, MinMax, Standardise
from tequio.errors import ConfigError, DataError, nearest
from tequio.registry import validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.dataset import Dataset


__all__ = ["PREPARATIONS", "Fitted", "Preparation", "Statistics", "fit_and_prepare", "fit_together", "preparations",
           "prepare"]

PREPARATIONS: dict[str, type[Preparation]] = {
    "discretise": Discretise,
    "drop": Drop,
    "log1p": Log1p,
    "minmax": MinMax,
    "one-hot": OneHot,
    "ordinal": Ordinal,
    "regroup": Regroup,
    "standardise": Standardise,
}


_NEEDED = {Discretise: ("low", "high", "cuts"), MinMax: ("low", "high"), Standardise: ("mean", "scale")}
"""What of the fitted statistics each step needs to be applied; the rest only helps to merge them."""


@dataclass(frozen=True)
class Fitted:
    """Steps with what they were fitted to, so that rows that come later are prepared like those of the training."""

    steps: tuple[Preparation, ...] = ()
    statistics: tuple[Statistics, ...] = ()

    def apply(self, dataset: Dataset) -> Dataset:
        """The prepared rows."""
        for step, fitted in zip(self.steps, self.statistics, strict=True):
            dataset = step.apply(dataset, fitted)
        return dataset

    def to_payload(self) -> dict[str, Any]:
        """As plain data and arrays."""
        names = {made: name for name, made in PREPARATIONS.items()}
        tables = [{"name": names[type(step)], **asdict(step)} for step in self.steps]  # type: ignore[call-overload]
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
    fitted = [step.fit(part) for part in parts]
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
        # the training rows are usually in both lists; they are prepared once
        done = {key: step.apply(dataset, statistics) for key, dataset in _distinct([*fit_on, *prepared]).items()}
        fit_on, prepared = [done[id(part)] for part in fit_on], [done[id(dataset)] for dataset in prepared]
        needed = _NEEDED.get(type(step), ())
        kept.append({name: values for name, values in statistics.items() if name in needed})
    return Fitted(tuple(steps), tuple(kept)), prepared


def _distinct(datasets: Sequence[Dataset]) -> dict[int, Dataset]:
    return {id(dataset): dataset for dataset in datasets}


def _step(item: dict[str, object]) -> Preparation:
    name = str(item.pop("name", None))
    if name not in PREPARATIONS:
        same = [known for known in PREPARATIONS if _letters(known) == _letters(name)]
        raise ConfigError(f"data.prepare: there is no step '{name}'",
                          remedy=f"its name is '{same[0]}'" if same else nearest(name, PREPARATIONS))
    return PREPARATIONS[name](**validate(PREPARATIONS[name], item, f"data.prepare '{name}'"))


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "")
