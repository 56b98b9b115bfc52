"""The page of results in Markdown: claims of the sources, counts of verdicts, requirements, and a table a study."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tequio.experiments.running.table import shown as as_text
from tequio.studies.answered import claims_of
from tequio.views.studies import VERDICTS, aim, ends, fate_of, mean_ranks, ours, ranking_line, remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.studies.answered import Answered
    from tequio.studies.answers import Decided
    from tequio.studies.claims import Checked
    from tequio.studies.keeping import Kept


def study_part(one: Answered, kept: Kept) -> str:
    """One study: its table of published values, its contests, its rankings, and what to know about them."""
    published = [row for row in one.rows if row.published is not None]
    others = [row for row in one.rows if row.published is None and row.required is None]
    parts = [f"### {one.study.title}", f"{one.study.source}. {_made(kept)}"]
    if published:
        cells = [[row.cell, aim(row), ours(row), ends(row), "repeats" if row.repeats else row.verdict, remark(row)]
                 for row in published]
        parts.append(_page_table(["cell", "published ± margin", "ours", "90 % interval", "verdict", "remark"], cells))
    if one.contests:
        parts.append(_page_table(["contest", "published p", "ours", "p of means", "mean ranks", "verdict"],
                                 [_contest(contest) for contest in one.contests]))
        notes = [f"- {_cell(contest.name)}: {_cell(contest.note)}" for contest in one.contests if contest.note]
        parts += ["\n".join(notes)] * bool(notes)
    parts += [ranking_line(order) for order in one.orders]
    if others:
        finished = sum(bool(row.seeds) for row in others)
        parts.append(f"{len(others)} more cells have no published number ({finished} are run): "
                     f"`tequio reproduce {one.study.name} --stored`.")
    notes = [*(f"Margin of {margin.cells}: {margin.why}" for margin in one.study.margins), *one.study.notes]
    if notes:
        parts.append("\n".join(f"- {_cell(note)}" for note in notes))
    return "\n\n".join(parts)


def summary_part(studies: Sequence[Answered]) -> str:
    """One line a study: how many published numbers it has and what became of them."""
    counted = [(one.study.name, one.verdicts) for one in studies if one.verdicts]
    total = sum((verdicts for _, verdicts in counted), Counter[str]())
    lines = [[name, str(verdicts.total()), *(str(verdicts[verdict] or "") for verdict in VERDICTS)]
             for name, verdicts in (*counted, ("all", total))]
    return _page_table(["study", "published numbers", *VERDICTS], lines)


def claims_part(studies: Sequence[Answered]) -> str:
    """Every claim of the sources, with the difference it speaks of."""
    lines = [[source, f"{claim.says} ({claim.where})", fate_of(claim),
              "; ".join(filter(None, (claim.note, *map(_difference, claim.statements))))]
             for source, claim in claims_of(studies)]
    return _page_table(["source", "claim", "fate", "what the runs say"], lines)


def requirements_part(studies: Sequence[Answered]) -> str:
    """Bounds of our own, which are no published numbers."""
    lines = [[one.study.name, row.cell, aim(row), ours(row), ends(row), row.verdict]
             for one in studies for row in one.rows if row.required is not None]
    return _page_table(["study", "cell", "required", "ours", "90 % interval", "verdict"], lines)


def _difference(one: Checked) -> str:
    if one.difference is None or one.low is None or one.high is None:
        return f"{one.text}: {one.why}"
    return f"{one.text}: {as_text(one.difference)} ({as_text(one.low)} to {as_text(one.high)})"


def _contest(contest: Decided) -> list[str]:
    published = "" if contest.published is None else f"{contest.published:.3g}"
    ranking, means = contest.ranking, contest.by_means
    if ranking is None or means is None:
        return [contest.name, published, "", "", "", "not run"]
    ranks = mean_ranks(contest, ranking)
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
