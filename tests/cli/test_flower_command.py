from __future__ import annotations

import json
import tomllib

from tequio.experiments.deploying.flower_party import answer_at


def test_joining_makes_a_folder_that_a_supernode_can_be_started_with(tequio, tmp_path):
    (tmp_path / "north.csv").write_text("age,state\n" + "\n".join(f"{age},{'sick' if age % 2 else 'well'}"
                                                                  for age in range(20)))
    home = tmp_path / "north"
    words = ("flower", "join", "--data", str(tmp_path / "north.csv"), "--target", "state", "--home", str(home))
    code, _, err = tequio(*words)
    assert code != 0
    assert "this party has no name" in err
    assert not home.exists()
    code, out, _ = tequio(*words, "--name", "north")
    assert code == 0
    assert "north, 20 rows" in out
    option = next(line.strip() for line in out.splitlines() if "--node-config" in line)
    node = tomllib.loads(option.removeprefix("--node-config ").strip("'"))
    [greeting] = answer_at(node, [])
    assert b"north" in greeting
    assert json.loads((home / "party.json").read_bytes())["name"] == "north"
    code, _, err = tequio(*words, "--name", "south")
    assert code != 0
    assert "belongs to a party that has joined already" in " ".join(err.replace("│", " ").split())


def test_joining_says_what_columns_were_taken_for(tequio, tmp_path):
    rows = "\n".join(f"P-{row:04},{row % 7},{'sick' if row % 2 else 'well'}" for row in range(30))
    (tmp_path / "north.csv").write_text(f"patient,age,state\n{rows}\n")
    code, out, err = tequio("flower", "join", "--data", str(tmp_path / "north.csv"), "--target", "state", "--home",
                            str(tmp_path / "north"), "--name", "north")
    assert code == 0
    assert "note: column 'patient' looks like an id and is left out" in err
    assert "note:" not in out


def test_an_app_is_written_and_says_how_to_run_it(tequio, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text('[data]\nname = "digits"\n')
    code, out, _ = tequio("flower", "app", str(file), str(tmp_path / "app"), "--set", "rounds=3", "--run", "mine")
    assert code == 0
    assert "flwr run" in out
    assert "FLWR_TELEMETRY_ENABLED=0" in out
    assert tomllib.loads((tmp_path / "app/experiment.toml").read_text())["rounds"] == 3
    code, _, err = tequio("flower", "app", str(file), str(tmp_path / "app"))
    assert code != 0
    assert "not empty" in " ".join(err.replace("│", " ").split())
    assert tequio("flower", "app", str(file), str(tmp_path / "other"), "--run", "../mine")[0] != 0
