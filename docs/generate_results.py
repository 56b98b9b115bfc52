"""Writes docs/results.md from the numbers kept beside the studies: `python docs/generate_results.py`.

`tequio reproduce --all --stored --keep --out RUNS` puts the numbers of stored runs there.
"""

from __future__ import annotations

from pathlib import Path

from tequio.studies.description import load_study, study_names
from tequio.studies.keeping import configs_of, kept_contests, kept_rows, read_kept
from tequio.studies.plans import make_plan
from tequio.views.studies import study_part, summary_part

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

Every table of the five sources that tequio repeats: the published number, ours (mean ± standard deviation over seeds),
and whether it was reached. The page is written by `docs/generate_results.py` from numbers that are kept in
`studies/*/*/results.json`; they come from stored runs. {dated}

A number counts as *reached* if our mean is at least as good as the published one, give or take half of its last printed
digit (of times and distances: at most that; of quantities that follow from a model alone: on either side). *Below* is
worse than that, *differs* further away on either side, *not comparable* a number of other data. *Not run* says that no
run of that cell has come to its end yet. How to make the numbers again: [Reproduce a study](how-to/reproduce.md)."""


def page(folder: Path) -> str:
    """The whole page, from a folder of studies."""
    found = []
    for name in study_names(folder):
        study, kept = load_study(name, folder), read_kept(folder / name)
        configs = configs_of(make_plan(study, out=Path("runs")))
        found.append((study, kept, kept_rows(study, kept, configs), kept_contests(study, kept)))
    dates = sorted({date for _, kept, _, _ in found for date in kept.dates})
    dated = f"Newest run: {dates[-1]}." if dates else ""
    parts = [INTRODUCTION.format(dated=dated), "## In short",
             summary_part([(study, rows) for study, _, rows, _ in found])]
    groups = dict.fromkeys([*GROUPS, *(study.name.partition("/")[0] for study, *_ in found)])
    for group in groups:
        mine = [one for one in found if one[0].name.partition("/")[0] == group]
        parts += [f"## {GROUPS.get(group, group)}"] * bool(mine) + [study_part(*one) for one in mine]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(ROOT / "studies"), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
