"""How well each party does each label it knows: a shaded table for the terminal, a figure, and a table of parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import MissingExtra
from tequio.experiments.table import shown
from tequio.views.heatmap import shade

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from rich.table import Table

    from tequio.experiments.results import Result

HEATMAP = "labels.png"
MOST_LABELS = 40
MOST_PARTIES = 12
_PARTY_METRICS = ("f1_macro", "f1_micro", "subset_accuracy", "hamming_loss", "average_precision")


def scores_by_label(result: Result, score: str = "f1") -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Labels, parties and a score of each label at each party on its own test rows; NaN where it does not know it."""
    table = result.labels
    labels, parties = (list(dict.fromkeys(str(cell) for cell in table[column])) for column in ("label", "party"))
    scores = np.full((len(labels), len(parties)), np.nan)
    for row in table:
        value = row.get(f"parties.{score}", row.get(f"common.{score}"))
        if value is not None:
            scores[labels.index(str(row["label"])), parties.index(str(row["party"]))] = float(value)
    return labels, parties, scores


def label_table(result: Result) -> Table:
    """F1 of every label at every party, the better the lighter, and on the coordinator's rows."""
    from rich.table import Table

    labels, parties, scores = scores_by_label(result)
    common = {str(row["label"]): row.get("common.f1") for row in result.labels}
    positives = {label: sum(int(row.get("parties.positives") or 0) for row in result.labels if row["label"] == label)
                 for label in labels}
    more = f"; {len(labels) - MOST_LABELS} more in labels.csv" if len(labels) > MOST_LABELS else ""
    table = Table(title=f"F1 of each label at the parties that know it{more}", box=None, padding=(0, 1, 0, 0),
                  title_justify="left", title_style="bold", header_style="bold")
    table.add_column("label")
    for party in parties[:MOST_PARTIES]:
        table.add_column(party, justify="right", min_width=5)
    table.add_column("common rows", justify="right")
    table.add_column("positive rows", justify="right")
    for label, row in zip(labels[:MOST_LABELS], scores, strict=False):
        table.add_row(label, *[_cell(value) for value in row[:MOST_PARTIES]], shown(common.get(label), 3),
                      str(positives[label]))
    return table


def party_table(result: Result) -> Table:
    """What each party knows and how it fares on its own test rows."""
    from rich.table import Table

    known = {party: sum(row["party"] == party for row in result.labels) for party in result.parties["party"]}
    metrics = [name for name in _PARTY_METRICS if name in result.parties.columns]
    table = Table(title="parties on their own test rows", box=None, padding=(0, 1, 0, 0), title_justify="left",
                  title_style="bold", header_style="bold")
    for title in ("party", "labels", "rows", *(name.replace("_", " ") for name in metrics)):
        table.add_column(title, justify="left" if title == "party" else "right")
    for row in result.parties.rows[:MOST_LABELS]:
        table.add_row(str(row["party"]), str(known[row["party"]]), str(row["rows"]),
                      *[shown(row.get(name), 3) for name in metrics])
    return table


def save_label_heatmap(result: Result, path: Path) -> None:
    """Draw F1 by label and party into a PNG or SVG file."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "a heat map") from None
    labels, parties, scores = scores_by_label(result)
    figure = Figure(figsize=(1.6 + 0.7 * len(parties), 1.2 + 0.28 * min(len(labels), 120)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(np.ma.masked_invalid(scores), vmin=0, vmax=1, cmap="viridis_r", aspect="auto")
    axes.set_facecolor("#f3f3f3")
    axes.set_xticks(range(len(parties)), parties, fontsize=7)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_xlabel("party", fontsize=8)
    axes.set_title(f"{result.summary['name']}: F1 of each label", fontsize=9, loc="left")
    if scores.size <= 400:
        _write_scores(axes, scores)
    figure.colorbar(image, ax=axes).ax.tick_params(labelsize=7)
    figure.savefig(path, dpi=120)


def _write_scores(axes: Any, scores: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(scores):
        if not np.isnan(value):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7,
                      color="white" if value > 0.45 else "black")


def _cell(value: float) -> Any:
    from rich.text import Text

    return "" if np.isnan(value) else Text(f"{value:.3f}", style=shade(value))
