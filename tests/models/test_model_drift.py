"""Drift of a model in use: inputs against the reference of its training, scores and outcomes over time and versions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import tequio
from models.in_use import outcomes
from tequio.cli.main import call
from tequio.data.skew import bins_of, stability_index
from tequio.models.answers_log import Answered, AnswersLog
from tequio.models.drift import Change, Reference, _change, drift_in_use, last_drift
from tequio.models.registry import ModelRegistry


def test_the_index_is_the_one_of_the_book():
    """Shares of a half and a half against three and one quarter."""
    assert stability_index([50, 50], [75, 25]) == pytest.approx(0.25 * np.log(1.5) - 0.25 * np.log(0.5))


def test_chance_stays_below_its_limit_95_times_in_100():
    rng = np.random.default_rng(0)
    below = []
    for _ in range(400):
        old, new = rng.normal(size=900), rng.normal(size=300)
        bins = bins_of(old)
        change = _change("input", "x", bins.counts, bins.count(new))
        below.append(change.index <= change.chance)
    assert np.mean(below) == pytest.approx(0.95, abs=0.03)


def test_words_need_more_than_chance():
    assert Change("input", "x", 0.3, 0.4, 10, 10).word == "stable"
    assert [Change("input", "x", index, 0.01, 999, 999).word for index in (0.09, 0.1, 0.25)] == \
        ["stable", "changed", "changed much"]


def test_a_reference_survives_its_file():
    reference = Reference(3, {"x": bins_of(np.array([1.0, 2.0, 2.5])), "c": bins_of(np.array([0, 1, 1]), 3)},
                          {"probability of 1": bins_of(np.array([0.1, 0.2, 0.9]))})
    assert Reference.from_json(reference.to_json()) == reference


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A model of people's age and town, with rows as they were and as they are now."""
    folder = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)

    def write(name, count, age, towns):
        ages, places = rng.normal(age, 10, count), rng.choice(towns, count)
        lines = [f"{one:.2f},{place},{'yes' if one + rng.normal(0, 5) > 50 else 'no'}"
                 for one, place in zip(ages, places, strict=True)]
        (folder / f"{name}.csv").write_text("age,town,ill\n" + "\n".join(lines) + "\n")

    write("then", 600, 50, ["Here", "There"])
    write("same", 600, 50, ["Here", "There"])
    write("older", 600, 58, ["Here", "There", "Elsewhere"])
    run = tequio.run(data={"name": "csv", "path": str(folder / "then.csv"), "target": "ill", "prepare": ["one-hot",
                     "standardise"], "partition": {"name": "iid", "parties": 3}}, rounds=3, engine={"workers": 1},
                     output={"folder": str(folder / "runs")})
    assert call(["models", "add", "ill", str(run.folder), "--folder", str(folder / "models")]) == 0
    return folder


def look(people, capsys, *options):
    capsys.readouterr()
    assert call(["models", "drift", "ill", "--folder", str(people / "models"), "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    return {(one["kind"], one["name"]): Change(**one) for one in found["changes"]}, found


def test_inputs_and_scores_are_compared_with_the_training(people, capsys):
    same, found = look(people, capsys, "--data", str(people / "same.csv"))
    assert set(same) == {("input", "age"), ("input", "town"), ("score", "probability of yes")}
    assert {change.word for change in same.values()} == {"stable"}
    assert found["unseen_rows"] == 0
    moved, found = look(people, capsys, "--data", str(people / "older.csv"))
    assert moved["input", "age"].word == "changed much"
    assert moved["score", "probability of yes"].word == "changed much"
    assert moved["input", "town"].word == "stable"  # of those that the model knows
    assert found["unseen_rows"] == sum("Elsewhere" in line for line in (people / "older.csv").read_text().splitlines())
    registry = ModelRegistry(people / "models", "ill")
    assert last_drift(registry)[1] == 1
    assert Change("input", **{key: getattr(moved["input", "age"], key) for key in
                              ("name", "index", "chance", "before", "now")}) in last_drift(registry)[2]


def test_rows_of_that_time_do_as_well(people, capsys):
    kept, _ = look(people, capsys, "--data", str(people / "older.csv"))
    given, _ = look(people, capsys, "--data", str(people / "older.csv"), "--since", str(people / "then.csv"))
    # The run held some rows out, so its reference is of fewer.
    assert given["input", "age"].index == pytest.approx(kept["input", "age"].index, rel=0.3)


def test_without_rows_or_answers_there_is_nothing_to_see(people, capsys):
    assert call(["models", "drift", "ill", "--folder", str(people / "models")]) == 3
    assert "--data FILE" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_scores_and_outcomes_are_compared_over_time_and_between_versions(in_trial, tmp_path, capsys):
    rng = np.random.default_rng(0)
    begin = datetime(2026, 1, 1, tzinfo=UTC)

    def chances(value):
        return {"0": 1 - value, "1": value}

    with AnswersLog(in_trial.answers) as log:
        for version, centre, late in ((1, 0.5, 0.5), (2, 0.5, 0.8)):
            for place in range(1600):
                value = float(np.clip(rng.normal(centre if place < 1400 else late, 0.1), 0, 1))
                log.write([Answered(f"{version}-{place}", in_trial.version(version).sha256, int(value > 0.5),
                                    chances(value), time=(begin + timedelta(minutes=place)).isoformat())])
    path = tmp_path / "happened.csv"
    lines = [f"{version}-{place},{int(place >= 800 and version == 2)}" for version in (1, 2) for place in range(1600)]
    path.write_text("id,outcome\n" + "\n".join(lines) + "\n")
    assert call(["models", "outcomes", "risk", str(path), "--folder", str(in_trial.parent)]) == 0
    changes, windows = drift_in_use(in_trial)
    words = {change.name: change.word for change in changes}
    assert words == {
        "probability of 1: version 1, last window against first": "stable",
        "probability of 1: version 2, last window against first": "changed much",
        "version 1, second half against first": "stable",
        "version 2, second half against first": "changed much",
        "probability of 1: version 2 against 1": words["probability of 1: version 2 against 1"]}
    assert [(window.version, window.answers, window.outcomes) for window in windows] == \
        [(version, 200, 200) for version in (1, 2) for _ in range(8)]
    assert windows[-1].index > 1 > windows[-2].index
    drawn = tmp_path / "drift.svg"
    capsys.readouterr()
    assert call(["models", "drift", "risk", "--folder", str(in_trial.parent), "--plot", str(drawn)]) == 0
    shown = capsys.readouterr().out
    assert "changed much" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "<svg" in drawn.read_text()


def test_a_private_run_leaves_no_exact_counts(people, capsys, monkeypatch):
    from tequio.experiments.running.results import Result

    monkeypatch.setattr(Result, "privacy", property(lambda _: {"epsilon": 1.0}))
    run = next((people / "runs").iterdir())
    assert call(["models", "add", "other", str(run), "--folder", str(people / "models")]) == 0
    assert "would undo the privacy" in capsys.readouterr().err
    assert call(["models", "drift", "other", "--folder", str(people / "models"), "--data",
                 str(people / "same.csv")]) == 2


def test_what_happened_is_shown_by_version(in_trial, capsys):
    outcomes(in_trial, 1, 40, 0.5)
    outcomes(in_trial, 2, 40, 0.9)
    assert call(["models", "compare", "risk", "1", "2", "--folder", str(in_trial.parent)]) == 0
    shown = capsys.readouterr().out
    assert "Version 2 is better" in shown
    assert max(map(len, shown.splitlines())) <= 80
