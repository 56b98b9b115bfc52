"""The end of a run: parties adopt the global model iff it beats theirs on validation rows; tuning is reported."""

from __future__ import annotations

import json

import pytest

import tequio

DATA = {"name": "iris", "split": {"validation": 0.2, "test": 0.2}, "partition": {"name": "dirichlet", "parties": 4,
        "alpha": 1.0, "minimum_rows": 12}, "one_class": "allow"}


def run(tmp_path, **keys):
    return tequio.run(data=DATA, learner="logistic", rounds=3, engine={"workers": 1}, output={"folder": str(tmp_path)},
                      seed=3, **keys)


@pytest.fixture(scope="module")
def adopted(tmp_path_factory):
    return run(tmp_path_factory.mktemp("adopted"), adoption={"if_better": True, "fine_tune_epochs": 2})


def decisions(result):
    events = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "adoption"]


def test_each_party_keeps_the_better_of_two_models(adopted):
    said = decisions(adopted)
    assert len(said) == 4
    for event in said:
        assert event["adopted"] is (event["global"] < event["own"])  # by loss
    share = sum(event["adopted"] for event in said) / 4
    assert adopted.summary["metrics"]["adopted.share"] == share
    assert adopted.parties["adopted"] == [str(event["adopted"]).lower() for event in said]


def test_fine_tuned_metrics_stand_beside_those_of_the_global_model(adopted):
    metrics = adopted.summary["metrics"]
    assert metrics["fine_tuned.loss.pooled"] != metrics["parties.loss.pooled"]
    assert 0 <= metrics["fine_tuned.accuracy.mean"] <= 1


def test_the_model_and_the_identity_of_the_run_do_not_change(adopted, tmp_path):
    plain = run(tmp_path)
    assert plain.summary["model_sha256"] == adopted.summary["model_sha256"]
    assert plain.summary["config_hash"] != adopted.summary["config_hash"]
    assert not any(name.startswith(("adopted", "fine_tuned")) for name in plain.summary["metrics"])
