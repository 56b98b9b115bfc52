"""Reports: one file that needs nothing else, with the sections that a run has and no others."""

from __future__ import annotations

import json
import re
import shutil

import pytest

import tequio
from tequio.errors import ConfigError, MissingExtra, RunError
from tequio.experiments.comparing.comparing import compare
from tequio.experiments.showing.results import in_bytes
from tequio.views.report import report_page, save_report

TABLES = {"data": {"name": "wine", "prepare": ["standardise"], "partition": {"name": "iid", "parties": 4}},
          "engine": {"workers": 1}, "rounds": 2}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    return tequio.sweep(name="pair", **TABLES, output={"folder": str(folder)},
                        sweep={"algorithm": ["fedavg", "scaffold"], "seeds": [0, 1, 2]})


@pytest.fixture(scope="module")
def trusted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return tequio.run(name="a <b>bold</b> name", **TABLES, output={"folder": str(folder)}, aggregator="consistency",
                      selector={"name": "random", "fraction": 0.75}, attack={"name": "sign-flip", "parties": ["1"]})


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    return tequio.run(name="tree", data=TABLES["data"], engine={"workers": 1}, rounds=1, learner="cart",
                      algorithm="icdta4fl", baselines=["alone"], output={"folder": str(folder)})


def headings(page):
    return re.findall(r'<h2 id="(\w+)">', page)


def test_a_sweep_is_compared_and_drawn(swept):
    page = report_page([result.folder for result in swept.results])
    assert headings(page) == ["overview", "warnings", "comparison", "curves", "data", "parties", "costs", "runs",
                              "settings"]
    found = compare(*[result.folder for result in swept.results])
    for standing in found.standings:
        assert f"<td>{standing.values.mean:.4f}</td>" in page
    assert found.verdict.replace("'", "&#x27;") in page
    assert page.count("<tr><th scope='row'>algorithm=") == 6


def test_a_run_has_the_sections_it_has_something_for(trusted, grown):
    assert headings(report_page([trusted.folder])) == ["overview", "warnings", "curves", "data", "parties", "selection",
                                                       "trust", "costs", "runs", "settings"]
    page = report_page([grown.folder])
    assert headings(page) == ["overview", "comparison", "data", "parties", "trees", "costs", "runs", "settings"]
    assert 'class="box"' in page
    assert "The first number is that of <strong>icdta4fl</strong>" in page


def test_nothing_is_fetched_and_nothing_runs(swept, trusted, grown):
    for folders in ([result.folder for result in swept.results], [trusted.folder], [grown.folder]):
        page = report_page(folders)
        assert "<script" not in page
        assert not re.search(r"<(link|img|iframe|object)|@import|url\(", page)
        assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
        assert "default-src 'none'" in page


def test_names_are_not_taken_for_markup(trusted):
    page = report_page([trusted.folder])
    assert "<b>bold" not in page
    assert "a &lt;b&gt;bold&lt;/b&gt; name" in page


def test_trust_is_shown_round_by_round_and_the_attacker_is_marked(trusted):
    page = report_page([trusted.folder])
    last = [event for event in trusted.events if event["event"] == "aggregation"][-1]
    party, trust = last["parties"][0], last["trust"][0]
    assert f"<title>party {party}, {last['round']}: {trust:.2f}</title>" in page
    assert "▲ party 1" in page
    assert "▲ party 0" not in page


def copy_of(result, folder):
    shutil.copytree(result.folder, folder)
    return folder


def test_statements_on_privacy_and_leakage_are_shown_where_a_run_has_them(trusted, tmp_path):
    folder = copy_of(trusted, tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    summary["privacy"] = {"words": "Epsilon 2.5 of a budget of <4>.", "epsilon": 2.5, "caveats": ["the seed"]}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "leakage.csv").write_text("who,field,tells\ncoordinator,gradients,labels leak\n")
    page = report_page([folder])
    assert {"privacy", "leakage"} <= set(headings(page))
    assert "<strong>Epsilon 2.5 of a budget of &lt;4&gt;.</strong>" in page
    assert "<td>2.5000</td>" in page
    assert "<td>labels leak</td>" in page


def test_damaged_runs_are_told_of_and_the_rest_is_shown(swept, tmp_path):
    folders = [copy_of(result, tmp_path / str(number)) for number, result in enumerate(swept.results)]
    (folders[0] / "summary.json").write_text("{")
    (folders[1] / "summary.json").unlink()
    page = report_page(folders)
    assert "0: damaged" in page
    assert "1: not finished" in page
    assert "4 runs" in page
    with pytest.raises(RunError, match="not finished"):
        report_page([folders[1]])


def test_without_the_data_the_rest_is_shown(trusted, tmp_path):
    folder = copy_of(trusted, tmp_path / "run")
    config, other = (folder / "config.toml").read_text(), 'name = "csv"\npath = "gone.csv"\ntarget = "y"'
    (folder / "config.toml").write_text(config.replace('name = "wine"', other))
    page = report_page([folder])
    assert "The data is not here" in page
    assert "curves" in headings(page)


def test_where_it_is_saved(trusted, tmp_path):
    save_report([trusted.folder], tmp_path / "deep" / "report.html", title="Mine")
    assert "<h1>Mine</h1>" in (tmp_path / "deep" / "report.html").read_text()
    with pytest.raises(ConfigError, match=r"\.html"):
        save_report([trusted.folder], tmp_path / "report.pdf")


def test_a_missing_template_engine_is_told(trusted, monkeypatch):
    import sys

    from tequio.views import report

    report._template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtra, match="report"):
        report_page([trusted.folder])


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_fits_the_screen_without_a_word_on_the_console(swept, tmp_path, width, scheme):
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("no Chromium")
    save_report([result.folder for result in swept.results], tmp_path / "report.html")
    told = []
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: told.append(message.text))
        page.on("request", lambda request: told.append(request.url) if not request.url.startswith("file:") else None)
        page.goto(f"file://{tmp_path}/report.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert told == []


def test_bytes_of_training_and_of_evaluation_are_told_apart(trusted):
    page, summary = report_page([trusted.folder]), trusted.summary
    for title in ("training up", "training down", "evaluation up", "evaluation down"):
        assert f">{title}<" in page
    assert "training bytes up" in page
    for name in ("evaluation_bytes_up", "evaluation_bytes_down"):
        assert f">{in_bytes(summary[name])}<" in page
        assert name in trusted._repr_html_()
