"""Tasks: functions that run at a party. Code that the party has installed; only its name is ever sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tequio import registry
from tequio.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    TaskFunction = Callable[[Party, Payload, Mapping[str, Any]], Payload]
    MergeFunction = Callable[[Sequence[Payload]], Payload]


class ManyFunction(Protocol):
    """The same task for many parties in one vectorised call: payload i is what party i would reply alone."""

    def __call__(self, parties: Sequence[Party], payloads: Sequence[Payload],
                 settings: Mapping[str, Any]) -> Sequence[Payload]:
        """Replies in the order of the parties, best as `Columns`; nothing if these had better run one by one."""
        ...


@dataclass(frozen=True)
class Task:
    """A function a party runs next to its own data: (party, payload, settings) -> payload.

    `merge` makes one reply of several, for whoever stands between the parties and the coordinator.
    """

    name: str
    run: TaskFunction
    many: ManyFunction | None = None
    shares_rows: bool = False
    merge: MergeFunction | None = None

    def __call__(self, party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
        """Run it at one party."""
        return self.run(party, payload, settings)


_tasks: dict[str, Task] = {}


def task(name: str, *, many: ManyFunction | None = None, shares_rows: bool = False,
         merge: MergeFunction | None = None) -> Callable[[TaskFunction], Task]:
    """Make a function a task. `shares_rows` marks the rare task whose idea it is to hand over rows (HybridFL)."""

    def declare(function: TaskFunction) -> Task:
        known = _tasks.get(name)
        if known is not None and known.run.__module__ != function.__module__:
            raise ConfigError(f"two tasks claim the name '{name}': {known.run.__module__} and {function.__module__}",
                              remedy="rename one of them")
        declared = Task(name, function, many, shares_rows, merge)
        _tasks[name] = declared
        return declared

    return declare


def find_task(name: str) -> Task:
    """The installed task of that name."""
    if name not in _tasks:
        registry.load_everything()
    if name not in _tasks:
        raise ConfigError(f"no task '{name}' is installed here", remedy=nearest(name, _tasks))
    return _tasks[name]
