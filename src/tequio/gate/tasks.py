"""Which tasks belong to a run: those that the code of its algorithm and of its components can name, and no others."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

from tequio import registry
from tequio.errors import ConfigError
from tequio.federation.task import Task
from tequio.privacy.updates import JOINT, PROTOCOL_TASKS
from tequio.registry import COMPONENT_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.gate.announcement import Announcement

_TABLES = {"algorithm": "algorithm", "selector": "selector", "aggregator": "aggregator", "topology": "topology",
           "contribution": "contribution", "learner": "learner"}
_ADOPTION = frozenset({"look for own model", "adopt if better", "fine-tune and evaluate", "evaluate own model",
                       "train own model", "trees: fit own model"})
PREPARING = "fit preparation"
_OPEN = ("tequio.algorithms", "tequio.federation", "tequio.privacy", "tequio.attacks")
_LIBRARIES = ("numpy", "scipy", "sklearn", "torch", "pydantic", "msgspec", "annotated_types", "typing_extensions")


def tasks_of_run(announcement: Announcement) -> frozenset[str]:
    """The tasks that an announced run may ask for."""
    asked = announcement.asked
    named = {(kind, str(table["name"])) for key, kind in _TABLES.items()
             if isinstance(table := asked.get(key), Mapping) and "name" in table}
    found = tasks_of(frozenset({*named, ("algorithm", announcement.algorithm)}))
    stages = {str(name) for kind, name in (component[COMPONENT_KEY] for component in announcement.components)
              if kind == "stage"}
    protocols = stages | {"joint"} if stages & JOINT else stages
    found |= {task for task in PROTOCOL_TASKS if task.partition(".")[0] in protocols}
    found |= {PREPARING} if announcement.preparation.steps else frozenset()
    adoption = asked.get("adoption")
    return found | _ADOPTION if isinstance(adoption, Mapping) and (
        adoption.get("if_better") or adoption.get("fine_tune_epochs")) else found


@lru_cache(maxsize=64)
def tasks_of(components: frozenset[tuple[str, str]]) -> frozenset[str]:
    """The tasks that the code of these components can name, by what its functions and classes refer to."""
    waiting: list[object] = []
    for kind, name in components:
        try:
            waiting.append(registry.find(kind, name).component)
        except ConfigError:
            continue  # said when the component is needed
    found: set[str] = set()
    seen: set[int] = set()
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, Task):
            found.add(thing.name)
        elif id(thing) not in seen:
            seen.add(id(thing))
            waiting.extend(_named_by(thing))
    return frozenset(found)


def _named_by(thing: object) -> Iterator[object]:
    """What a function or a class of algorithms refers to by name, and the tasks that an object of theirs holds."""
    if isinstance(thing, MethodType | classmethod | staticmethod):
        yield thing.__func__
    elif isinstance(thing, property):
        yield thing.fget
    elif isinstance(thing, FunctionType):
        if _is_open(thing.__module__):
            for code in _codes(thing.__code__):
                named = [thing.__globals__[name] for name in code.co_names if name in thing.__globals__]
                yield from named
                for module in named:
                    if isinstance(module, ModuleType) and _is_open(module.__name__):
                        yield from (vars(module)[name] for name in code.co_names if name in vars(module))
    elif isinstance(thing, type):
        for owner in thing.__mro__:
            if _is_open(owner.__module__):
                yield from vars(owner).values()
    elif isinstance(thing, tuple):
        yield from thing
    elif is_dataclass(thing) and _is_open(type(thing).__module__):
        yield from (getattr(thing, field.name) for field in fields(thing))


def _is_open(module: str) -> bool:
    """Whether the code of a module is looked into: that of algorithms and what they are made of, plugins included."""
    return module.startswith(_OPEN) or not module.startswith(("tequio.", *sys.stdlib_module_names, *_LIBRARIES))


def _codes(code: CodeType) -> Iterable[CodeType]:
    """A function's code and that of functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
