"""Studies for a terminal: the list of them, a study's table, what disagrees, and how far the runs have come."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tequio.experiments.recording import ignore
from tequio.experiments.table import shown as as_text
from tequio.views.progress import headline, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress
    from rich.table import Table

    from tequio.experiments.recording import Listener
    from tequio.experiments.studies.answers import Row
    from tequio.experiments.studies.contests import Decided

_STYLES = {"reached": "green", "below": "bold yellow", "differs": "bold yellow", "not run": "dim"}


def studies_table(studies: list[dict[str, Any]]) -> Table:
    """One line a study: what it repeats and how much of it is finished."""
    table = _table("", "study", "title", "source", "finished")
    for study in studies:
        table.add_row(study["study"], study["title"], study["source"], f"{study['finished']} of {study['cells']} cells")
    return table


def verdicts_table(studies: list[tuple[str, list[Row]]]) -> Table:
    """One line a study: how many of its cells came out how."""
    titles = {"reached": "reached", "below": "below", "differs": "differs", "not comparable": "other data",
              "no published number": "unpublished", "not run": "not run"}
    table = _table("", "study", "cells", *titles.values())
    for name, rows in studies:
        counts = Counter(str(row.verdict) for row in rows)
        table.add_row(name, str(len(rows)), *(str(counts[verdict] or "") for verdict in titles))
    return table


def study_table(title: str, rows: list[Row]) -> Table:
    """`cell | published | ours (mean ± sd over n seeds) | verdict`."""
    table = _table(title, "cell", "published", "ours", "verdict")
    for row in rows:
        published = "" if row.published is None else f"{row.published:g}"
        table.add_row(row.cell, published, ours(row), row.verdict, style=_STYLES.get(row.verdict, ""))
    return table


def contests_table(title: str, contests: list[Decided]) -> Table:
    """Friedman's p as published and as found, over seeds and over means, and the mean ranks (1 is best)."""
    table = _table(title, "contest", "published p", "p", "p of means / pairs", "mean ranks", "CD", "verdict")
    for contest in contests:
        ranking, means = contest.ranking, contest.by_means
        published = "" if contest.published is None else f"{contest.published:.3g}"
        if ranking is None or means is None:
            table.add_row(contest.name, published, "", "", "", "", "not run", style="dim")
            continue
        ranks = ", ".join(f"{method} {rank:.3f}" for method, rank in zip(ranking.methods, ranking.ranks, strict=True))
        paired = ranking.problems if means.problems == 1 else means.problems  # one problem: its seeds are the pairs
        second = f"{means.p:.3g} (n = {means.problems})" if means.problems > 1 else ""
        table.add_row(contest.name, published, f"{ranking.p:.3g} (n = {ranking.problems})",
                      second if contest.wilcoxon is None else f"{contest.wilcoxon:.3g} (n = {paired})", ranks,
                      f"{ranking.critical_difference:.4f}", "they differ" if ranking.differ else "no difference shown")
    return table


def ours(row: Row) -> str:
    """'0.9871 ± 0.0006 (n = 5)'; one seed has no spread, and a cell without runs no number."""
    if row.ours is None:
        return f"never (n = {row.seeds})" if row.never else ""
    # The spread has the digits of the mean: 0.9603 ± 0.0004, but 1.9e-15 ± 6.7e-16.
    spread = "" if row.sd is None else f" ± {row.sd:.4f}" if abs(row.ours) >= 1e-3 else f" ± {as_text(row.sd)}"
    return f"{as_text(row.ours)}{spread} (n = {row.seeds}{f', never in {row.never}' if row.never else ''})"


def disagreements(rows: list[Row]) -> list[str]:
    """One line on each cell that is worse than published, and on each that could not be run."""
    lines = []
    for row in rows:
        if row.verdict in ("below", "differs") and row.never:
            lines.append(f"{row.cell}: not reached in {row.never} of {row.seeds} seeds (published {row.published:g})")
        elif row.verdict in ("below", "differs") and row.ours is not None and row.published is not None:
            worse = "under" if row.ours < row.published else "over"
            lines.append(f"{row.cell}: {as_text(row.ours)} is {as_text(abs(row.published - row.ours))} {worse} the "
                         f"published {row.published:g} (tolerance {row.tolerance:g})"
                         f"{f'; {row.note}' if row.note else ''}")
        elif row.problem:
            lines.append(f"{row.cell}: a run failed: {row.problem}")
    return lines


@contextmanager
def cells_progress() -> Iterator[Listener]:
    """A bar over the runs with the current one beside it; plain lines where stderr is no terminal."""
    if not sys.stderr.isatty():
        with shown(ignore) as listen:
            yield listen
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    current = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (BarColumn(bar_width=16), MofNCompleteColumn(), TextColumn("runs"), TimeElapsedColumn(),
               TextColumn("eta"), TimeRemainingColumn(),
               TextColumn("[cyan]{task.description}", table_column=current))
    with Progress(*columns, console=Console(stderr=True), expand=True) as progress:
        yield _Bar(progress).hear


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self._progress, self._label, self._rounds = progress, "", 0
        self._task = progress.add_task("", total=None)

    def hear(self, kind: str, facts: dict[str, Any]) -> None:
        if kind == "cell":
            self._label = facts["label"]
            self._progress.update(self._task, total=facts["cells"], completed=facts["number"] - 1,
                                  description=self._label)
        elif kind in ("start", "resume"):
            self._rounds = facts["rounds"]
        elif kind == "round":
            self._progress.update(self._task, description=f"{self._label}: round {facts['round']} of {self._rounds}  "
                                                          f"{headline(facts)}")
        elif kind == "stop":
            self._progress.advance(self._task)
        elif kind == "warning":
            self._progress.console.print(f"warning: {facts['message']}", style="yellow", highlight=False)


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold",
                  header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in ("published", "ours", "finished") else "left",
                         no_wrap=column in ("study", "published", "ours", "verdict", "finished"))
    return table
