"""Hugging Face datasets, by what they offer (`column_names`, `features`, `with_format`), without importing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.inputs.arrays import image_or_array
from tequio.data.inputs.column import columns_of
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.inputs.column import Columns


def columns_or_arrays(data: Any, target: str | Sequence[str] | None
                      ) -> tuple[Columns | tuple[Any, ...], Sequence[str] | None]:
    """Named columns; or, where rows are images or vectors, (features, target) arrays and the names of the classes."""
    plain = data.with_format(None)
    arrays = {name: _values(plain, name) for name in data.column_names}
    wide = [name for name, values in arrays.items() if values.ndim > 1]
    if not wide:
        return columns_of({name: _named(data, name, values) for name, values in arrays.items()}), None
    others = [name for name in arrays if name not in wide]
    if len(wide) > 1 or len(others) > 1 or (isinstance(target, str) and target not in others):
        raise DataError(f"rows hold arrays in {wide} beside columns {others}; only one array column and one target can "
                        "be read", remedy="keep two columns with select_columns([...])")
    names = _class_names(data, others[0]) if others else None
    return (arrays[wide[0]], arrays[others[0]] if others else None), names


def _values(data: Any, name: str) -> NDArray[Any]:
    values = list(data[name])
    if values and (isinstance(values[0], list | tuple | np.ndarray) or hasattr(values[0], "getbands")):
        return np.stack([image_or_array(value) for value in values])
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _class_names(data: Any, name: str) -> Sequence[str] | None:
    feature = data.features.get(name) if getattr(data, "features", None) else None
    return getattr(feature, "names", None)


def _named(data: Any, name: str, values: NDArray[Any]) -> NDArray[Any]:
    names = _class_names(data, name)
    if names is None:
        return values
    return np.array([None if value is None else names[int(value)] for value in values], dtype=object)
