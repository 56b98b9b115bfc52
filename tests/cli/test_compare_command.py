"""`tequio compare`: real runs of a sweep, every form of output, and the diagram."""

from __future__ import annotations

import csv
import io
import json
from itertools import accumulate
from statistics import fmean, stdev

import pytest

import published_ranks as published


@pytest.fixture(scope="module")
def f1(tmp_path_factory):
    """179 rows with the ranks that a thesis prints of three aggregations, and of no federation."""
    return published.write_rows(tmp_path_factory.mktemp("published") / "f1.csv", published.F1)


def test_a_sweep_is_compared_by_the_key_that_was_swept(tequio, toy):
    toy.write_text(toy.read_text() + '\n[sweep]\nseeds = [0, 1, 2]\n"local.learning_rate" = [0.5, 0.01]\n')
    assert tequio("run", "toy.toml", "--quiet")[0] == 0
    code, out, _ = tequio("compare", "runs/toy-sweep", "--metric", "test.loss", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["rows"], found["problems"], found["test"]) == (3, 1, "wilcoxon")
    assert {one["method"] for one in found["standings"]} == {"learning rate 0.5", "learning rate 0.01"}
    assert found["pairs"][0]["difference"]["mean"] > 0
    assert any("picks on the test set" in caution for caution in found["cautions"])
    assert any("cannot fall below 0.25" in caution for caution in found["cautions"])


def test_the_terminal_shows_standings_pairs_ranks_and_reasons(tequio, monkeypatch, f1):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = tequio("compare", f1, "--only", "aggregation*", "--over", "seeds")
    assert code == 0
    assert "aggregation 0  ┼───────────────●───┼───────────────────┼   1.813  a" in out
    assert "Friedman's Q = 10.6955, p = 0.0048" in out
    assert "Verdict: The methods differ" in out
    assert "Careful: The 179 rows are seeds of 10 problems" in out


@pytest.mark.parametrize("columns", ["80", "100"])
def test_no_line_is_wider_than_the_terminal(tequio, monkeypatch, columns, f1):
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = tequio("compare", f1)
    assert max(map(len, out.splitlines())) <= int(columns)


def problems():
    """The numbers of each problem's rows."""
    ends = list(accumulate(published.SEEDS.values()))
    return [range(end - count, end) for end, count in zip(ends, published.SEEDS.values(), strict=True)]


def test_markdown_latex_and_csv(tequio, f1):
    _, markdown, _ = tequio("compare", f1, "--markdown")
    means = [fmean(0.9 if row < 148 else 0.1 for row in rows) for rows in problems()]
    assert f"| **no federation** | {fmean(means):.4f} | {stdev(means):.4f} |" in markdown
    assert "- **Verdict:** " in markdown
    _, latex, _ = tequio("compare", f1, "--latex")
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 3
    assert r"95 \% interval" in latex
    _, text, _ = tequio("compare", f1, "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["method"] == "no federation"
    assert float(rows[1]["behind best"]) == pytest.approx(float(rows[0]["mean"]) - float(rows[1]["mean"]), abs=5e-5)


@pytest.mark.parametrize("name", ["cd.png", "cd.svg"])
def test_the_diagram_is_drawn(tequio, tmp_path, name, f1):
    assert tequio("compare", f1, "--diagram", tmp_path / name, "--json")[0] == 0
    start = (tmp_path / name).read_bytes()[:5]
    assert start == (b"\x89PNG\r" if name.endswith("png") else b"<?xml")


def test_what_cannot_be_done_is_refused(tequio, tmp_path, f1):
    assert tequio("compare", f1, "--json", "--latex")[0] == 2
    assert tequio("compare", tmp_path / "nowhere")[0] == 8
    code, _, err = tequio("compare", f1, "--diagram", tmp_path / "cd.tar")
    assert code == 2
    assert "cannot be saved" in err
