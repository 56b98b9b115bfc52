"""Attacks on finished runs: they succeed where nothing protects and fail where something does."""

from __future__ import annotations

import json

import pytest

import tequio
from tequio import registry
from tequio.cli.main import call
from tequio.errors import ConfigError
from tequio.probing.probe import probe, probe_table

BASE = {"data": {"name": "digits", "test": 0.9, "one_class": "allow", "split": {"validation": 0.0, "test": 0.0},
                 "partition": {"name": "iid", "parties": 8}},
        "rounds": 8, "learner": {"name": "mlp", "hidden": [24]},
        "local": {"name": "minibatch", "epochs": 8, "batch": 8, "learning_rate": 0.3},
        "algorithm": {"name": "fedavg", "weights": "uniform"}, "evaluation": {"at": ["coordinator"]}}
WAYS = {
    "bare": {},
    "secure": {"stages": [{"name": "secure-sum"}]},
    "central": {"stages": [{"name": "central-dp", "clip": 1.0, "noise": 4.0}]},
    "local": {"stages": [{"name": "local-dp", "clip": 1.0, "noise": 1.0}, {"name": "secure-sum"}]},
    "alone": {"stages": [{"name": "local-dp", "clip": 1.0, "noise": 1.0}]},
    "rows": {"local": {"name": "dp-sgd", "noise": 2.0, "batch": 8, "epochs": 1}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    return {name: tequio.run(BASE | way, name=name, output={"folder": str(folder)}) for name, way in WAYS.items()}


def test_an_unprotected_batch_of_one_is_an_open_book_for_the_coordinator(runs):
    found = probe(runs["bare"], "gradient-inversion", "coordinator")
    assert found["success"] == found["labels_told"] == 1.0
    assert found["psnr"] > 60
    assert found["error"] < 1e-6


@pytest.mark.parametrize("way", ["secure", "local", "rows"])
def test_protected_rows_are_not_recognised_by_the_coordinator(runs, way):
    found = probe(runs[way], "gradient-inversion", "coordinator")
    assert found["success"] <= 0.25
    assert found["psnr"] < found["guess_psnr"] + 3


def test_central_noise_hides_rows_from_all_but_the_coordinator(runs):
    assert probe(runs["central"], "gradient-inversion", "coordinator")["success"] == 1.0
    released = probe(runs["central"], "gradient-inversion", "released")
    assert released["success"] <= 0.25
    assert released["psnr"] < released["guess_psnr"]


def test_members_of_an_overfitted_model_are_told_and_noise_hides_them(runs):
    bare, noised = (probe(runs[way], "lira", shadows=8) for way in ("bare", "central"))
    assert bare["low"] > 0.55
    assert noised["low"] < 0.5 < noised["high"]


def test_classes_are_drawn_from_a_good_model_only(runs):
    bare, noised = (probe(runs[way], "class-reconstruction")["success"] for way in ("bare", "central"))
    assert bare >= 0.8
    assert noised < bare


QUICK = {"gradient-inversion": {}, "lira": {"shadows": 4}, "rmia": {"shadows": 4, "offline": True},
         "property-inference": {}, "class-reconstruction": {},
         "share-inference": {"value": "3"}, "batch-inversion": {"iterations": 80, "restarts": 1, "victims": 3}}


@pytest.mark.parametrize("attack", QUICK)
def test_every_attack_comes_out_the_same_again_and_says_what_guessing_would(runs, attack):
    made = registry.build("probe", attack, QUICK[attack])
    first, second = (made.attempt(runs["bare"], made.views[0]) for _ in range(2))
    assert first == second
    assert 0 < first["guess"] < 1
    assert 0 <= first["success"] <= 1
    assert first["attempts"] >= 8


def test_what_was_found_is_kept_as_long_as_the_model_is_the_same(runs):
    result = runs["bare"]
    probe(result, "class-reconstruction")
    path = result.folder / "probes.json"
    kept = json.loads(path.read_text())
    kept["class-reconstruction released"]["success"] = 0.123
    path.write_text(json.dumps(kept))
    assert probe(result, "class-reconstruction")["success"] == 0.123
    path.write_text(json.dumps(kept | {"model_sha256": "another"}))
    assert probe(result, "class-reconstruction")["success"] != 0.123


def test_the_command_prints_a_table_and_draws(runs, tmp_path, capsys):
    folders = [str(runs[way].folder) for way in ("bare", "secure")]
    assert call(["probe", *folders, "--attack", "gradient-inversion", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["probes"]
    assert told == probe_table([runs["bare"], runs["secure"]], ["gradient-inversion"]).rows
    assert [row["success"] for row in told[:1]] == [1.0]
    assert call(["probe", *folders, "--attack", "gradient-inversion", "--picture", str(tmp_path / "rows.png")]) == 0
    assert "the attacker is taken to know the model" in capsys.readouterr().out
    assert (tmp_path / "rows.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_attacked_is_said(runs, tmp_path):
    with pytest.raises(ConfigError, match="there is no probe called 'inversion'"):
        probe(runs["bare"], "inversion")
    clusters = tequio.run({"data": {"name": "iris"}, "algorithm": "kmeans", "rounds": 1},
                          output={"folder": str(tmp_path)})
    with pytest.raises(ConfigError, match="finds nothing of its kind in a run of 'kmeans'"):
        probe(clusters, "gradient-inversion")


def test_batches_are_read_without_protection_and_not_under_noise_of_one(runs):
    """8 x 8 images, two layers: batches of one and of four."""
    for batch in (1, 4):
        quick = {"batch": batch, "iterations": 480, "restarts": 2}
        bare = probe(runs["bare"], "batch-inversion", **quick)
        assert bare["low"] > 0.5
        assert bare["labels_told"] == 1.0
        assert bare["psnr"] > bare["guess_psnr"] + 5
        noised = probe(runs["alone"], "batch-inversion", **quick)
        assert noised["low"] <= noised["guess"] <= noised["high"]
        assert noised["psnr"] < noised["guess_psnr"]


def test_several_steps_on_a_batch_are_replayed(runs):
    found = probe(runs["bare"], "batch-inversion", batch=2, steps=3, iterations=480, restarts=2)
    assert found["low"] > 0.5


def test_the_share_of_a_class_or_of_bright_pixels_is_read_from_updates_and_noise_hides_it(runs):
    for chosen in ({"value": "3"}, {"column": "pixel_27"}):
        bare, noised = (probe(runs[way], "share-inference", **chosen) for way in ("bare", "alone"))
        assert bare["low"] > bare["guess"]
        assert bare["error"] < 0.6 * bare["guess_error"]
        assert noised["error"] > 0.9 * noised["guess_error"]


@pytest.mark.parametrize(("attack", "settings", "message"), [
    ("batch-inversion", {"batch": 17}, "less than or equal to 16"),
    ("share-inference", {"column": "pixle"}, "no column 'pixle'"),
    ("share-inference", {"value": "eleven"}, "'target' has no category 'eleven'"),
    ("share-inference", {"columns": "a"}, "has no parameter 'columns'")])
def test_parameters_that_would_not_act_are_refused(runs, attack, settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        probe(runs["bare"], attack, **settings)
    assert caught.value.remedy


def test_what_was_found_is_kept_by_parameters(runs):
    for batch in (1, 2):
        probe(runs["bare"], "batch-inversion", batch=batch, iterations=8, restarts=1, victims=2)
    kept = json.loads((runs["bare"].folder / "probes.json").read_text())
    quick = '"iterations": 8, "restarts": 1, "victims": 2}'
    assert {f'batch-inversion coordinator {{"batch": 1, {quick}', f'batch-inversion coordinator {{"batch": 2, {quick}'
            } & kept.keys()
    with pytest.raises(ConfigError, match="does not look on as 'party'"):
        probe(runs["bare"], "batch-inversion", "party")
