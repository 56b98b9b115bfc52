"""Charts as SVG text that takes its colours from the page, so that one drawing reads on light, dark and printed paper.

Lines differ in dashes as well as in colour, and every chart says in words what it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


WIDTH, HEIGHT = 440, 280
COLOURS = 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 44
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "1 2", "5 5", "3 6")
_ROW, _NAME = 24, 130


@dataclass(frozen=True)
class Line:
    """One line; `low` and `high` bound a band around it, where there is one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def line_chart(lines: Sequence[Line], *, x: str, y: str) -> str:
    """Lines over an axis with their bands, and a legend where there are several."""
    drawn = [line for line in lines if len(line.x)]
    xs = [value for line in drawn for value in line.x]
    ys = [value for line in drawn for values in (line.y, line.low, line.high) for value in values]
    across, up = _Scale.over(xs, _LEFT, WIDTH - _RIGHT), _Scale.over(ys, HEIGHT - _BOTTOM, _TOP)
    parts = [*_grid(across, up, x, y)]
    for place, line in enumerate(drawn):
        parts += _band(line, place, across, up) + _stroke(line, place, across, up)
    told = f"{y} over {x}: " + "; ".join(f"{line.name} ends at {_tick(line.y[-1])}" for line in drawn[:12])
    return _figure(parts, HEIGHT, told, legend([line.name for line in drawn]) if len(drawn) > 1 else "")


def dot_chart(groups: Mapping[str, Sequence[float]], *, x: str) -> str:
    """One row a group with a dot a value and a bar at their mean."""
    values = [value for group in groups.values() for value in group]
    across = _Scale.over(values, _NAME + 12, WIDTH - _RIGHT)
    height = _TOP + _ROW * len(groups) + _BOTTOM
    parts = _across_axis(across, _TOP, height - _BOTTOM, x)
    for place, (name, group) in enumerate(groups.items()):
        middle = _TOP + _ROW * (place + 0.5)
        parts.append(_label(name, _NAME, middle + 4, "end"))
        parts += [f'<circle class="c{place % COLOURS} dot" cx="{across(value):.1f}" cy="{middle:g}" r="4"/>'
                  for value in group]
        mean = across(sum(group) / len(group))
        parts.append(f'<path class="mark" d="M{mean:.1f},{middle - 9:g}v18"/>')
    told = f"{x}: " + "; ".join(f"{name} from {_tick(min(group))} to {_tick(max(group))}"
                                for name, group in list(groups.items())[:12])
    return _figure(parts, height, told)


def side_chart(values: Mapping[str, float], marks: Mapping[str, float], *, x: str, marked: str) -> str:
    """One row per name with a bar from zero, and a mark on it that says what to compare it with."""
    across = _Scale.over([0.0, *values.values(), *marks.values()], _NAME + 12, WIDTH - _RIGHT)
    height = _TOP + _ROW * len(values) + _BOTTOM
    parts = _across_axis(across, _TOP, height - _BOTTOM, x)
    for place, (name, value) in enumerate(values.items()):
        top = _TOP + _ROW * place
        parts += [_label(name, _NAME, top + _ROW / 2 + 4, "end"),
                  f'<rect class="c0 bar" x="{across(0):.1f}" y="{top + 5:g}" width="{across(value) - across(0):.1f}" '
                  f'height="{_ROW - 10}"><title>{escape(name)}: {_tick(value)}</title></rect>',
                  f'<path class="mark" d="M{across(marks[name]):.1f},{top + 2:g}v{_ROW - 4}"/>']
    told = f"{x}: " + "; ".join(f"{name} {_tick(value)}" for name, value in list(values.items())[:12])
    return _figure(parts, height, f"{told}; the marks show {marked}")


def bar_chart(counts: Mapping[str, float], *, x: str, y: str) -> str:
    """Upright bars with their names below."""
    names, values = list(counts), list(counts.values())
    up = _Scale.over([0.0, *values], HEIGHT - _BOTTOM, _TOP)
    step = (WIDTH - _LEFT - _RIGHT) / max(len(names), 1)
    parts = [*_up_axis(up, y), f'<text class="axis" x="{(WIDTH + _LEFT) / 2:g}" y="{HEIGHT - 8}" text-anchor="middle">'
                               f"{escape(x)}</text>"]
    every = ceil(len(names) / 12)
    for place, value in enumerate(values):
        left, top = _LEFT + step * place, up(value)
        parts.append(f'<rect class="c0 bar" x="{left + step * 0.1:.1f}" y="{top:.1f}" width="{step * 0.8:.1f}" '
                     f'height="{HEIGHT - _BOTTOM - top:.1f}"><title>{escape(names[place])}: {_tick(value)}</title>'
                     "</rect>")
        if place % every == 0:
            parts.append(_label(names[place], left + step / 2, HEIGHT - _BOTTOM + 16, "middle"))
    return _figure(parts, HEIGHT, f"{y} by {x}: " + ", ".join(
        f"{name} {_tick(value)}" for name, value in list(counts.items())[:20]))


def heat_chart(rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[float | None]], *, told: str,
               largest: float = 0.0, digits: int = 0, marked: Sequence[int] = ()) -> str:
    """Cells that are the fuller the more; numbers are written where they fit. `marked` rows are stressed."""
    most = largest or max((value for row in cells for value in row if value is not None), default=1.0) or 1.0
    wide = min(max(map(len, rows), default=0), 22)
    left = max(92.0, 8.0 * wide + 8)
    width = min(56.0, (WIDTH - left) / max(len(columns), 1))
    height = min(24.0, max(9.0, 420 / max(len(rows), 1)))
    parts = [_label(name, left + width * (place + 0.5), 14, "middle", max(2, int(width / 7))) for place, name
             in enumerate(columns) if width >= 22 or place % ceil(22 / width) == 0]
    for number, (name, row) in enumerate(zip(rows, cells, strict=True)):
        top = 20 + height * number
        if height >= 12 or number % ceil(12 / height) == 0:
            parts.append(_label(f"{'▲ ' if number in marked else ''}{name}", left - 6, top + height / 2 + 4, "end",
                                max(14, wide)))
        parts += [_cell(value, most, (left + width * place, top, width, height), f"{name}, {columns[place]}", digits)
                  for place, value in enumerate(row) if value is not None]
    return _figure(parts, 24 + height * len(rows), told)


def rank_chart(names: Sequence[str], ranks: Sequence[float], groups: Sequence[Sequence[str]], critical: float) -> str:
    """A critical-difference diagram that stands upright: a row a method, and bars beside those that do not differ."""
    order = sorted(range(len(names)), key=lambda place: ranks[place])
    across = _Scale(1, max(len(names), 2), _NAME + 12, WIDTH - 20 - 10 * len(groups))
    bottom = _TOP + 26 + _ROW * len(names)
    parts = [f'<path class="mark" d="M{across(1):.1f},{_TOP + 4}H{across(min(1 + critical, across.high)):.1f}"/>',
             _label(f"critical difference {critical:.3f}", across(1), _TOP + 20, "start", 40)]
    rows = {}
    for place, method in enumerate(order):
        rows[names[method]] = middle = _TOP + 26 + _ROW * (place + 0.5)
        parts += [_label(names[method], _NAME, middle + 4, "end"),
                  f'<path class="grid" d="M{across(1):.1f},{middle:g}H{across(across.high):.1f}"/>',
                  f'<circle class="c0 dot solid" cx="{across(ranks[method]):.1f}" cy="{middle:g}" r="5">'
                  f"<title>{escape(names[method])}: {ranks[method]:.3f}</title></circle>"]
    for place, group in enumerate(groups):
        x, tops = WIDTH - 8 - 10 * place, [rows[name] for name in group]
        parts.append(f'<path class="mark" d="M{x},{min(tops) - 8:g}V{max(tops) + 8:g}"/>')
    parts += _across_axis(across, bottom, bottom, "mean rank (1 is best)", lines=False)
    told = "mean ranks: " + "; ".join(f"{names[place]} {ranks[place]:.3f}" for place in order)
    return _figure(parts, bottom + _BOTTOM, told)


def legend(names: Sequence[str]) -> str:
    """Names beside samples of their lines."""
    items = "".join(f'<li><svg class="sample" viewBox="0 0 28 10" aria-hidden="true"><path class="c{place % COLOURS} '
                    f'line" {_dash(place)} d="M0,5H28"/></svg>{escape(name)}</li>'
                    for place, name in enumerate(names))
    return f'<ul class="legend">{items}</ul>'


@dataclass(frozen=True)
class _Scale:
    """Values from low to high as places from start to end."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Scale:
        known = [value for value in values if isfinite(value)] or [0.0]
        low, high = min(known), max(known)
        room = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
        return cls(low if low == 0 else low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        rough = (self.high - self.low) / count
        base = 10.0 ** floor(log10(rough))
        step = next(base * factor for factor in (1, 2, 5, 10) if base * factor >= rough)
        first = ceil(self.low / step - 1e-9)
        return [step * number for number in range(first, floor(self.high / step + 1e-9) + 1)]


def _grid(across: _Scale, up: _Scale, x: str, y: str) -> list[str]:
    return _up_axis(up, y) + _across_axis(across, HEIGHT - _BOTTOM, HEIGHT - _BOTTOM, x, lines=False)


def _up_axis(up: _Scale, name: str) -> list[str]:
    parts = []
    for tick in up.ticks():
        parts += [f'<path class="grid" d="M{_LEFT},{up(tick):.1f}H{WIDTH - _RIGHT}"/>',
                  _label(_tick(tick), _LEFT - 6, up(tick) + 4, "end")]
    middle = (HEIGHT - _BOTTOM) / 2
    return [*parts, f'<text class="axis" transform="translate(13,{middle:g}) rotate(-90)" text-anchor="middle">'
                    f"{escape(name)}</text>"]


def _across_axis(across: _Scale, top: float, bottom: float, name: str, *, lines: bool = True) -> list[str]:
    parts = []
    for tick in across.ticks():
        parts += [f'<path class="grid" d="M{across(tick):.1f},{top:g}V{bottom:g}"/>'] if lines else []
        parts.append(_label(_tick(tick), across(tick), bottom + 16, "middle"))
    return [*parts, f'<text class="axis" x="{(across.start + across.end) / 2:g}" y="{bottom + 36:g}" '
                    f'text-anchor="middle">{escape(name)}</text>']


def _band(line: Line, place: int, across: _Scale, up: _Scale) -> list[str]:
    if not line.low:
        return []
    edge = [*zip(line.x, line.high, strict=True), *reversed(list(zip(line.x, line.low, strict=True)))]
    points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in edge)
    return [f'<polygon class="c{place % COLOURS} band" points="{points}"/>']


def _stroke(line: Line, place: int, across: _Scale, up: _Scale) -> list[str]:
    points = [(across(x), up(y)) for x, y in zip(line.x, line.y, strict=True)]
    if len(points) == 1:
        return [f'<circle class="c{place % COLOURS} dot solid" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="4"/>']
    path = "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<path class="c{place % COLOURS} line" {_dash(place)} d="M{path}"/>']


def _cell(value: float, most: float, place: tuple[float, float, float, float], name: str, digits: int) -> str:
    x, y, width, height = place
    share = min(max(value / most, 0.0), 1.0) ** 0.5
    text = f"{value:,.{digits}f}"
    cell = (f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{height - 1:.1f}" '
            f'fill-opacity="{0.04 + 0.9 * share:.2f}"><title>{escape(name)}: {text}</title></rect>')
    if height < 12 or width < 7 * len(text) + 4:
        return cell
    kind = "over" if share > 0.6 else "on"
    return cell + f'<text class="{kind}" x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" ' \
                  f'text-anchor="middle">{text}</text>'


def _dash(place: int) -> str:
    dashes = _DASHES[place % len(_DASHES)]
    return f'stroke-dasharray="{dashes}"' if dashes else ""


def _label(text: str, x: float, y: float, anchor: str, most: int = 20) -> str:
    short = text if len(text) <= most else text[:most - 1] + "…"
    whole = f"<title>{escape(text)}</title>" if short != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(short)}{whole}</text>'


def _tick(value: float) -> str:
    size = abs(value)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.4g}{name}"
    return f"{value:.4g}" if size >= 1e-9 else "0"


def _figure(parts: Sequence[str], height: float, told: str, below: str = "") -> str:
    return (f'<figure><svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(told)}">'
            f"{''.join(parts)}</svg>{below}</figure>")
