"""A config for a table that was looked at: every key with the reason why it is set, for its owner to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.data.inspecting.columns import FEWEST_SHOWN
from tequio.data.inspecting.facts import SMALL_PARTY, count_text
from tequio.errors import DataError
from tequio.experiments.config.toml import toml_key, toml_value
from tequio.experiments.running.headline import BALANCED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tequio.data.inputs.kinds import Plan
    from tequio.data.inspecting.facts import TableFacts


_WIDTH = 100
_HELD_OUT = 0.2
_PLAIN_KINDS = ("number", "category")
_WHY_COLUMNS = "what columns hold; all others are numbers or categories, as they look"


def data_keys(found: TableFacts) -> dict[str, tuple[object, str]]:
    """The keys of `[data]` that the findings ask for, each with its reason; `name` and `path` are the caller's."""
    if found.target is None:
        likely = found.targets[0] if found.targets else "COLUMN"
        raise DataError("which column is to be predicted is not said",
                        remedy=f"type --target '{likely}' (in Python: target='{likely}')")
    keys: dict[str, tuple[object, str]] = {"target": (_one_or_all(found.target.names), target_text(found))}
    if found.target.is_named:
        keys["target_kind"] = "classes", "two values: classes, not amounts"
    if found.party:
        keys["group"] = found.party, "whose row it is; never learned from"
    if found.of("id"):
        keys["id"] = found.of("id")[0].name, "tells rows apart; never learned from"
    keys |= _missing(found)
    left_out = {column.name: column.reason for column in found.of("out")}
    if left_out:
        keys["ignore"] = list(left_out), "left out; remove a name to use the column"
    kinds = {column.name: _kind(column.plan) for column in found.of("feature") if column.kind not in _PLAIN_KINDS}
    if kinds:
        keys["columns"] = kinds, _WHY_COLUMNS
    keys["prepare"] = ["auto"], "what the learner needs: scaling, one-hot, parts of dates, filling in"
    if _may_lack_a_class(found):
        keys["one_class"] = "allow", "a party may hold rows of one class only"
    keys["partition"] = _partition(found)
    return {key: setting for key, setting in keys.items() if key not in found.said}


def target_text(found: TableFacts) -> str:
    """What the target is, in a few words; rare classes are not named."""
    target = found.target
    if target is None:
        return "not said"
    if target.kind == "multilabel":
        return f"{len(target.names)} labels"
    if target.kind == "number":
        return "a number"
    rows = sum(target.classes.values())
    shown = sorted(((name, count) for name, count in target.classes.items() if count >= FEWEST_SHOWN),
                   key=lambda pair: -pair[1])
    told = [f"{name} {count / rows:.1%}" for name, count in shown[:4]]
    rest = len(target.classes) - len(told)
    what = "class" if len(target.classes) == 1 else "classes"
    return f"{len(target.classes)} {what}: " + ", ".join(told + ([f"{rest} more"] if rest else []))


def party_text(found: TableFacts, most: int = 8) -> str:
    """The parties and their rows."""
    order = sorted(found.parties, key=lambda party: -party.rows)
    told = [f"{party.name} {count_text(party.rows)}" for party in order[:most]]
    rest = len(order) - most
    what = "rows of the sample" if found.is_sample else "rows"
    return f"{len(order)} by {found.party}; {what}: " + ", ".join(told + ([f"{rest} parties more"] if rest > 0 else []))


def draft_config(found: TableFacts, *, name: str, source: Mapping[str, str], command: str) -> str:
    """The config as TOML with comments; `source` says which dataset it is, and where."""
    keys = data_keys(found)
    data = [line for key, (value, why) in keys.items() if key not in ("columns", "partition")
            for line in (_ignored(found, why) if key == "ignore" else _line(key, value, why))]
    lines = [*_head(found, name, command), "", *_line("name", name), *_line("rounds", 20),
             *_line("baselines", ["alone", "centralised"], "to compare with: each party alone, all rows in one place"),
             "", "[data]", *(line for key, value in source.items() for line in _line(key, value)), *data,
             *_columns(found), *_parties(found), "", "[learner]",
             *_line("name", "logistic", "the simplest; others: tequio list learner"), "", "[local]",
             *_line("epochs", 5, "passes over its own rows that a party makes in a round")]
    if found.target and found.target.is_unbalanced:
        lines += ["", "[evaluation]",
                  *_line("headline", BALANCED, "accuracy says little where one class has nearly all rows")]
    return "\n".join(lines) + "\n"


def _head(found: TableFacts, name: str, command: str) -> list[str]:
    size = f"{found.rows:,} rows, {len(found.columns):,} columns"
    notes = [line for finding in found.findings for line in _comment(f"- {finding.text}")]
    return [f"# Written by: {plain(command)}", f"# {plain(found.name)}: {size}",
            f"# Change what you know better, then type: tequio run {plain(name)}.toml",
            *(["#", *notes] if notes else [])]


def _columns(found: TableFacts) -> list[str]:
    told = [column for column in found.of("feature") if column.kind not in _PLAIN_KINDS]
    lines = [line for column in told for line in _line(column.name, _kind(column.plan), column.reason)]
    return ["", f"# {_WHY_COLUMNS}", "[data.columns]", *lines] if lines else []


def _parties(found: TableFacts) -> list[str]:
    table, why = _partition(found)
    return ["", *_comment(why), *(_comment(party_text(found)) if found.party else []), "[data.partition]",
            *(line for key, value in table.items() for line in _line(key, value))]


def _ignored(found: TableFacts, why: str) -> list[str]:
    return ["ignore = [  # " + why, *(f"    {toml_value(column.name)},  # {plain(column.reason)}"
                                      for column in found.of("out")), "]"]


def _missing(found: TableFacts) -> dict[str, tuple[object, str]]:
    gaps = [column for column in found.of("feature") if column.missing]
    if found.party_missing or (found.target and found.target.missing):
        return {"missing": ("drop", "rows without a target or a party cannot be used; rows with other gaps go too")}
    if gaps:
        what = "column has" if len(gaps) == 1 else "columns have"
        return {"missing": ("keep", f"{len(gaps)} {what} gaps, which are filled in from training rows")}
    if found.is_sample:
        return {"missing": ("keep", "rows that were not looked at may have gaps")}
    return {}


def _partition(found: TableFacts) -> tuple[dict[str, object], str]:
    if not found.party:
        parties = min(max(found.rows // 50, 2), 5)
        stratified = {"stratified": True} if found.target and found.target.kind == "classes" else {}
        return ({"name": "iid", "parties": parties, **stratified}, "made-up parties: rows are dealt at random. If a "
                "column says whose row it is: tequio init --party COLUMN")
    if any(party.rows < SMALL_PARTY for party in found.parties):
        return ({"name": "natural", "small": "drop", "minimum_rows": round(SMALL_PARTY * (1 - _HELD_OUT))},
                f"one party for each value of the column; those with fewer than {SMALL_PARTY} rows are left out")
    return {"name": "natural"}, "one party for each value of the column"


def _may_lack_a_class(found: TableFacts) -> bool:
    if found.target is None or len(found.target.classes) < 2:
        return False
    second = sorted(found.target.classes.values())[-2]
    return any(party.may_lack_a_class for party in found.parties) or (not found.party and second < 5 * FEWEST_SHOWN)


def _kind(plan: Plan) -> object:
    rest = {"order": list(plan.order)} if plan.order else {"format": plan.format} if plan.format else {}
    return {"kind": plan.kind, **rest} if rest else plan.kind


def _one_or_all(names: tuple[str, ...]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


def _line(key: str, value: object, why: str = "") -> Iterator[str]:
    """The key with its reason behind it or, where that gets too long, above it."""
    text = f"{toml_key(key)} = {toml_value(value)}"
    whole = f"{text}  # {plain(why)}" if why else text
    if len(whole) <= _WIDTH:
        yield whole
    else:
        yield from _comment(why)
        yield text


def _comment(text: str) -> list[str]:
    from textwrap import wrap

    return wrap(plain(text), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)


def plain(text: str) -> str:
    """Text on one line, without anything that a terminal or TOML would not show as it is."""
    return " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())
