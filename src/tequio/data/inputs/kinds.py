"""What a column holds: numbers, categories, dates, texts or ids. Its owner says so in `data.columns`, or its values do.

Texts and categories that are too many to list are hashed to a fixed number of buckets: every party gets the same ones
without showing a word to anybody.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from zlib import crc32

import numpy as np
from annotated_types import Ge

from tequio.data.dataset import OTHER, Feature
from tequio.data.inputs.column import Column, number_text
from tequio.data.sharing import bucket_names, text_features
from tequio.errors import ConfigError, DataError, listed, nearest
from tequio.registry import validate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns


Kind = Literal["number", "category", "ordered", "hashed", "date", "text", "id", "ignore"]
"""`id` tells rows apart and is never learned from; `ignore` leaves a column out."""

MOST_CATEGORIES = 64
"""A column with more categories than this is hashed unless its owner says otherwise."""

BUCKETS = {"text": 128, "hashed": 64}

MINIMUM_COUNT = 10
"""Categories with fewer rows than this are not named, so that no category tells of a single person."""

FEW_ROWS = 20
"""With fewer rows than this a column of different texts is not taken for an id or for free text."""

MOSTLY_NUMBERS = 0.9
"""Texts of which more than this share are numbers are numbers that something has spoiled."""

_NUMBER, _WITH_COMMA = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"), re.compile(r"[+-]?[\d.]*\d,\d+")
_WORDS = re.compile(r"\w+")
_LETTERS, _INNER_CAPITAL = re.compile(r"[^\W\d_]+"), re.compile(r"(?<=[a-z])(?=[A-Z])")
_SURE_ID_WORDS = frozenset(("id", "uuid", "guid", "mrn", "ssn", "identifier"))
_ID_WORDS = _SURE_ID_WORDS | {"key", "nr", "no", "num", "number", "nummer", "index", "idx", "unnamed", ""}
_LONG_CODE = re.compile(r"[A-Za-z]*[-_. ]?\d{5,}[A-Za-z]?|(?=(?:.*\d){4})(?=.*[A-Za-z])[\w-]{10,}")
_DATE_LIKE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d\d.*)?$")
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y", "%m/%d/%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
_TIMES = ("", " %H:%M", " %H:%M:%S")
DATE_FORMATS = tuple(day + time for day in _DAYS for time in _TIMES)
"""How dates may be written besides ISO 8601, those with the day first before those with the month first."""


@dataclass(frozen=True)
class Plan:
    """What is done with a column.

    Parameters:
        kind: number, category, ordered, hashed, date, text, id or ignore
        order: the categories from the lowest to the highest, for ordered
        buckets: how many columns stand for a text, or how many categories for hashed ones (0: the usual number)
        format: how dates are written, such as %d.%m.%Y (empty: found from the values)
    """

    kind: Kind = "number"
    order: tuple[str, ...] = ()
    buckets: Annotated[int, Ge(0)] = 0
    format: str = ""

    @property
    def width(self) -> int:
        """How many buckets there are."""
        return self.buckets or BUCKETS.get(self.kind, 0)


def said_of(columns: Sequence[str] | Mapping[str, Any] | None) -> tuple[list[str] | None, dict[str, Plan]]:
    """What `data.columns` says: the only columns to use, where it is a list, and plans of columns, where a table."""
    if columns is None or not isinstance(columns, Mapping):
        return (None if columns is None else [str(name) for name in columns]), {}
    return None, {str(name): _plan(str(name), said) for name, said in columns.items()}


def _plan(name: str, said: object) -> Plan:
    where = f"data.columns: '{name}'"
    table = {"kind": said} if isinstance(said, str) else said
    if not isinstance(table, Mapping) or table.get("kind") not in get_args(Kind):
        kind = str(table.get("kind", "") if isinstance(table, Mapping) else table)
        raise ConfigError(f"{where}: there is no kind of column '{kind}'", remedy=nearest(kind, get_args(Kind)))
    plan = Plan(**validate(Plan, dict(table), where))
    if plan.kind == "ordered" and len(set(plan.order)) < 2:
        raise ConfigError(f"{where} is ordered, but nothing says in which order",
                          remedy=f'list its categories: columns.{name} = {{kind = "ordered", order = ["low", "high"]}}')
    return plan


def plans_of(columns: Columns, names: Sequence[str], said: Mapping[str, Plan]) -> tuple[dict[str, Plan], list[str]]:
    """What is done with each of the named columns, and what people have to know of what was guessed."""
    plans, notes = {}, []
    for name in names:
        plans[name], note = (said[name], "") if name in said else _guess(columns[name])
        notes += [note] if note else []
    return plans, notes


def _guess(column: Column) -> tuple[Plan, str]:
    """The plan of a column that nobody spoke of."""
    present, name = column.present, column.name
    key = f"data.columns.{key_of(name)}"
    if not len(present):
        return Plan("ignore"), f"column '{name}' holds no values and is left out"
    if column.dated:
        return Plan("date"), ""
    if not column.is_text:
        if column.whole and len(present) >= FEW_ROWS and _are_ids(name, present):
            return Plan("id"), f"column '{name}' looks like an id and is left out; to use it: {key} = \"number\""
        return Plan("number"), ""
    distinct = set(present)
    if looks_like_dates(distinct):
        return Plan("date"), f"column '{name}' holds dates; to take them for categories: {key} = \"category\""
    plan, note = _guess_texts(name, key, len(present), distinct)
    spoiled = spoiled_numbers(column)
    if spoiled:
        note = (f"column '{name}' holds {spoiled}, and is {'left out' if plan.kind == 'id' else 'read as categories'}; "
                + ("to read it as numbers: data.mapping.decimal = \",\"" if "commas" in spoiled else
                   "to take those rows for missing values: data.mapping.missing = [\"what they hold\"]"))
    return plan, note


def _guess_texts(name: str, key: str, rows: int, distinct: set[str]) -> tuple[Plan, str]:
    """The same for a column of texts that are no dates."""
    many, words = len(distinct) >= 0.9 * rows, _words_each(distinct)
    if rows >= FEW_ROWS and ((many and words >= 3) or (words >= 4 and len(distinct) > MOST_CATEGORIES)):
        return Plan("text"), (f"column '{name}' is text: its words are counted in {BUCKETS['text']} hashed columns; to "
                              f"leave it out: data.ignore = {listed(name)}")
    if rows >= FEW_ROWS and (many or _words_of(name) & _SURE_ID_WORDS):
        return Plan("id"), (f"column '{name}' looks like an id and is left out" + (": nearly every row has another "
                            "value" if many else "") + f"; to use it: {key} = \"hashed\"")
    if rows >= FEW_ROWS and sum(bool(_LONG_CODE.fullmatch(text)) for text in distinct) >= 0.9 * len(distinct) > 1:
        return Plan("hashed"), (f"column '{name}' holds codes as long as ids, hashed to {BUCKETS['hashed']}; to keep "
                                f"them apart, and name them in schemas: {key} = \"category\"")
    if len(distinct) > MOST_CATEGORIES:
        return Plan("hashed"), (f"column '{name}' has {len(distinct)} categories, hashed to {BUCKETS['hashed']}; to "
                                f"keep them apart: {key} = \"category\"")
    return Plan("category"), ""


def spoiled_numbers(column: Column) -> str:
    """Why a column of texts is no column of numbers, where nearly all of them are; else nothing."""
    if not column.is_text or not len(column.present):
        return ""
    texts = column.present
    some = texts[::max(len(texts) // 1000, 1)].tolist()
    if sum(bool(_NUMBER.fullmatch(text) or _WITH_COMMA.fullmatch(text)) for text in some) < MOSTLY_NUMBERS * len(some):
        return ""
    plain = sum(bool(_NUMBER.fullmatch(text)) for text in texts)
    commas = sum(bool(_WITH_COMMA.fullmatch(text)) for text in texts)
    if commas and plain + commas >= MOSTLY_NUMBERS * len(texts):
        return "numbers with decimal commas"
    return "numbers, but for some rows" if MOSTLY_NUMBERS * len(texts) <= plain < len(texts) else ""


def key_of(name: str) -> str:
    """A column's name as a key in TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _words_of(name: str) -> set[str]:
    """The first and the last word of a name such as 'patient_id', 'PatientID', 'Patient Nr.', '' or 'Unnamed: 0'."""
    words = _LETTERS.findall(_INNER_CAPITAL.sub(" ", name).lower())
    return {words[0], words[-1]} if words else {name}


def _are_ids(name: str, values: Array) -> bool:
    """Whether whole numbers are ids, each in one row or, by the column's name, in several."""
    words, distinct = _words_of(name), len(np.unique(values))
    if distinct < len(values):
        return distinct > MOST_CATEGORIES and bool(words & _SURE_ID_WORDS)
    return bool(words & _ID_WORDS) or _counts_on(values)


def _counts_on(values: Array) -> bool:
    """Whether different whole numbers are a count without a gap, as row numbers are."""
    return len(values) >= 5 * FEW_ROWS and bool(np.ptp(values) == len(values) - 1)


def _words_each(texts: set[str]) -> float:
    sample = sorted(texts)[:: max(len(texts) // 500, 1)]
    return sum(len(text.split()) for text in sample) / len(sample)


def looks_like_dates(texts: set[str]) -> bool:
    """Whether all texts are written as dates, in a way that can be read or at least asked about."""
    return all(_DATE_LIKE.match(text) for text in texts)


def features_of(column: Column, plan: Plan, minimum_count: int = 1) -> tuple[tuple[Feature, ...], str]:
    """The features that a column becomes, and what people have to know of its rare categories."""
    name = column.name
    if plan.kind == "text":
        return text_features(name, plan.width), ""
    if plan.kind == "hashed":
        return (Feature(name, bucket_names(plan.width), "hashed"),), ""
    if plan.kind == "ordered":
        return (Feature(name, plan.order, "ordered"),), ""
    if plan.kind == "category":
        domain, rare = common(column, minimum_count)
        note = (f"column '{name}' has {rare} categor{'y' if rare == 1 else 'ies'} with fewer than {minimum_count} "
                f"rows, taken together as '{OTHER}'; to keep them apart: data.minimum_count = 1")
        return (Feature(name, domain),), note if rare else ""
    if plan.kind == "date":
        return (Feature(name, None, "date", format=date_format(column, plan.format)),), ""
    return (Feature(name),), ""


def common(column: Column, minimum_count: int) -> tuple[tuple[str, ...], int]:
    """The column's categories that have enough rows, `OTHER` last where some have not, and how many have not."""
    domain = domain_of(column)
    if minimum_count <= 1:
        return domain, 0
    counts = Counter(column.take(~column.missing).texts())
    kept = tuple(value for value in domain if counts[value] >= minimum_count and value != OTHER)
    rare = len(domain) - len(kept) - (OTHER in domain)
    return ((*kept, OTHER) if len(kept) < len(domain) else domain), rare


def domain_of(column: Column) -> tuple[str, ...]:
    """The column's distinct values: numbers in numeric order, texts in alphabetical order."""
    if not column.is_text:
        return tuple(number_text(value) for value in np.unique(column.present))
    return tuple(str(text) for text in np.unique(column.present.astype(str)))


def date_format(column: Column, format: str = "") -> str:
    """How the dates of a column are written: the given format if all can be read by it, empty for ISO 8601."""
    if column.dated or not column.is_text:
        return ""
    distinct = sorted(set(column.present))
    if not format and _days_of(distinct, "") is not None:
        return ""
    candidates = [format] if format else DATE_FORMATS
    readings = {candidate: days for candidate in candidates if (days := _days_of(distinct, candidate)) is not None}
    key = f'data.columns.{key_of(column.name)} = {{kind = "date", format = "%d.%m.%Y"}}'
    if not readings:
        raise DataError(f"column '{column.name}' has dates that cannot be read" + (f" as {format}" if format else
                        ", or not all are written the same way"), remedy=f"say how they are written: {key}")
    first = next(iter(readings))
    if any(days != readings[first] for days in readings.values()):
        raise DataError(f"the dates of column '{column.name}' may have the day first or the month first",
                        remedy=f"say which: {key}, or with %m first")
    return first


def as_dates(column: Column, format: str = "") -> Column:
    """The column as days since 1970, read by a format or, without one, as ISO 8601."""
    if column.dated or not column.is_text:
        return replace(column, dated=True)
    values = np.full(len(column.values), np.nan)
    distinct, place = np.unique(column.present.astype(str), return_inverse=True)
    days = _days_of(distinct.tolist(), format)
    if days is None:
        days = _days_of(distinct.tolist(), date_format(column, format))
    values[~column.missing] = np.asarray(days)[place]
    return Column(column.name, values, column.missing, dated=True)


def _days_of(texts: Sequence[str], format: str) -> list[float] | None:
    """Days since 1970, if all texts are dates of that format."""
    try:
        moments = [datetime.strptime(text, format) if format else datetime.fromisoformat(text) for text in texts]
    except ValueError:
        return None
    return [(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() / 86_400 for moment in moments]


def bucket_of(text: str, buckets: int) -> int:
    """The bucket of a token or a category: the same at every party, in every process."""
    return crc32(text.encode()) % buckets


def tokens(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return _WORDS.findall(text.lower())


def token_counts(texts: Iterable[str], buckets: int) -> NDArray[np.float64]:
    """How often the tokens of each bucket occur in each text."""
    texts = list(texts)
    counts = np.zeros((len(texts), buckets))
    known: dict[str, int] = {}
    for row, text in enumerate(texts):
        for token in tokens(text):
            bucket = known.setdefault(token, bucket_of(token, buckets))
            counts[row, bucket] += 1
    return counts


def category_codes(texts: Array, missing: NDArray[np.bool_], feature: Feature) -> NDArray[np.float64]:
    """Codes of categories; NaN where there is none, -1 where the domain does not know it."""
    domain = feature.domain or ()
    if feature.kind == "hashed":
        buckets: dict[str, int] = {text: bucket_of(text, len(domain)) for text in set(texts)}
    else:
        buckets = {value: code for code, value in enumerate(domain)}
    unknown = -1 if feature.kind == "hashed" else buckets.get(OTHER, -1)
    codes = np.fromiter((buckets.get(text, unknown) for text in texts), dtype=np.float64, count=len(texts))
    codes[missing] = np.nan
    return codes
