"""Writes docs/results.md from the numbers kept beside the studies: `python docs/generate_results.py`.

`tequio reproduce --all --stored --keep --out RUNS` puts the numbers of stored runs there.
"""

from __future__ import annotations

from pathlib import Path

from tequio.studies import verdicts
from tequio.studies.answered import kept_studies
from tequio.views.results_page import claims_part, requirements_part, study_part, summary_part

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"

GROUPS = {
    "trees": "One tree from many (Argente-Garrido 2024)",
    "usecases": "Use cases of FLEX (Argente-Garrido 2024)",
    "multilabel": "Different labels at every party (Delgado Bejarano 2024)",
    "personal": "FLProtector (Martínez Enríquez, Iglesias Rodríguez, García Polo)",
    "sensitive": "Sensitive data (Tornaría 2024)",
    "selection": "Choosing parties (Granada 2024)",
}

INTRODUCTION = """# Results

![Claims of the five sources, a mark each: filled squares are confirmed, crosses refuted, rings open](images/claims.svg)

What five sources conclude, and every table of theirs that tequio repeats: the published number with the margin around
it that counts as the same, ours (mean ± standard deviation over seeds), and the interval that decides. The page is
written by `docs/generate_results.py` from numbers that are kept in `studies/*/*/results.json`; they come from stored
runs. {dated} How to make the numbers again: [Reproduce a study](how-to/reproduce.md)."""

CLAIMS = """## Claims

The sources' conclusions in our words, each put as statements about cells. A claim is *confirmed* if the 90 % interval
of the difference keeps what it says, *refuted* if none of it does, and *open* otherwise, or where a run or a second
seed is missing; of several statements all have to hold, and each is refuted at 5 % divided by their number. Beside each
statement is the difference (the mean itself, where it is compared with a number), with the ends of its interval in
brackets. Where a source prints how far one method leads, the claim asks for half of that (`by half`). *Other data*:
the source's own are not at hand, or are still to be run at its size."""


def page(folder: Path) -> str:
    """The whole page, from a folder of studies."""
    found = kept_studies(folder)
    studies = [one for one, _ in found]
    dates = sorted({date for _, kept in found for date in kept.dates})
    dated = f"Newest run: {dates[-1]}." if dates else ""
    parts = [INTRODUCTION.format(dated=dated), CLAIMS, claims_part(studies),
             "## What a verdict says", (verdicts.__doc__ or "").strip(), "## In short", summary_part(studies),
             "## Requirements of our own", requirements_part(studies)]
    for group in dict.fromkeys([*GROUPS, *(one.study.name.partition("/")[0] for one in studies)]):
        mine = [one for one in found if one[0].study.name.partition("/")[0] == group]
        parts += [f"## {GROUPS.get(group, group)}"] * bool(mine) + [study_part(*one) for one in mine]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(ROOT / "studies"), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}; its picture is drawn by docs/draw.py")
