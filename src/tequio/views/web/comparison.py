"""The statistics of `tequio compare` for a page: tables, sentences and the diagram, or why there are none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tequio.errors import TequioError
from tequio.experiments.comparing import compare_values
from tequio.experiments.finding import contenders
from tequio.experiments.pairing import values_of
from tequio.experiments.results import BASELINES, is_finished
from tequio.experiments.store import BASELINES as BASELINE_FOLDER
from tequio.views.comparison import Sheet, sentences, sheets_of
from tequio.views.critical_difference import rank_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Verdict:
    """What a comparison says; `trouble` where it can say nothing."""

    sheets: list[Sheet] = field(default_factory=list)
    sentences: dict[str, list[str]] = field(default_factory=dict)
    diagram: str = ""
    trouble: str = ""


def judge(folders: Sequence[Path], metric: str, *, baselines: bool = False) -> Verdict:
    """Compare finished runs, and the baselines beside them if wanted."""
    beside = [path for folder in folders for name in BASELINES
              if baselines and is_finished(path := folder / BASELINE_FOLDER / name)]
    runs, left_out = contenders([*folders, *beside])
    if not runs:
        return Verdict(trouble="None of these runs is finished, so there is nothing to compare yet.")
    try:
        comparison = compare_values(values_of(runs, metric, left_out=left_out))
    except TequioError as cause:
        return Verdict(trouble=f"No statistics: {cause}")
    ranking = comparison.ranking
    diagram = "\n".join(rank_lines(ranking, comparison.groups)) if ranking and len(ranking.methods) > 2 else ""
    return Verdict(sheets_of(comparison), sentences(comparison), diagram)
