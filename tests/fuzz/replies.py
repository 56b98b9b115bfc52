"""Structure-aware fuzzing of what parties reply: replies of the declared types, with one thing in them that is wrong.

The whole count by hand: python tests/fuzz/replies.py 100000
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.errors import PayloadError
from tequio.federation import payload as payloads
from tequio.federation.evaluation import check_own_tally
from tequio.federation.exchange import Outcome, Reply
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population
from tequio.federation.task import AtMostRows, installed_tasks
from tequio.learners.learner import Tally
from tequio.learners.metrics import check_tally, tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.federation.exchange import Order
    from tequio.federation.task import AnyTask

ROWS = 40
"""How many rows each party reported."""

NUMBERS: list[Any] = [
    -5, -1, ROWS + 1, 1 << 53, 1 << 62, -(1 << 62), 1e300, -1e300, 3e38, -0.5, 2.5, float("nan"), float("inf"),
    float("-inf"), True, None, "12", "NaN", b"\x00", "", [], {}, [1, 2], {"rows": 3}, "x" * 1000]
"""What may stand where a number belongs; some of it is a number."""


def arrays(rng: np.random.Generator) -> np.ndarray:
    """An array that may be of any type, shape and content."""
    shape = tuple(rng.integers(0, 4, rng.integers(0, 4)).tolist())
    kind = rng.choice(sorted(payloads.DTYPES, key=str))
    values = rng.choice([0.0, 1.0, -1.0, 3e38, 1e300, 60000.0, float("nan"), float("inf"), 2.0**62], shape)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(kind)


def nonsense(rng: np.random.Generator, depth: int = 0) -> Any:
    """Something that may cross."""
    choice = int(rng.integers(0, 5 if depth < 3 else 3))
    if choice < 2:
        return NUMBERS[int(rng.integers(len(NUMBERS)))]
    if choice == 2:
        return arrays(rng)
    inner = [nonsense(rng, depth + 1) for _ in range(int(rng.integers(0, 4)))]
    return inner if choice == 3 else {f"{index}": value for index, value in enumerate(inner)}


def sound(hint: Any) -> Any:
    """A value of a declared type."""
    origin, args = get_origin(hint), get_args(hint)
    plain = {int: 3, float: 0.5, str: "text", bytes: b"bytes", bool: True, type(None): None}
    if hint in plain:
        return plain[hint]
    if origin in (NotRequired, Annotated, Union, UnionType):
        return sound(args[0])
    if is_typeddict(hint):
        return {key: sound(inner) for key, inner in get_type_hints(hint, include_extras=True).items()}
    if origin is np.ndarray or hint is np.ndarray:
        kind = get_args(args[1])[0] if len(args) > 1 else Any
        concrete = {Any: np.float64, np.generic: np.float64, np.floating: np.float64, np.unsignedinteger: np.uint32}
        return np.ones(3, concrete.get(kind, kind))
    if origin is dict and get_origin(args[1]) is np.ndarray:
        return {"w": sound(args[1])}
    if isinstance(origin or hint, type) and issubclass(origin or hint, dict):
        return {} if not args or args[1] is Any else {"one": sound(args[1])}
    return [sound(args[0])] if args else []


TARGETS = (Target("classes", ("no", "yes")), Target("classes", tuple("abcd")), Target("multilabel", tuple("xyz")),
           Target("number"), Target("none"))


@cache
def _tally_of(target: Target) -> dict[str, Any]:
    """The tally of ten rows."""
    rng = np.random.default_rng(1)
    size = max(len(target.names), 1)
    scores = rng.random((10, size))
    if target.kind == "classes":
        return dict(tally(target, scores / scores.sum(axis=1, keepdims=True), rng.integers(0, size, 10)))
    if target.kind == "multilabel":
        return dict(tally(target, scores, rng.random((10, size)) > 0.5))
    return dict(tally(target, scores[:, 0], rng.random(10) if target.kind == "number" else None))


def valid(task: AnyTask, target: Target) -> dict[str, Any]:
    """A reply that looks right."""
    if task.reply is Tally:
        return _tally_of(target)
    return sound(task.reply) if is_typeddict(task.reply) else {}


def changed(value: Any, rng: np.random.Generator) -> Any:
    """The same with one thing in it that is not as it was: a key, a type, a number, a shape."""
    if isinstance(value, dict) and rng.random() < 0.95:
        if not value:
            return {"surplus": nonsense(rng)}
        key = list(value)[int(rng.integers(len(value)))]
        choice = int(rng.integers(0, 8))
        if choice == 0:
            return {name: inner for name, inner in value.items() if name != key}
        if choice == 1:
            return {**value, "surplus": nonsense(rng)}
        return {**value, key: changed(value[key], rng)}
    if isinstance(value, np.ndarray) and rng.random() < 0.8:
        return _changed_array(value, rng)
    if isinstance(value, list) and value and rng.random() < 0.6:
        place = int(rng.integers(len(value)))
        return [*value[:place], changed(value[place], rng), *value[place + 1:]]
    return nonsense(rng)


def _changed_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    choice = int(rng.integers(0, 4))
    if choice == 0:
        with np.errstate(all="ignore"):
            return array.astype(rng.choice(sorted(payloads.DTYPES, key=str)))
    if choice == 1:
        return np.concatenate([array.reshape(-1), array.reshape(-1)[:1]])
    if choice == 2:
        return array[None]
    worse = array.copy().reshape(-1)
    if worse.size:
        bad = [-1, 1 << 62, ROWS + 1] if array.dtype.kind in "iu" else [np.nan, np.inf, -np.inf, 3e38, -1.0]
        with np.errstate(all="ignore"):
            worse[int(rng.integers(worse.size))] = np.array(bad[int(rng.integers(len(bad)))]).astype(array.dtype)
    return worse.reshape(array.shape)


class Forging:
    """An engine whose party 1 replies what it is told to; the others are honest."""

    def __init__(self) -> None:
        self.honest: dict[str, Any] = {}
        self.forged: Any = {}
        self._orders: list[Order] = []

    def open(self, population: Population) -> None:
        """Nothing to do."""

    def submit(self, order: Order) -> None:
        """Remember what was asked."""
        self._orders.append(order)

    def collect(self) -> Outcome:
        """Everybody's answer."""
        order = self._orders.pop()
        return Outcome(order.ticket, tuple(Reply(party, self.forged if party == 1 else self.honest)
                                           for party in order.parties))


@cache
def federations() -> dict[str, Federation]:
    """A federation of three parties for each kind of target."""
    found = {}
    for target in TARGETS:
        kind = {"classes": np.int64, "multilabel": np.int8}.get(target.kind, np.float64)
        values = np.zeros((3 * ROWS, len(target.names)) if target.kind == "multilabel" else 3 * ROWS, kind)
        dataset = Dataset.of(Schema.of_numbers("ab", target), np.zeros((3 * ROWS, 2)),
                             None if target.kind == "none" else values)
        people = Population(dataset, Partition.of(np.split(np.arange(3 * ROWS), 3)), Split(0.0, 0.0))
        found[f"{target.kind} {len(target.names)}"] = Federation(people, Forging(), 0, Rules(on_failure="continue",
                                                                                            quorum=0.5))
    return found


@dataclass(frozen=True)
class Found:
    """What came of a forged reply: why its party failed, or what of it was accepted."""

    cause: str = ""
    accepted: Any = None


def asked(task: AnyTask, federation: Federation, honest: Any, forged: Any) -> Found:
    """Ask three parties, one of which replies what was forged. The others' replies have to come through."""
    engine: Any = federation.engine
    engine.honest, engine.forged = honest, forged
    bare = replace(task, run=task.run, settings=_Nothing)
    replies = federation.ask([0, 1, 2], bare, settings=_Nothing())
    assert set(replies.parties.tolist()) >= {0, 2}, f"{task.name}: an honest party was refused"
    if replies.failures:
        (failure,) = replies.failures
        assert failure.party == 1
        assert "cannot be checked" not in failure.cause, f"{task.name}: {failure.cause}"
        return Found(failure.cause)
    return Found(accepted=replies.of(1))


@dataclass(frozen=True)
class _Nothing:
    """The settings of no task: what is asked does not run."""


def out_of_range(hint: Any, value: Any) -> str:
    """A number in an accepted reply that no party can mean: not finite, negative, or of more rows than it has."""
    origin, args = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        return next(filter(None, (out_of_range(hints[key], inner) for key, inner in value.items())), "")
    if origin is NotRequired:
        return out_of_range(args[0], value)
    if isinstance(value, float | np.ndarray) and not np.isfinite(value).all():
        return f"{value!r} is not finite"
    if origin is Annotated:
        most = ROWS if any(isinstance(bound, AtMostRows) for bound in args[1:]) else 1 << 53
        if not (np.asarray(value) >= 0).all() or not (np.asarray(value) <= most).all():
            return f"{value!r} is not from 0 to {most}"
    return ""


def run(count: int, seed: int = 0, say: Callable[[str], object] = print) -> dict[str, int]:
    """So many forged replies, dealt to all tasks in turn; how many were refused, cut or accepted."""
    rng, tasks = np.random.default_rng(seed), [task for task in installed_tasks() if task.name in _names()]
    worlds = list(federations().values())
    outcomes = {"refused": 0, "accepted": 0, "not even a payload": 0}
    for number in range(count):
        task, world = tasks[number % len(tasks)], worlds[int(rng.integers(len(worlds)))]
        honest = valid(task, world.schema.target)
        forged = changed(honest, rng)
        for _ in range(int(rng.integers(0, 2))):
            forged = changed(forged, rng)
        try:
            forged = payloads.decode(payloads.encode(forged))  # as it comes over a link
        except PayloadError:
            outcomes["not even a payload"] += 1
            continue
        found = asked(task, world, honest, forged)
        outcomes["refused" if found.cause else "accepted"] += 1
        if not found.cause:
            wrong = out_of_range(task.reply, found.accepted)
            assert not wrong, f"{task.name} accepted {wrong}"
            if task.reply is Tally:
                most = ROWS if task.check is check_own_tally else 1 << 53
                check_tally(world.schema.target, found.accepted, most, "party '1'")
    say(str(outcomes))
    return outcomes


@cache
def _names() -> frozenset[str]:
    """The package's own tasks, whatever tests have declared."""
    return frozenset(task.name for task in installed_tasks() if task.run.__module__.startswith("tequio."))


if __name__ == "__main__":
    started = time.perf_counter()
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    print(f"{time.perf_counter() - started:.0f} s")
