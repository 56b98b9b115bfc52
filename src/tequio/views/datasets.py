"""Where the files of a dataset are: on this machine, or still to get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.data.catalogue.manifest import FILES
from tequio.data.fetch import find
from tequio.errors import DataError

if TYPE_CHECKING:
    from tequio.data.catalogue.entry import Facts
    from tequio.registry import Entry

NOT_HERE = ("damaged", "to fetch", "to get by hand")
"""Answers of `where_is` that mean that a dataset cannot be read without getting something first."""


def facts_of(entry: Entry) -> Facts | None:
    """What the catalogue knows; datasets of plugins may come without."""
    facts: Facts | None = getattr(entry.component, "facts", None)
    return facts


def where_is(facts: Facts | None) -> str:
    """In a word or two, where a dataset comes from."""
    if facts is None:
        return "plugin"
    if not facts.files:
        return "embedded" if facts.rows is not None else facts.source.split(":")[0]
    try:
        if all(find(FILES[file]) for file in facts.files):
            return "at hand"
    except DataError:
        return "damaged"
    return "to fetch" if all(FILES[file].archives or FILES[file].url for file in facts.files) else "to get by hand"
