"""The form of a config, made from its schema: tables become sections, keys and component parameters become fields."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator

from tequio import registry
from tequio.experiments.config.complete import complete, resolved
from tequio.experiments.config.composition import PARTS
from tequio.experiments.config.tables import Config
from tequio.experiments.config.toml import write_toml
from tequio.federation.federation import Rules
from tequio.views.components import about, meanings, parameters, type_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.experiments.running.store import Plain


FURTHER = "further"
"""The field for what has none of its own, in TOML."""

# What a form may not say: other people's code to import, other folders to write to, many runs at once.
NOT_OFFERED = ("plugins", "sweep", "search", "output.folder", "output.track")
IMPORTING = frozenset({"function", "module", "plugins"})
_FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_IN_FURTHER = ("stages", "overrides")
_KINDS = {"local": "training", "data": "dataset", "data.partition": "partition"}
_OPEN = ("", "data", "data.partition", "learner", "local", "algorithm", "selector")
_TITLES = {"": "Experiment", "local": "Training at a party", "data.partition": "Partition", "data.split": "Split",
           "data.feature_noise": "Feature noise"}
_FIRST = ("", "data", "data.partition", "data.split", "learner", "local", "algorithm", "selector", "aggregator",
          "evaluation", "stop")


def names_of_code(given: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """What in a config, or in the axes of a sweep, names code to import, by key. Who may fill in a form, or has put a
    folder here, may not run code by that."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            yield from names_of_code(value, f"{key}.{name}".lstrip("."))
    elif isinstance(given, list | tuple):
        for value in given:
            yield from names_of_code(value, key)
    elif isinstance(given, str) and (name := key.rpartition(".")[2]) != "name" and given and (
            name in IMPORTING or _FUNCTION.fullmatch(given) or given.endswith(".py")):
        yield key, given


@dataclass(frozen=True)
class Field:
    """One key of a config. `default` is what an empty field means, as it would be typed."""

    key: str
    type: str
    meaning: str
    default: str
    required: bool
    choices: tuple[str, ...]
    many: bool
    hint: Any

    @property
    def label(self) -> str:
        """The last part of the key, in words."""
        return self.key.rpartition(".")[2].replace("_", " ")

    def parse(self, text: str) -> Any:
        """What a text in this field means: a TOML value, or the text itself where a text is wanted."""
        if _is_text(self.hint):
            return text
        if self.many and text in self.choices:
            return [text]
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text


@dataclass(frozen=True)
class Section:
    """One table of the config. `kind` is the kind of component it chooses, if it does.

    `no_choice` is what choosing no component is called; empty where one has to be chosen. `about` tells
    what the chosen component is.
    """

    table: str
    title: str
    meaning: str
    kind: str
    names: tuple[str, ...]
    chosen: str
    no_choice: str
    about: str
    paper: str
    fields: tuple[Field, ...]
    open: bool

    @property
    def name_key(self) -> str:
        """The key that holds the component's name."""
        return f"{self.table}.name"


def sections(chosen: Mapping[str, str]) -> list[Section]:
    """All sections, with the parameters of the components that `chosen` names by table."""
    return [section_of(table, chosen.get(table)) for table in tables()]


@lru_cache(maxsize=1)
def tables() -> tuple[str, ...]:
    """The tables of a config that have a section, the ones most needed first."""
    found = ["", *_tables(Config)]
    return tuple(sorted(found, key=lambda table: _FIRST.index(table) if table in _FIRST else len(_FIRST)))


def section_of(table: str, name: str | None = None) -> Section:
    """One section; `name` chooses its component, if the default is not wanted."""
    kind = _kind(table)
    default = str(_defaults(table).get("name", "")) if kind else ""
    names = tuple(registry.names(kind)) if kind else ()
    chosen = name if name in names or name == "" else default
    no_choice = "" if not kind else "none" if not default else "default" if table in PARTS else ""
    entry = registry.find(kind, chosen) if kind and chosen else None
    fields = [*(_component_fields(table, entry.component) if entry else ()), *_own_fields(table)]
    told = f"{entry.summary} {about(entry.component.__doc__ or '')}".strip() if entry else ""
    return Section(table, _TITLES.get(table) or table.replace("_", " ").capitalize(), _meaning(table), kind, names,
                   str(chosen or ""), no_choice, told, entry.paper if entry else "",
                   tuple(field for field in fields if field.key not in NOT_OFFERED
                         and field.key.rpartition(".")[2] not in IMPORTING), table in _OPEN)


def as_typed(value: Any) -> str:
    """A value as one would type it into a field."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    # Inside a list of lists tables are written on one line.
    return write_toml({"value": [[value]]}).partition("=")[2].strip()[2:-2]


def _tables(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield key
            yield from _tables(inner, f"{key}.")
        elif any(isinstance(one, BeforeValidator) for one in field.metadata) or key == "rules":
            yield key


def _kind(table: str) -> str:
    kind = _KINDS.get(table, table)
    return kind if kind in registry.KINDS else ""


@lru_cache(maxsize=1)
def _default_config() -> Plain:
    return resolved(complete({}))


def _defaults(table: str) -> Plain:
    place: Any = _default_config()
    for part in filter(None, table.split(".")):
        place = place[part]
    return dict(place)


def _meaning(table: str) -> str:
    if not table:
        return ""
    outer, _, name = table.rpartition(".")
    model = _model(outer)
    return meanings(model.__doc__ or "").get(name, "") if model else ""


def _model(table: str) -> type[BaseModel] | None:
    model: Any = Config
    for part in filter(None, table.split(".")):
        model = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return None
    return model  # type: ignore[no-any-return]


def _component_fields(table: str, component: Any) -> Iterator[Field]:
    """The parameters of a component, or of a dataclass that is a table by itself."""
    for one in parameters(component):
        default = "" if one.required else as_typed(_plain(one.default))
        yield Field(f"{table}.{one.name}", one.type, one.meaning, default, one.required, *_choices(one.hint))


def _own_fields(table: str) -> Iterator[Field]:
    """The keys that a table has by itself, whatever component it names."""
    if table == "rules":
        yield from _component_fields(table, Rules)
    model = _model(table)
    if model is None:
        return
    hints, told, defaults = get_type_hints(model, include_extras=True), meanings(model.__doc__ or ""), _defaults(table)
    inner = {name.rpartition(".")[2] for name in tables() if name and name.rpartition(".")[0] == table}
    for name in model.model_fields:
        if name not in inner and name not in _IN_FURTHER and not (name == "name" and _kind(table)):
            yield Field(f"{table}.{name}".lstrip("."), type_text(hints[name]), told.get(name, ""),
                        as_typed(defaults.get(name)), False, *_choices(hints[name]))


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str | list | tuple | dict) else ""


def _choices(hint: Any) -> tuple[tuple[str, ...], bool, Any]:
    """What a field of this type lets one choose from, whether several of it, and the type."""
    bare = _bare(hint)
    if bare is bool:
        return ("true", "false"), False, hint
    many = get_origin(bare) in (list, tuple)
    inner = _bare(get_args(bare)[0]) if many else bare
    # An empty text is how a field says that it keeps its default.
    choices = tuple(str(one) for one in get_args(inner) if one != "") if get_origin(inner) is Literal else ()
    return choices, many and bool(choices), hint


def _is_text(hint: Any) -> bool:
    bare = _bare(hint)
    return bare is str or (get_origin(bare) is Literal and all(isinstance(one, str) for one in get_args(bare)))


def _bare(hint: Any) -> Any:
    """A type without its bounds and without None beside it."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        inner = [one for one in get_args(hint) if one is not NoneType]
        return _bare(inner[0]) if len(inner) == 1 else hint
    return hint
