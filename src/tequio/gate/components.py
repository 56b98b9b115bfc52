"""What a party builds from what others send: components that are installed and allowed, with plain parameters.

A parameter that may be any text could name a file, a module or a function. It is taken from others only where it is
known to name something harmless, such as a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tequio import registry
from tequio.errors import ConfigError, PermissionDenied, nearest
from tequio.gate.policy import refused
from tequio.registry import COMPONENT_KEY, parameters_of, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.gate.policy import Policy

KINDS = frozenset({"learner", "training", "stage", "preparation", "encryption", "router", "aggregator", "filter"})
"""Kinds of components that tasks come with. No other is ever built from what others send."""

HARMLESS = frozenset({
    ("preparation", "drop", "columns"), ("preparation", "discretise", "cuts"), ("preparation", "regroup", "groups"),
    ("preparation", "regroup", "rest"), ("stage", "dp-sums", "moves"), ("stage", "attested", "measurement"),
    ("stage", "central-dp", "arrays"), ("stage", "distributed-dp", "arrays"), ("stage", "dp-ftrl", "arrays"),
    ("stage", "dp-mf", "arrays"),
    ("stage", "local-dp", "arrays"), ("stage", "attested", "attestor")})
"""Parameters of free text that name columns, arrays of a reply, hashes, or components that are looked up by name."""

FUNCTIONS = frozenset({("learner", "torch", "module"), ("filter", "custom", "function")})
"""Parameters that name a function to import: only what the policy lists under `functions`."""

WITH_FUNCTIONS = frozenset({("learner", "torch", "arguments")})
"""Parameters that go to a function that the policy lists."""


def check_components(plain: object, policy: Policy, source: str) -> None:
    """Refuse any component in plain data that this party does not build for others."""
    for spec in components_in(plain):
        _check(spec, policy, source)


def check_steps(steps: object, policy: Policy) -> None:
    """The same for steps of a preparation, which come as names or as tables."""
    for step in steps if isinstance(steps, list | tuple) else ():
        table = {"name": step} if isinstance(step, str) else dict(step)
        _check({COMPONENT_KEY: ["preparation", table.pop("name", "")], "parameters": table}, policy, "data.prepare")


def components_in(plain: object) -> Iterator[Mapping[str, Any]]:
    """All components in plain data, the outer ones first."""
    if isinstance(plain, Mapping):
        if COMPONENT_KEY in plain:
            yield plain
        for value in plain.values():
            yield from components_in(value)
    elif isinstance(plain, list | tuple):
        for value in plain:
            yield from components_in(value)


def _check(spec: Mapping[str, Any], policy: Policy, source: str) -> None:
    place = spec[COMPONENT_KEY]
    parameters = spec.get("parameters", {})
    if not (isinstance(place, list | tuple) and len(place) == 2 and all(isinstance(part, str) for part in place)
            and isinstance(parameters, Mapping)):
        raise PermissionDenied(f"{source} holds something that is no component", remedy="send a kind, a name and "
                                                                                        "parameters")
    kind, name = place
    if kind not in KINDS:
        raise refused(f"{source} comes with a component of the kind '{kind}', and tasks need none",
                      "send settings of a task only")
    if policy.components and f"{kind}/{name}" not in policy.components:
        raise refused(f"the {kind} '{name}' of {source} is not among the policy's 'components'",
                      f"list '{kind}/{name}' there if it is wanted ({nearest(f'{kind}/{name}', policy.components)})")
    try:
        component = registry.find(kind, name).component
    except ConfigError:
        raise PermissionDenied(f"there is no {kind} '{name[:80]}' here",
                               remedy="let every party install the same version and plugins") from None
    for parameter, default in _free_texts(component).items():
        given = parameters.get(parameter, default)
        if given == default or (kind, name, parameter) in HARMLESS or f"{kind}/{name}.{parameter}" in policy.parameters:
            continue
        _check_function((kind, name, parameter), given, parameters, policy, source)


def _check_function(place: tuple[str, str, str], given: object, parameters: Mapping[str, Any], policy: Policy,
                    source: str) -> None:
    kind, name, parameter = place
    if place in WITH_FUNCTIONS:  # the function itself is looked at, too
        given = next((parameters.get(other) for other_kind, other_name, other in FUNCTIONS
                      if (other_kind, other_name) == (kind, name)), None)
    elif place not in FUNCTIONS:
        raise refused(f"{source} sets {parameter} of the {kind} '{name}', which could name a file or code of this "
                      "machine", f"leave {parameter} as it is, or list '{kind}/{name}.{parameter}' under 'parameters' "
                      "of the policy")
    if given not in policy.functions:
        raise refused(f"a setting names the function '{str(given)[:80]}', and importing it would run code",
                      "list it under 'functions' if its code is trusted")


@lru_cache(maxsize=512)
def _free_texts(component: Any) -> dict[str, object]:
    """The parameters whose type allows any text, with their defaults as plain data."""
    hints = get_type_hints(component, include_extras=True)
    return {field.name: _default(field) for field in parameters_of(component) if _is_free(hints[field.name])}


def _default(field: Any) -> object:
    from dataclasses import MISSING

    if field.default_factory is not MISSING:
        return to_plain(field.default_factory())
    return None if field.default is MISSING else to_plain(field.default)


def _is_free(hint: object) -> bool:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return False
    if origin is Annotated:
        return _is_free(args[0])
    if origin in (Union, UnionType) or origin is not None:
        return any(_is_free(part) for part in args if part is not Ellipsis)
    return hint in (str, object, Any, dict, list, tuple)
