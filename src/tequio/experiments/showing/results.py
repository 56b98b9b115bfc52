"""Results as tables for a terminal and as figures."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra, nearest
from tequio.experiments.running.headline import common_headline, measured_headline
from tequio.experiments.running.table import shown
from tequio.experiments.sweep import short_key
from tequio.learners.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table as RichTable

    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain
    from tequio.experiments.sweep import SweepResult


STOPPED = {"rounds": "all rounds done", "diverged": "the run has diverged",
           "target": "target reached", "patience": "no improvement on validation rows",
           "convergence": "the model stopped moving", "seconds": "time is up", "virtual_seconds": "virtual time is up",
           "worse": "validation loss and accuracy got worse twice in a row",
           "personal phase done": "the personal phase is done",
           "privacy": "the privacy budget does not pay for another round"}
"""What a stop reason means."""
_LONG_NAME = 14


def runs_of(result: Result) -> dict[str, Result]:
    """The run and its baselines under the names they are shown by."""
    return {result.summary["algorithm"]: result, **result.baselines}


def headline_metric(result: Result) -> str:
    """The metric that stands for the run: 'accuracy', 'rmse', 'inertia', ...; empty where nothing was measured."""
    return measured_headline(result.summary.get("headline", ""), result.summary["metrics"])


def sweep_headline(swept: SweepResult) -> str:
    """The metric that stands for the runs of a sweep, which may be of several datasets."""
    found = [headline_metric(result) for result in swept.results]
    return common_headline(found) or found[0]


def headlines(result: Result) -> dict[str, str]:
    """The few facts that matter of a finished run, in words, those that matter most first."""
    summary, metric = result.summary, headline_metric(result)
    words, metrics = metric.replace("_", " "), summary["metrics"]
    found = {f"test {words}": _metric(f"test.{metric}", summary),
             "at parties": ", ".join(f"{name} {shown(metrics[key], 3)}" for name, key in (
                 ("mean", f"parties.{metric}.mean"), ("worst tenth", f"parties.{metric}.worst_decile"))
                 if key in metrics),
             "baselines": ", ".join(f"{name} {_metric(f'test.{metric}', run.summary)}"
                                    for name, run in result.baselines.items()),
             "privacy": _epsilons(result),
             "rounds": f"{summary['rounds']}: {STOPPED.get(summary['stopped'], summary['stopped'])}, "
                       f"{_virtual_time(summary) or in_time(summary['seconds'])}",
             "warnings": f"{len(result.warnings)}: see result.warnings" if result.warnings else ""}
    return {name: text for name, text in found.items() if text.strip()}


def _epsilons(result: Result) -> str:
    """What the run has spent, and all runs on its rows; empty without a guarantee."""
    spent, together = result.privacy.get("epsilon"), result.privacy_over_runs
    if not spent:
        return ""
    epsilon = together.get("epsilon")
    over = f"; over {together['runs']} runs on these rows: {'none' if epsilon is None else f'{epsilon:.4g}'}" \
        if together.get("runs", 0) > 1 else ""
    return f"epsilon {spent:.4g}{over}"


def result_table(result: Result, width: int) -> RichTable:
    """One row a run: the main metric at the coordinator and at the parties, rounds, time, bytes.

    Where not all of it fits into `width` characters, the columns that say least are left out.
    """
    from rich.console import Console

    metric, runs = headline_metric(result), runs_of(result)
    columns = {title: [cell(run.summary, metric) for run in runs.values()] for title, cell in _COLUMNS.items()}
    filled = {title: cells for title, cells in columns.items() if any(cells)}
    table, dispensable = _runs_table(result, metric, filled), list(_DISPENSABLE)
    while dispensable and Console(width=10 * width).measure(table).maximum > width:
        filled.pop(dispensable.pop(), None)
        table = _runs_table(result, metric, filled)
    return table


def _runs_table(result: Result, metric: str, filled: dict[str, list[str]]) -> RichTable:
    runs, table = runs_of(result), titled_table(_title(result.summary["name"], metric))
    table.add_column("\nrun", overflow="fold", min_width=8)
    for title in filled:
        table.add_column(title.format(metric=metric.replace("_", " ")), justify="right", no_wrap=True)
    for position, name in enumerate(runs):
        style = "bold cyan" if runs[name] is result else ""
        table.add_row(_broken(name), *[cells[position] for cells in filled.values()], style=style)
    notes = ["Baselines are not attacked."] if len(runs) > 1 and result.config.attack else []
    if any(title.startswith("bytes") for title in filled):
        notes.append("Bytes are those of training, without evaluation.")
    table.caption, table.caption_justify = " ".join(notes) or None, "left"
    return table


def _broken(name: str) -> str:
    """A long name in two lines where it has a hyphen, so that a narrow terminal need not break a word."""
    return name.replace("-", "-\n", 1) if len(name) > _LONG_NAME else name


def sweep_table(swept: SweepResult) -> RichTable:
    """One row a combination: mean and standard deviation over seeds of the headline metrics."""
    metric = sweep_headline(swept)
    titles = {f"test.{metric}": f"test\n{metric}", f"parties.{metric}.mean": "at parties\nmean",
              f"parties.{metric}.worst_decile": "at parties\nworst tenth",
              f"validation.{metric}": f"validation\n{metric}"}
    names = [name for name in titles if name in swept.table.columns][:3]
    if "attack.success" in swept.table.columns:
        titles["attack.success"] = "attack\nsuccess"
        names.append("attack.success")
    keys = swept.table.columns[:swept.table.columns.index("seeds")]
    table = titled_table(_title(f"{swept.folder.name}, mean ± sd over seeds", metric))
    for key in [*keys, "seeds"]:
        table.add_column(f"\n{short_key(key)}", justify="right")
    for name in names:
        table.add_column(titles[name].replace("_", " "), justify="right", no_wrap=True)
    for row in swept.table:
        table.add_row(*[str(row[key]) for key in [*keys, "seeds"]],
                      *[plus_minus(row.get(name), row.get(f"{name} sd")) for name in names])
    return table


def plus_minus(mean: Any, sd: Any) -> str:
    """'0.934 ± 0.012', or the mean alone where there is no spread to speak of."""
    if mean is None:
        return ""
    return shown(mean, 3) if sd is None else f"{shown(mean, 3)} ± {shown(sd, 3)}"


def in_bytes(count: int) -> str:
    """A number of bytes in a unit that fits: '1.4 MB'."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def in_time(seconds: float) -> str:
    """'0.42 s', '12.0 s', '3 min 20 s', '2 h 05 min'."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _virtual_time(summary: Plain) -> str:
    seconds = summary["metrics"].get("clock.seconds")
    return "" if seconds is None else in_time(seconds)


def _metric(name: str, summary: Plain) -> str:
    return shown(summary["metrics"].get(name), 3)


_COLUMNS: dict[str, Callable[[Plain, str], str]] = {
    "test\n{metric}": lambda summary, metric: _metric(f"test.{metric}", summary),
    "at parties\nmean ± sd": lambda summary, metric: plus_minus(summary["metrics"].get(f"parties.{metric}.mean"),
                                                                   summary["metrics"].get(f"parties.{metric}.sd")),
    "worst\ntenth": lambda summary, metric: _metric(f"parties.{metric}.worst_decile", summary),
    "attack\nsuccess": lambda summary, metric: _metric("attack.success", summary),
    "moved by\nattack": lambda summary, metric: _metric("attack.moved", summary),
    "\nrounds": lambda summary, metric: str(summary["rounds"]),
    "\ntime": lambda summary, metric: "" if _virtual_time(summary) else in_time(summary["seconds"]),
    "virtual\ntime": lambda summary, metric: _virtual_time(summary),
    "bytes\nup": lambda summary, metric: in_bytes(summary["bytes_up"]),
    "bytes\ndown": lambda summary, metric: in_bytes(summary["bytes_down"]),
}
_DISPENSABLE = ("\nrounds", "bytes\nup", "worst\ntenth", "bytes\ndown")
"""Columns that a narrow terminal does without, the last one first."""


def _title(name: str, metric: str) -> str:
    return f"{name}: {METRICS[metric].meaning}" if metric else name


def titled_table(title: str) -> RichTable:
    """An empty table in the style of all."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", header_style="bold",
                 pad_edge=False, padding=(0, 1, 0, 0))


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
