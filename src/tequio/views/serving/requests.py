"""From the body of a request to columns: JSON rows, JSON columns or CSV, and everything that can be wrong with them."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tequio.data.inputs.column import columns_of
from tequio.errors import nearest
from tequio.models.rows import Unseen
from tequio.views.serving.refusing import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.dataset import Array, Schema

KEYS = ("rows", "columns", "ids", "party", "unseen", "extra", "version")
_LONGEST_NUMBER = 300
_LONGEST_ID = 200


@dataclass(frozen=True)
class Question:
    """Rows by column, and how they are to be answered."""

    columns: Mapping[str, Array]
    count: int
    ids: list[str] | None = None
    party: str = ""
    unseen: Unseen = "error"
    version: str = ""


def from_json(body: bytes, schema: Schema, most_rows: int) -> Question:
    """A question that was asked in JSON."""
    document = _parsed(body)
    if not isinstance(document, dict):
        raise Refused(400, "the request is no JSON object", 'send {"rows": [{"column": value, ...}, ...]}')
    for key in document:
        if key not in KEYS:
            raise Refused(422, f"a request has no key '{key}'", f"{nearest(key, KEYS)} Values of columns belong into "
                          'the objects of "rows"')
    if ("rows" in document) == ("columns" in document):
        raise Refused(422, 'a request needs either "rows" or "columns"', 'send {"rows": [{"column": value, ...}, ...]}')
    read = _from_rows if "rows" in document else _from_columns
    columns, count = read(document.get("rows", document.get("columns")), schema, most_rows)
    _check_values(columns)
    return _checked(_objects(columns), count, _ids(document.get("ids"), count), document, schema)


def from_csv(body: bytes, schema: Schema, most_rows: int, options: Mapping[str, str]) -> Question:
    """A question that was asked as CSV, with its options in the address; `id` names the column of ids."""
    for key in options:
        if key not in ("id", "party", "unseen", "extra", "version"):
            raise Refused(422, f"there is no option '{key}'", nearest(key, ("id", "party", "unseen", "extra",
                                                                            "version")))
    try:
        lines = list(csv.reader(io.StringIO(body.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as cause:
        raise Refused(400, f"the request is no UTF-8 CSV: {cause}", "save the table as UTF-8 CSV") from None
    rows = [line for line in lines[1:] if line]
    if not rows:
        raise Refused(422, "there are no rows to answer", "put the names of the columns into the first line and at "
                      "least one row below")
    if len(rows) > most_rows:
        raise _too_many(len(rows), most_rows)
    header = [name.strip() for name in lines[0]]
    _refuse_doubles(header)
    for place, row in enumerate(rows):
        if len(row) != len(header):
            raise Refused(422, f"row {place} has {len(row)} values, but the first line names {len(header)} columns",
                          "separate values by commas, and quote those that contain one", row=place)
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    name = options.get("id", "")
    if name and name not in columns:
        raise Refused(422, f"there is no column '{name}' that tells rows apart", nearest(name, columns), column=name)
    ids = _ids(columns[name] if name else None, len(rows))
    kept = {key: values for key, values in columns.items() if key != name or key in schema.names}
    parsed = {key: column.values for key, column in columns_of(_objects(kept), parse=True).items()}
    return _checked(parsed, len(rows), ids, options, schema)


def is_id(text: str) -> bool:
    """Whether a text can stand in a log as an id."""
    return 0 < len(text) <= _LONGEST_ID and text.isprintable()


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body, object_pairs_hook=_without_doubles, parse_int=_number)
    except RecursionError:
        raise Refused(400, "the JSON is nested too deeply", 'send {"rows": [{"column": value, ...}, ...]}') from None
    except UnicodeDecodeError:
        raise Refused(400, "the request is not encoded in UTF-8", "encode the JSON in UTF-8") from None
    except json.JSONDecodeError as cause:
        raise Refused(400, f"the request is no JSON: {cause.msg} at line {cause.lineno}, column {cause.colno}",
                      'send {"rows": [{"column": value, ...}, ...]} with double quotes') from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _refuse_doubles([name for name, _ in pairs])
    return found


def _refuse_doubles(names: Sequence[str]) -> None:
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise Refused(400, f"'{name}' is given {times} times", "give it once", column=name)


def _number(text: str) -> float:
    return int(text) if len(text) < _LONGEST_NUMBER else float("inf")


def _from_rows(rows: Any, schema: Schema, most: int) -> tuple[dict[str, list[Any]], int]:
    if not isinstance(rows, list) or not rows:
        raise Refused(422, '"rows" has to be a list of at least one row', 'send {"rows": [{"column": value, ...}]}')
    if len(rows) > most:
        raise _too_many(len(rows), most)
    if all(isinstance(row, list) for row in rows):
        for place, row in enumerate(rows):
            if len(row) != len(schema.names):
                raise Refused(422, f"row {place} has {len(row)} values, but the model has {len(schema.names)} columns",
                              "send values in the order of /schema, or objects with names", row=place)
        return {name: [row[place] for row in rows] for place, name in enumerate(schema.names)}, len(rows)
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise Refused(422, f"row {place} is no JSON object", 'send rows such as {"column": value, ...}', row=place)
    names = dict.fromkeys(name for row in rows for name in row)
    if len(names) * len(rows) > _MOST_VALUES:
        raise Refused(422, f"the rows have {len(names)} different columns, but the model has {len(schema.names)}",
                      "send only the columns that /schema lists")
    # A column that a row leaves out has no value there; one that all leave out is missing as a whole.
    return {name: [row.get(name) for row in rows] for name in names}, len(rows)


_MOST_VALUES = 20_000_000
"""Rows that have different columns each could make a table that is far larger than the request."""


def _from_columns(columns: Any, schema: Schema, most: int) -> tuple[dict[str, list[Any]], int]:
    if not isinstance(columns, dict) or not columns or not all(isinstance(one, list) for one in columns.values()):
        raise Refused(422, '"columns" has to be an object of lists', 'send {"columns": {"column": [value, ...], ...}}')
    counts = {len(values) for values in columns.values()}
    if len(counts) > 1:
        odd = next(name for name, values in columns.items() if len(values) != max(counts))
        raise Refused(422, f"columns have different lengths: '{odd}' has {len(columns[odd])} of {max(counts)} values",
                      "send one value for each row, null where there is none", column=odd)
    if not max(counts):
        raise Refused(422, "there are no rows to answer", "send at least one row")
    if max(counts) > most:
        raise _too_many(max(counts), most)
    return columns, max(counts)


def _check_values(columns: Mapping[str, Sequence[Any]]) -> None:
    for name, values in columns.items():
        for place, value in enumerate(values):
            if isinstance(value, dict | list):
                raise Refused(422, f"row {place} has {'an object' if isinstance(value, dict) else 'a list'} in column "
                              f"'{name}'", "send a number, a text or null", row=place, column=name)


def _objects(columns: Mapping[str, Sequence[Any]]) -> dict[str, Array]:
    """Columns as arrays of whatever they hold, so that numpy does not turn numbers beside a text into texts."""
    return {name: np.array(values, dtype=object) for name, values in columns.items()}


def _checked(columns: Mapping[str, Array], count: int, ids: list[str] | None, options: Mapping[str, Any],
             schema: Schema) -> Question:
    if _text(options, "extra") == "error":
        # The true value may come along: tables often have it, and nothing looks at it.
        labels = schema.target.names if schema.target.kind == "multilabel" else ()
        known = {*schema.names, schema.target.name, *labels}
        for name in columns:
            if name not in known:
                raise Refused(422, f"the model has no column '{name}'", f"{nearest(name, schema.names[:50])} To leave "
                              'such columns out, send "extra": "ignore"', column=name)
    unseen: Unseen = _text(options, "unseen")  # type: ignore[assignment]  # it is one of these words
    missing = [name for name in schema.names if name not in columns]
    if missing and unseen != "fill":
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise Refused(422, f"the rows lack column '{missing[0]}'{more} of the model's {len(schema.names)}", "send all "
                      'columns that /schema lists, or send "unseen": "fill" to take their usual values',
                      column=missing[0])
    return Question(columns, count, ids, _text(options, "party"), unseen, _text(options, "version"))


def _text(given: Mapping[str, Any], key: str) -> str:
    known = {"unseen": ("error", *(word for word in get_args(Unseen) if word != "error")), "extra": ("error", "ignore")}
    value = given.get(key, known.get(key, ("",))[0])
    if not isinstance(value, str) or (key in known and value not in known[key]):
        raise Refused(422, f'"{key}" cannot be {json.dumps(value)[:100]}', f"choose {' or '.join(known[key])}"
                      if key in known else f'send a text, such as "{key}": "NAME"')
    return value


def _ids(given: Any, count: int) -> list[str] | None:
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != count:
        raise Refused(422, f'"ids" has to be a list of {count}, one for each row',
                      'send "ids": ["patient-17", ...], or leave it out')
    for place, id in enumerate(given):
        if not isinstance(id, str | int) or isinstance(id, bool) or not is_id(str(id)):
            raise Refused(422, f"the id of row {place} is no text of 1 to {_LONGEST_ID} characters that can be printed",
                          'send ids such as "patient-17"', row=place)
    return [str(id) for id in given]


def _too_many(count: int, most: int) -> Refused:
    return Refused(413, f"the request has {count} rows, and {most} are answered at a time",
                   f"send at most {most} rows, or start the service with --rows {count}")
