"""A picture of a table that was looked at: what each column tells of the target, its gaps, and who holds what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.data.inspecting.columns import FEWEST_SHOWN
from tequio.errors import ConfigError
from tequio.experiments.config.draft import plain, target_text
from tequio.experiments.showing.inspection import listed, title_of, use_of
from tequio.experiments.showing.results import figure_type

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tequio.data.inspecting.columns import ColumnFacts
    from tequio.data.inspecting.facts import TableFacts


FORMATS = (".png", ".svg")
MOST_PARTIES, MOST_CLASSES = 30, 6

# Okabe and Ito: told apart by people with any kind of colour vision; hatches say the same without colour.
_KEPT, _OUT, _CHECK = "#0072B2", "#D55E00", "#E69F00"
_CLASSES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8a8a8a")
_INK, _PALE = "#333333", "#d9d9d9"
_NAME, _USE = 24, 46


def draw_inspection(facts: TableFacts, path: Path | None = None) -> Figure:
    """Columns with their scores and gaps at the left, parties with their classes at the right."""
    if path is not None and path.suffix.lower() not in FORMATS:
        raise ConfigError(f"a picture cannot be saved as '{path.name}'",
                          remedy=f"end the name in {' or '.join(FORMATS)}")
    columns = listed(facts)
    height = 1.7 + 0.27 * max(len(columns), 6)
    figure = figure_type()(figsize=(12 if facts.parties else 8.6, height), layout="constrained", dpi=130)
    widths = (4, 1.3, 4) if facts.parties else (4, 1.3)
    scores, gaps, *rest = figure.subplots(1, len(widths), width_ratios=widths)
    _draw_scores(scores, facts, columns)
    _draw_gaps(gaps, columns)
    if rest:
        _draw_parties(rest[0], facts, len(columns))
    figure.suptitle(_title(facts), x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
    if path is not None:
        _save(figure, path)
    return figure


def _title(facts: TableFacts) -> str:
    lines = [title_of(facts)]
    if facts.target:
        lines.append(f"{', '.join(facts.target.names[:3])}: {target_text(facts)}")
    return _text("\n".join(map(plain, lines)))


def _draw_scores(axes: Axes, facts: TableFacts, columns: list[ColumnFacts]) -> None:
    chance = 0.5 if facts.metric == "AUC" else 0.0
    for place, column in enumerate(columns):
        colour, hatch = _look(column)
        scored = column.score is not None and column.kind not in ("id", "ignore")
        reach = max((column.score or 0.0) - chance, 0.0) if scored else 0.0
        axes.barh(place, reach, left=chance, height=0.7, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
        use = use_of(column) or column.kind
        score = f"{column.score:.2f}" if scored and facts.metric not in use else ""
        told = " · ".join(filter(None, (score, use)))
        inside = reach > 0.5 * (1 - chance)
        axes.text(chance + (reach - 0.01 if inside else reach + 0.01), place, _text(_short(told, _USE)),
                  va="center", ha="right" if inside else "left", fontsize=7, color="white" if inside else _INK,
                  bbox={"facecolor": colour, "edgecolor": "none", "pad": 1} if inside and hatch else None)
    names = [_text(_short(plain(column.name) or "(no name)", _NAME)) for column in columns]
    axes.set_yticks(range(len(columns)), names, fontsize=8)
    axes.set_xlim(chance, 1.0)
    axes.set_ylim(len(columns) - 0.5, -0.5)
    axes.set_xlabel(f"{facts.metric} of the column alone" if facts.metric else "", fontsize=8)
    what = "columns" if len(columns) == len(facts.columns) else f"{len(columns)} of {len(facts.columns):,} columns"
    title = f"{what}: what each alone tells of the target" if facts.metric else what
    axes.set_title(title, fontsize=9, loc="left")
    _dress(axes)


def _draw_gaps(axes: Axes, columns: list[ColumnFacts]) -> None:
    shares = [column.missing / column.rows for column in columns]
    axes.barh(np.arange(len(columns)), shares, height=0.7, color=_PALE)
    for place, share in enumerate(shares):
        if share:
            axes.text(0.02, place, f"{share:.1%}", va="center", fontsize=7, color=_INK)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(columns) - 0.5, -0.5)
    axes.set_yticks([])
    if not any(shares):
        axes.text(0.02, 0, "nothing", va="center", fontsize=7, color=_INK)
    axes.set_xticks([0, 1], ["0", "100%"])
    axes.set_title("missing", fontsize=9, loc="left")
    _dress(axes)


def _draw_parties(axes: Axes, facts: TableFacts, lines: int) -> None:
    parties = sorted(facts.parties, key=lambda party: -party.rows)[:MOST_PARTIES]
    classes = _shown_classes(facts)
    left = np.zeros(len(parties))
    places = np.arange(len(parties))
    for number, (name, members) in enumerate(classes.items()):
        counts = np.array([sum(party.classes.get(member, 0) for member in members) if members else party.rows
                           for party in parties])
        axes.barh(places, counts, left=left, height=0.7, color=_CLASSES[number % len(_CLASSES)], label=_text(name),
                  hatch="/" * (3 * (number % 2)), edgecolor="white", linewidth=0)
        left += counts
    for place, party in enumerate(parties):
        rows = f"{party.rows:,}" if party.rows >= FEWEST_SHOWN else f"fewer than {FEWEST_SHOWN}"
        axes.text(left[place] + 0.01 * left.max(), place, rows, va="center", fontsize=7, color=_INK)
    axes.set_yticks(places, [_text(_short(plain(party.name), _NAME)) for party in parties], fontsize=8)
    axes.set_ylim(max(len(parties), lines) - 0.5, -0.5)
    axes.set_xlim(0, 1.16 * left.max())
    rest = len(facts.parties) - len(parties)
    axes.set_title(_text(f"rows per {plain(facts.party)}" + (f" (the largest of {len(facts.parties):,})" if rest else
                                                             "")), fontsize=9, loc="left")
    if classes and len(classes) > 1:
        axes.legend(frameon=False, fontsize=8, loc="lower right", labelcolor=_INK)
    _dress(axes)


def _shown_classes(facts: TableFacts) -> dict[str, tuple[str, ...]]:
    """Names for the legend and the classes behind each; rare ones and those beyond the first few go together."""
    counts = facts.target.classes if facts.target else {}
    if not counts:
        return {"rows": ()}
    order = sorted(counts, key=lambda name: -counts[name])
    named = [name for name in order if counts[name] >= FEWEST_SHOWN][:MOST_CLASSES]
    others = tuple(name for name in order if name not in named)
    return {_short(plain(name), _NAME): (name,) for name in named} | ({f"{len(others)} others": others} if others
                                                                      else {})


def _look(column: ColumnFacts) -> tuple[str, str]:
    if column.role == "out":
        return _OUT, "///"
    return (_CHECK, "...") if column.reason.startswith("check") else (_KEPT, "")


def _dress(axes: Axes) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_PALE)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=7, color=_PALE)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most - 1]}…"


def _text(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _save(figure: Figure, path: Path) -> None:
    import matplotlib as mpl

    # Without the date and random ids the same table gives the same bytes.
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context({"svg.hashsalt": "tequio", "svg.fonttype": "none"}):
            figure.savefig(path, metadata=metadata)
    except OSError as cause:
        raise ConfigError(f"the picture cannot be saved as '{path}': {cause}", remedy="type --picture with a file in a "
                          "folder of your own") from cause
