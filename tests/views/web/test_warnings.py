"""The page of a run shows what is going wrong in it."""

import json


def test_a_finished_run_shows_its_warnings_once(client, runs):
    path = runs / "fedavg-0" / "summary.json"
    summary = json.loads(path.read_text()) | {"warnings": ["set local.batch = 8, <please>"], "stopped": "diverged"}
    path.write_text(json.dumps(summary))
    with (runs / "fedavg-0" / "events.jsonl").open("a") as events:
        events.write(json.dumps({"event": "warning", "message": "set local.batch = 8, <please>"}) + "\n")
    page = client.get("/run/fedavg-0").text
    assert page.count("set local.batch = 8, &lt;please&gt;") == 1
    assert "the run has diverged" in page


def test_a_run_without_warnings_shows_no_empty_box(client):
    assert "Warnings" not in client.get("/run/trees").text
