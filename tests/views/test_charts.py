"""Charts: well-formed, inside their frame, and telling in words what they show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.views.charts import WIDTH, Line, bar_chart, dot_chart, heat_chart, line_chart, rank_chart

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 6))


def parsed(figure):
    return ElementTree.fromstring(figure)


def points_of(figure):
    return [(float(x), float(y)) for path in re.findall(r'class="c\d line"[^>]*? d="M([^"]+)"', figure)
            for x, y in (point.split(",") for point in path.split("L")) if "H" not in y]


@settings(max_examples=50, deadline=None)
@given(values=st.lists(numbers, min_size=2, max_size=20))
def test_lines_stay_inside_the_frame(values):
    figure = line_chart([Line("a", list(range(len(values))), values)], x="round", y="loss")
    _, _, width, height = map(float, parsed(figure).find("svg").get("viewBox").split())
    points = points_of(figure)
    assert len(points) == len(values)
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_higher_values_are_drawn_higher_and_later_ones_further_right():
    (x1, y1), (x2, y2) = points_of(line_chart([Line("a", [1, 2], [0.1, 0.9])], x="round", y="accuracy"))
    assert x1 < x2
    assert y1 > y2


def test_several_lines_have_a_legend_and_differ_in_colour_and_dashes():
    figure = line_chart([Line("one", [1, 2], [0, 1]), Line("two <b>", [1, 2], [1, 0])], x="round", y="accuracy")
    items = parsed(figure).findall(".//li")
    assert ["".join(item.itertext()) for item in items] == ["one", "two <b>"]
    styles = {(item.find("svg/path").get("class"), item.find("svg/path").get("stroke-dasharray")) for item in items}
    assert len(styles) == 2
    assert "one ends at 1; two <b> ends at 0" in parsed(figure).find("svg").get("aria-label")


def test_a_line_of_one_point_is_a_dot_and_one_of_none_is_left_out():
    figure = line_chart([Line("one", [1], [0.5]), Line("none", [], [])], x="round", y="accuracy")
    assert figure.count("<circle") == 1
    assert "none" not in figure


@settings(max_examples=30, deadline=None)
@given(groups=st.dictionaries(st.text("abc<&", min_size=1), st.lists(numbers, min_size=1, max_size=9), min_size=1,
                              max_size=5))
def test_every_party_has_a_dot_inside_the_frame(groups):
    figure = dot_chart(groups, x="accuracy")
    places = [float(circle.get("cx")) for circle in parsed(figure).iter("circle")]
    assert len(places) == sum(map(len, groups.values()))
    assert all(0 <= place <= WIDTH for place in places)


def test_bars_are_as_high_as_their_counts():
    figure = bar_chart({"0": 4, "1": 2, "2": 0}, x="times", y="parties")
    heights = [float(bar.get("height")) for bar in parsed(figure).iter("rect")]
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.01)
    assert heights[2] == 0


def test_the_fuller_cell_has_more_and_empty_ones_are_left_out():
    figure = heat_chart(["a", "b"], ["x", "y"], [[1.0, 4.0], [None, 2.0]], told="rows", marked=[1])
    cells = {cell.find("title").text: float(cell.get("fill-opacity")) for cell in parsed(figure).iter("rect")}
    assert list(cells) == ["a, x: 1", "a, y: 4", "b, y: 2"]
    assert cells["a, x: 1"] < cells["b, y: 2"] < cells["a, y: 4"]
    assert "▲ b" in figure


def test_ranks_are_drawn_best_first_with_a_bar_beside_those_alike():
    figure = rank_chart(["slow", "quick", "middle"], [2.9, 1.1, 2.0], [("quick", "middle")], 1.2)
    names = [text.text for text in parsed(figure).iter("text")]
    assert names.index("quick") < names.index("middle") < names.index("slow")
    rows = {circle.find("title").text: float(circle.get("cy")) for circle in parsed(figure).iter("circle")}
    bar = re.search(r"M[\d.]+,([\d.]+)V([\d.]+)\"", figure)
    assert float(bar[1]) < rows["quick: 1.100"] < rows["middle: 2.000"] < float(bar[2]) < rows["slow: 2.900"]
