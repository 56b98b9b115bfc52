"""What there is to know about a component (parameters, paper, example), and where the files of a dataset are."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, is_dataclass
from functools import partial
from inspect import cleandoc
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from tequio import registry
from tequio.attacks.attack import Attack
from tequio.attacks.hostility import Schedule
from tequio.data.catalogue.entry import facts_of as described
from tequio.data.catalogue.manifest import FILES
from tequio.data.fetch import find
from tequio.errors import DataError
from tequio.experiments.config.composition import algorithms_that, learners_for, topologies_for
from tequio.experiments.config.toml import write_toml
from tequio.federation.algorithm import part_types
from tequio.probing.probe import assumption
from tequio.registry import parameters_of, to_plain

if TYPE_CHECKING:
    from dataclasses import Field

    from tequio.data.catalogue.entry import Facts
    from tequio.experiments.running.store import Plain
    from tequio.federation.algorithm import Algorithm
    from tequio.registry import Entry


_TABLES = {"dataset": "data", "partition": "data.partition", "training": "local", "stage": "stages"}
# Components that are a parameter of an algorithm, and an algorithm that takes them.
_HOSTS = {"router": "flprotector", "filter": "icdta4fl", "encryption": "vertical-logistic"}
ON_COMMAND_LINE = "probe"
"""The kind of component that is no part of a config but is named on the command line."""
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@dataclass(frozen=True)
class Parameter:
    """One key that a user may set. `required` parameters have no default."""

    name: str
    type: str
    default: Any
    required: bool
    meaning: str
    hint: Any


def parameters(component: Any) -> list[Parameter]:
    """The parameters of a component, in the order of its fields; for an attack also who attacks, and when."""
    if not is_dataclass(component):
        return []
    if isinstance(component, type) and issubclass(component, Attack):
        return [*_declared(component), *_declared(Schedule)]
    return _declared(component)


def _declared(component: Any) -> list[Parameter]:
    hints = get_type_hints(component, include_extras=True)
    told: dict[str, str] = {}
    for base in reversed(getattr(component, "__mro__", [component])):
        told |= meanings(base.__doc__ or "")
    found = [Parameter(field.name, type_text(hints[field.name]), _default(field), _default(field) is MISSING,
                       told.get(field.name, ""), hints[field.name]) for field in parameters_of(component)]
    return sorted(found, key=lambda one: not one.required)


def meanings(docstring: str) -> dict[str, str]:
    """What a docstring says under its heading `Parameters:`, by name."""
    _, heading, text = cleandoc(docstring).partition("Parameters:\n")
    told: dict[str, str] = {}
    for line in text.split("\n") if heading else []:
        start = re.match(r" *(\w+): (.+)", line)
        if start:
            told[start[1]] = start[2]
        elif line.strip() and told:
            told[next(reversed(told))] += f" {line.strip()}"
    return told


def about(docstring: str) -> str:
    """The text between a docstring's first line and its parameters."""
    body = cleandoc(docstring).partition("\n")[2]
    return body.partition("Parameters:\n")[0].strip()


def describe(entry: Entry) -> Plain:
    """Everything `tequio show` says, as plain data."""
    listed = [{"name": one.name, "type": one.type, "required": one.required, "meaning": one.meaning,
               "default": None if one.required else _plain(one.default)} for one in parameters(entry.component)]
    return {"kind": entry.kind, "name": entry.name, "summary": entry.summary, "paper": entry.paper,
            "about": _about(entry), "parameters": listed, "example": example(entry)}


def _about(entry: Entry) -> str:
    told = about(entry.component.__doc__ or "")
    return f"{told}\n\nHere {assumption(entry.name)}".strip() if entry.kind == ON_COMMAND_LINE else told


def example(entry: Entry) -> str:
    """A piece of TOML that uses the component, with its defaults written out; for a probe the command."""
    if entry.kind == ON_COMMAND_LINE:
        return f"tequio probe last --attack {entry.name}\n"
    if entry.example:
        return entry.example
    values = {"name": entry.name} | {one.name: _plain(one.default) for one in parameters(entry.component)
                                     if not one.required}
    table: Any = [values] if entry.kind == "stage" else values
    for word in reversed(_TABLES.get(entry.kind, entry.kind).split(".")):
        table = {word: table}
    if entry.kind in _HOSTS:
        table = {"algorithm": {"name": _HOSTS[entry.kind], **table}}
    table = {**_companions(entry), **table}
    needed = [f"{one.name} = ...  # {one.meaning or 'needed'}" for one in parameters(entry.component) if one.required]
    # Tables that only hold another table need no line of their own.
    text = re.sub(r"^\[[\w.]+\]\n\n(?=\[)", "", write_toml(table))
    return text + "".join(f"{line}\n" for line in needed)


def _companions(entry: Entry) -> Plain:
    """The tables that a config needs beside a component: an algorithm that takes it, and what that works with."""
    name = _HOSTS.get(entry.kind, entry.name if entry.kind == "algorithm" else "fedavg")
    if entry.kind == "learner":
        name = _first("fedavg", algorithms_that(partial(_trains, entry.name)))
    if entry.kind == "topology":
        name = _first("fedavg", algorithms_that(partial(_works_along, entry.name)))
    algorithm = cast("type[Algorithm]", registry.find("algorithm", name).component)
    tables: Plain = {} if name == "fedavg" else {"algorithm": {"name": name}}
    if "learner" in part_types(algorithm) and "logistic" not in learners_for(algorithm):
        tables["learner"] = {"name": learners_for(algorithm)[0]}
    if "client-server" not in topologies_for(algorithm):
        tables["topology"] = {"name": topologies_for(algorithm)[0]}
    return {**tables, "devices": {"name": "mobile"}} if algorithm.needs_clock else tables


def _first(wanted: str, names: list[str]) -> str:
    return wanted if wanted in names or not names else names[0]


def _trains(learner: str, algorithm: type[Algorithm]) -> bool:
    return "learner" in part_types(algorithm) and learner in learners_for(algorithm)


def _works_along(topology: str, algorithm: type[Algorithm]) -> bool:
    return topology in topologies_for(algorithm)


def type_text(hint: Any) -> str:
    """A type as people say it: 'int >= 0', "'size' or 'uniform'", 'list of str'."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([type_text(inner[0]), *filter(None, map(_bound, inner[1:]))])
    if origin is Literal:
        return " or ".join(repr(choice) for choice in inner)
    if origin in (Union, UnionType):
        return " or ".join(type_text(one) for one in inner)
    if origin in (list, tuple):
        return f"list of {type_text(inner[0])}"
    if origin is dict:
        return "table"
    return "nothing" if hint is NoneType else getattr(hint, "__name__", str(hint).rpartition(".")[2])


def _bound(constraint: Any) -> str:
    limits = {sign: getattr(constraint, name, None) for name, sign in _BOUNDS.items()}
    return " and ".join(f"{sign} {limit}" for sign, limit in limits.items() if limit is not None)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    plain = to_plain(value)
    return plain if plain is None or isinstance(plain, bool | int | float | str | list | dict) else str(plain)


NOT_HERE = ("damaged", "to fetch", "to get by hand")
"""Answers of `where_is` that mean that a dataset cannot be read without getting something first."""


def facts_of(entry: Entry) -> Facts | None:
    """What the catalogue says of a dataset."""
    return described(entry.component)


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
