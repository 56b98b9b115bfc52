"""How a table that calls, measures or codes things in its own way is read as one that follows a schema.

A mapping is a TOML file or a table of the same keys. Its steps are taken in this order: leave columns out, rename, mark
what is missing, decimal commas, codes, dates, units. All but the first two speak of columns by the schema's names.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.data.inputs.column import Column, column_of, columns_of
from tequio.data.inputs.kinds import as_dates
from tequio.data.inputs.reading import opened_csv
from tequio.data.inputs.tables import file_ending
from tequio.errors import ConfigError, DataError, listed, nearest
from tequio.registry import validate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns


_THERE = {
    "lb->kg": (0.45359237, 0.0), "oz->g": (28.349523125, 0.0), "g->kg": (1e-3, 0.0), "mg->g": (1e-3, 0.0),
    "inch->cm": (2.54, 0.0), "ft->cm": (30.48, 0.0), "cm->m": (1e-2, 0.0), "mm->cm": (0.1, 0.0),
    "mile->km": (1.609344, 0.0),
    "F->C": (5 / 9, -160 / 9), "K->C": (1.0, -273.15), "mmHg->kPa": (0.133322387415, 0.0),
    "months->years": (1 / 12, 0.0), "days->years": (1 / 365.25, 0.0), "hours->days": (1 / 24, 0.0),
    "minutes->hours": (1 / 60, 0.0), "kcal->kJ": (4.184, 0.0), "percent->share": (1e-2, 0.0),
    "glucose mg/dL->mmol/L": (1 / 18.016, 0.0), "cholesterol mg/dL->mmol/L": (1 / 38.67, 0.0),
    "triglycerides mg/dL->mmol/L": (1 / 88.57, 0.0), "creatinine mg/dL->umol/L": (88.42, 0.0),
    "haemoglobin g/dL->mmol/L": (0.6206, 0.0),
}


def _back(name: str) -> str:
    """The name of the conversion the other way round."""
    substance, _, units = name.rpartition(" ")
    first, second = units.split("->")
    return f"{substance} {second}->{first}".lstrip()


CONVERSIONS = _THERE | {_back(name): (1 / factor, -offset / factor) for name, (factor, offset) in _THERE.items()}
"""Factor and offset of each named conversion: value * factor + offset."""

_NOISE = 12
"""Significant digits of converted values: beyond them is what floating point adds, and no measurement has so many."""


@dataclass(frozen=True)
class Conversion:
    """From one unit to another: value * factor + offset.

    Parameters:
        convert: a known conversion, such as lb->kg
        factor: what values are multiplied by, where it is no known one
        offset: what is added then
        digits: digits after the point that are kept (none: all)
    """

    convert: str = ""
    factor: float = 1.0
    offset: float = 0.0
    digits: int | None = None

    def __post_init__(self) -> None:
        if self.convert and self.convert not in CONVERSIONS:
            raise ConfigError(f"there is no conversion '{self.convert}'",
                              remedy="give it as {factor = 2.5, offset = 0}, or take a known one: "
                                     f"{nearest(self.convert, CONVERSIONS)}")

    def apply(self, values: Array) -> Array:
        """The values in the other unit."""
        factor, offset = CONVERSIONS.get(self.convert, (self.factor, self.offset))
        converted = values * factor + offset
        return converted.round(self.digits) if self.digits is not None else significant(converted)


def significant(values: Array) -> Array:
    """The values without what floating point adds."""
    return np.array([float(f"{value:.{_NOISE}g}") for value in values])


@dataclass(frozen=True)
class TableMapping:
    """What is different in a table from the schema that it shall follow.

    Parameters:
        encoding: how its text is encoded: utf-8, latin-1, cp1252 and so on
        decimal: what separates decimals: a point or a comma
        missing: texts that stand for a missing value, in all columns or by column
        ignore: columns to leave out
        rename: the table's names of columns to those of the schema
        codes: by column, the table's codes to the categories of the schema
        dates: by column, how dates are written, such as %d.%m.%Y
        units: by column, a conversion such as "lb->kg", or {factor = ..., offset = ..., digits = ...}
    """

    encoding: str = "utf-8"
    decimal: Literal[".", ","] = "."
    missing: list[str | int | float] | dict[str, list[str | int | float]] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)
    rename: dict[str, str] = field(default_factory=dict)
    codes: dict[str, dict[str, str | int | float]] = field(default_factory=dict)
    dates: dict[str, str] = field(default_factory=dict)
    units: dict[str, str | dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name, times = Counter(self.rename.values()).most_common(1)[0] if self.rename else ("", 0)
        if times > 1:
            raise ConfigError(f"the mapping renames {times} columns to '{name}'",
                              remedy="keep one of them under [rename]")
        for column in self.units:
            self.conversion(column)
        try:
            "".encode(self.encoding)
        except LookupError:
            raise ConfigError(f"the mapping's encoding '{self.encoding}' is unknown",
                              remedy='usual ones are encoding = "utf-8", "latin-1" or "cp1252"') from None

    def conversion(self, column: str) -> Conversion:
        """What is done to the unit of a column."""
        said = self.units.get(column, {})
        table = {"convert": said} if isinstance(said, str) else said
        return Conversion(**validate(Conversion, table, f"the mapping's units of '{column}'"))

    def markers(self, column: str) -> set[str]:
        """The texts that stand for a missing value in a column."""
        listed = self.missing.get(column, []) if isinstance(self.missing, dict) else self.missing
        return {str(marker) for marker in listed}

    def about(self, columns: Columns) -> TableMapping:
        """What of the mapping is about these columns."""
        renamed = {self.rename.get(name, name) for name in columns}
        inner: dict[str, Any] = {
            key: {name: said for name, said in getattr(self, key).items() if name in renamed}
            for key in ("codes", "dates", "units", "missing") if isinstance(getattr(self, key), dict)}
        return replace(self, ignore=[name for name in self.ignore if name in columns],
                       rename={name: new for name, new in self.rename.items() if name in columns}, **inner)

    def apply(self, columns: Columns) -> Columns:
        """The columns under the names, in the codes and in the units of the schema."""
        for known in (*self.ignore, *self.rename):
            if known not in columns:
                raise DataError(f"the mapping speaks of a column '{known}', which the table has not",
                                remedy=nearest(known, columns))
        renamed = {self.rename.get(name, name): replace(column, name=self.rename.get(name, name))
                   for name, column in columns.items() if name not in self.ignore}
        if len(renamed) < len(columns) - len(set(self.ignore)):
            twice = next(new for old, new in self.rename.items() if new in columns and new not in self.rename)
            raise DataError(f"the mapping renames a column to '{twice}', and the table has one of that name",
                            remedy=f"leave that one out: ignore = {listed(twice)}")
        by_column = self.missing if isinstance(self.missing, dict) else {}
        for known in (*self.units, *self.codes, *self.dates, *by_column):
            if known not in renamed:
                raise DataError(f"the mapping speaks of a column '{known}', which the table has not, renamed or not",
                                remedy=nearest(known, renamed))
        return {name: self._mapped(column) for name, column in renamed.items()}

    def _mapped(self, column: Column) -> Column:
        name = column.name
        codes, markers = self.codes.get(name, {}), self.markers(name)
        if column.is_text or codes or markers or name in self.dates:
            texts = np.where(column.missing, "", column.texts())
            texts = np.array(["" if text in markers else str(codes.get(text, text)) for text in texts], dtype=object)
            if self.decimal == "," and not codes and name not in self.dates:
                texts = without_comma(texts)
            # What were numbers already stay numbers, and dates that are known to be dates stay so.
            column = column_of(name, texts, parse=name not in self.dates) if not column.dated else column
        if name in self.dates:
            return as_dates(column, self.dates[name])
        if name not in self.units:
            return column
        if column.is_text:
            raise DataError(f"the unit of column '{name}' cannot be converted, because it holds texts such as "
                            f"'{next(iter(column.present), '')}'",
                            remedy=f"say what is no number there: [missing] {name} = [...]", column=name)
        return replace(column, values=self.conversion(name).apply(column.values), whole=False)


def without_comma(texts: Array) -> Array:
    """Texts with points for decimal commas, if all of them are numbers then; points between thousands are left out."""
    changed = [text.replace(".", "").replace(",", ".") for text in texts]
    return np.array(changed, dtype=object) if all(map(_is_number, changed)) else texts


def _is_number(text: str) -> bool:
    try:
        return not text or bool(np.isfinite(float(text)))
    except ValueError:
        return False


def mapping_of(said: TableMapping | Mapping[str, Any] | str | PathLike[str]) -> TableMapping:
    """A mapping from a file, from a table of its keys, or as it is."""
    if isinstance(said, TableMapping):
        return said
    if isinstance(said, Mapping):
        return TableMapping(**validate(TableMapping, dict(said), "the mapping"))
    try:
        given = tomllib.loads(Path(said).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise ConfigError(f"the mapping '{said}' cannot be read: {cause}",
                          remedy="tequio party check --propose FILE writes one") from cause
    return TableMapping(**validate(TableMapping, given, f"the mapping '{Path(said).name}'"))


def raw_texts(path: Path, encoding: str) -> Columns:
    """The columns of a CSV file as they are written there: what are numbers is not known before it is mapped."""
    with opened_csv(path, "utf-8-sig" if encoding == "utf-8" else encoding) as (header, lines):
        rows = list(lines)
    return columns_of({name: np.array([row[place] for row in rows], dtype=object)
                       for place, name in enumerate(header)})


def mapped(data: Any, mapping: TableMapping, read: Callable[[Any], Any], *, partial: bool = False) -> Columns:
    """A table's columns as a mapping says, from a file or from what `read` makes of anything else."""
    is_csv = isinstance(data, str | PathLike) and file_ending(Path(data)) != ".parquet" and Path(data).is_file()
    columns = raw_texts(Path(data), mapping.encoding) if is_csv else read(data)
    if not isinstance(columns, dict):
        raise DataError("a mapping speaks of columns by their names, and plain arrays have none",
                        remedy="give a data frame, a file or a dict of columns")
    return (mapping.about(columns) if partial else mapping).apply(columns)
