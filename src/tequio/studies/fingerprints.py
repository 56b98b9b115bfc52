"""Whether kept numbers are those of how a cell is run now.

A fingerprint is a hash of the values of known keys of a config. A key that came into being later does not make numbers
old as long as it stands at its default, because a new parameter's default leaves everything as it was; another value of
a known key does, whether the study gives it or a default moved.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from tequio.errors import ConfigError
from tequio.experiments.config.complete import complete, hashed

if TYPE_CHECKING:
    from collections.abc import Collection

    from tequio.experiments.config.toml import Given
    from tequio.studies.description import Cell
    from tequio.studies.plans import Plan


def keys_of(plan: Plan) -> list[str]:
    """All keys that the configs of a study have."""
    return sorted({key for runs in plan.runs.values() for key in _flat(hashed(runs[0].config))})


def fingerprint(plan: Plan, cell: Cell, keys: Collection[str]) -> str:
    """Of the runs of a cell's first seed, as far as the keys go; empty where a key that is not among them is in use."""
    known, texts = set(keys), []
    for planned in plan.of_cell(cell)[0]:
        whole = hashed(planned.config)
        values = _flat(whole)
        if not values.keys() <= known and not _at_defaults(whole, known):
            return ""
        texts.append(json.dumps({key: value for key, value in values.items() if key in known}, sort_keys=True))
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:12]


def _at_defaults(whole: Given, known: set[str]) -> bool:
    """Whether the keys that are not known stand at their defaults."""
    try:
        return _flat(hashed(complete(_pruned(whole, known)))) == _flat(whole)
    except ConfigError:  # one of them has no default
        return False


def _flat(value: object, place: str = "") -> Given:
    """Dotted keys with plain values; of tables in a list, the number is part of the key."""
    if isinstance(value, dict):
        return {key: found for name, inner in value.items() for key, found in _flat(inner, f"{place}.{name}").items()}
    if isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        return _flat({str(number): inner for number, inner in enumerate(value)}, place)
    return {place.removeprefix("."): value}


def _pruned(value: Given, known: set[str]) -> Given:
    """The tables without the keys that are not known, so that these come back at their defaults."""
    def stays(inner: object, place: str) -> bool:
        return place in known or _flat(inner, place).keys() != {place}

    def kept(inner: object, place: str) -> object:
        if isinstance(inner, dict):
            return {name: kept(item, f"{place}.{name}") for name, item in inner.items()
                    if stays(item, f"{place}.{name}")}
        if isinstance(inner, list):
            return [kept(item, f"{place}.{number}") for number, item in enumerate(inner)]
        return inner

    return {name: kept(item, name) for name, item in value.items() if stays(item, name)}
