import json

import pytest

CONFIG = """
name = "flowers"
rounds = 1
baselines = ["alone"]

[data]
name = "iris"
prepare = ["discretise"]
[data.partition]
name = "iid"
parties = 3
[data.split]
test = {test}

[learner]
name = "id3"
[algorithm]
name = "federated-id3"
[engine]
workers = 1
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A working folder with one finished run."""
    from tequio.cli.main import call

    folder = tmp_path_factory.mktemp("work")
    (folder / "flowers.toml").write_text(CONFIG.format(test=0.2))
    assert call(["run", str(folder / "flowers.toml"), "--quiet", "--out", str(folder / "runs")]) == 0
    return folder


@pytest.fixture(autouse=True)
def here(runs, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setenv("COLUMNS", "80")


def said(err):
    """The text of an error without its frame."""
    return " ".join(err.replace("│", " ").split())


def test_conditions_of_both_trees_stand_beside_each_other(tequio):
    code, out, _ = tequio("explain", "last", "--row", 4)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("Row 4 of the test rows of the coordinator, true ")
    heading = next(line for line in lines if "tree" in line)
    assert " ".join(heading.split()) == "local tree of party 0 global tree"
    because = next(line for line in lines if line.strip().startswith("because"))
    assert because.count("petal") == 2


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_wider_than_the_screen(tequio, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = tequio("explain", "last", "--row", 0, "--row", 1, "--diff")
    assert max(map(len, out.splitlines())) <= width
    assert "Rules with most rows behind them" in out
    assert "Importance of columns" in out
    assert "Where the local tree of party 0 and the global tree part" in out or "are the same" in out


def test_json_holds_everything(tequio, runs):
    name = next((runs / "runs").iterdir()).name
    code, out, _ = tequio("explain", name, "--row", 4, "--row", 0, "--party", 1, "--json", "--rules", "all.csv",
                          "--html", "page", "--svg", "tree.svg")
    document = json.loads(out)
    assert code == 0
    assert [row["row"] for row in document["rows"]] == [4, 0]
    assert document["party"] == "1"
    assert document["run"] == name
    assert document["rows"][0]["local"]["conditions"]
    assert document["files"] == ["page", "tree.svg", "all.csv"]
    assert (runs / "page").read_text().startswith("<!DOCTYPE html>")
    assert len((runs / "all.csv").read_text().splitlines()) == len(document["rules"]) + 1
    assert {"path", "change", "first", "second"} == set(document["differences"][0])


def test_without_a_row_the_model_is_explained(tequio):
    code, out, _ = tequio("explain", "last")
    assert code == 0
    assert out.startswith("Rules with most rows behind them")


@pytest.mark.parametrize(("words", "exit_code", "told"), [
    (("last", "--row", 30), 2, "there is no test row 30: they are numbered from 0 to 29"),
    (("last", "--row", -1), 2, "there is no test row -1"),
    (("last", "--row", 0, "--party", 9), 3, "there is no party called '9'"),
    (("elsewhere", "--row", 0), 8, "'elsewhere' is not a run folder"),
    (("last", "--rules", "rules.doc"), 2, "rules cannot be written as 'rules.doc'"),
])
def test_bad_input_is_named(tequio, words, exit_code, told):
    code, _, err = tequio("explain", *words)
    assert code == exit_code
    assert told in said(err)


def test_a_run_that_is_not_finished_is_named(tequio, runs, tmp_path):
    folder = tmp_path / "stopped"
    folder.mkdir()
    (folder / "config.toml").write_text((next((runs / "runs").iterdir()) / "config.toml").read_text())
    code, _, err = tequio("explain", folder, "--row", 0)
    assert code == 8
    assert "is not finished" in said(err)
    assert "--resume" in said(err)


def test_test_rows_that_nobody_holds_are_named(tequio, tmp_path):
    config = tmp_path / "none.toml"
    config.write_text(CONFIG.format(test=0.0).replace("[data]", "[data]\ntest = 0.0"))
    assert tequio("run", config, "--quiet", "--out", tmp_path / "runs", "--set", "baselines=[]")[0] == 0
    folder = next((tmp_path / "runs").iterdir())
    code, _, err = tequio("explain", folder, "--row", 0)
    assert (code, "the coordinator holds no test rows" in said(err)) == (3, True)
    code, _, err = tequio("explain", folder, "--row", 0, "--party", 0)
    assert (code, "party '0' holds no test rows" in said(err)) == (3, True)
    code, _, err = tequio("explain", folder, "--diff")
    assert (code, "there are not two trees to compare" in said(err)) == (2, True)
