"""`tequio report`: a file about the last run, about a folder, and what it refuses."""

from __future__ import annotations

import json


def test_a_report_of_the_last_run(tequio, toy, tmp_path):
    tequio("run", "toy.toml", "--quiet")
    code, out, _ = tequio("report", "last", "--json")
    assert (code, json.loads(out)) == (0, {"report": "report.html"})
    assert "<h1>toy</h1>" in (tmp_path / "report.html").read_text()


def test_a_report_of_all_runs_in_a_folder(tequio, toy, tmp_path):
    for seed in (0, 1):
        tequio("run", "toy.toml", "--quiet", "--seed", seed)
    assert tequio("report", "runs", "--out", "both.html", "--title", "Both")[0] == 0
    page = (tmp_path / "both.html").read_text()
    assert "2 runs" in page
    assert "<h1>Both</h1>" in page


def test_what_is_no_run_is_refused(tequio, toy):
    code, _, err = tequio("report", "nowhere")
    assert code == 8
    assert "there is no run in 'nowhere'" in err
