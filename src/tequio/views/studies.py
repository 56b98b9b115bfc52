"""Studies: the list of them, tables and curves, what disagrees, how far runs have come, and the page of results."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from math import sqrt
from typing import TYPE_CHECKING

from tequio.experiments.comparing.values import fits
from tequio.experiments.running.recording import ignore
from tequio.experiments.running.store import explained
from tequio.experiments.running.table import shown as as_text
from tequio.experiments.showing.progress import headline, shown
from tequio.experiments.showing.results import dress, figure_type, line_style

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.store import Plain
    from tequio.studies.answers import Decided, Row
    from tequio.studies.description import Curves, Study
    from tequio.studies.keeping import Kept

    Points = dict[str, dict[str, Row]]
    """Finished cells by what their names say before and after the colon."""


_STYLES = {"reached": "green", "below": "bold yellow", "differs": "bold yellow", "not run": "dim"}


def studies_table(studies: list[Plain]) -> Table:
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
        self._progress, self._label, self._rounds, self._headline = progress, "", 0, ""
        self._task = progress.add_task("", total=None)

    def hear(self, kind: str, facts: Plain) -> None:
        if kind == "cell":
            self._label = facts["label"]
            self._progress.update(self._task, total=facts["cells"], completed=facts["number"] - 1,
                                  description=self._label)
        elif kind in ("start", "resume"):
            self._rounds, self._headline = facts["rounds"], facts.get("headline", "")
        elif kind == "round":
            self._progress.update(self._task, description=f"{self._label}: round {facts['round']} of {self._rounds}  "
                                                          f"{headline(facts, self._headline)}")
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


def save_curves(rows: Sequence[Row], curves: Curves, path: Path, *, title: str = "") -> bool:
    """Draw what is finished, with the spread over seeds as bars; whether there was anything to draw."""
    points = _points(rows)
    if not any(curves.x in cells for cells in points.values()):
        return False
    figure = figure_type()(figsize=(4.6 * len(curves.y), 4.2), layout="constrained", dpi=130)
    panels = figure.subplots(1, len(curves.y), squeeze=False)[0]
    for axes, quantity in zip(panels, curves.y, strict=True):
        for position, (name, pattern) in enumerate(curves.lines.items()):
            line = sorted((cells for group, cells in points.items() if fits(group, pattern) and
                           {curves.x, quantity} <= cells.keys()), key=lambda cells: cells[curves.x].ours or 0.0)
            colour, style = line_style(position)
            axes.errorbar([cells[curves.x].ours for cells in line], [cells[quantity].ours for cells in line],
                          yerr=[cells[quantity].sd or 0.0 for cells in line], fmt=style, marker="o", color=colour,
                          markersize=4, linewidth=1.4, capsize=2, label=name)
        axes.set_xscale("log", base=2)
        dress(axes, quantity, curves.x)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return True


def _points(rows: Sequence[Row]) -> Points:
    points: Points = {}
    for row in rows:
        group, _, quantity = row.cell.rpartition(": ")
        if row.ours is not None:
            points.setdefault(group, {})[quantity] = row
    return points


VERDICTS = ("reached", "below", "differs", "not comparable", "not run")


def study_part(study: Study, kept: Kept, rows: Sequence[Row], contests: Sequence[Decided]) -> str:
    """One study: its table of cells with published values, its contests, and what to know about them."""
    published = [row for row in rows if row.published is not None]
    others = len(rows) - len(published)
    parts = [f"### {study.title}", f"{study.source}. {_made(kept)}"]
    if published:
        cells = [[row.cell, f"{row.published:g}", ours(row), row.verdict, remark(row)] for row in published]
        parts.append(_page_table(["cell", "published", "ours", "verdict", "remark"], cells))
    if contests:
        parts.append(_page_table(["contest", "published p", "ours", "p of means", "mean ranks", "verdict"],
                            [_contest(contest) for contest in contests]))
    if others:
        finished = sum(bool(row.seeds) for row in rows if row.published is None)
        parts.append(f"{others} more cells have no published number ({finished} are run): "
                     f"`tequio reproduce {study.name} --stored`.")
    if study.notes:
        parts.append("\n".join(f"- {_cell(note)}" for note in study.notes))
    return "\n\n".join(parts)


def summary_part(studies: Sequence[tuple[Study, Sequence[Row]]]) -> str:
    """One line a study: how many published numbers it has and what became of them."""
    lines = []
    for study, rows in studies:
        counts = Counter(str(row.verdict) for row in rows if row.published is not None)
        if counts:
            lines.append([study.name, str(sum(counts.values())), *(str(counts[verdict] or "") for verdict in VERDICTS)])
    totals = ["all", *(str(sum(int(line[place] or 0) for line in lines)) for place in range(1, len(VERDICTS) + 2))]
    return _page_table(["study", "published numbers", *VERDICTS], [*lines, totals])


def remark(row: Row) -> str:
    """One line on a number that disagrees, with what is known about it; else the note of the cell."""
    told = []
    if row.verdict in ("below", "differs") and row.published is not None:
        if row.never:
            told.append(f"not reached in {row.never} of {row.seeds} seeds")
        elif row.ours is not None:
            side = "under" if row.ours < row.published else "over"
            told.append(f"{abs(row.published - row.ours):.4g} {side} (tolerance {row.tolerance:g})"
                        + (", within two standard errors" if _within_chance(row) else ""))
    return "; ".join([*told, *([row.note] if row.note else [])])


def _within_chance(row: Row) -> bool:
    """Whether the distance is one that other seeds could close."""
    return row.sd is not None and row.ours is not None and row.published is not None and \
        abs(row.published - row.ours) <= 2 * row.sd / sqrt(row.seeds)


def _contest(contest: Decided) -> list[str]:
    published = "" if contest.published is None else f"{contest.published:.3g}"
    ranking, means = contest.ranking, contest.by_means
    if ranking is None or means is None:
        return [contest.name, published, "", "", "", "not run"]
    ranks = ", ".join(f"{method} {rank:.3f}" for method, rank in zip(ranking.methods, ranking.ranks, strict=True))
    p_of_means = means.p if contest.wilcoxon is None else contest.wilcoxon
    return [contest.name, published, f"{ranking.p:.3g} (n = {ranking.problems})",
            f"{p_of_means:.3g} (n = {means.problems})", f"{ranks}; CD {ranking.critical_difference:.4f}",
            "they differ" if ranking.differ else "no difference shown"]


def _made(kept: Kept) -> str:
    if not kept.cells and not kept.contests:
        return "Not run."
    dates, commits = kept.dates, kept.commits
    when = f"Runs of {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "") if dates else "Run"
    return f"{when}, kept at commit {', '.join(commits)}." if commits else f"{when}."


def _page_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in (columns, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def _cell(text: str) -> str:
    """Text that Markdown takes as it stands."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("\n", " ") \
        .replace("<", "&lt;")
