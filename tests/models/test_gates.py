"""Gates between the stages of a model's life: each refuses what it is for, and nothing goes round them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from in_use import outcomes

import tequio
from tequio.cli.main import call
from tequio.errors import ConfigError, RunError
from tequio.models import audit
from tequio.models.drift import Change, note_drift
from tequio.models.registry import ModelRegistry
from tequio.models.rollout import step_up


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [tequio.run(data={"name": "synthetic", "rows": 80, "features": 3, "prepare": ["standardise"], "test": 0.25,
                             "partition": {"name": "iid", "parties": 2}}, rounds=rounds, engine={"workers": 1},
                       output={"folder": str(folder)}) for rounds in (2, 3)]


@pytest.fixture
def registry(tmp_path):
    return ModelRegistry(tmp_path / "models", "risk")


def accuracy(run):
    return run.summary["metrics"]["test.accuracy"]


@pytest.mark.parametrize(("gates", "lacks"), [
    ("[data]\nparties = 3", "data: at least 3 parties (found: 2)"),
    ("[data]\nnames = ['loans', 'cards']", "data: data among loans, cards (found: synthetic)"),
    ("[data]\nreference = true", "data: what rows were like in training (found: not kept"),
    ("[preparation]\nsteps = ['one-hot']", "preparation: the step 'one-hot' (found: standardise)"),
    ("[preparation]\nscope = 'local'", "preparation: steps fitted local (found: federated)"),
    ("[training]\nrounds = 4", "training: at least 4 rounds (found: 2)"),
    ("[training]\nalgorithms = ['fedprox']", "training: algorithm among fedprox (found: fedavg)"),
    ("[training]\nepsilon = 2", "training: epsilon at most 2 (found: not private)"),
    ("[evaluation]\nbounds = ['test.accuracy>=1.01']", "evaluation: test.accuracy>=1.01 (found: "),
    ("[evaluation]\nbounds = ['fairness.gap<=0.1']", "evaluation: fairness.gap<=0.1 (found: not measured)")])
def test_a_run_that_does_not_pass_is_no_candidate(registry, runs, gates, lacks):
    registry.require(gates.encode())
    with pytest.raises(RunError) as refused:
        registry.add(runs[0].folder)
    assert lacks in refused.value.message
    assert not registry.versions()
    assert [entry["what"] for entry in registry.audit.entries()] == ["gates"]
    registry.require(b"")
    assert registry.add(runs[0].folder).number == 1


def test_a_run_that_passes_all_is_the_candidate(registry, runs):
    registry.require(f"""
[data]
names = ["synthetic"]
parties = 2
[preparation]
steps = ["standardise"]
scope = "federated"
[training]
rounds = 2
algorithms = ["fedavg"]
[evaluation]
bounds = ["test.accuracy>={accuracy(runs[0])}", "test.loss<=9"]
no_worse = ["test.loss"]
""".encode())
    assert registry.add(runs[0].folder).number == 1
    assert registry.promote().number == 1
    worse, better = sorted(runs, key=lambda run: -run.summary["metrics"]["test.loss"])
    again = ModelRegistry(registry.parent, "other")
    again.require(b"[evaluation]\nbounds = ['test.loss<=9']\nno_worse = ['test.loss']")
    again.add(better.folder)
    again.promote()
    with pytest.raises(RunError, match=r"test\.loss no worse than in production"):
        again.add(worse.folder)
    assert again.add(better.folder).number == 2  # as good is no worse


def test_a_model_without_its_run_passes_no_gate(registry, runs):
    registry.require(b"[training]\nrounds = 1")
    with pytest.raises(RunError, match=r"the record of the run \(found: no config.toml and no summary.json\)"):
        registry.add(runs[0].folder / "model")


def test_a_candidate_answers_nobody_before_it_is_approved(registry, runs, monkeypatch):
    registry.require(b"[deployment]\napprovals = 2")
    registry.add(runs[0].folder)
    assert registry.approve("looked at ten letters by hand") == 1
    assert registry.approve("again") == 1  # the same person
    with pytest.raises(RunError, match=r"approved by 2 \(found: [^,]+\)"):
        registry.promote()
    monkeypatch.setattr(audit, "_who", lambda: "somebody else")
    registry.approve("agreed")
    assert registry.promote().number == 1
    registry.add(runs[1].folder)
    for step in (lambda: registry.split(0.1), lambda: step_up(registry), registry.promote):
        with pytest.raises(RunError, match=r"approved by 2 \(found: nobody\)"):
            step()
    assert registry.state["share"] == 0


def test_where_a_trial_is_asked_for_nothing_in_production_is_replaced_by_hand(registry, runs):
    registry.require(b"[deployment]\ntrial = true")
    registry.add(runs[0].folder)
    assert registry.promote().number == 1  # the first has nobody to be compared with
    registry.add(runs[1].folder)
    for by_hand in (registry.promote, lambda: registry.split(1.0)):
        with pytest.raises(RunError, match="deployment: a trial"):
            by_hand()
    step_up(registry)
    registry.split(0)  # a trial may always be ended
    step_up(registry)
    for share in (0.1, 0.5, 1.0):
        outcomes(registry, 1, 3000, 0.6)
        outcomes(registry, 2, 3000, 0.9)
        assert step_up(registry).after == share
    assert registry.state["production"] == 2


def test_rows_of_today_have_to_be_compared_lately_and_to_be_alike(registry, runs, monkeypatch):
    registry.require(b"[monitoring]\ndays = 30\nlargest = 0.2")
    registry.add(runs[0].folder)
    with pytest.raises(RunError, match=r"rows compared within 30 days \(found: never\)"):
        registry.promote()
    note_drift(registry, 2, [Change("input", "x", 0.1, 0.0, 9, 9)], 0)  # of another version
    with pytest.raises(RunError, match="found: never"):
        registry.promote()
    note_drift(registry, 1, [Change("input", "x", 0.3, 0.0, 9, 9), Change("score", "yes", 9.0, 0.0, 9, 9)], 0)
    with pytest.raises(RunError, match=r"no column beyond 0.2 \(found: x: 0.300\)"):
        registry.promote()
    note_drift(registry, 1, [Change("input", "x", 0.2, 0.0, 9, 9)], 0)
    later = datetime.now(UTC) + timedelta(days=31)

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return later

    with monkeypatch.context() as patch:
        patch.setattr("tequio.models.gates.datetime", Later)
        with pytest.raises(RunError, match="rows compared within 30 days"):
            registry.promote()
    assert registry.promote().number == 1


def test_gates_that_were_exchanged_behind_the_log_let_nothing_through(registry, runs):
    registry.require(b"[training]\nrounds = 99")
    (registry.folder / "gates.toml").write_text("")
    with pytest.raises(RunError, match="is not the file that was required"):
        registry.add(runs[0].folder)
    (registry.folder / "gates.toml").unlink()
    with pytest.raises(RunError, match="is not the file that was required"):
        registry.add(runs[0].folder)


def test_gates_stay_as_they_are_during_a_trial(registry, runs):
    registry.add(runs[0].folder)
    registry.promote()
    registry.add(runs[1].folder)
    registry.split(0.1)
    with pytest.raises(ConfigError, match="version 2 is on trial, by the gates as they were"):
        registry.require(b"")


@pytest.mark.parametrize(("text", "said"), [
    ("[traning]\nrounds = 1", "there is no stage 'traning'"), ("rounds = 1", "there is no stage 'rounds'"),
    ("[training]\nround = 1", "has no parameter 'round'"), ("[training]\nrounds = -1", "'rounds'"),
    ("[evaluation]\nbounds = ['accuracy']", "'accuracy' is no bound"), ("[training", "is no TOML"),
    ("[evaluation]\nno_worse = ['test.loss']", "of which no bound says whether more is better")])
def test_gates_that_say_nothing_are_refused(registry, text, said):
    with pytest.raises(ConfigError, match=said):
        registry.require(text.encode())
    assert not (registry.folder / "gates.toml").exists()


def test_the_commands(tmp_path, runs, capsys):
    (tmp_path / "gates.toml").write_text("[training]\nrounds = 2\n[deployment]\napprovals = 1\n")
    place = ["--folder", str(tmp_path / "models")]
    assert call(["models", "require", "risk", str(tmp_path / "gates.toml"), *place]) == 0
    assert call(["models", "add", "risk", str(runs[0].folder), *place]) == 0
    assert call(["models", "gates", "risk", *place]) == RunError.exit_code
    assert "not passed" in capsys.readouterr().out
    assert call(["models", "approve", "risk", "--why", "looked at it", *place]) == 0
    capsys.readouterr()
    assert call(["models", "gates", "risk", "--json", *place]) == 0
    assert [one["passed"] for one in json.loads(capsys.readouterr().out)] == [True, True]
    assert call(["models", "audit", "risk", *place]) == 0
    said = capsys.readouterr().out
    assert "gates required" in said
    assert "version 1 approved" in said
