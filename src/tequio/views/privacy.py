"""What parties gave away: the leakage report for a terminal, and pictures of what gradient inversion makes of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra
from tequio.experiments.running.table import shown
from tequio.probing.inverting import inverted, inverted_batches
from tequio.probing.target import probed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.table import Table as RichTable

    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain
    from tequio.experiments.running.table import Table
    from tequio.probing.inverting import BatchInversion


_WORDS = {"bytes_down": "bytes down", "bytes_up": "bytes up", "seconds": "worked (s)", "waiting_seconds": "waited (s)"}


def renderables(seen: Table, messages: Table, leaks: Mapping[str, Mapping[str, float]]) -> Iterator[RichTable | str]:
    """What to print, one after the other."""
    for who in dict.fromkeys(seen["who"]):
        rows = [row for row in seen if row["who"] == who]
        role = rows[0]["role"]
        title = f"what the {who} sees" if who == role else f"what {who}, the {role}, sees"
        yield plain_table(title, seen, ["task", "field", "shape", "messages", "tells"], rows)
    yield plain_table("each party's part", messages, ["party", "role", "times", *_WORDS], _by_party(messages))
    if leaks:
        rows = [{"party": party, **found} for party, found in leaks.items()]
        yield plain_table("how well labels can be told from gradients (0.5: not at all, 1: all)", messages,
                          ["party", "norm", "direction"], rows)


def plain_table(title: str, table: Table, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> RichTable:
    """Some columns and rows of a table."""
    from rich import box
    from rich.table import Table as RichTable

    drawn = RichTable(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", header_style="bold",
                      pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float) for row in rows)
        drawn.add_column(_WORDS.get(column, column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*[shown(row.get(column)) for column in columns])
    return drawn


def _by_party(messages: Table) -> list[Plain]:
    totals: dict[Any, Plain] = {}
    for row in messages:
        total = totals.setdefault(row["party"], {"party": row["party"], "role": row["role"]})
        for name in ("times", *_WORDS):
            total[name] = total.get(name, 0) + (row[name] or 0)
    return list(totals.values())


_MOST = 8


def draw_reconstructions(results: Sequence[Result], path: Path, batch: BatchInversion | None = None) -> None:
    """Write the picture as the coordinator of each run would get it, of single rows or of batches.

    The runs must hold the same rows.
    """
    runs = [probed(result) for result in results]
    if len(runs[0].own.schema.shape) < 2:
        raise ConfigError(f"rows of '{results[0].config.data.name}' are no images", remedy="leave --picture out")
    found = [inverted(run, "coordinator", _MOST) if batch is None else inverted_batches(run, "coordinator", batch)
             for run in runs]
    lines = {"original": [row for one in found[0] for row in one.truth][:_MOST]}
    for result, batches in zip(results, found, strict=True):
        lines[result.config.name] = [row for one in batches for row in one.guess][:_MOST]
    _draw(lines, runs[0].bounds, path)


def _draw(lines: dict[str, list[Any]], bounds: tuple[float, float], path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise MissingExtra("matplotlib", "report", "pictures") from cause
    columns = max(map(len, lines.values()))
    figure = Figure(figsize=(1.2 + 0.7 * columns, 0.75 * len(lines)), dpi=100)
    axes = figure.subplots(len(lines), columns, squeeze=False)
    for line, (name, images) in zip(axes, lines.items(), strict=True):
        for place in line:
            place.set_axis_off()
        for place, image in zip(line, images, strict=False):
            grey = image.mean(0) if image.ndim == 3 else image
            place.imshow(grey, cmap="gray_r", vmin=bounds[0], vmax=bounds[1])
        line[0].text(-0.3, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize=9)
    figure.savefig(path, bbox_inches="tight")
