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
from annotated_types import Ge, Le
from numpy.typing import NDArray
from typing_extensions import TypeVar

from tequio import registry
from tequio.errors import ConfigError, DataError, nearest
from tequio.federation.payload import R
from tequio.learners.learner import Learner, LocalTraining
from tequio.registry import explain, from_plain, parameter_model, to_plain

if TYPE_CHECKING:
    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party

S = TypeVar("S", default=Any)
C = TypeVar("C", bound=type)

LARGEST_COUNT = 1 << 53
"""Larger whole numbers are not exact in double precision."""

Count = Annotated[int, Ge(0), Le(LARGEST_COUNT)]
"""A whole number from 0 upwards, such as a number of steps."""


class AtMostRows:
    """Bounds a number by the rows that the party reported when it joined, and each entry of an array by `most_rows`."""


def most_rows(reported: int) -> int:
    """The most rows that a party can have that reported a number of them: its policy may report full hundreds, or 1."""
    return LARGEST_COUNT if reported == 1 else reported if reported % 100 else reported + 99


Share = Annotated[float, Ge(0), Le(1)]
"""A number from 0 to 1."""

Rows = Annotated[Count, AtMostRows()]
"""A number of the party's rows."""

Counts = Annotated[NDArray[np.int64], Ge(0), AtMostRows()]
"""Numbers of the party's rows."""

Floats = dict[str, NDArray[np.floating]]
"""Named arrays of floats, such as an update."""


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
    """Reveals sums over rows. `moves` says how far one row can move each entry of the reply (Euclidean length).
    `guarded` tasks hold the party's rows against its owner's rules of small cells before they reply."""

    moves: Callable[[S, Schema], Mapping[str, float]] | None = None
    guarded: bool = False


class ManyFunction(Protocol):
    """The same task for many parties in one vectorised call: payload i is what party i would reply alone."""

    def __call__(self, parties: Sequence[Party], payloads: Sequence[Any], settings: Any) -> Sequence[Any]:
        """Replies in the order of the parties, best as `Columns`; nothing if these had better run one by one."""
        ...


@dataclass(frozen=True)
class Task(Generic[S, R]):
    """A function that a party runs next to its own data: (party, payload, settings) -> reply.

    `merge` makes one reply of several, for an aggregator between the parties and the coordinator. `check` refuses a
    reply that its types allow but that this party cannot have made. `by_training` says that all that the reply reveals
    comes of local training as the settings have it, so that noise on that training is noise on the reply.
    """

    name: str
    run: Callable[[Party, Any, S], R]
    settings: type[S]
    reply: type[R]
    reveals: Reveals | Sums[S]
    many: ManyFunction | None = None
    merge: Callable[[Sequence[R]], R] | None = None
    check: Callable[[R, Federation, int], object] | None = None
    by_training: bool = False

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
         merge: Callable[[Sequence[R]], R] | None = None, check: Callable[[R, Federation, int], object] | None = None,
         by_training: bool = False) -> Callable[[Callable[[Party, Any, S], R]], Task[S, R]]:
    """Make a function a task, with the types of its settings and its reply and what the reply tells about rows."""

    def declare(function: Callable[[Party, Any, S], R]) -> Task[S, R]:
        known = _tasks.get(name)
        if known is not None and known.run.__module__ != function.__module__:
            raise ConfigError(f"two tasks claim the name '{name}': {known.run.__module__} and {function.__module__}",
                              remedy="rename one of them")
        declared = Task(name, function, settings, reply, reveals, many, merge, check, by_training)
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


def fault_of(reply: type, content: Mapping[str, Any], *, withheld: frozenset[str] | None = None,
             rows: int | None = None) -> str:
    """What is wrong with a reply of a declared type; empty if nothing is.

    Behind stages arrays have another form, and stages may add entries: only plain values are looked at. `withheld` are
    the entries that stages leave out; nothing where there are no stages. `rows` is how many the party reported; at the
    party itself nothing is held against it.
    """
    if not isinstance(content, dict):
        return f"a payload is a dict of names, not a {type(content).__name__}"
    if not is_typeddict(reply):
        return ""
    wanted, required = _checks(reply)
    for key in required:
        if key not in content and key not in (withheld or ()):
            return f"its reply has no '{key}'"
    for key, value in content.items():
        check = wanted.get(key)
        if check is None:
            if withheld is not None:
                continue
            return f"its reply has an entry '{key}' that this task does not give"
        if check.plain or withheld is None:
            if not check.holds(value):
                return f"'{key}' of its reply is not {check.words}"
            if check.rows and rows is not None and _above(value, rows):
                return f"'{key}' of its reply is {_largest(value)}, but the party reported {rows} rows"
    return ""


def fault_of_columns(reply: type, columns: Mapping[str, Any], rows: NDArray[np.int64] | None = None) -> bool:
    """Whether replies that lie column by column may be wrong, so that each has to be looked at alone."""
    if not is_typeddict(reply):
        return False
    wanted, required = _checks(reply)
    if not columns.keys() >= required or not wanted.keys() >= columns.keys():
        return True
    return any(not _all_hold(wanted[key], column, rows) for key, column in columns.items() if isinstance(column, list))


def _all_hold(check: _Check, column: list[Any], rows: NDArray[np.int64] | None) -> bool:
    """Of numbers of one type the smallest and the largest speak for all: there are only bounds."""
    kinds = set(map(type, column))
    held = check.holds(min(column)) and check.holds(max(column)) if kinds == {int} or kinds == {float} else \
        all(map(check.holds, column))
    if not held or not check.rows or rows is None:
        return held
    return not any(map(_above, column, rows.tolist()))


def _above(value: Any, rows: int) -> bool:
    return _largest(value) > (most_rows(rows) if isinstance(value, np.ndarray) else rows)


def _largest(value: Any) -> int:
    return int(value.max(initial=0)) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class _Check:
    """How to say what a value has to be, whether one is, whether that is a plain value, and whether the party's rows
    bound it."""

    words: str
    holds: Callable[[Any], bool]
    plain: bool
    rows: bool = False


@lru_cache(maxsize=512)
def _checks(reply: type) -> tuple[dict[str, _Check], frozenset[str]]:
    hints = get_type_hints(reply, include_extras=True)
    required = frozenset(key for key, hint in hints.items() if get_origin(hint) is not NotRequired)
    return {key: _check(hint) for key, hint in hints.items()}, required


_PLAIN = {type(None): _Check("nothing", lambda value: value is None, plain=True),
          bool: _Check("true or false", lambda value: type(value) is bool, plain=True),
          int: _Check("a whole number", lambda value: type(value) is int, plain=True),
          float: _Check("a number", lambda value: type(value) in (int, float), plain=True),
          str: _Check("a text", lambda value: type(value) is str, plain=True),
          bytes: _Check("bytes", lambda value: isinstance(value, bytes), plain=True)}


def _check(hint: Any) -> _Check:
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is NotRequired:
        return _check(args[0])
    if origin is Annotated:
        return _bounded(_check(args[0]), args[1:])
    if origin in (Union, UnionType):
        inner = [_check(part) for part in args]
        return _Check(" or ".join(part.words for part in inner), lambda value: any(part.holds(value) for part in inner),
                      all(part.plain for part in inner))
    if origin is np.ndarray or hint is np.ndarray:
        kind, words = _kind_of(args)
        return _Check(f"an array{words}", lambda value: _is_array(value, kind), plain=False)
    if is_typeddict(hint):
        return _Check("a table", lambda value: not fault_of(hint, value), plain=False)
    if origin is dict and args[:1] == (str,):
        return _named(args[1])
    if isinstance(origin or hint, type) and issubclass(origin or hint, dict):
        return _Check("a table", lambda value: isinstance(value, dict), plain=False)
    if isinstance(origin or hint, type) and issubclass(origin or hint, list | tuple | Sequence):
        item = _check(args[0]) if args else _ANYTHING
        return _Check("a list" if item is _ANYTHING else f"a list, of which each is {item.words}",
                      lambda value: isinstance(value, list | tuple) and all(map(item.holds, value)), plain=False)
    return _ANYTHING


_ANYTHING = _Check("a value", lambda value: True, plain=False)


def _bounded(check: _Check, bounds: Sequence[Any]) -> _Check:
    """The same with bounds, which hold for each entry of an array."""
    least: Any = next((bound.ge for bound in bounds if isinstance(bound, Ge)), None)
    most: Any = next((bound.le for bound in bounds if isinstance(bound, Le)), None)

    def within(value: Any) -> bool:
        if not check.holds(value):
            return False
        low, high = (value.min(initial=least), _largest(value)) if isinstance(value, np.ndarray) else (value, value)
        return (least is None or low >= least) and (most is None or high <= most)

    words = check.words + ("" if least is None else f" from {least} upwards") + (f", {most} at most" if most else "")
    return _Check(words, within, check.plain, any(isinstance(bound, AtMostRows) for bound in bounds))


def _named(hint: Any) -> _Check:
    """A dict of values of one type."""
    if get_origin(hint) is np.ndarray or hint is np.ndarray:
        kind, words = _kind_of(get_args(hint))
        return _Check(f"named arrays{words}", lambda value: isinstance(value, dict) and all(
            _is_array(array, kind) for array in value.values()), plain=False)
    item = _check(hint)
    return _Check("a table" if item is _ANYTHING else f"a table, in which each entry is {item.words}",
                  lambda value: isinstance(value, dict) and all(map(item.holds, value.values())), plain=False)


def _kind_of(args: tuple[Any, ...]) -> tuple[Any, str]:
    """The type of an array's numbers, and how to say it; any type where none is declared."""
    kind = get_args(args[1])[0] if len(args) > 1 else Any
    if kind is Any or kind is np.generic:
        return None, ""
    return kind, f" of {_KINDS_OF_NUMBERS.get(kind, kind.__name__)}"


_KINDS_OF_NUMBERS: dict[Any, str] = {np.floating: "floats", np.unsignedinteger: "unsigned whole numbers"}


def _is_array(value: Any, kind: Any) -> bool:
    return isinstance(value, np.ndarray) and (kind is None or np.issubdtype(value.dtype, kind))
