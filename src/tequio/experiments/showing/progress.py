"""How far a run has come, on stderr: a bar with the time left, or a few plain lines where nobody watches."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tequio.experiments.running.headline import main_metric
from tequio.experiments.showing.results import in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.store import Plain


_PLAIN_LINES = 10
_MOST_NAMES = 6
_PREFIXES = ("test.", "parties.", "validation.", "train.")


@contextmanager
def shown(listen: Listener) -> Iterator[Listener]:
    """A listener that shows progress and passes everything on."""
    noted: set[str] = set()
    with _bars() if sys.stderr.isatty() else _lines() as show:
        def hear(kind: str, facts: Plain) -> None:
            if kind != "note" or facts["message"] not in noted:  # baselines say the same of the same columns
                show(kind, facts)
            if kind == "note":
                noted.add(facts["message"])
            listen(kind, facts)

        yield hear


def headline(row: Plain, wanted: str = "") -> str:
    """The most telling number of a round, the run's headline if it was measured: 'test accuracy 0.934'."""
    for prefix in _PREFIXES:
        found = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
        if found:
            metric = main_metric(found, wanted)
            return f"{prefix.rstrip('.')} {metric.replace('_', ' ')} {found[metric]:.4f}"
    return ""


def awaited(facts: Plain) -> str:
    """Whom a run waits for: 'waiting for east (not connected); here: north, south'."""
    reasons: dict[str, list[str]] = {}
    for name, why in facts["missing"].items():
        reasons.setdefault(why, []).append(name)
    groups = [f"{_names(names)} ({why})" for why, names in reasons.items()]
    groups += [f"{facts['more']} more, of any name"] if facts["more"] else []
    return f"waiting for {', '.join(groups)}; here: {_names(facts['there']) or 'none'}"


def _names(names: list[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} others" if rest > 0 else "")


@contextmanager
def _bars() -> Iterator[Callable[[str, Plain], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=20),
               TextColumn("{task.fields[count]}"), TextColumn("[cyan]{task.fields[metric]}"),
               TextColumn("[dim]{task.fields[clock]}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bars(progress).hear


class _Bars:
    """One bar a run, each with the time it still takes or took."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar: TaskID
        self._waiting: TaskID | None = None
        self._awaited = ""
        self._started, self._before, self._total, self._metric, self._headline = 0.0, 0, 0, "", ""

    def hear(self, kind: str, facts: Plain) -> None:
        if kind == "waiting":
            self._wait(facts)
        elif self._waiting is not None:
            self._progress.remove_task(self._waiting)
            self._waiting = None
        if kind == "prepare":
            self._started, self._metric = time.monotonic(), ""
            self._bar = self._progress.add_task(facts["name"], total=None, count="getting ready", metric="", clock="")
        elif kind in ("start", "resume"):
            self._started, self._before, self._total = time.monotonic(), facts.get("round", 0), facts["rounds"]
            self._headline = facts.get("headline", "")
            self._show(self._before, "")
        elif kind == "round":
            self._metric = headline(facts, self._headline) or self._metric
            left = self._elapsed() / (facts["round"] - self._before) * (self._total - facts["round"])
            self._show(facts["round"], f"eta {in_time(left)}")
        elif kind == "stop":
            self._total = facts["round"]
            self._show(facts["round"], f"took {in_time(self._elapsed())}")
        elif kind in _MESSAGES:
            self._progress.console.print(_MESSAGES[kind](facts), highlight=False)

    def _wait(self, facts: Plain) -> None:
        if self._waiting is None:
            self._started = time.monotonic()
            self._waiting = self._progress.add_task(facts["name"], total=None, metric="", clock="",
                                                    count="waiting for parties")
        if self._awaited != awaited(facts):
            self._awaited = awaited(facts)
            self._progress.console.print(self._awaited, markup=False, highlight=False)
        self._progress.update(self._waiting, clock=in_time(self._elapsed()))

    def _show(self, round: int, clock: str) -> None:
        self._progress.update(self._bar, completed=round, total=self._total, metric=self._metric, clock=clock,
                              count=f"{round}/{self._total} rounds")

    def _elapsed(self) -> float:
        return time.monotonic() - self._started


@contextmanager
def _lines() -> Iterator[Callable[[str, Plain], None]]:
    yield _Lines().hear


class _Lines:
    def __init__(self) -> None:
        self._name, self._rounds, self._headline, self._awaited = "", 1, "", ""

    def hear(self, kind: str, facts: Plain) -> None:
        if kind in ("start", "resume"):
            self._name, self._rounds, self._headline = facts["name"], facts["rounds"], facts.get("headline", "")
        elif kind == "round" and self._due(facts["round"]):
            print(f"{self._name}: round {facts['round']} of {self._rounds}  {headline(facts, self._headline)}",
                  file=sys.stderr)
        elif kind == "waiting" and self._awaited != awaited(facts):
            self._awaited = awaited(facts)
            print(f"{facts['name']}: {self._awaited}", file=sys.stderr)
        elif kind in _MESSAGES:
            print(_MESSAGES[kind](facts), file=sys.stderr)

    def _due(self, round: int) -> bool:
        step = max(self._rounds // _PLAIN_LINES, 1)
        return round % step == 0 or round == self._rounds


def _cell(facts: Plain) -> str:
    return (f"cell {facts['number']} of {facts['cells']}: {facts['label']}"
            f"{' (finished before)' if facts['finished'] else ''}")


def _warning(facts: Plain) -> str:
    return f"warning: {facts['message']}"


def _note(facts: Plain) -> str:
    return f"note: {facts['message']}"


_MESSAGES = {"cell": _cell, "warning": _warning, "note": _note}
