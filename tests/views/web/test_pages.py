"""What the pages show of runs, partitions and trees."""

import json
import re

import pytest

from tequio.experiments.explaining.explaining import explain
from tequio.experiments.running.results import Result
from tequio.views.web.index import headline
from tequio.views.web.reading import columns_of, metric_names, run_curves


def data_of(text):
    """The numbers that a chart is drawn from."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)[1])


def test_the_curves_of_a_run_are_its_metrics(client, runs):
    curves = data_of(client.get("/run/fedavg-1").text)
    metrics = Result(runs / "fedavg-1").metrics
    assert [one["label"] for one in curves] == ["fedavg"]
    assert curves[0]["columns"]["round"] == [1, 2, 3]
    assert curves[0]["columns"]["test.accuracy"] == pytest.approx(metrics["test.accuracy"])
    assert curves[0]["columns"]["bytes"][-1] == pytest.approx(
        sum(metrics["bytes_up"]) + sum(metrics["bytes_down"]), rel=1e-6)


def test_baselines_are_drawn_beside_the_run(runs):
    assert [one["label"] for one in run_curves(runs / "trees", "federated-id3")] == ["federated-id3", "alone"]


def test_metrics_of_the_coordinator_come_first_and_the_loss_after_them(runs):
    names = metric_names(run_curves(runs / "fedavg-0", "fedavg"))
    assert names[0] == "test.accuracy"
    assert names.index("test.loss") < names.index("parties.accuracy.mean") < names.index("train.loss")


@pytest.mark.parametrize(("metrics", "expected"), [
    ({"test.loss": 1.0, "test.accuracy": 0.5}, ("test.accuracy", 0.5)), ({"test.loss": 1.0}, ("test.loss", 1.0)),
    ({"parties.rmse.mean": 2.0, "parties.rmse.sd": 1.0}, ("parties.rmse.mean", 2.0)),
    ({"validation.auc": None}, ("validation.auc", None)), ({"round": 3}, ("", None)), ({}, ("", None))])
def test_the_headline_is_the_first_metric_that_is_not_the_loss(metrics, expected):
    assert headline(metrics) == expected


def test_numbers_that_json_does_not_know_are_left_out():
    from tequio.experiments.running.table import Table

    table = Table(["round", "test.loss"], [{"round": 1, "test.loss": float("nan")}, {"round": 2, "test.loss": 1.0},
                                           {"round": 3, "test.loss": float("inf")}])
    assert columns_of(table)["test.loss"] == [None, 1.0, None]


def test_parties_are_listed_with_their_last_evaluation_and_how_often_they_were_chosen(client, runs):
    text = client.get("/run/fedavg-0").text
    table = text[text.index('aria-label="Table of parties"'):]
    parties = Result(runs / "fedavg-0").parties
    assert table.count('<th scope="row">') == len(parties)
    assert '<th scope="col">chosen</th>' in table
    assert f"{parties.rows[0]['accuracy']:.4f}" in table


def test_the_comparison_pairs_runs_by_seed(client, runs):
    names = [f"{method}-{seed}" for method in ("fedavg", "fedavgm") for seed in range(3)]
    text = client.get("/compare", params={"run": names}).text
    assert "Two methods on the same 3 rows: Wilcoxon" in text
    assert "Too few rows" in text
    standings = text[text.index('id="standings"'):]
    values = [Result(runs / f"fedavg-{seed}").summary["metrics"]["test.accuracy"] for seed in range(3)]
    assert f"{sum(values) / 3:.4f}" in standings
    assert {one["label"] for one in data_of(text)} == {f"{method}, seed {seed}" for method in ("fedavg", "fedavgm")
                                                       for seed in range(3)}


def test_another_metric_can_be_compared(client, runs):
    text = client.get("/compare", params={"run": ["fedavg-0", "fedavgm-0"], "metric": "test.loss"}).text
    assert f"{Result(runs / 'fedavg-0').summary['metrics']['test.loss']:.4f}" in text
    assert "<option selected>test.loss</option>" in text


def test_the_partition_of_a_run_is_counted_as_the_run_dealt_it(client):
    text = client.get("/partition?run=fedavg-0").text
    rows = re.findall(r'<th scope="row">(\d)</th>(.*?)</tr>', text, re.DOTALL)
    assert [name for name, _ in rows] == ["0", "1", "2", "3"]
    counts = [[int(value) for value in re.findall(r">(\d+)</td>", cells)] for _, cells in rows]
    assert all(sum(row[:-1]) == row[-1] for row in counts)
    assert sum(row[-1] for row in counts) == 120


def test_a_partition_can_be_tried_out(client):
    asked = {"data.name": "iris", "data.partition.name": "shards", "data.partition.parties": "3"}
    assert "iris dealt to 3 parties: shards" in client.get("/partition", params=asked).text
    wrong = client.get("/partition", params={**asked, "data.partition.parties": "0"})
    assert wrong.status_code == 422
    assert 'id="f-data.partition.parties-error"' in wrong.text
    impossible = client.get("/partition", params={**asked, "data.partition.parties": "4000"})
    assert "4000" in impossible.text or "4,000" in impossible.text


def test_a_row_is_explained_as_on_the_command_line(client, runs):
    explained = explain(Result(runs / "trees"), 4)
    text = client.get("/tree/trees?row=4").text
    assert f"true {explained.schema.target.name}: {explained.rows[0].truth}" in text
    for condition in explained.rows[0].by_global.conditions:
        assert str(condition).replace("<", "&lt;").replace(">", "&gt;") in text
    assert explained.rows[0].comparison.replace("<", "&lt;").replace(">", "&gt;") in text


@pytest.mark.parametrize(("query", "words"), [("row=4000", "there is no test row 4000"), ("row=x", "not the number"),
                                              ("party=nobody", "nobody"), ("row=-1", "not the number")])
def test_a_row_that_is_not_there_is_told_beside_the_trees(client, query, words):
    answer = client.get(f"/tree/trees?{query}")
    assert answer.status_code == 200
    assert words in answer.text
    assert "<iframe" in answer.text


def test_the_drawing_may_run_its_own_script_and_no_other(client):
    answer = client.get("/drawing/trees?row=4")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'self'" in policy
    assert '"row 4"' in answer.text


def test_a_run_without_trees_says_so(client):
    answer = client.get("/tree/fedavg-0")
    assert answer.status_code == 400
    assert "not made of trees" in answer.text


def test_looking_at_a_run_imports_no_code_that_its_config_names(client, runs):
    config = runs / "trees" / "config.toml"
    (runs / "evil.py").write_text("raise SystemExit('imported')")
    config.write_text(config.read_text().replace("plugins = []", f"plugins = ['{runs / 'evil.py'}']"))
    for address in ("/run/trees", "/tree/trees", "/drawing/trees", "/partition?run=trees", "/new?like=trees",
                    "/compare?run=trees&run=fedavg-0", "/"):
        assert client.get(address).status_code < 500
    assert "does not import by itself" in client.get("/tree/trees").text


def test_a_new_run_like_another_is_filled_in(client):
    text = client.get("/new?like=fedavgm-1").text
    assert re.search(r'name="seed" value="1"', text)
    assert "<option selected>fedavgm</option>" in text
    assert "[&#34;standardise&#34;]" in text


def test_a_run_that_adds_noise_says_what_that_hides(client, runs):
    summary = json.loads((runs / "fedavg-0" / "summary.json").read_text())
    (runs / "fedavg-0" / "summary.json").write_text(json.dumps({**summary, "privacy": {"words": "Epsilon 3 <at> all"}}))
    assert "Epsilon 3 &lt;at&gt; all" in client.get("/run/fedavg-0").text


def test_baselines_can_be_compared_with_their_run(client):
    assert "there is one method only" in client.get("/compare", params={"run": "trees"}).text
    text = client.get("/compare", params={"run": "trees", "baselines": "yes"}).text
    standings = text[text.index('id="standings"'):]
    assert "federated-id3" in standings
    assert '<th scope="row">alone</th>' in standings


def test_runs_that_cannot_be_paired_are_shown_without_statistics(client):
    answer = client.get("/compare", params={"run": ["fedavg-0", "fedavgm-1"]})
    assert answer.status_code == 200
    assert "nothing can be paired" in answer.text
    assert len(data_of(answer.text)) == 2


def test_of_vertical_trees_a_party_sees_its_own_splits(tmp_path):
    import tequio
    from tequio.views.web.guard import Settings

    from .conftest import client_of

    made = tequio.run({"name": "two", "rounds": 1, "engine": {"workers": 1}, "output": {"folder": str(tmp_path)},
                       "data": {"name": "breast-cancer", "test": 0.0, "split": {"validation": 0.0, "test": 0.25},
                                "partition": {"name": "columns", "counts": [15, 15]}},
                       "learner": {"name": "boosted-trees", "depth": 2, "bins": 16},
                       "algorithm": {"name": "secureboost", "encryption": "plain", "alignment": "agreed"}})
    client = client_of(Settings(tmp_path))
    seen = explain(made, party="1")
    text = client.get(f"/tree/{made.folder.name}?party=1").text
    assert "As party 1 (" in text
    assert all(f"own splits on {name}" in text for name in seen.columns)
    assert client.get(f"/drawing/{made.folder.name}?party=1").status_code == 200
    row = client.get(f"/tree/{made.folder.name}?row=3")
    assert row.status_code == 200
    assert "no single place can explain a row" in row.text
