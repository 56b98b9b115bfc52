"""Before a party joins: does its table follow the schema that was agreed on, and if not, what would make it do so?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.inputs import harmonised, read
from tequio.data.inputs.column import id_columns
from tequio.data.inputs.harmonise import Comparison, compare
from tequio.data.inputs.mapping import TableMapping, mapping_of
from tequio.data.sharing import load_schema
from tequio.errors import ConfigError, DataError, nearest
from tequio.experiments.running.results import Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tequio.data.dataset import Dataset
    from tequio.data.inputs.column import Columns

_OTHER_ENCODING = "cp1252"


@dataclass(frozen=True)
class Checked:
    """The differences from the schema; without any, the table as it is read, and how many rows miss a value."""

    found: Comparison
    dataset: Dataset | None = None
    incomplete: int = 0


def check_table(path: Path, schema: Path, mapping: Path | None = None, quantiles: Path | None = None, id: str = "",
                ignore: Sequence[str] = ()) -> Checked:
    """Compare a table with a schema, after a mapping if there is one."""
    shared = load_schema(schema)
    said = TableMapping() if mapping is None else mapping_of(mapping)
    columns, encoding = _columns(path, said, given=mapping is not None)
    identifying = id_columns(id, columns)
    for name in (*ignore, *identifying):
        if name not in columns:
            raise DataError(f"'{path.name}' has no column '{name}'", remedy=nearest(name, columns))
    found = compare(columns, shared, {} if quantiles is None else quantiles_in(quantiles), {*identifying, *ignore})
    if encoding:
        found.mapping["encoding"] = encoding
        found.say("", "", f"the file is not encoded in UTF-8; in {encoding} it can be read")
    if found.differences:
        return Checked(found)
    rows = read(columns, schema=shared.schema, id=id or None, ignore=ignore, missing="keep", name=path.name)
    lost = np.isnan(rows.features).any(axis=1) if len(rows.schema.features) else np.zeros(len(rows), dtype=bool)
    return Checked(found, rows, int(lost.sum()))


def _columns(path: Path, mapping: TableMapping, *, given: bool) -> tuple[Columns, str]:
    """The columns, and the encoding where it had to be guessed."""
    try:
        return harmonised(path, mapping), ""
    except DataError as cause:
        if given or not isinstance(cause.__cause__, UnicodeDecodeError):
            raise
        return harmonised(path, TableMapping(encoding=_OTHER_ENCODING)), _OTHER_ENCODING


def quantiles_in(path: Path) -> dict[str, dict[float, float]]:
    """Quantiles by column from a run of 'statistics', or from its table in a JSON file."""
    try:
        rows = Result(path).model["table"] if path.is_dir() else json.loads(path.read_text(encoding="utf-8"))
        found = {str(row["column"]): {float(key[1:]): float(value) for key, value in row.items()
                                      if key[:1] == "q" and key[1:2].isdigit()} for row in rows}
    except (OSError, KeyError, TypeError, ValueError) as cause:
        raise ConfigError(f"'{path}' holds no quantiles: {cause}", remedy="give the folder of a run of the algorithm "
                          "'statistics' with quantiles = [0.25, 0.5, 0.75], or its table as JSON") from cause
    return {column: quantiles for column, quantiles in found.items() if quantiles}
