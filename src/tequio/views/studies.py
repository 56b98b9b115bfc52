"""Studies: the list of them, tables and curves, what disagrees, and how far runs have come."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tequio.experiments.comparing.values import fits
from tequio.experiments.running.recording import ignore
from tequio.experiments.running.store import explained
from tequio.experiments.running.table import shown as as_text
from tequio.experiments.showing.progress import headline, shown
from tequio.experiments.showing.results import dress, figure_type, line_style
from tequio.studies.answered import claims_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.store import Plain
    from tequio.models.statistics import Ranking
    from tequio.studies.answered import Answered
    from tequio.studies.answers import Decided, Row
    from tequio.studies.claims import Fared
    from tequio.studies.description import Curves
    from tequio.studies.orders import Agreement

    Points = dict[str, dict[str, Row]]
    """Finished cells by what their names say before and after the colon."""


VERDICTS = ("agrees", "better", "worse", "differs", "cannot tell", "other data", "not run")
_STYLES = {"agrees": "green", "better": "green", "met": "green", "worse": "bold yellow", "differs": "bold yellow",
           "not met": "bold yellow", "cannot tell": "dim", "not run": "dim", "confirmed": "green",
           "refuted": "bold yellow", "open": "dim"}


def studies_table(studies: list[Plain]) -> Table:
    """One line a study: what it repeats and how much of it is finished."""
    table = _table("", "study", "title", "source", "finished")
    for study in studies:
        table.add_row(study["study"], study["title"], study["source"], f"{study['finished']} of {study['cells']} cells")
    return table


def verdicts_table(studies: Sequence[Answered]) -> Table:
    """One line a study: how many published numbers came out how, each once."""
    table = _table("", "study", "published", *VERDICTS)
    for one in studies:
        table.add_row(one.study.name, str(one.verdicts.total()), *(str(one.verdicts[name] or "") for name in VERDICTS))
    return table


def claims_table(studies: Sequence[Answered]) -> Table:
    """What the sources conclude, and how it fared."""
    table = _table("", "source", "claim", "fate")
    for source, claim in claims_of(studies):
        table.add_row(source, claim.says, fate_of(claim), style=_STYLES[claim.fate])
    return table


def study_table(title: str, rows: Sequence[Row]) -> Table:
    """`cell | published ± margin | ours (mean ± sd over n seeds) | 90 % interval | verdict`."""
    table = _table(title, "cell", "published", "ours", "90 % interval", "verdict")
    for row in rows:
        verdict = "unpublished" if row.verdict == "no published number" else row.verdict
        table.add_row(row.cell, aim(row), ours(row), ends(row), verdict, style=_STYLES.get(row.verdict, ""))
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
        ranks = mean_ranks(contest, ranking)
        paired = ranking.problems if means.problems == 1 else means.problems  # one problem: its seeds are the pairs
        second = f"{means.p:.3g} (n = {means.problems})" if means.problems > 1 else ""
        table.add_row(contest.name, published, f"{ranking.p:.3g} (n = {ranking.problems})",
                      second if contest.wilcoxon is None else f"{contest.wilcoxon:.3g} (n = {paired})", ranks,
                      f"{ranking.critical_difference:.4f}", "they differ" if ranking.differ else "no difference shown")
    return table


def mean_ranks(contest: Decided, ranking: Ranking) -> str:
    """'aggregation 0 1.525 (published 1.813), ...'; 1 is best."""
    printed = [f" (published {rank:.3f})" for rank in contest.published_ranks] or [""] * len(ranking.methods)
    return ", ".join(f"{method} {rank:.3f}{beside}"
                     for method, rank, beside in zip(ranking.methods, ranking.ranks, printed, strict=True))


def ours(row: Row) -> str:
    """'0.9871 ± 0.0006 (n = 5)'; one seed has no spread, and a cell without runs no number."""
    if row.ours is None:
        return f"never (n = {row.seeds})" if row.never else ""
    # The spread has the digits of the mean: 0.9603 ± 0.0004, but 1.9e-15 ± 6.7e-16.
    spread = "" if row.sd is None else f" ± {row.sd:.4f}" if abs(row.ours) >= 1e-3 else f" ± {as_text(row.sd)}"
    return f"{as_text(row.ours)}{spread} (n = {row.seeds}{f', never in {row.never}' if row.never else ''})"


def aim(row: Row) -> str:
    """'0.9 ± 0.02': the published value and its margin; '≤ 0.55': what is required."""
    if row.required is not None:
        return f"{'≥' if row.direction == 'higher' else '≤' if row.direction == 'lower' else '='} {row.required:g}"
    if row.published is None:
        return ""
    return f"{row.published:g}" + ("" if row.margin is None else f" ± {row.margin:.3g}")


def ends(row: Row) -> str:
    """'0.8931 to 0.9052'; nothing of one seed."""
    return "" if row.low is None or row.high is None else f"{as_text(row.low)} to {as_text(row.high)}"


def disagreements(rows: Sequence[Row]) -> list[str]:
    """One line on each cell that is worse than published or else than it, and on each that could not be run."""
    lines = []
    for row in rows:
        if row.verdict in ("worse", "differs", "not met"):
            lines.append(f"{row.cell}: {remark(row)}")
        elif row.problem:
            lines.append(f"{row.cell}: a run failed: {row.problem}")
    return lines


def remark(row: Row) -> str:
    """One line on a number that disagrees, with what is known about it; else the note of the cell."""
    found = []
    aimed = row.required if row.required is not None else row.published
    if row.verdict in ("worse", "differs", "not met") and aimed is not None:
        if row.never:
            found.append(f"not reached in {row.never} of {row.seeds} seeds")
        elif row.ours is not None:
            found.append(f"{abs(aimed - row.ours):.3g} {'under' if row.ours < aimed else 'over'}")
    repeated = f"counted as {row.repeats}, {row.verdict}" if row.repeats else ""
    return "; ".join(filter(None, (*found, repeated, row.note)))


def ranking_line(found: Agreement) -> str:
    """Whether a table ranks its methods as the source does, in a sentence."""
    spread = "no interval, as cells have one seed" if found.low is None or found.high is None else \
        f"90 % interval {found.low:.2f} to {found.high:.2f}"
    return (f"Same ranking as the source? Kendall's tau-b {found.tau:.2f} ({spread}): {found.alike} of the "
            f"{found.pairs} pairs that the source ranks come out in its order ({', '.join(found.methods)}; "
            f"{found.problems} {'problem' if found.problems == 1 else 'problems'}).")


def fate_of(claim: Fared) -> str:
    """'confirmed', 'refuted (other data)' or 'open (one seed)'."""
    missing = next((one.why for one in claim.statements if one.why), "")
    known = [missing] if claim.fate == "open" and missing else []
    known += ["other data"] if claim.other_data else []
    return claim.fate + (f" ({', '.join(known)})" if known else "")


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
                         min_width=16 if column in ("cell", "claim") else None,
                         no_wrap=column in ("study", "published", "finished"))
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
