"""Tables as journals print them, in formats that others read back, and forest plots."""

import csv
import io
import json
from math import inf, nan
from pathlib import Path

import pytest

from tequio.errors import ConfigError, DataError
from tequio.views.estimates import (
    TIDY,
    Estimates,
    estimates_csv,
    estimates_html,
    estimates_json,
    estimates_latex,
    interval_text,
    p_text,
    save_estimates,
)
from tequio.views.forest import ForestLine, forest_plot, funnel_plot, save_figure

ROWS = [dict(zip(TIDY, ("age", -0.060487680697, 0.010277984066, -5.8851690, 3.976e-09, -0.0806, -0.0403), strict=True)),
        dict(zip(TIDY, ("a<b & 100%_x", 0.0124, 0.0229, 0.54, 0.5886, -0.0325, 0.0573), strict=True)),
        {"term": "lost", "estimate": nan, "p.value": nan, "note": "no variance"}]
FOUND = Estimates("Affairs", ROWS, {"nobs": 6366, "AIC": 6960.9428461134}, ratio="Odds ratio", notes=("By site.",))


def test_csv_keeps_all_digits_under_the_names_that_r_expects():
    rows = list(csv.DictReader(io.StringIO(estimates_csv(FOUND))))
    assert list(rows[0]) == [*TIDY, "note"]
    assert float(rows[0]["estimate"]) == ROWS[0]["estimate"]
    assert rows[0]["note"] == "NA"
    assert rows[2]["p.value"] == "NaN"
    assert rows[2]["conf.low"] == "NA"


def test_json_is_strict_and_says_its_format():
    document = json.loads(estimates_json(FOUND), parse_constant=pytest.fail)
    assert document["format"] == "tequio-tidy-1"
    assert document["tidy"][0] == ROWS[0]
    assert document["tidy"][2]["estimate"] is None
    assert document["glance"]["nobs"] == 6366


def test_html_prints_ratios_and_escapes_names():
    page = estimates_html(FOUND)
    assert "Odds ratio (95% CI)" in page
    assert ">0.941 (0.923 to 0.961)<" in page
    assert ">&lt;0.001<" in page
    assert "a&lt;b &amp; 100%_x" in page
    assert "rows 6,366; AIC 6960.94" in page
    assert "class=" not in page  # nothing that is lost outside of the page


def test_latex_is_escaped():
    page = estimates_latex(FOUND)
    assert r"a\textless{}b \& 100\%\_x & 1.01" in page
    assert page.count(r"\\") == 4


@pytest.mark.parametrize(("p", "text"), [(0.0004, "<0.001"), (0.0123, "0.012"), (0.0499, "0.050"), (0.2, "0.20"),
                                         (0.9999, ">0.99"), (0.993, "0.99"), (nan, "\u2013")])
def test_p_values(p, text):
    assert p_text(p) == text


def test_intervals_have_the_digits_that_mean_something():
    assert interval_text(-0.0604, -0.0806, -0.0403) == "\u22120.060 (\u22120.081 to \u22120.040)"
    assert interval_text(1234.5, 1000.2, 1500.9) == "1234 (1000 to 1501)"
    assert interval_text(1.57, 0.37, 6.53, ratio=True) == "1.57 (0.37 to 6.53)"
    assert interval_text(3.0, nan, inf) == "3.0"
    assert interval_text(nan, 0, 1) == "\u2013"


def test_files_are_written_by_their_ending(tmp_path):
    for ending in ("html", "tex", "csv", "json"):
        save_estimates(FOUND, tmp_path / f"table.{ending}")
        assert (tmp_path / f"table.{ending}").stat().st_size > 100
    with pytest.raises(ConfigError, match=r"cannot be saved as 'table[.]docx'; end the name in one of: [.]html"):
        save_estimates(FOUND, Path("table.docx"))


def test_a_forest_plot_shows_each_line_and_leaves_out_what_is_no_number(tmp_path):
    lines = [ForestLine("north", -0.7, -1.2, -0.2, 0.6), ForestLine("south", 0.1, -0.9, 1.1, 0.4),
             ForestLine("broken", nan, nan, nan),
             ForestLine("all", -0.4, -0.8, 0.0, summary=True, prediction=(-1.5, 0.7))]
    figure = forest_plot(lines, x="Odds ratio", ratio=True)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "0.50 (0.30 to 0.82)" in texts
    assert "\u2013" in texts
    assert "60.0%" in texts
    assert len(figure.axes[0].patches) == 1
    for suffix in ("png", "svg", "pdf"):
        save_figure(figure, tmp_path / f"forest.{suffix}")
        assert (tmp_path / f"forest.{suffix}").stat().st_size > 3000
    with pytest.raises(DataError, match="no estimate to draw"):
        forest_plot(lines[2:3])
    assert len(funnel_plot([0.1, 0.2], [0.1, 0.3], 0.15).axes[0].lines[2].get_xdata()) == 2


def test_a_wide_interval_ends_in_an_arrow_and_narrow_ratios_have_round_ticks():
    lines = [ForestLine(name, 0.01, -0.02, 0.04, 0.25) for name in "abc"] + [ForestLine("wide", 0.0, -9, 9, 0.25)]
    axes = forest_plot(lines, ratio=True).axes[0]
    assert [line.get_marker() for line in axes.lines].count("<") == 1
    assert axes.get_xlim()[1] < 0.2
    assert len(axes.get_xticklabels()) >= 3
    assert "1" in [label.get_text() for label in axes.get_xticklabels()]
    unweighted = [ForestLine("a", 0.01, -0.02, 0.04), ForestLine("b", 0.3, -0.5, 1.1)]
    assert forest_plot(unweighted).axes[0].get_xlim()[1] > 1.1
