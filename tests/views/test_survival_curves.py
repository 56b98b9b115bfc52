"""What a reader of the plot of survival curves sees."""

from __future__ import annotations

import pytest

from tequio.errors import DataError
from tequio.views.survival_curves import survival_plot


def curve(group, *rows):
    return [{"group": group, "time": time, "at risk": at_risk, "survival": alive, "low": alive - 0.1, "high": alive}
            for time, at_risk, alive in rows]


def test_steps_begin_at_one_and_numbers_at_risk_are_those_before_each_tick():
    figure = survival_plot([*curve("control", (10, 40, 0.9), (20, 31, 0.5), (40, 7, 0.25)),
                            *curve("treated", (10, 38, 1.0), (20, 38, 0.75), (40, 20, 0.75))], x="Weeks")
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.get_lines()] == ["control", "treated"]
    assert axes.get_lines()[0].get_xydata().tolist() == [[0, 1], [10, 0.9], [20, 0.5], [40, 0.25]]
    below = {(text.get_position()[0], round(text.get_position()[1], 6)): text.get_text() for text in axes.texts}
    first = sorted((place, text) for (place, line), text in below.items() if text.isdigit() and line > -0.33)
    assert [text for place, text in first if place in (0, 10, 20, 40)] == ["40", "40", "31", "7"]
    assert {"At risk", "control", "treated"} <= set(below.values())
    assert axes.get_xlabel() == "Weeks"
    figure.savefig("/dev/null", format="svg")


def test_one_group_needs_no_legend_and_none_no_picture():
    assert survival_plot(curve("all", (1, 9, 0.8))).axes[0].get_legend() is None
    with pytest.raises(DataError, match="no curve"):
        survival_plot([])
