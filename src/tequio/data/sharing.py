"""What a table's owner may show of it: a schema file of names, kinds, units, rounded ranges and common categories.

It holds no count, no text, no id, no category of few rows and no extreme: ranges are those of all but the outermost
rows, rounded outward. Other parties read their own tables by it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tequio.data.dataset import OTHER, Feature, FeatureKind, Schema, Target, TargetKind
from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from tequio.data.dataset import Array, Dataset

Json = dict[str, Any]
"""What stands in braces in a schema file."""

FORMAT, VERSION = "tequio schema", 1
MOST_BUCKETS = 1 << 16
"""A file of somebody else's may not ask for more columns than this for one text."""

_RANGED = ("number", "date")
_DAY = 86_400
_NARROW = 1e-9


@dataclass(frozen=True)
class SharedSchema:
    """A schema with what else its author says of the columns: the unit of each, and the range of most rows' values.

    Dates are days since 1970 here, and dates in the file. Neither takes part in a run.
    """

    schema: Schema
    units: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def shareable(dataset: Dataset, minimum_count: int, units: Mapping[str, str] | None = None, *,
              others: bool = False) -> SharedSchema:
    """The schema of a table as its owner may show it; a class with too few rows is refused.

    With `others`, every column of categories has room for those that only other tables have.
    """
    schema = dataset.schema
    refuse_rare_classes(dataset, minimum_count)
    for name in {*(units or {})} - {schema.target.name}:
        schema.column(name)
    if dataset.is_sparse or len(schema.shape) > 1:
        return SharedSchema(schema, dict(units or {}))
    features, ranges, values = [], {}, dataset.features
    for place, feature in enumerate(schema.features):
        features.append(_without_rare(feature, values[:, place], minimum_count, others))
        if feature.kind in _RANGED and (found := range_of(values[:, place], minimum_count, feature.kind)):
            ranges[feature.name] = found
    if schema.target.kind == "number" and (found := range_of(np.asarray(dataset.target), minimum_count)):
        ranges[schema.target.name] = found
    return SharedSchema(replace(schema, features=tuple(features)), dict(units or {}), ranges)


def refuse_rare_classes(dataset: Dataset, minimum_count: int) -> None:
    """Refuse to name a class that fewer rows have than the minimum."""
    target = dataset.schema.target
    if target.kind != "classes":
        return
    counts = np.bincount(dataset.target, minlength=len(target.names))
    rare = [name for name, count in zip(target.names, counts, strict=True) if 0 < count < minimum_count]
    if rare:
        count = int(counts[counts > 0].min())
        listed = ", ".join(f"'{name}'" for name in rare[:3]) + (", ..." if len(rare) > 3 else "")
        raise DataError(f"'{target.name}' has {len(rare)} class{'es' if len(rare) > 1 else ''} with fewer than "
                        f"{minimum_count} rows ({listed}), whose names may say something about a single row",
                        remedy="leave those rows out, put them into a class of more rows, or if the names of all "
                               f"classes are public: --minimum-count {count}", column=target.name)


def _without_rare(feature: Feature, codes: Array, minimum_count: int, others: bool) -> Feature:
    """Levels that were ordered by hand and buckets say nothing about rows; other categories need enough of them."""
    if feature.domain is None or feature.kind != "category":
        return feature
    counts = np.bincount(codes[~np.isnan(codes)].astype(np.int64), minlength=len(feature.domain))
    common = tuple(value for value, count in zip(feature.domain, counts, strict=True)
                   if count >= minimum_count and value != OTHER)
    return feature if len(common) == len(feature.domain) and not others else replace(feature, domain=(*common, OTHER))


def range_of(values: Array, minimum_count: int, kind: FeatureKind = "number") -> tuple[float, float] | None:
    """Where the values lie, but for the `minimum_count` - 1 smallest and largest, rounded outward to one digit of the
    range's width (dates: to whole years). None where there are too few rows, or only one value."""
    present = values[np.isfinite(values)]
    if len(present) < 2 * minimum_count:
        return None
    inner = np.partition(present, (minimum_count - 1, len(present) - minimum_count))
    low, high = float(inner[minimum_count - 1]), float(inner[len(present) - minimum_count])
    if high - low <= _NARROW * max(abs(low), abs(high)):
        return None
    if kind == "date":
        first, last = (datetime.fromtimestamp(days * _DAY, UTC).year for days in (low, high))
        return _first_day(first), _first_day(last + 1)
    digit = floor(log10(high - low))
    step = 10.0 ** digit
    return round(floor(low / step) * step, -digit), round(ceil(high / step) * step, -digit)


def _first_day(year: int) -> float:
    return datetime(year, 1, 1, tzinfo=UTC).timestamp() / _DAY


def shared_to_json(shared: SharedSchema) -> str:
    """The text of a schema file."""
    columns = [_column(list(features), shared)
               for _, features in groupby(shared.schema.features, lambda feature: feature.column)]
    target = shared.schema.target
    facts: Json = {"name": target.name, "kind": target.kind}
    facts |= {"classes": list(target.names)} if target.names else {}
    document = {"format": FORMAT, "version": VERSION, "columns": [column for group in columns for column in group],
                "target": facts | _said(target.name, "number", shared)}
    if len(shared.schema.shape) > 1:
        document["shape"] = list(shared.schema.shape)
    return _by_lines(document)


def _column(features: Sequence[Feature], shared: SharedSchema) -> list[Json]:
    first = features[0]
    if first.kind == "text" and tuple(features) == text_features(first.column, len(features)):
        return [{"name": first.column, "kind": "text", "buckets": len(features)}]
    return [_one(feature, shared) for feature in features]


def _one(feature: Feature, shared: SharedSchema) -> Json:
    facts: Json = {"name": feature.name, "kind": feature.kind}
    if feature.kind == "hashed":
        facts["buckets"] = len(feature.domain or ())
    elif feature.domain is not None:
        facts["categories"] = list(feature.domain)
    facts |= {"source": feature.source} if feature.source else {}
    facts |= {"format": feature.format} if feature.format else {}
    return facts | _said(feature.name, feature.kind, shared)


def _said(name: str, kind: FeatureKind, shared: SharedSchema) -> Json:
    facts: Json = {"unit": shared.units[name]} if name in shared.units else {}
    if name in shared.ranges:
        facts["range"] = [day_text(bound) if kind == "date" else int(bound) if bound.is_integer() else bound
                          for bound in shared.ranges[name]]
    return facts


def day_text(days: float) -> str:
    """A number of days since 1970 as a date."""
    return datetime.fromtimestamp(days * _DAY, UTC).date().isoformat()


def _by_lines(document: Json) -> str:
    """JSON with one line for each column, for people to read."""
    columns = ",\n".join("  " + json.dumps(column, ensure_ascii=False) for column in document["columns"])
    rest = {key: value for key, value in document.items() if key not in ("format", "version", "columns")}
    lines = [f' "{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in rest.items()]
    listed = f"\n{columns}\n " if columns else ""
    head = f' "format": "{FORMAT}",\n "version": {VERSION},\n "columns": [{listed}],\n'
    return "{\n" + head + ",\n".join(lines) + "\n}"


def text_features(name: str, buckets: int) -> tuple[Feature, ...]:
    """The features of a column of texts, one for each bucket of its tokens."""
    return tuple(Feature(f"{name}[{bucket}]", None, "text", name) for bucket in range(buckets))


def bucket_names(buckets: int) -> tuple[str, ...]:
    """The domain of a column of hashed categories."""
    return tuple(f"#{bucket}" for bucket in range(buckets))


def shared_from_json(text: str) -> SharedSchema:
    """A schema file's content; anything else is refused, and so are files that hold more than may be shared."""
    try:
        document = json.loads(text)
        _check_version(document)
        columns = document["columns"]
        said = [*columns, document["target"]]
        names = [str(item["name"]) for item in columns]
        if len(set(names)) < len(names):
            raise DataError(f"it has two columns called '{max(names, key=names.count)}'", remedy="let its author write "
                            "it again: tequio data schema TABLE --target COLUMN --out schema.json")
        features = tuple(feature for item in columns for feature in _features(item))
        return SharedSchema(
            Schema(features, _target(document["target"]), tuple(int(size) for size in document.get("shape", ()))),
            {str(item["name"]): str(item["unit"]) for item in said if "unit" in item},
            {str(item["name"]): (_bound(item["range"][0]), _bound(item["range"][1])) for item in said
             if "range" in item})
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as cause:
        raise DataError(f"this is not a schema: {cause!r}", remedy="write one: tequio data schema TABLE --target "
                        "COLUMN --out schema.json") from cause


def _check_version(document: Json) -> None:
    if "features" in document and "format" not in document:
        target = document.get("target")
        name = target.get("name", "COLUMN") if isinstance(target, dict) else "COLUMN"
        raise DataError("it was written before schema files were safe to share, and may hold ids, dates and texts of "
                        "single rows", remedy="delete it, and let its author write another one: tequio data schema "
                                              f"TABLE --target {name} --out schema.json")
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise DataError(f"it is a '{document['format']}' of version {document['version']}, and this tequio reads "
                        f"version {VERSION}", remedy="install a newer tequio, or let its author write it with this one")


def _features(item: Json) -> tuple[Feature, ...]:
    name, kind = str(item["name"]), item["kind"]
    if kind not in get_args(FeatureKind):
        raise DataError(f"there is no kind of column '{kind}'", remedy=nearest(str(kind), get_args(FeatureKind)))
    buckets = int(item.get("buckets", 0))
    if not 0 <= buckets <= MOST_BUCKETS:
        raise DataError(f"column '{name}' has {buckets:,} buckets, and there may be {MOST_BUCKETS:,}", remedy="let its "
                        "author write it with fewer: data.columns.COLUMN = {kind = \"hashed\", buckets = 64}")
    if kind == "text" and buckets:
        return text_features(name, buckets)
    domain = bucket_names(buckets) if kind == "hashed" else \
        tuple(str(value) for value in item["categories"]) if "categories" in item else None
    return (Feature(name, domain, kind, str(item.get("source", "")), str(item.get("format", ""))),)


def _target(item: Json) -> Target:
    if item["kind"] not in get_args(TargetKind):
        raise DataError(f"there is no target kind '{item['kind']}'",
                        remedy=nearest(str(item["kind"]), get_args(TargetKind)))
    return Target(item["kind"], tuple(str(name) for name in item.get("classes", ())), str(item["name"]))


def _bound(value: float | str) -> float:
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() / _DAY
    return float(value)


def save_schema(shared: SharedSchema, path: str | PathLike[str]) -> None:
    """Write a schema file."""
    Path(path).write_text(shared_to_json(shared) + "\n", encoding="utf-8")


def load_schema(path: str | PathLike[str]) -> SharedSchema:
    """Read a schema file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"the schema file '{path}' cannot be read: {cause}", remedy="check data.schema") from cause
    try:
        return shared_from_json(text)
    except DataError as cause:
        raise DataError(f"the schema file '{path}' is not usable: {cause.message}", remedy=cause.remedy) from cause
