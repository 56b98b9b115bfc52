"""Tasks: functions that run at a party. Code that the party has installed; only its name is ever sent.

A task is typed at both ends. Its settings are a `record`, its reply a `TypedDict`, and `reveals` says what the reply
tells about rows. Settings are decoded and checked at the party, replies at the party and again at the coordinator: a
missing key, a surplus key or a value of the wrong type fails that one party, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    NotRequired,
    Protocol,
    TypedDict,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np
from annotated_types import Ge
from typing_extensions import TypeVar

from tequio import registry
from tequio.errors import ConfigError, DataError, nearest
from tequio.federation.payload import R
from tequio.learners.learner import Learner, LocalTraining
from tequio.registry import explain, from_plain, parameter_model, to_plain

if TYPE_CHECKING:
    from tequio.data.dataset import Schema
    from tequio.federation.population import Party

S = TypeVar("S", default=Any)
C = TypeVar("C", bound=type)

Count = Annotated[int, Ge(0)]
"""A whole number from 0 upwards, such as a number of rows."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: C) -> C:
    """A frozen dataclass whose fields are checked when it is decoded: the settings of a task."""
    return dataclass(frozen=True, kw_only=True)(cls)  # type: ignore[return-value]


@record
class NoSettings:
    """The settings of a task that has none."""


@record
class TimedSettings:
    """Settings of a task whose time on the virtual clock follows from `local`."""

    local: LocalTraining


@record
class TrainSettings(TimedSettings):
    """What parties need to know to train. Algorithms add what is their own."""

    learner: Learner


class Done(TypedDict):
    """The reply of a task that only confirms."""


class Reveals(Enum):
    """What a task's reply tells about the party's rows."""

    NOTHING = "nothing"
    COUNTS = "how many rows there are"
    UPDATE = "how training on the rows changed a model"
    STRUCTURE = "a model fitted to the rows, with its thresholds or counts"
    METRICS = "how well a model does on the rows"
    SCORES = "what a model makes of single rows"
    ROWS = "rows themselves"


@dataclass(frozen=True)
class Sums(Generic[S]):
    """Reveals sums over rows. `moves` says how far one row can move each entry of the reply (Euclidean length)."""

    moves: Callable[[S, Schema], Mapping[str, float]] | None = None


class ManyFunction(Protocol):
    """The same task for many parties in one vectorised call: payload i is what party i would reply alone."""

    def __call__(self, parties: Sequence[Party], payloads: Sequence[Any], settings: Any) -> Sequence[Any]:
        """Replies in the order of the parties, best as `Columns`; nothing if these had better run one by one."""
        ...


@dataclass(frozen=True)
class Task(Generic[S, R]):
    """A function that a party runs next to its own data: (party, payload, settings) -> reply.

    `merge` makes one reply of several, for an aggregator between the parties and the coordinator.
    """

    name: str
    run: Callable[[Party, Any, S], R]
    settings: type[S]
    reply: type[R]
    reveals: Reveals | Sums[S]
    many: ManyFunction | None = None
    merge: Callable[[Sequence[R]], R] | None = None

    def __call__(self, party: Party, payload: Any, settings: S) -> R:
        """Run it at one party."""
        return self.run(party, payload, settings)

    def encode(self, settings: S | None) -> dict[str, Any]:
        """Settings as plain data, ready to be sent."""
        if settings is None:
            settings = self.settings()
        if type(settings) is not self.settings:
            raise ConfigError(f"task '{self.name}' takes {self.settings.__name__}, not {type(settings).__name__}")
        return {field.name: to_plain(getattr(settings, field.name)) for field in fields(settings)}  # type: ignore[arg-type]

    def decode(self, plain: Mapping[str, Any]) -> S:
        """Settings as they arrived, checked against the declared types."""
        from pydantic import ValidationError

        kind: Any = self.settings
        try:
            checked = parameter_model(kind).model_validate({key: from_plain(plain[key]) for key in plain})
        except ValidationError as cause:
            raise DataError(f"the settings of task '{self.name}' are wrong: {explain(cause)}") from None
        return self.settings(**{key: getattr(checked, key) for key in plain})


AnyTask = Task[Any, Any]

_tasks: dict[str, AnyTask] = {}


def task(name: str, *, settings: type[S], reply: type[R], reveals: Reveals | Sums[S], many: ManyFunction | None = None,
         merge: Callable[[Sequence[R]], R] | None = None) -> Callable[[Callable[[Party, Any, S], R]], Task[S, R]]:
    """Make a function a task, with the types of its settings and its reply and what the reply tells about rows."""

    def declare(function: Callable[[Party, Any, S], R]) -> Task[S, R]:
        known = _tasks.get(name)
        if known is not None and known.run.__module__ != function.__module__:
            raise ConfigError(f"two tasks claim the name '{name}': {known.run.__module__} and {function.__module__}",
                              remedy="rename one of them")
        declared = Task(name, function, settings, reply, reveals, many, merge)
        _tasks[name] = declared
        return declared

    return declare


def find_task(name: str) -> AnyTask:
    """The installed task of that name."""
    if name not in _tasks:
        registry.load_everything()
    if name not in _tasks:
        raise ConfigError(f"no task '{name}' is installed here", remedy=nearest(name, _tasks))
    return _tasks[name]


def installed_tasks() -> list[AnyTask]:
    """All tasks, in the order of their names."""
    registry.load_everything()
    return [_tasks[name] for name in sorted(_tasks)]


def fault_of(reply: type, content: Mapping[str, Any], *, withheld: frozenset[str] | None = None) -> str:
    """What is wrong with a reply of a declared type; empty if nothing is.

    Behind stages arrays have another form, and stages may add entries: only plain values are looked at. `withheld` are
    the entries that stages leave out; nothing where there are no stages.
    """
    if not is_typeddict(reply):
        return ""
    if not isinstance(content, dict):
        return f"a payload is a dict of names, not a {type(content).__name__}"
    wanted, required = _checks(reply)
    for key in required:
        if key not in content and key not in (withheld or ()):
            return f"its reply has no '{key}'"
    for key, value in content.items():
        if key not in wanted:
            if withheld is not None:
                continue
            return f"its reply has an entry '{key}' that this task does not give"
        words, holds, plain = wanted[key]
        if (plain or withheld is None) and not holds(value):
            return f"'{key}' of its reply is not {words}"
    return ""


def fault_of_columns(reply: type, columns: Mapping[str, Any]) -> bool:
    """Whether replies that lie column by column may be wrong, so that each has to be looked at alone."""
    if not is_typeddict(reply):
        return False
    wanted, required = _checks(reply)
    if not columns.keys() >= required or not wanted.keys() >= columns.keys():
        return True
    return any(not _all_hold(wanted[key][1], column) for key, column in columns.items() if isinstance(column, list))


def _all_hold(holds: Callable[[Any], bool], column: list[Any]) -> bool:
    """Of numbers of one type the smallest speaks for all: there are only lower bounds."""
    kinds = set(map(type, column))
    return holds(min(column)) if kinds == {int} or kinds == {float} else all(map(holds, column))


_Check = tuple[str, Callable[[Any], bool], bool]


@lru_cache(maxsize=512)
def _checks(reply: type) -> tuple[dict[str, _Check], frozenset[str]]:
    hints = get_type_hints(reply, include_extras=True)
    required = frozenset(key for key, hint in hints.items() if get_origin(hint) is not NotRequired)
    return {key: _check(hint) for key, hint in hints.items()}, required


def _check(hint: Any) -> _Check:
    """How to say what a value has to be, whether one is, and whether that is a plain value."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return _check(args[0])
    if origin is Annotated:
        words, holds, plain = _check(args[0])
        least = next((bound.ge for bound in args[1:] if isinstance(bound, Ge)), None)
        if least is None:
            return words, holds, plain
        return f"{words} from {least} upwards", lambda value: holds(value) and value >= least, plain
    if origin in (Union, UnionType):
        inner = [_check(part) for part in args]
        return (" or ".join(words for words, _, _ in inner), lambda value: any(holds(value) for _, holds, _ in inner),
                all(plain for _, _, plain in inner))
    if hint is type(None):
        return "nothing", lambda value: value is None, True
    if hint is bool:
        return "true or false", lambda value: type(value) is bool, True
    if hint is int:
        return "a whole number", lambda value: type(value) is int, True
    if hint is float:
        return "a number", lambda value: type(value) in (int, float), True
    if hint is str:
        return "a text", lambda value: type(value) is str, True
    if hint is bytes:
        return "bytes", lambda value: isinstance(value, bytes), True
    if origin is np.ndarray or hint is np.ndarray:
        return "an array", lambda value: isinstance(value, np.ndarray), False
    if origin is dict and args[:1] == (str,) and get_origin(args[1]) is np.ndarray:
        return "named arrays", lambda value: isinstance(value, dict) and all(
            isinstance(array, np.ndarray) for array in value.values()), False
    kind = origin or hint
    if isinstance(kind, type) and issubclass(kind, dict):
        return "a table", lambda value: isinstance(value, dict), False
    if isinstance(kind, type) and issubclass(kind, list | tuple | Sequence):
        return "a list", lambda value: isinstance(value, list | tuple), False
    return "a value", lambda value: True, False
