"""What a search looks through: the table `[search]`, read and checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge
from pydantic import Field, ValidationError, model_validator

from tequio.components import explain
from tequio.errors import ConfigError
from tequio.experiments.studies.curves import curve_metric
from tequio.experiments.tables import Table

if TYPE_CHECKING:
    from tequio.experiments.tables import Config

ALLOWED = "validation."
"""A model may be chosen by rows that are kept for that, and by no others."""

_BOUNDS = frozenset({"low", "high"})


class Range(Table):
    """Values from `low` to `high`, both included; whole numbers where both are. `log` spreads them over magnitudes."""

    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _in_order(self) -> Range:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"low = {self.low} and high = {self.high} are no range"
                             + (" over magnitudes" if self.log else ""))
        return self

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Search(Table):
    """How to look for the best values.

    Parameters:
        method: try all combinations, or let Optuna's tree-structured Parzen estimator propose them
        metric: the validation metric that decides (empty: the main one of the data)
        trials: how many combinations the estimator proposes
        seeds: every combination is run with each of them (empty: the seed of the config)
        space: dotted keys with lists of values or, for the estimator, `{low = 0.001, high = 1.0, log = true}`
    """

    method: Literal["grid", "tpe"] = "grid"
    metric: str = ""
    trials: Annotated[int, Ge(1)] = 20
    seeds: list[Annotated[int, Ge(0)]] = Field(default_factory=list)
    space: dict[str, list[Any] | Range]

    def combinations(self) -> list[dict[str, Any]]:
        """All of them, the last key fastest."""
        return [dict(zip(self.space, values, strict=True)) for values in product(*self.space.values())]


def read_search(table: Mapping[str, Any], source: str) -> Search:
    """The table, checked; errors name the key."""
    if not table:
        raise ConfigError(f"{source} has no [search] table",
                          remedy='add one: [search.space] with "local.learning_rate" = [0.01, 0.1]')
    where = "search"
    try:
        space = {}
        for key, value in _flat(table.get("space", {})).items():
            where = f"search.space.{key}"
            space[key] = Range.model_validate(value) if isinstance(value, Mapping) else value
        where = "search"
        found = Search.model_validate({**table, "space": space})
    except ValidationError as cause:
        raise ConfigError(f"{source}: [{where}] {explain(cause)}", remedy="see the how-to on searching") from None
    _check_space(found, source)
    _check_metric(found.metric, source)
    return found


def check_rows(config: Config, source: str) -> None:
    """Whether there are rows to choose by."""
    if not config.data.split.validation and not config.data.validation:
        raise ConfigError(f"{source}: nobody keeps validation rows, so there is nothing to choose by",
                          remedy="set data.split.validation, or data.validation for rows at the coordinator")


def _check_space(search: Search, source: str) -> None:
    if not search.space:
        raise ConfigError(f"{source}: [search.space] is empty",
                          remedy='name keys and values: "local.learning_rate" = [0.01, 0.1]')
    for key, values in search.space.items():
        if isinstance(values, list) and not values:
            raise ConfigError(f"{source}: [search.space] '{key}' has no values", remedy="list at least one")
        if search.method == "grid" and isinstance(values, Range):
            raise ConfigError(f"{source}: a grid cannot try all of '{key}'",
                              remedy="list its values, or set search.method = 'tpe'")


def _check_metric(metric: str, source: str) -> None:
    curve = curve_metric(metric) if metric else None
    name = curve.metric if curve is not None else metric
    if name and not name.startswith(ALLOWED):
        raise ConfigError(f"{source}: [search] may not choose by '{metric}': what is chosen by test or training rows "
                          "looks better than it is", remedy="choose by a metric such as validation.accuracy")


def _flat(space: Any, prefix: str = "") -> dict[str, Any]:
    """`[search.space.local]` with `epochs = [1, 5]` is the same as `"local.epochs" = [1, 5]`."""
    if not isinstance(space, Mapping):
        return {"": space}
    keys: dict[str, Any] = {}
    for key, value in space.items():
        if isinstance(value, Mapping) and not _BOUNDS & value.keys():
            keys |= _flat(value, f"{prefix}{key}.")
        else:
            keys[f"{prefix}{key}"] = value
    return keys
