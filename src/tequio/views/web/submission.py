"""What someone typed into the form, as a config or a sweep, or with every mistake at the field where it was made."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tequio import registry
from tequio.attacks.hostility import Schedule
from tequio.errors import ConfigError
from tequio.experiments.config.complete import complete, copied, with_key
from tequio.experiments.config.composition import PARTS, parts_taken
from tequio.experiments.config.tables import Config
from tequio.experiments.config.toml import write_toml
from tequio.experiments.sweep import SEEDS, axes_of, sweep_cells
from tequio.federation.federation import Rules
from tequio.registry import parameter_model
from tequio.views.components import NOT_HERE, facts_of, where_is
from tequio.views.web.fields import (
    FURTHER,
    IMPORTING,
    NOT_OFFERED,
    as_typed,
    names_of_code,
    section_of,
    sections,
    tables,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tequio.experiments.sweep import SweepCell
    from tequio.views.web.fields import Section


Given = dict[str, Any]

_BY_FILE = "a form cannot do; use a config file and 'tequio run'"

WHOLE = ""
"""The place of mistakes that belong to no single field."""


@dataclass
class Submission:
    """The form as it was typed, its sections, and what came of it: mistakes by field, or a config.

    `sweep` is what a config file of the whole sweep would hold, where the form asks for several `runs`.
    """

    values: dict[str, str]
    sections: list[Section]
    errors: dict[str, str] = field(default_factory=dict)
    config: Config | None = None
    sweep: Given = field(default_factory=dict)
    runs: int = 1


def read_submission(typed: Mapping[str, str], plugins: Iterable[str] = (), folder: str = "runs") -> Submission:
    """Check a form completely, before anything is started."""
    values = {key: text.strip() for key, text in typed.items() if text.strip()}
    names = {table: typed[f"{table}.name"] for table in tables() if table and f"{table}.name" in typed}
    found = Submission(values, sections(names))
    given = _gathered(found)
    given = _with_further(given, found)
    _refuse_code({**values, **given}, found)
    _check_keys(given, found)
    _check_data(str(_at(given, "data").get("name", "")), found)
    sweep = read_sweep(values, found.errors)
    _refuse_code(sweep, found, VALUES_FIELD)
    if not found.errors:
        _complete(with_key({**given, "plugins": list(plugins)}, "output.folder", folder), sweep, found)
    return found


def _complete(given: Given, sweep: Given, found: Submission) -> None:
    """The whole config, and that of every run of a sweep, before the first is started."""
    try:
        config = complete(given, source="form")
    except ConfigError as cause:
        found.errors[WHOLE] = str(cause).removeprefix("form: ")
        return
    if sweep:
        found.sweep = {**given, "sweep": sweep}
        cells = checked_cells(found.sweep, found.errors)
        found.runs = len(cells)
        for name in dict.fromkeys(cell.config.data.name for cell in cells):
            _check_data(name, found)
    if not found.errors:
        found.config = config


def typed_in(form: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The fields of a form by key; a key that was ticked several times is a list."""
    found: dict[str, list[str]] = {}
    for key, text in form:
        found.setdefault(key, []).append(text)
    return {key: texts[0] if len(texts) == 1 else as_typed(texts) for key, texts in found.items()}


def typed_from(given: Mapping[str, Any]) -> dict[str, str]:
    """A config as it would be typed: what equals a default stays empty, what has no field goes to the last one."""
    names = {table: str(_at(given, table).get("name", "")) for table in tables() if table}
    shown = sections(names)
    values: dict[str, str] = {section.name_key: section.chosen for section in shown if section.kind}
    for section in shown:
        for one in section.fields:
            text = as_typed(_at(given, one.key.rpartition(".")[0]).get(one.key.rpartition(".")[2]))
            if text and text != one.default:
                values[one.key] = text
    rest = {key: given[key] for key in ("stages", "overrides") if given.get(key)}
    return values | ({FURTHER: write_toml(rest).strip()} if rest else {})


def _gathered(found: Submission) -> Given:
    """What was typed. A part that the algorithm does not take is left out, unless something was chosen there."""
    given: Given = {}
    chosen = {section.table: section.chosen for section in found.sections}
    taken = parts_taken({"name": chosen["algorithm"]})
    for section in found.sections:
        untouched = section.chosen == section_of(section.table).chosen
        if section.kind and section.chosen and (section.table in taken or section.table not in PARTS or not untouched):
            given = with_key(given, section.name_key, section.chosen)
        for one in section.fields:
            if one.key in found.values:
                given = with_key(given, one.key, one.parse(found.values[one.key]))
            elif one.required:
                found.errors[one.key] = "needed"
    return given


def _with_further(given: Given, found: Submission) -> Given:
    try:
        further = tomllib.loads(found.values.get(FURTHER, ""))
    except tomllib.TOMLDecodeError as cause:
        found.errors[FURTHER] = f"not valid TOML: {cause}"
        return given
    refused = [key for key in NOT_OFFERED if key.partition(".")[0] in further]
    if refused:
        key = refused[0].partition(".")[0]
        found.errors[FURTHER] = f"'{key}' cannot be set here; use a config file and 'tequio run'"
        return given
    return _merged(given, further)


def _refuse_code(given: Mapping[str, Any], found: Submission, place: str = "") -> None:
    """A form starts runs of what is installed and of the plugins that the dashboard was started with."""
    for section in found.sections:
        component = registry.find(section.kind, section.chosen).component if section.kind and section.chosen else None
        if component is not None and any(one in IMPORTING for one in parameter_model(component).model_fields):
            found.errors[section.name_key] = f"'{section.chosen}' imports code that its settings name, which {_BY_FILE}"
    for key, text in names_of_code(given):
        found.errors.setdefault(place or _nearest_field(key, found),
                                f"'{text[:80]}' names code to import, which {_BY_FILE}")


def _merged(given: Given, further: Mapping[str, Any]) -> Given:
    merged = copied(given)
    for key, value in further.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def _check_keys(given: Given, found: Submission) -> None:
    """Every mistake that types and bounds tell, each at its own key."""
    for section in found.sections:
        table = _at(given, section.table)
        if section.kind and section.chosen:
            own = {one.key.rpartition(".")[2] for one in section.fields}
            component = registry.find(section.kind, section.chosen).component
            _note(found, section.table, parameter_model(component), _known(component, table, own))
        if section.table == "attack" and section.chosen:
            _note(found, section.table, parameter_model(Schedule), _known(Schedule, table, set(table)))
        if section.table == "rules":
            _note(found, section.table, parameter_model(Rules), table)
    _note(found, "", Config, given)


def _known(component: Any, table: Mapping[str, Any], own: set[str]) -> Given:
    names = parameter_model(component).model_fields
    return {key: value for key, value in table.items() if key in names and key in own}


def _note(found: Submission, table: str, model: Any, values: Any) -> None:
    try:
        model.model_validate(values)
    except ValidationError as cause:
        for error in cause.errors():
            key = ".".join([*filter(None, [table]), *(str(part) for part in error["loc"] if isinstance(part, str))])
            message = error["msg"][:1].lower() + error["msg"][1:]
            place = _nearest_field(key, found)
            found.errors.setdefault(place, message if place else f"{key}: {message}")


def _nearest_field(key: str, found: Submission) -> str:
    """The field of a key, or of the key that it is a part of; that for further keys where there is none."""
    known = {one.key for section in found.sections for one in section.fields}
    while key and key not in known:
        key = key.rpartition(".")[0]
    return key or (FURTHER if FURTHER in found.values else WHOLE)


def _check_data(name: str, found: Submission) -> None:
    """The dashboard asks nobody outside: data that is not on this machine has to be fetched first."""
    where = where_is(facts_of(registry.find("dataset", name))) if name in registry.names("dataset") else ""
    if where in NOT_HERE:
        found.errors["data.name"] = f"these files are not on this machine ({where}); type: tequio data fetch {name}"


def _at(given: Mapping[str, Any], table: str) -> Mapping[str, Any]:
    place: Any = given
    for part in filter(None, table.split(".")):
        place = place.get(part, {}) if isinstance(place, dict) else {}
    return place if isinstance(place, dict) else {}


SEEDS_FIELD, VALUES_FIELD = "sweep.seeds", "sweep.values"
MOST_RUNS = 500


def read_sweep(values: Mapping[str, str], errors: dict[str, str]) -> Given:
    """The `[sweep]` table that was typed, empty for a single run; mistakes are noted at their field."""
    sweep: Given = {}
    try:
        sweep |= axes_of(tomllib.loads(values.get(VALUES_FIELD, "")), "form")
    except tomllib.TOMLDecodeError as cause:
        errors[VALUES_FIELD] = f"not valid TOML: {cause}"
    except ConfigError as cause:
        errors[VALUES_FIELD] = f"{cause.message}; {cause.remedy}".removeprefix("form: [sweep] ")
    refused = [key for key in sweep if key == SEEDS or any(key == one or key.startswith(f"{one}.")
                                                           for one in NOT_OFFERED)]
    if refused:
        errors[VALUES_FIELD] = f"'{refused[0]}' cannot be set here"
    seeds = _seeds(values.get(SEEDS_FIELD, ""), errors)
    return sweep | ({SEEDS: seeds} if seeds else {})


def checked_cells(given: Given, errors: dict[str, str]) -> list[SweepCell]:
    """Every run of the sweep with its whole config, or what is wrong with one of them."""
    count = 1
    for axis in given["sweep"].values():
        count *= len(axis)
    if count > MOST_RUNS:
        errors[VALUES_FIELD] = f"that would be {count:,} runs, and the form starts at most {MOST_RUNS}"
        return []
    try:
        return sweep_cells(given, source="form")
    except ConfigError as cause:
        errors[VALUES_FIELD] = str(cause).removeprefix("form: ")
        return []


def _seeds(text: str, errors: dict[str, str]) -> list[int]:
    """A number counts seeds from 0; a list names them."""
    if not text:
        return []
    try:
        typed = tomllib.loads(f"seeds = {text}")["seeds"]
    except tomllib.TOMLDecodeError:
        typed = None
    if isinstance(typed, int) and not isinstance(typed, bool) and 0 < typed <= MOST_RUNS:
        return list(range(typed))
    if isinstance(typed, list) and typed and all(type(seed) is int and seed >= 0 for seed in typed):
        return typed
    errors[SEEDS_FIELD] = "give how many, such as 5, or a list, such as [0, 1, 2]"
    return []
