"""Models in use: candidate, production, split by id, promotion and roll-back, and what is refused."""

from __future__ import annotations

import json

import pytest

import tequio
from tequio.cli.main import call
from tequio.errors import ConfigError, RunError
from tequio.models.registry import ModelRegistry, registries


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [tequio.run(data={"name": "synthetic", "rows": 60, "features": 3, "partition": {"name": "iid",
                       "parties": 2}}, rounds=1, seed=seed, engine={"workers": 1},
                       output={"folder": str(folder)}) for seed in (0, 1)]


@pytest.fixture
def registry(tmp_path):
    return ModelRegistry(tmp_path / "models", "risk")


def test_a_run_becomes_candidate_then_production_and_can_be_rolled_back(registry, runs):
    assert registry.add(runs[0].folder).number == 1
    with pytest.raises(ConfigError, match="no version in production"):
        registry.route("anybody")
    assert registry.promote().number == 1
    assert registry.add(runs[1].folder).number == 2
    assert registry.state["production"] == 1
    assert registry.promote().summary["model_sha256"] == runs[1].summary["model_sha256"]
    assert registry.roll_back().number == 1
    assert registry.roll_back().number == 2
    assert [entry["what"] for entry in registry.audit.entries()] == [
        "added", "production", "added", "production", "rolled back", "rolled back"]
    assert [found.name for found in registries(registry.parent)] == ["risk"]


def test_ids_are_split_by_their_hash(registry, runs):
    registry.add(runs[0].folder)
    registry.promote()
    registry.add(runs[1].folder)
    ids = [str(number) for number in range(2000)]
    assert {registry.route(id).number for id in ids} == {1}
    registry.split(0.3)
    first = [registry.route(id).number for id in ids]
    assert first.count(2) == pytest.approx(600, abs=80)
    registry.split(0.6)
    wider = [registry.route(id).number for id in ids]
    assert all(after == 2 for before, after in zip(first, wider, strict=True) if before == 2)  # nobody is moved back
    registry.promote()
    assert {registry.route(id).number for id in ids} == {2}


def test_what_makes_no_sense_is_refused(registry, runs):
    with pytest.raises(ConfigError, match="there is no model 'risk'"):
        registry.promote()
    registry.add(runs[0].folder)
    with pytest.raises(ConfigError, match="no candidate beside one in production"):
        registry.split(0.5)
    registry.promote()
    with pytest.raises(ConfigError, match="has no candidate"):
        registry.promote()
    with pytest.raises(ConfigError, match="no other version"):
        registry.roll_back()
    registry.add(runs[1].folder)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        registry.split(1.5)


def test_a_version_that_was_changed_is_not_promoted(registry, runs):
    version = registry.add(runs[0].folder)
    (version.folder / "common.safetensors").write_bytes(b"something else")
    with pytest.raises(RunError, match="is not what was written"):
        registry.promote()


def test_a_version_whose_run_says_something_else_is_not_promoted(registry, runs):
    version = registry.add(runs[0].folder)
    path = version.folder / "run" / "summary.json"
    path.write_text(path.read_text().replace("0.", "1."))
    with pytest.raises(RunError, match="not what was added"):
        registry.promote()


def test_a_party_checks_model_schema_and_drift_before_it_adopts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [f"{number},{number % 7},{'yes' if number % 2 else 'no'}" for number in range(80)]
    for name, shift in (("old", 0), ("same", 0), ("older", 60)):
        moved = [f"{int(line.split(',')[0]) + shift},{line.split(',', 1)[1]}" for line in lines]
        (tmp_path / f"{name}.csv").write_text("age,visits,ill\n" + "\n".join(moved) + "\n")
    (tmp_path / "other.csv").write_text("height,ill\n1,yes\n2,no\n")
    result = tequio.run(data={"name": "csv", "path": "old.csv", "target": "ill", "partition": {"name": "iid",
                        "parties": 2}}, rounds=1, engine={"workers": 1})
    assert call(["models", "add", "risk", str(result.folder)]) == 0
    version = str(ModelRegistry(tmp_path / "models", "risk").version(1).folder)
    capsys.readouterr()
    assert call(["models", "check", version, "--data", "same.csv", "--since", "old.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drift"] == {"age": 0.0, "visits": 0.0, "ill": 0.0}
    assert call(["models", "check", version, "--data", "older.csv", "--since", "old.csv"]) == 3
    assert "column 'age' has changed since training" in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert call(["models", "check", version, "--data", "other.csv", "--since", "old.csv"]) == 3
