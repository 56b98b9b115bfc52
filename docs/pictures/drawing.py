"""Boxes, arrows and small tables in SVG, all of one look: what the pictures of the docs are made of.

Pictures bring their own light background, because a page cannot tell an image whether it is dark. Colours are those of
Okabe and Ito, which colour-blind people can tell apart, and no meaning hangs on colour alone.
"""

from __future__ import annotations

from math import atan2, cos, hypot, pi, sin
from xml.sax.saxutils import escape

WIDTH = 600
INK, MUTED = "#1f2933", "#55606b"
COLOURS = {  # stroke, fill
    "coordinator": ("#0072b2", "#e3f0f8"), "party": ("#00795a", "#e2f4ee"), "rows": ("#a86f00", "#fdf1d6"),
    "secret": ("#b84a00", "#fce8dc"), "model": ("#97487a", "#f8e8f1"), "plain": ("#76818c", "#f3f5f7")}
_STYLE = (f"text{{font-family:system-ui,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:{INK};font-size:15px}}"
          f".s{{font-size:13px}}.m{{fill:{MUTED}}}.b{{font-weight:600}}.i{{font-style:italic}}")
_HEAD = 8


class Picture:
    """One picture. Coordinates are pixels of a picture that is 600 wide."""

    def __init__(self, height: int, title: str, description: str) -> None:
        self.height, self.title, self.description = height, title, description
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "middle", colour: str = "") -> None:
        """One line; `style` is letters of the style sheet: s small, m muted, b bold, i italic."""
        described = f' class="{" ".join(style)}"' if style else ""
        coloured = f' style="fill:{COLOURS[colour][0]}"' if colour else ""
        end = "" if anchor == "start" else f' text-anchor="{anchor}"'
        left = x - {"start": 0, "middle": 0.5, "end": 1}[anchor] * text_width(words, style)
        if left < 4 or left + text_width(words, style) > WIDTH - 4 or not 8 < y < self.height - 2:
            raise ValueError(f"'{words}' leaves the picture '{self.title}'")
        self._parts.append(f'<text x="{_number(x)}" y="{_number(y)}"{end}{described}{coloured}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "plain", style: str = "",
            dashed: bool = False, bold: bool = False) -> None:
        """A rounded box with lines in its middle; the first may be bold, and the others are small."""
        stroke, fill = COLOURS[kind]
        self._parts.append(f'<rect {_place(x, y, width, height)} rx="7" fill="{fill}" stroke="{stroke}" '
                           f'stroke-width="1.5"{_dash(dashed)}/>')
        styles = [("b" if bold else "") + style, *["s" + style.replace("s", "")] * (len(lines) - 1)]
        step = 18
        top = y + height / 2 - step * (len(lines) - 1) / 2 + 5
        for number, (words, look) in enumerate(zip(lines, styles, strict=False)):
            if text_width(words, look) > width - 6:
                raise ValueError(f"'{words}' does not fit its box in '{self.title}'")
            self.text(x + width / 2, top + step * number, words, look)

    def arrow(self, *points: tuple[float, float], kind: str = "plain", dashed: bool = False, both: bool = False,
              thick: float = 1.8) -> None:
        """A line through the points with a head at its end (or at both)."""
        stroke = COLOURS[kind][0]
        shortened = [*points[:-1], _before(points[-2], points[-1])]
        if both:
            shortened[0] = _before(points[1], points[0])
        self.line(*shortened, kind=kind, dashed=dashed, thick=thick)
        self._parts.append(f'<path d="{_head(points[-2], points[-1])}{_head(points[1], points[0]) if both else ""}" '
                           f'fill="{stroke}"/>')

    def line(self, *points: tuple[float, float], kind: str = "plain", dashed: bool = False, thick: float = 1.8) -> None:
        """A line through the points."""
        through = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
        self._parts.append(f'<path d="M{through}" fill="none" stroke="{COLOURS[kind][0]}" stroke-width="{thick}"'
                           f'{_dash(dashed)}/>')

    def curve(self, path: str, kind: str = "plain", dashed: bool = False, thick: float = 1.8) -> None:
        """A path as SVG writes it."""
        self._parts.append(f'<path d="{path}" fill="none" stroke="{COLOURS[kind][0]}" stroke-width="{thick}"'
                           f'{_dash(dashed)}/>')

    def dot(self, x: float, y: float, radius: float = 6, kind: str = "party", hollow: bool = False) -> None:
        """A point, or a ring."""
        stroke, fill = COLOURS[kind]
        self._parts.append(f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}" '
                           f'fill="{fill if hollow else stroke}" stroke="{stroke}" stroke-width="1.5"/>')

    def bar(self, x: float, y: float, width: float, height: float, kind: str = "party", solid: bool = False) -> None:
        """A plain rectangle: a cell, a stretch of time, a share of rows."""
        stroke, fill = COLOURS[kind]
        self._parts.append(f'<rect {_place(x, y, width, height)} rx="2" fill="{stroke if solid else fill}" '
                           f'stroke="{stroke}"/>')

    def cells(self, x: float, y: float, columns: int, rows: int, size: tuple[float, float] = (14, 9),
              kind: str = "rows") -> None:
        """A small table."""
        stroke, fill = COLOURS[kind]
        width, height = columns * size[0], rows * size[1]
        inner = "".join(f"M{_number(x + size[0] * c)} {_number(y)}v{_number(height)}" for c in range(1, columns))
        inner += "".join(f"M{_number(x)} {_number(y + size[1] * r)}h{_number(width)}" for r in range(1, rows))
        outer = f"M{_number(x)} {_number(y)}h{_number(width)}v{_number(height)}h{_number(-width)}z"
        self._parts.append(f'<path d="{outer}{inner}" fill="{fill}" stroke="{stroke}"/>')

    def cross(self, x: float, y: float, size: float = 8) -> None:
        """It does not pass here."""
        for down in (1, -1):
            self.line((x - size, y - size * down), (x + size, y + size * down), kind="secret", thick=3.5)

    def svg(self) -> str:
        """The file."""
        body = "\n".join(self._parts)
        ground = f'<rect {_place(0.5, 0.5, WIDTH - 1, self.height - 1)} rx="10" fill="#fff" stroke="#d5dbe1"/>'
        told = f'<title id="t">{escape(self.title)}</title>\n<desc id="d">{escape(self.description)}</desc>'
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
                f'height="{self.height}" role="img" aria-labelledby="t d">\n{told}\n<style>{_STYLE}</style>\n'
                f'{ground}\n{body}\n</svg>\n')


def text_width(words: str, style: str = "") -> float:
    """About how wide a line is in a wide font, so that it fits in others too."""
    narrow = sum(letter in "iljtf.,:;'|()[] " for letter in words)
    wide = sum(letter in "mwMWΣ+-=→" for letter in words)
    size = 13 if "s" in style else 15
    return size * (0.61 * (len(words) - narrow - wide) + 0.34 * narrow + 0.88 * wide) * (1.1 if "b" in style else 1)


def _before(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    length = hypot(end[0] - start[0], end[1] - start[1]) or 1
    return (end[0] - (end[0] - start[0]) * _HEAD / length, end[1] - (end[1] - start[1]) * _HEAD / length)


def _head(start: tuple[float, float], end: tuple[float, float]) -> str:
    angle = atan2(end[1] - start[1], end[0] - start[0])
    corners = [(end[0] + 10 * cos(angle + turn), end[1] + 10 * sin(angle + turn)) for turn in (pi - 0.42, pi + 0.42)]
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in [end, *corners]) + "z"


def _place(x: float, y: float, width: float, height: float) -> str:
    return f'x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}"'


def _dash(dashed: bool) -> str:
    return ' stroke-dasharray="5 4"' if dashed else ""


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
