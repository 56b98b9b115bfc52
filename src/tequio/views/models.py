"""Models in use as tables for a terminal and as figures: comparisons of versions, the audit log, drift."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tequio.errors import ConfigError
from tequio.experiments.showing.results import figure_type, line_style
from tequio.models.drift import LARGE, SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure
    from rich.console import RenderableType
    from rich.table import Table

    from tequio.models.audit import Entry
    from tequio.models.drift import Change, Window
    from tequio.models.gates import Check
    from tequio.models.versus import Side, VersionComparison, Versus

_MOST_CHANGES = 20
_MARKS = "osD^vP"


def comparison_parts(found: VersionComparison) -> Iterator[RenderableType]:
    """Two versions side by side, for everybody and by group, and what that means."""
    better = "more" if found.higher_is_better else "less"
    first, second = found.overall.first.version, found.overall.second.version
    table = _table(f"{found.metric} ({better} is better)", "", f"version {first}", f"version {second}",
                   f"in favour of {second}", "p")
    for one in (found.overall, *found.groups):
        p = one.adjusted if one.group else one.p
        strong = "bold" if one.better(1 - found.confidence) else ""
        table.add_row(one.group or "all", _side(one.first), _side(one.second),
                      f"{one.difference:+.3f} ({one.low:+.3f}, {one.high:+.3f})", f"{p:.3f}" if p >= 0.001 else
                      "<0.001", style=strong)
    yield table
    yield found.verdict
    for one in found.groups:
        better_here = one.better(1 - found.confidence)
        if better_here:
            yield f"Among {one.group}, version {better_here} is better (p after Holm's correction)."
    for caution in found.cautions:
        yield f"Careful: {caution}"


def audit_parts(entries: Sequence[Entry]) -> Iterator[RenderableType]:
    """Each step with why it was done, and the last hash, to be kept elsewhere."""
    from rich.padding import Padding

    for entry in entries:
        yield f"{entry['number']:>3}  {str(entry['time'])[:16].replace('T', ' ')}  {step_text(entry)}"
        if entry["why"]:
            yield Padding(str(entry["why"]), (0, 0, 0, 5))
    yield f"Nothing was changed. {len(entries)} steps; the last hash is"
    yield str(entries[-1]["sha256"])


def gate_parts(version: int, checks: Sequence[Check]) -> Iterator[RenderableType]:
    """What each gate asks for, and what was found."""
    if not checks:
        yield "No gates are required."
        return
    table = _table(f"gates of version {version}", "stage", "asked", "found", "")
    for one in checks:
        table.add_row(one.stage, one.asked, one.found, "" if one.passed else "not passed")
    yield table


def step_text(entry: Entry) -> str:
    """A step in a few words."""
    version, share = f"version {entry['version']}", f"{entry['state']['share']:.0%} of the ids"
    told = {"added": f"{version} added", "share": f"{version}: {share}", "looked": f"{version} stays: {share}",
            "production": f"{version} in production", "withdrawn": f"{version} withdrawn",
            "rolled back": f"{version} in production again", "outcomes": "outcomes added",
            "approved": f"{version} approved", "gates": "gates required"}
    return told.get(entry["what"], str(entry["what"]))


def drift_parts(changes: Sequence[Change], windows: Sequence[Window], unseen: int) -> Iterator[RenderableType]:
    """What moved most, and how answers and outcomes went over time."""
    ordered = sorted(changes, key=lambda one: -one.index)
    if ordered:
        table = _table("stability index", "", "of", "index", "by chance", "")
        for one in ordered[:_MOST_CHANGES]:
            table.add_row(one.kind, one.name, f"{one.index:.3f}", f"{one.chance:.3f}", one.word,
                          style="bold" if one.word != "stable" else "")
        yield table
    if len(ordered) > _MOST_CHANGES:
        yield f"{len(ordered) - _MOST_CHANGES} more in --json."
    if unseen:
        yield f"{unseen:,} rows have values that the model has never seen or cannot use; they were left out."
    if windows:
        table = _table("over time", "version", "from (UTC)", "answers", "score index", "outcomes",
                       f"{windows[0].metric or 'metric'} (95 %)")
        for window in windows:
            value = "" if window.mean is None else f"{window.mean:.3f}" + (
                "" if window.low is None or window.high is None else f" ({window.low:.3f} to {window.high:.3f})")
            table.add_row(str(window.version), window.begin[5:16].replace("T", " "), f"{window.answers:,}",
                          f"{window.index:.3f}", f"{window.outcomes:,}", value)
        yield table
    moved = [one for one in ordered if one.word != "stable"]
    yield (f"{len(moved)} of {len(changes)} changed by more than {SMALL:g} and more than chance; {LARGE:g} is a large "
           "change.") if changes else "Too few answers to compare."


def draw_comparison(found: VersionComparison, path: Path) -> None:
    """Differences with their intervals, for everybody and by group; right of zero the second version is better."""
    rows = [found.overall, *found.groups]
    figure = _figure(7.0, 1.3 + 0.42 * len(rows))
    axes = figure.subplots()
    for place, one in enumerate(rows):
        colour = line_style(0)[0] if one.better(1 - found.confidence) else "#666666"
        axes.plot([one.low, one.high], [place, place], color=colour, linewidth=2)
        axes.plot([one.difference], [place], "s" if not one.group else "o", color=colour)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [_row_name(one) for one in rows])
    axes.invert_yaxis()
    first, second = found.overall.first.version, found.overall.second.version
    axes.set_xlabel(f"{found.metric}, in favour of version {second} over {first} ({found.confidence:.0%} intervals)")
    _save(figure, path)


def draw_drift(changes: Sequence[Change], windows: Sequence[Window], path: Path) -> None:
    """The largest changes as bars, and the metric over time by version where there are outcomes."""
    ordered = sorted(changes, key=lambda one: one.index)[-_MOST_CHANGES:]
    drawn = [window for window in windows if window.mean is not None]
    figure = _figure(7.0, 1.2 + 0.32 * max(len(ordered), 1) + (3.0 if drawn else 0.0))
    parts = figure.subplots(2 if drawn else 1, 1, squeeze=False, height_ratios=[1 + 0.32 * len(ordered), 3.0] if drawn
                            else None)[:, 0]
    bars = parts[0]
    bars.barh([f"{one.kind}: {one.name}" for one in ordered], [one.index for one in ordered],
              color=[line_style(int(one.word != "stable"))[0] for one in ordered])
    bars.plot([one.chance for one in ordered], range(len(ordered)), "|", color="black", markersize=9, label="by chance")
    for limit, style in ((SMALL, ":"), (LARGE, "--")):
        bars.axvline(limit, color="#666666", linestyle=style, linewidth=1, label=f"{limit:g}")
    bars.set_xlabel("stability index")
    bars.legend(loc="lower right", fontsize="small")
    for place, number in enumerate(sorted({window.version for window in drawn})):
        mine = [(datetime.fromisoformat(window.end), window.mean or 0.0, window) for window in drawn
                if window.version == number]
        below = [mean - (mean if window.low is None else window.low) for _, mean, window in mine]
        above = [(mean if window.high is None else window.high) - mean for _, mean, window in mine]
        colour, style = line_style(place)
        parts[1].errorbar([time for time, *_ in mine], [mean for _, mean, _ in mine], yerr=[below, above], color=colour,
                          linestyle=style, marker=_MARKS[place % len(_MARKS)], capsize=3, label=f"version {number}")
    if drawn:
        parts[1].set_ylabel(drawn[0].metric.replace("_", " "))
        parts[1].tick_params(axis="x", labelrotation=20)
        parts[1].legend()
    _save(figure, path)


def _side(side: Side) -> str:
    return f"{side.mean:.3f} of {side.rows:,}"


def _row_name(one: Versus) -> str:
    return f"{one.group or 'all'} ({one.first.rows:,} / {one.second.rows:,})"


def _table(title: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column)
    return table


def _figure(width: float, height: float) -> Figure:
    return figure_type()(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"'{path}' cannot be drawn: {cause}", remedy="name a file that ends with .png, .svg or "
                          ".pdf: --plot FILE") from cause
