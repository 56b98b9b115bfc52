"""Timing: repeats of several contestants taken in turn, the best of each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def best_in_turn(contestants: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best time of each contestant; they take turns, so that a busy spell of the machine meets all alike."""
    for work in contestants.values():
        work()
    times = [{name: seconds(work) for name, work in contestants.items()} for _ in range(repeats)]
    return {name: min(turn[name] for turn in times) for name in contestants}
