"""Registered components from plain parameters, and back: how configs are read and settings cross to parties."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

from tequio import registry
from tequio.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

_SPEC_KEY = "$component"


def build(kind: str, name: str, parameters: Mapping[str, Any] | None = None, *, where: str = "",
          parts: Mapping[str, Any] | None = None) -> Any:
    """The component with validated parameters; an error names the wrong key and the nearest right one.

    `parts` are fields that are not the user's to set (other components), handed over as they are.
    """
    component = registry.find(kind, name).component
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
        raise ConfigError(f"{place}: {explain(cause)}", remedy=f"see: tequio show {name_of(component)}") from None
    return {key: getattr(checked, key) for key in allowed if key in checked.model_fields_set}


def explain(cause: Any) -> str:
    """The first complaint of a pydantic ValidationError, in one line."""
    first = cause.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"'{key}' is missing"
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"'{key}': {message} (got {first.get('input')!r})"


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
    return {_SPEC_KEY: [kind, name], "parameters": parameters}


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
        if _SPEC_KEY in value:
            return _component_of(json.dumps(value, sort_keys=True))
        return {key: from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    return value


@lru_cache(maxsize=256)
def _component_of(text: str) -> Any:
    spec = json.loads(text)
    kind, name = spec[_SPEC_KEY]
    return build(kind, name, from_plain(spec["parameters"]))


def _default(field: Field[Any]) -> Any:
    from pydantic import Field as Declared

    if field.default_factory is not MISSING:
        return Declared(default_factory=field.default_factory)
    return ... if field.default is MISSING else field.default


def name_of(component: Any) -> str:
    """The name a component's class is registered under, or that of the class itself."""
    return str(getattr(component, "__tequio__", ("", component.__name__))[1])
