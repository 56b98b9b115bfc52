"""Components by name: registered, found, built from plain parameters and turned back into them.

Config schema, `tequio list`, `tequio show` and the reference docs all come from here, and settings cross to parties as
plain data by it. A component is a dataclass (its fields are its parameters) or a function, put here by
`@register(kind, name)`. Modules of the package register themselves when they are imported; third parties name their
modules under the entry-point group `tequio.plugins`, or list files and modules in the config key `plugins`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import re
import sys
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from tequio.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pydantic import BaseModel


KINDS = {
    "dataset": "data to learn from",
    "preparation": "what is done with columns before anything is learned from them",
    "partition": "how a dataset is dealt to parties",
    "learner": "a model that one party trains",
    "training": "how a party trains in one round",
    "algorithm": "a program that runs at the coordinator and asks parties to do tasks",
    "selector": "which parties take part in a round",
    "aggregator": "turns replies into the next model",
    "contribution": "what each party added to a round",
    "stage": "something done to an update on its way",
    "topology": "who may talk to whom",
    "devices": "how fast parties compute and send on the virtual clock, and what that costs",
    "availability": "when a party can be reached on the virtual clock",
    "engine": "carries tasks to parties and replies back",
    "attack": "what a hostile party does",
    "router": "which of a party's models answers a row",
    "encryption": "computing with numbers that nobody but the key holder can read",
    "attestor": "says which code runs at the coordinator",
    "filter": "which parties' trees are good enough to be fused",
    "probe": "an attack on the privacy of a finished run: tequio probe",
}

_COMPONENT_PACKAGES = ("data", "learners", "federation", "privacy", "engines", "algorithms", "attacks", "probing")

Component = TypeVar("Component", bound="Callable[..., Any]")
Contract = TypeVar("Contract", bound=type)


@dataclass(frozen=True)
class Entry:
    """One registered component."""

    kind: str
    name: str
    component: Callable[..., Any]
    paper: str = ""
    example: str = ""

    @property
    def summary(self) -> str:
        """First line of the component's docstring."""
        return (self.component.__doc__ or "").strip().split("\n")[0]


_entries: dict[tuple[str, str], Entry] = {}
_contracts: dict[str, type] = {}
_loaded_plugins: list[str] = []
_everything_loaded = False


def register(kind: str, name: str, *, paper: str = "", example: str = "") -> Callable[[Component], Component]:
    """Make a component known under a name: `@register("selector", "random")`."""
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of component '{kind}'", remedy=nearest(kind, KINDS))

    def add(component: Component) -> Component:
        known = _entries.get((kind, name))
        if known and _origin(known.component) != _origin(component):
            raise ConfigError(f"two components claim the name '{name}' of kind '{kind}': "
                              f"{_origin(known.component)} and {_origin(component)}", remedy="rename one of them")
        _entries[kind, name] = Entry(kind, name, component, paper, example)
        component.__tequio__ = (kind, name)  # type: ignore[attr-defined]
        return component

    return add


def contract(kind: str) -> Callable[[Contract], Contract]:
    """Make a class the base that every component of a kind has to have: `@contract("selector")`."""

    def declare(base: Contract) -> Contract:
        _contracts[kind] = base
        return base

    return declare


_REPLACED = {("stage", "encrypted-sum"): (
    "the stage 'encrypted-sum' is gone: every party held its key, and whoever holds it can open a single update",
    "set the stage's name to 'one-shot-sum', whose key for a single update nobody has but its party")}
"""What is said of components that others have replaced."""


def find(kind: str, name: str) -> Entry:
    """The component of that kind and name, or an error that names the nearest one."""
    if (kind, name) not in _entries:
        load_everything()
    entry = _entries.get((kind, name))
    if entry is None:
        hyphenated = name.replace("_", "-")
        if (kind, name) in _REPLACED:
            raise ConfigError(_REPLACED[kind, name][0], remedy=_REPLACED[kind, name][1])
        remedy = f"its name is '{hyphenated}'" if (kind, hyphenated) in _entries else nearest(name, names(kind))
        raise ConfigError(f"there is no {kind} called '{name}'", remedy=remedy)
    base = _contracts.get(kind)
    if base is not None and not (isinstance(entry.component, type) and issubclass(entry.component, base)):
        raise ConfigError(f"the {kind} '{name}' ({_origin(entry.component)}) is no subclass of {base.__name__}",
                          remedy=f"write: from {base.__module__} import {base.__name__}, and derive it from that")
    return entry


def names(kind: str) -> list[str]:
    """Sorted names of one kind."""
    return [entry.name for entry in entries(kind)]


def entries(kind: str | None = None) -> list[Entry]:
    """All entries, or those of one kind, sorted by kind and name."""
    load_everything()
    return [_entries[key] for key in sorted(_entries) if kind in (None, key[0])]


def load_everything() -> None:
    """Import every module of the package and every plugin, so that all components are known."""
    global _everything_loaded
    if _everything_loaded:
        return
    for module in _package_modules():
        importlib.import_module(module)
    for point in entry_points(group="tequio.plugins"):
        try:
            point.load()
        except Exception as cause:
            raise ConfigError(f"the plugin '{point.name}' ({point.value}) cannot be imported: {cause!r}",
                              remedy="mend it or uninstall it") from cause
    _everything_loaded = True


def load_plugins(plugins: Iterable[str]) -> None:
    """Import plugin files (`path/to/file.py`) or modules (`package.module`) named in a config."""
    for plugin in plugins:
        if plugin in _loaded_plugins:
            continue
        try:
            _import_file(Path(plugin)) if plugin.endswith(".py") else importlib.import_module(plugin)
        except ConfigError:
            raise
        except Exception as cause:
            raise ConfigError(f"the plugin '{plugin}' cannot be imported: {cause!r}",
                              remedy="give a module name or the path of a .py file") from cause
        _loaded_plugins.append(plugin)


def loaded_plugins() -> list[str]:
    """Plugins named by configs so far, so that worker processes can load the same ones."""
    return list(_loaded_plugins)


def _import_file(path: Path) -> None:
    name = f"tequio_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ConfigError(f"the plugin file '{path}' does not exist", remedy="check the path in 'plugins'")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _package_modules() -> Iterator[str]:
    import tequio

    for package in _COMPONENT_PACKAGES:
        folder = Path(tequio.__path__[0]) / package
        if not folder.is_dir():
            continue
        yield f"tequio.{package}"
        for module in pkgutil.walk_packages([str(folder)], f"tequio.{package}."):
            yield module.name


def _origin(component: Callable[..., Any]) -> str:
    return f"{component.__module__}.{component.__qualname__}"


COMPONENT_KEY = "$component"
"""The key by which plain data shows that it stands for a component."""


def build(kind: str, name: str, parameters: Mapping[str, Any] | None = None, *, where: str = "",
          parts: Mapping[str, Any] | None = None) -> Any:
    """The component with validated parameters; an error names the wrong key and the nearest right one.

    `parts` are fields that are not the user's to set (other components), handed over as they are.
    """
    component = find(kind, name).component
    place = where or kind
    values = validate(component, dict(parameters or {}), f"{place} '{name}'")
    return component(**values, **(parts or {}))


def named_function(place: str | Callable[..., Any], what: str) -> Callable[..., Any]:
    """A function, or the one that a config names as 'package.module:function'; `what` says in errors what it is for."""
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    remedy = "write it as 'package.module:function'"
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as cause:
        raise ConfigError(f"the {what} '{place}' cannot be imported: {cause}", remedy=remedy) from cause
    if not callable(function):
        raise ConfigError(f"'{place}' is not a function", remedy=remedy)
    return function  # type: ignore[no-any-return]


def validate(component: Any, given: dict[str, Any], place: str) -> dict[str, Any]:
    """Check and coerce parameters against a component's declared types and bounds."""
    from pydantic import ValidationError

    allowed = [parameter.name for parameter in parameters_of(component)]
    for key in given:
        if key not in allowed:
            raise ConfigError(f"{place} has no parameter '{key}'", remedy=nearest(key, allowed))
    try:
        checked = parameter_model(component).model_validate(given)
    except ValidationError as cause:
        raise ConfigError(f"{place}: {explain(cause)}",
                          remedy=what_to_type(cause, parameter_model(component), table_in(place))) from None
    return {key: getattr(checked, key) for key in allowed if key in checked.model_fields_set}


def explain(cause: Any) -> str:
    """The first complaint of a pydantic ValidationError, in one line."""
    first = cause.errors()[0]
    key = ".".join(str(part) for part in _place(first))
    if first["type"] == "missing":
        return f"'{key}' is missing"
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"'{key}': {message} (got {first.get('input')!r})"


def table_in(place: str) -> str:
    """The table that an error is about: 'local' of "study.toml: [local] 'minibatch'"; empty where it names none."""
    found = re.search(r"\[+([\w.-]+)\]", place)
    return found.group(1) if found else ""


def what_to_type(cause: Any, model: type[BaseModel], table: str = "") -> str:
    """A setting that would do in place of the first complaint: the key with its default or another value that fits."""
    first = cause.errors()[0]
    path = [part for part in _place(first) if isinstance(part, str)]
    value, key = _default_at(model, path), ".".join(filter(None, [table, *path]))
    if first["type"] == "missing":
        return f"add {key}"
    given, choices = first.get("input"), re.findall(r"'([^']+)'", str(first.get("ctx", {}).get("expected", "")))
    if choices:
        one = next(iter(get_close_matches(str(given), choices, n=1)), choices[0])
        value = [one] if isinstance(first["loc"][-1], int) else one
    elif first["type"] == "list_type":
        value = [given] if isinstance(given, str) else value
    if isinstance(value, bool | int | float | str | list | tuple) and value not in ("", [], ()):
        return f"set {key} = {json.dumps(value)}, for instance"
    shapes = {_SHAPES.get(error["type"].partition("_")[0], "") for error in cause.errors()
              if _place(error) == _place(first)}
    return f"write {key} as {' or '.join(sorted(shapes))}" if all(shapes) else f"change {key}"


_SHAPES = {"list": "a list", "tuple": "a list", "dict": "a table", "model": "a table", "dataclass": "a table",
           "string": "a text", "bool": "true or false", "int": "a whole number", "float": "a number"}


def _place(error: Any) -> tuple[str | int, ...]:
    """Where an error of pydantic is, without the member of a union that it tried there."""
    return tuple(part for part in error["loc"] if not isinstance(part, str) or not re.search(
        r"\[|^(str|int|float|bool|none|dict|list)$", part))


def _default_at(model: type[BaseModel], path: list[str]) -> object:
    """The default of a setting, found by walking down from the model of the whole; none where there is none."""
    for place, part in enumerate(path):
        field = model.model_fields.get(part)
        if field is None:
            return None
        default: object = field.get_default(call_default_factory=True)
        if place == len(path) - 1:
            return default
        model = type(default)  # type: ignore[assignment]
        if not hasattr(model, "model_fields"):
            return None
    return None


def parameters_of(component: Any) -> list[Field[Any]]:
    """The fields a user may set: all that are not marked as a part (another component, filled in by the config)."""
    return [field for field in fields(component) if field.init and not field.metadata.get("part")]


@lru_cache(maxsize=512)
def parameter_model(component: Any) -> type[BaseModel]:
    """A pydantic model of a component's parameters: validation, JSON schema and docs come from it."""
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(component, include_extras=True)
    declared: dict[str, Any] = {field.name: (hints[field.name], _default(field)) for field in parameters_of(component)}
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
    return create_model(component.__name__, __config__=config, **declared)


def to_spec(component: Any) -> dict[str, Any]:
    """A registered component as plain data: kind, name and parameters."""
    kind, name = getattr(type(component), "__tequio__", (None, None))
    if kind is None:
        raise ConfigError(f"{type(component).__name__} is not a registered component, so it cannot be sent to parties",
                          remedy="register it with @register(kind, name)")
    parameters = {field.name: to_plain(getattr(component, field.name)) for field in parameters_of(component)}
    return {COMPONENT_KEY: [kind, name], "parameters": parameters}


def is_component(value: object) -> bool:
    """Whether it is an object of a registered component, which can be sent to parties."""
    return not isinstance(value, type) and "__tequio__" in vars(type(value))


def to_plain(value: Any) -> Any:
    """Settings as plain data: components become specs, tuples become lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_spec(value)
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(value: Any) -> Any:
    """Settings back from plain data; equal specs give the same component object within a process."""
    if isinstance(value, dict):
        if COMPONENT_KEY in value:
            return _component_of(json.dumps(value, sort_keys=True))
        return {key: from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    return value


@lru_cache(maxsize=256)
def _component_of(text: str) -> Any:
    spec = json.loads(text)
    kind, name = spec[COMPONENT_KEY]
    return build(kind, name, from_plain(spec["parameters"]))


def _default(field: Field[Any]) -> Any:
    from pydantic import Field as Declared

    if field.default_factory is not MISSING:
        return Declared(default_factory=field.default_factory)
    return ... if field.default is MISSING else field.default


def name_of(component: Any) -> str:
    """The name a component's class is registered under, or that of the class itself."""
    return str(getattr(component, "__tequio__", ("", component.__name__))[1])
