"""Results that wait at an aggregator until those of their whole group are there, and leave as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tequio.engines.network.transfers import Part
from tequio.engines.network.wire import Merged
from tequio.errors import ConfigError, TequioError
from tequio.federation import payload as payloads
from tequio.federation.task import find_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tequio.engines.network.wire import Result, Work
    from tequio.federation.payload import Payload

    Merge = Callable[[Sequence[Payload]], Payload]
    Key = tuple[str, str, int, tuple[str, ...], bytes]

_MOST = 64


@dataclass
class _Group:
    """A merge under way: of whom it is, what was asked, and what is there."""

    merge: Merge
    expected: set[str]
    works: dict[str, Work] = field(default_factory=dict)
    results: dict[str, tuple[float, Payload]] = field(default_factory=dict)


class Gathering:
    """The merges of all runs. What was lost with an aggregator is asked for again, and parties answer from journals."""

    def __init__(self) -> None:
        self._groups: dict[Key, _Group] = {}

    def expect(self, name: str, work: Work, parts: Sequence[bytes | memoryview], members: Collection[str]) -> None:
        """A task goes to a party; if its results are merged, they are from now on."""
        merge = _merge_of(work.task)
        if merge is None:
            return
        together = tuple(map(str, payloads.decode(parts[2]).get("together", ()))) if parts[2] else ()
        key = (work.run, work.task, work.round, together, sha256(parts[1]).digest())
        if key not in self._groups:
            while len(self._groups) >= _MOST:
                del self._groups[next(iter(self._groups))]
            self._groups[key] = _Group(merge, {other for other in together if other in members})
        group = self._groups[key]
        group.works[name] = work
        group.results.pop(name, None)

    def take(self, name: str, result: Result, content: bytes | memoryview) -> str | None:
        """Keep a result that is to be merged: what is wrong with it, if anything. None: it is to go on as it is."""
        group = self._of(name, result.run, result.position)
        if group is None or group.works[name].digest != result.digest:
            return None
        try:
            payload = payloads.decode(content, shared=True)
            group.merge([payload])
        except (TequioError, KeyError, TypeError, ValueError, AttributeError) as cause:
            self.leave(name, result.run, result.position)
            return f"its result cannot be merged: {cause}"
        group.results[name] = (result.seconds, payload)
        return ""

    def leave(self, name: str, run: str, position: int) -> None:
        """Wait no longer for a party."""
        group = self._of(name, run, position)
        if group is not None:
            group.expected.discard(name)
            group.works.pop(name, None)

    def forget(self, run: str) -> None:
        """A run is over."""
        self._groups = {key: group for key, group in self._groups.items() if key[0] != run}

    def ready(self) -> list[tuple[Merged, Part]]:
        """The merges that are complete, each once."""
        done = [key for key, group in self._groups.items() if group.expected and group.results.keys() >= group.expected]
        return [_merged(key, self._groups.pop(key)) for key in done]

    def _of(self, name: str, run: str, position: int) -> _Group | None:
        return next((group for key, group in self._groups.items() if key[0] == run and name in group.works
                     and group.works[name].position == position), None)


def _merged(key: Key, group: _Group) -> tuple[Merged, Part]:
    """In the order in which the coordinator named the parties, so that sums do not depend on who was fastest."""
    names = [name for name in key[3] if name in group.expected]
    merged = group.merge([group.results[name][1] for name in names])
    content = Part(*payloads.encode_pieces(merged), lasting=True)
    answers = tuple((name, group.works[name].position, group.works[name].digest) for name in names)
    return Merged(key[0], answers, max(group.results[name][0] for name in names), content.place), content


def _merge_of(task: str) -> Any:
    try:
        return find_task(task).merge
    except ConfigError:
        return None  # a task of a plugin that only the parties have
