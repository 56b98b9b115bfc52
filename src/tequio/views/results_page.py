"""The page of results: every table of the sources, published beside ours, from the numbers that are kept."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from typing import TYPE_CHECKING

from tequio.views.studies import ours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.experiments.studies.answers import Row
    from tequio.experiments.studies.contests import Decided
    from tequio.experiments.studies.description import Study
    from tequio.experiments.studies.keeping import Kept

VERDICTS = ("reached", "below", "differs", "not comparable", "not run")


def study_part(study: Study, kept: Kept, rows: Sequence[Row], contests: Sequence[Decided]) -> str:
    """One study: its table of cells with published values, its contests, and what to know about them."""
    published = [row for row in rows if row.published is not None]
    others = len(rows) - len(published)
    parts = [f"### {study.title}", f"{study.source}. {_made(kept)}"]
    if published:
        cells = [[row.cell, f"{row.published:g}", ours(row), row.verdict, remark(row)] for row in published]
        parts.append(_table(["cell", "published", "ours", "verdict", "remark"], cells))
    if contests:
        parts.append(_table(["contest", "published p", "ours", "p of means", "mean ranks", "verdict"],
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
    return _table(["study", "published numbers", *VERDICTS], [*lines, totals])


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


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in (columns, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def _cell(text: str) -> str:
    """Text that Markdown takes as it stands."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("\n", " ") \
        .replace("<", "&lt;")
