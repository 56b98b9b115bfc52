"""Whether a column is measured in other units than others have: by where its values lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.data.inputs.mapping import CONVERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Array

    Said = tuple[str | dict[str, float], float, float]


FEWEST = 8
"""With fewer values than this nothing is said about units."""

_TENS = (1e-3, 1e-2, 0.1, 10.0, 100.0, 1e3)
_INSIDE, _ENOUGH, _SPREAD = 0.5, 0.65, 0.1  # ranges in schemas of small tables leave many rows out
_FAR, _NEAR = 0.75, 0.5


def other_unit(values: Array, name: str, unit: str, ends: tuple[float, float] | None,
               quantiles: Mapping[float, float]) -> str | dict[str, float] | None:
    """What `units` of a mapping would have to say of the column; nothing where it is fine or cannot be known.

    Values are compared with quantiles of all parties where there are some, else with the range in the schema.
    """
    values = values[np.isfinite(values)]
    if len(values) < FEWEST or not (quantiles or ends):
        return None
    if quantiles:
        if _distance(values, quantiles) <= _FAR:
            return None
        found = [(_distance(values * factor + offset, quantiles), said)
                 for said, factor, offset in _conversions(name, unit)]
        best, said = min(found, key=lambda each: each[0])
        return said if best <= _NEAR else None
    assert ends is not None
    if _inside(values, ends) >= _INSIDE:
        return None
    likely = [(_aside(converted, ends), said) for said, factor, offset in _conversions(name, unit)
              if _inside(converted := values * factor + offset, ends) >= _ENOUGH and _fills(converted, ends)]
    return min(likely, key=lambda each: each[0])[1] if likely else None


def _conversions(name: str, unit: str) -> Iterator[Said]:
    """Known ones into the unit, or all where it is not known; and steps of ten. Some are of one substance only."""
    for known, (factor, offset) in CONVERSIONS.items():
        substance = known.rpartition(" ")[0]
        if (not unit or known.endswith(f"->{unit}")) and substance in name.casefold():
            alike = [other for other, numbers in CONVERSIONS.items() if numbers == (factor, offset)]
            yield known if unit or substance or len(alike) == 1 else {"factor": factor}, factor, offset
    for factor in _TENS:
        yield {"factor": factor}, factor, 0.0


def _distance(values: NDArray[np.float64], quantiles: Mapping[float, float]) -> float:
    """How far the values' quantiles are from those of others, in widths of the latter."""
    wanted = np.array(list(quantiles.values()))
    spread = float(np.ptp(wanted)) or 0.2 * float(np.abs(wanted).max()) or 1.0
    return float(np.abs(np.quantile(values, list(quantiles)) - wanted).mean() / spread)


def _inside(values: NDArray[np.float64], ends: tuple[float, float]) -> float:
    return float(((values >= ends[0]) & (values <= ends[1])).mean())


def _fills(values: NDArray[np.float64], ends: tuple[float, float]) -> bool:
    """Whether the values are not all in one corner of the range, where a far too small factor would put them."""
    low, high = np.quantile(values, [0.05, 0.95])
    return bool(high - low >= _SPREAD * (ends[1] - ends[0]))


def _aside(values: NDArray[np.float64], ends: tuple[float, float]) -> float:
    return abs(float(np.median(values)) - sum(ends) / 2)
