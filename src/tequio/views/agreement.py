"""How alike federated clusters are to those of a run with all rows in one place, over the rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.experiments.store import explained
from tequio.experiments.studies.clusterings import agreement
from tequio.views.plots import dress, figure_type, line_style

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.figure import Figure

    from tequio.experiments.results import Result
    from tequio.experiments.studies.clusterings import Agreement


def save_agreement(runs: Mapping[str, Result], references: Mapping[str, Result], path: Path, *,
                   title: str = "") -> None:
    """Draw each run's agreement with its reference."""
    figure = draw_agreement({name: agreement(run, references[name]) for name, run in runs.items()}, title=title)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw_agreement(curves: Mapping[str, Agreement], *, title: str = "") -> Figure:
    """A panel for clusters matched one to one and one for pairs of rows; a line a run."""
    figure = figure_type()(figsize=(9.6, 4.2), layout="constrained", dpi=130)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, ("matched", "pairs"), strict=True):
        for position, (run, curve) in enumerate(curves.items()):
            colour, style = line_style(position)
            axes.plot(curve.rounds, getattr(curve, name), style, color=colour, linewidth=1.4, label=run)
        axes.set_title({"matched": "clusters matched one to one", "pairs": "pairs of rows"}[name], loc="left",
                       fontsize=10, fontweight="bold")
        dress(axes, "Jaccard index")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure
