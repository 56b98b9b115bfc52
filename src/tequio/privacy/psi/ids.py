"""Ids as bytes that are the same at every party that means the same row. Nothing is guessed: no fuzzy matching.

How ids are compared is one word for each id column, and the same word at all parties:

    exact        as they stand, but for spaces around them; whole numbers in decimals
    text         without regard to case, accents and amounts of white space
    digits       their digits only
    date         year, month, day (2001-02-03, 2001/02/03) or, with points, day, month, year (3.2.2001)
    day-first    the same, and 3/2/2001 is the third of February
    month-first  the same, and 3/2/2001 is the second of March
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from typing import TYPE_CHECKING, Literal

from tequio.data.inputs.column import ID_SEPARATOR
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

Comparison = Literal["exact", "text", "digits", "date", "day-first", "month-first"]

_ACCENTS = dict.fromkeys(range(768, 880))
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[T ]00:00(?::00(?:\.0+)?)?)?")
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})")
_EXACT = 1 << 53


def require_ids(ids: NDArray[np.generic], compare: Sequence[Comparison], whose: str) -> list[bytes]:
    """The ids as they are compared; missing, unreadable and repeated ones are refused.

    An error says how many there are, never which.
    """
    values = ids.tolist()
    missing = sum(value is None or value in ("", b"") or value != value for value in values)
    if missing:
        raise DataError(f"{missing} of the {len(values)} rows of {whose} have no id",
                        remedy="drop these rows or give them ids before the parties are aligned")
    inexact = sum(isinstance(value, int | float) and abs(value) >= _EXACT for value in values)
    if inexact:
        raise DataError(f"{inexact} of the {len(values)} ids of {whose} are numbers of 16 digits or more, the last of "
                        "which may be lost", remedy="give the column of ids as text")
    found = [_written(value, compare) for value in values]
    if unread := found.count(None):
        raise DataError(f"{unread} of the {len(values)} ids of {whose} are not what algorithm.compare = "
                        f"{list(compare)} takes", remedy="name one way for each id column; dates with slashes need "
                                                         "'day-first' or 'month-first'")
    written = [each for each in found if each is not None]
    if repeated := len(written) - len(set(written)):
        raise DataError(f"{repeated} of the {len(values)} ids of {whose} are repeated",
                        remedy="keep one row an id, or name more id columns (data.id = 'name + born'); nobody can tell "
                               "which of several rows is meant")
    return written


def _written(value: object, compare: Sequence[Comparison]) -> bytes | None:
    """One id; nothing where it is not of its kind. Several columns are kept apart by their lengths."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if len(compare) < 2:
        return _compared(text, compare[0] if compare else "exact")
    parts = text.split(ID_SEPARATOR)
    found = [_compared(part, how) for part, how in zip(parts, compare, strict=False)]
    if len(parts) != len(compare) or not all(found):
        return None
    return b"".join(len(part).to_bytes(4, "little") + part for part in found if part is not None)


def _compared(text: str, how: Comparison) -> bytes | None:
    if how == "exact":
        text = unicodedata.normalize("NFC", text).strip()
    elif how == "text":
        plain = unicodedata.normalize("NFKD", text).translate(_ACCENTS)
        folded = unicodedata.normalize("NFKD", plain.casefold()).translate(_ACCENTS)
        text = " ".join(unicodedata.normalize("NFC", folded).split())
    elif how == "digits":
        text = "".join(str(unicodedata.decimal(sign)) for sign in text if sign.isdecimal())
    else:
        text = _day(text.strip(), how)
    return text.encode("utf-8", "surrogateescape") or None


def _day(text: str, how: Comparison) -> str:
    """A date as year-month-day; empty where it is none, or one that can be read in two ways."""
    if found := _YEAR_FIRST.fullmatch(text):
        year, month, day = found[1], found[3], found[4]
    elif (found := _YEAR_LAST.fullmatch(text)) and (found[2] == "." or how != "date"):
        day, month = (found[3], found[1]) if how == "month-first" and found[2] != "." else (found[1], found[3])
        year = found[4]
    else:
        return ""
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return ""
