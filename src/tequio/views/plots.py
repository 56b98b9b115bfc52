"""Results as figures."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra, nearest
from tequio.views.tables import headline_metric, runs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tequio.experiments.results import Result

PLOT = "plot.png"

# Okabe and Ito: told apart by people with any kind of colour vision.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":", "-", "--", "-.")
_INK, _PALE = "#333333", "#d9d9d9"
_PREFIXES = ("test", "validation", "train")


def plot_results(result: Result, *, metric: str = "", path: str | Path | None = None, by: str = "round") -> Figure:
    """A metric over rounds, the run's baselines beside it, and how the parties spread around their mean.

    `by` may name another column for the axis, such as `clock.seconds` for virtual time.
    """
    figure_class = figure_type()
    runs, column = runs_of(result), metric or headline_column(result)
    if not column:
        raise ConfigError("the run has no metric to draw")
    for wanted in (column, by):
        if wanted not in result.metrics.columns:
            raise ConfigError(f"the run has no metric '{wanted}'", remedy=nearest(wanted, result.metrics.columns))
    figure = figure_class(figsize=(7.2, 4.3), layout="constrained", dpi=160)
    # A notebook that never imported pyplot would show the figure's name only.
    figure._repr_svg_ = partial(as_svg, figure)  # type: ignore[attr-defined]
    axes = figure.subplots()
    for position, (name, run) in enumerate(runs.items()):
        _draw(axes, run, column, name, position, by)
    summary = result.summary
    axes.set_title(f"{summary['name']}: {summary['data']}, {summary['parties']:,} parties", loc="left",
                   fontsize=12, fontweight="bold", color=_INK, pad=12)
    dress(axes, column, by)
    axes.legend(frameon=False, fontsize=9, loc="best", labelcolor=_INK)
    if path is not None:
        _save(figure, Path(path))
    return figure


def as_svg(figure: Figure) -> str:
    """The figure as an SVG element."""
    picture = BytesIO()
    figure.savefig(picture, format="svg")
    return picture.getvalue().decode().partition("?>")[2]


def figure_type() -> type[Figure]:
    """Matplotlib's figure, without its global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "a plot") from None
    return Figure


def headline_column(result: Result) -> str:
    """The column that tells most of a run; empty where nothing was measured."""
    name = headline_metric(result) or "loss"
    candidates = [f"{prefix}.{name}" for prefix in _PREFIXES] + [f"parties.{name}.mean", "train.loss"]
    return next((column for column in candidates if column in result.metrics.columns), "")


def _draw(axes: Axes, run: Result, column: str, name: str, position: int, by: str) -> None:
    colour, style = line_style(position)
    if column not in run.metrics.columns or by not in run.metrics.columns:
        return
    rounds, values = run.metrics.series(column, by)
    axes.plot(rounds, values, style, color=colour, linewidth=2.2 if position == 0 else 1.7, label=name,
              zorder=5 - position, marker="o" if len(rounds) <= 12 else None, markersize=4)
    mean = f"parties.{column.split('.', 1)[-1]}.mean"
    if position == 0 and mean in run.metrics.columns:
        _draw_spread(axes, run, mean.removesuffix(".mean"), colour, by)


def line_style(position: int) -> tuple[str, str]:
    """Colour and line style of the line at this position."""
    return _COLOURS[position % len(_COLOURS)], _STYLES[position % len(_STYLES)]


def _draw_spread(axes: Axes, run: Result, name: str, colour: str, by: str) -> None:
    """The range from the worst to the best party around the run's own line."""
    rounds, lowest = run.metrics.series(f"{name}.min", by)
    _, highest = run.metrics.series(f"{name}.max", by)
    axes.fill_between(rounds, lowest, highest, color=colour, alpha=0.12, linewidth=0, label="worst to best party",
                      zorder=1)


def dress(axes: Axes, column: str, by: str = "round") -> None:
    """Axes with labels, a quiet grid and no box."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("virtual seconds" if by == "clock.seconds" else by.replace("_", " "), color=_INK)
    axes.set_ylabel(column.replace(".", " ").replace("_", " "), color=_INK)
    if by == "round":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=_PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, length=3)
    axes.margins(x=0.02)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_PALE)


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"the plot cannot be saved as '{path}': {cause}",
                          remedy="give a .png, .svg or .pdf file in a folder that may be written") from cause
