"""What a table would have to change to follow a schema: differences by column, and a mapping that would do it.

Columns are matched by their names, and where these say nothing by what they hold. A proposal is a guess.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import OTHER, Feature
from tequio.data.inputs.column import column_of
from tequio.data.inputs.kinds import date_format, key_of, looks_like_dates
from tequio.data.inputs.mapping import TableMapping, without_comma
from tequio.data.inputs.units import other_unit
from tequio.data.sharing import day_text
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tequio.data.inputs.column import Column, Columns
    from tequio.data.sharing import SharedSchema

    Quantiles = Mapping[str, Mapping[float, float]]


_LIKELY = 0.45
_MOST_MARKERS, _MARKED = 4, 0.3
_MOST_CODES = 20
_SAME = ({"yes", "y", "true", "t", "1", "ja", "j", "si", "s", "oui", "o"},
         {"no", "n", "false", "f", "0", "nein", "non", "nee"},
         {"male", "m", "man", "1", "mann", "männlich"}, {"female", "f", "w", "woman", "2", "frau", "weiblich"},
         {"unknown", "unk", "u", "9", "unbekannt"})


@dataclass(frozen=True)
class Difference:
    """What differs between a column of the table (empty: there is none) and one of the schema (the same)."""

    here: str
    there: str
    what: str


@dataclass
class Comparison:
    """All differences, and the mapping that is proposed; `open` are lines of its tables that a person has to complete.
    """

    differences: list[Difference] = field(default_factory=list)
    mapping: dict[str, Any] = field(default_factory=dict)
    open: dict[str, list[str]] = field(default_factory=dict)

    def say(self, here: str, there: str, what: str) -> None:
        """Note a difference."""
        self.differences.append(Difference(here, there, what))

    def propose(self, step: str, name: str, said: object) -> None:
        """Note what a mapping would say of a column."""
        self.mapping.setdefault(step, {})[name] = said


def compare(columns: Columns, shared: SharedSchema, quantiles: Quantiles, roles: Collection[str] = ()) -> Comparison:
    """The differences between a table and a schema; `roles` are columns such as the id, which no schema knows."""
    wanted = {feature.column: feature for feature in shared.schema.features}
    target = shared.schema.target
    if target.kind == "multilabel":
        wanted |= {name: Feature(name, ("0", "1")) for name in target.names}
    elif target.kind != "none":
        wanted[target.name] = Feature(target.name, target.names or None)
    known = {name: column for name, column in columns.items() if name not in roles}
    found, pairs = Comparison(), matched(known, wanted, shared)
    for name, feature in wanted.items():
        there = described(feature, shared)
        if name not in pairs:
            found.say("", there, "missing: no column looks like it")
            found.open.setdefault("rename", []).append(f"# ... = {_toml(name)}")
            continue
        column = known[pairs[name]]
        if column.name != name:
            found.say(column.name, there, "another name")
            found.propose("rename", column.name, name)
        _compare_values(column, feature, shared, quantiles.get(name, {}), found)
    for name in known:
        if name not in pairs.values():
            found.say(name, "", "not in the schema")
            found.mapping.setdefault("ignore", []).append(name)
    return found


def described(feature: Feature, shared: SharedSchema) -> str:
    """A column of the schema in a few words."""
    ends, unit = shared.ranges.get(feature.column), shared.units.get(feature.column, "")
    texts = [] if ends is None else [day_text(end) if feature.kind == "date" else f"{end:g}" for end in ends]
    listed = ", ".join((feature.domain or ())[:4]) + (", ..." if len(feature.domain or ()) > 4 else "")
    facts = [listed if feature.domain is not None and feature.kind != "hashed" else feature.kind, unit,
             " to ".join(texts)]
    return f"{feature.column}: {', '.join(filter(None, facts))}"


def matched(columns: Columns, wanted: Mapping[str, Feature], shared: SharedSchema) -> dict[str, str]:
    """Which column of the table is which of the schema: those of one name, then the likeliest pairs first."""
    pairs = {name: name for name in wanted if name in columns}
    scores = sorted(((_likeness(column, feature, shared), name, column.name) for name, feature in wanted.items()
                     for column in columns.values() if name not in pairs and column.name not in pairs), reverse=True)
    for score, name, theirs in scores:
        if score >= _LIKELY and name not in pairs and theirs not in pairs.values():
            pairs[name] = theirs
    return pairs


def _likeness(column: Column, feature: Feature, shared: SharedSchema) -> float:
    return 0.55 * _names_alike(column.name, feature.column) + 0.45 * _values_alike(column, feature, shared)


def _names_alike(theirs: str, wanted: str) -> float:
    """From 0 to 1; abbreviations such as WT_LB for weight count as much as nearly the same word."""
    full = re.sub(r"[\W_]+", "", wanted).casefold()
    parts = [part.casefold() for part in re.split(r"[\W_]+", theirs) if part]
    short = any(len(part) > 1 and part[0] == full[:1] and _is_within(part, full) for part in parts)
    return max(SequenceMatcher(None, "".join(parts), full).ratio(), 0.8 if short else 0.0)


def _is_within(part: str, word: str) -> bool:
    """Whether the letters of the part occur in the word, in that order."""
    letters = iter(word)
    return all(letter in letters for letter in part)


def _values_alike(column: Column, feature: Feature, shared: SharedSchema) -> float:
    """From 0 to 1, how well the values of a column go with what the schema says."""
    distinct = {str(text) for text in column.texts()[~column.missing]}
    dates = column.dated or (bool(distinct) and looks_like_dates(distinct))
    if feature.kind == "date" or dates:
        return float(feature.kind == "date" and dates)
    if feature.kind in ("text", "hashed"):
        return 0.7 if column.is_text else 0.0
    if feature.domain is not None:
        named = proposed_codes(distinct, feature.domain)
        known = sum(text in named or text in feature.domain for text in distinct) / max(len(distinct), 1)
        return max(0.9 * known, 0.3 if len(distinct) == len(feature.domain) else 0.0)
    numbers = as_numbers(column)
    if numbers.is_text:
        return 0.0
    ends = shared.ranges.get(feature.column)
    if ends is None:
        return 0.5
    inside = float(((numbers.present >= ends[0]) & (numbers.present <= ends[1])).mean()) if len(numbers.present) else 0
    converted = other_unit(numbers.present, feature.column, shared.units.get(feature.column, ""), ends, {})
    return max(0.2 + 0.8 * inside, 0.7 if converted else 0.0)


def as_numbers(column: Column) -> Column:
    """The column as numbers, where decimal commas are all that stands in the way."""
    if not column.is_text:
        return column
    return column_of(column.name, without_comma(np.where(column.missing, "", column.values)), parse=True)


def _compare_values(column: Column, feature: Feature, shared: SharedSchema, quantiles: Mapping[float, float],
                    found: Comparison) -> None:
    there = described(feature, shared)
    if feature.kind == "date":
        _compare_dates(column, feature, there, found)
    elif feature.kind in ("category", "ordered"):
        _compare_codes(column, feature, there, found)
    elif feature.kind in ("number", "flag"):
        name = feature.column
        numbers = _compare_numbers(column, feature, there, found)
        said = None if numbers is None else other_unit(numbers.present, name, shared.units.get(name, ""),
                                                       shared.ranges.get(name), quantiles)
        if said is not None:
            what = said if isinstance(said, str) else f"a factor of {said['factor']:g}"
            found.say(column.name, there, f"other units? it looks like {what}")
            found.propose("units", name, said)


def _compare_numbers(column: Column, feature: Feature, there: str, found: Comparison) -> Column | None:
    """The column as numbers, if they can be read."""
    if not column.is_text:
        return column
    numbers = as_numbers(column)
    if not numbers.is_text:
        found.say(column.name, there, "decimal commas")
        found.mapping["decimal"] = ","
        return numbers
    markers = _markers(column)
    if not markers:
        found.say(column.name, there, "texts where numbers are wanted")
        return None
    without = np.where(np.isin(column.values, markers) | column.missing, "", column.values)
    found.say(column.name, there, f"not numbers: {_few(markers)}")
    found.propose("missing", feature.column, markers)
    return _compare_numbers(column_of(column.name, without.astype(object), parse=True), feature, there, found)


def _markers(column: Column) -> list[str]:
    """The few texts in a column of numbers that are none, if they are few."""
    odd = [text for text in column.present if not re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?", text)]
    few = sorted(set(odd))
    return few if len(few) <= _MOST_MARKERS and len(odd) <= _MARKED * len(column.present) else []


def _compare_dates(column: Column, feature: Feature, there: str, found: Comparison) -> None:
    if column.dated:
        return
    texts = replace(column, values=column.texts())
    try:
        written = date_format(texts)
    except DataError as cause:
        found.say(column.name, there, "dates: " + ("day or month first?" if "first" in cause.message else "unreadable"))
        found.open.setdefault("dates", []).append(f'# {key_of(feature.column)} = "%d.%m.%Y"  or  "%m/%d/%Y"')
        return
    if written != feature.format:
        found.say(column.name, there, f"dates are written as {written or 'year-month-day'}")
        found.propose("dates", feature.column, written or "%Y-%m-%d")


def _compare_codes(column: Column, feature: Feature, there: str, found: Comparison) -> None:
    domain = feature.domain or ()
    distinct = {str(text) for text in column.texts()[~column.missing]}
    strange = sorted(distinct.difference(domain))
    if not strange:
        return
    named = proposed_codes(distinct, domain)
    rest = [text for text in strange if text not in named]
    if named:
        found.say(column.name, there, "other codes: " + _few([f"{text} = {new}" for text, new in named.items()]))
        found.propose("codes", feature.column, named)
    if rest:
        outcome = f"become {OTHER}" if OTHER in domain else "are not in the schema"
        found.say(column.name, there, f"{_few(rest)} {outcome}")
        place = f"codes.{key_of(feature.column)}"
        choices = "  or  ".join(map(_toml, domain[:3])) + (" ..." if len(domain) > 3 else "")
        found.open[place] = [f"# {_quoted(text)} = {choices}" for text in rest[:_MOST_CODES]]


def proposed_codes(distinct: Collection[str], domain: Sequence[str]) -> dict[str, str]:
    """What codes of a table may mean: the same word, a word for it, its beginning, or nearly the same word."""
    named: dict[str, str] = {}
    folded = {value.casefold(): value for value in domain if value != OTHER}
    for text in sorted(set(distinct).difference(domain)):
        word = text.casefold()
        alike = [value for low, value in folded.items() if any({low, word} <= group for group in _SAME)]
        begun = [value for low, value in folded.items() if low.startswith(word) or word.startswith(low)]
        near = get_close_matches(word, folded, n=1, cutoff=0.75)
        if word in folded:
            named[text] = folded[word]
        elif len(alike) == 1:
            named[text] = alike[0]
        elif len(begun) == 1:
            named[text] = begun[0]
        elif near:
            named[text] = folded[near[0]]
    return named


def _few(words: Sequence[str]) -> str:
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def mapping_text(found: Comparison) -> str:
    """A proposed mapping as a TOML file, with lines to complete as comments."""
    TableMapping(**found.mapping)  # what is proposed can be read
    lines = ["# Proposed by tequio party check. These are guesses: look at each line."]
    lines += [f"{key} = {_toml(found.mapping[key])}" for key in ("encoding", "decimal", "ignore")
              if key in found.mapping]
    sections = {key: found.mapping.get(key, {}) for key in ("rename", "units", "dates", "missing")}
    codes = {*found.mapping.get("codes", {})}
    sections |= {f"codes.{key_of(name)}": found.mapping["codes"][name] for name in sorted(codes)}
    for section in [*sections, *(place for place in found.open if place not in sections)]:
        said = [f"{_quoted(name)} = {_toml(value)}" for name, value in sections.get(section, {}).items()]
        if said or section in found.open:
            lines += ["", f"[{section}]", *said, *found.open.get(section, [])]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _quoted(key: str) -> str:
    return key_of(key) if not key.isdigit() else json.dumps(key)
