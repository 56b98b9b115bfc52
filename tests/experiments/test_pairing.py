"""Runs as methods on blocks: what makes a method, what a problem, and what cannot be paired."""

from __future__ import annotations

import pytest

from tequio.errors import ConfigError, RunError
from tequio.experiments.comparing.comparing import compare
from tequio.experiments.comparing.pairing import shared_metric, values_of
from tequio.experiments.comparing.values import contenders, find_runs


def pair(folder, **options):
    runs, problems = contenders(find_runs([folder]))
    return values_of(runs, left_out=problems, **options)


def test_runs_are_paired_by_data_partition_and_seed(store_run, tmp_path):
    for data in ("digits", "wine"):
        for seed in (0, 1):
            store_run(tmp_path / f"{data}-a-{seed}", data=data, seed=seed, accuracy=0.5 + seed / 4)
            store_run(tmp_path / f"{data}-b-{seed}", data=data, seed=seed, algorithm="fedprox", accuracy=0.25)
    found = pair(tmp_path)
    assert found.methods == ("fedavg", "fedprox")
    assert list(zip(found.problems, found.seeds, strict=True)) == [("digits", "0"), ("digits", "1"), ("wine", "0"),
                                                                   ("wine", "1")]
    assert found.matrix.tolist() == [[0.5, 0.25], [0.75, 0.25]] * 2
    assert (found.metric, found.higher_is_better, found.settings) == ("test.accuracy", True, ("algorithm.name",))


def test_own_parameters_of_a_component_tell_methods_apart_only_under_one_name(store_run, tmp_path):
    store_run(tmp_path / "a", stop={"patience": 3})
    store_run(tmp_path / "b", algorithm="fedprox", stop={"patience": 3}, proximal={"mu": 0.1})
    assert pair(tmp_path).methods[1] == "fedprox, mu 0.1"
    for name, mu in (("c", 0.1), ("d", 0.2)):
        folder = store_run(tmp_path / "own" / name, algorithm="fedprox")
        (folder / "config.toml").write_text((folder / "config.toml").read_text().replace(
            'name = "fedprox"', f'name = "fedprox"\nmu = {mu}'))
    store_run(tmp_path / "own" / "e", algorithm="fedavg")
    assert pair(tmp_path / "own").methods == ("fedprox, mu 0.1", "fedprox, mu 0.2", "fedavg")
    (tmp_path / "own" / "d" / "summary.json").unlink()
    assert pair(tmp_path / "own").methods == ("fedprox", "fedavg")


def test_a_key_of_the_problem_can_be_made_the_method(store_run, tmp_path):
    for parties in (5, 10):
        for seed in (0, 1):
            store_run(tmp_path / f"{parties}-{seed}", seed=seed, attack={"name": "flip", "share": parties / 100})
    runs, _ = contenders(find_runs([tmp_path]))
    assert values_of(runs, by=["attack.share"]).methods == ("share 0.1", "share 0.05")
    with pytest.raises(ConfigError, match=r"did you mean .*attack\.share"):
        values_of(runs, by=["attack.shar"])


def test_one_method_is_refused_with_what_to_do(store_run, tmp_path):
    for seed in (0, 1):
        store_run(tmp_path / f"a-{seed}", seed=seed)
    with pytest.raises(ConfigError, match="differ in their seed only"):
        pair(tmp_path)
    store_run(tmp_path / "b", attack={"name": "flip"})
    with pytest.raises(ConfigError, match=r"--by attack\.name"):
        pair(tmp_path)


def test_seeds_that_do_not_meet_are_refused(store_run, tmp_path):
    store_run(tmp_path / "a", seed=0)
    store_run(tmp_path / "b", seed=1, algorithm="fedprox")
    with pytest.raises(ConfigError, match="'fedavg' has seeds 0; 'fedprox' has seeds 1"):
        pair(tmp_path)


def test_unfinished_damaged_and_unpaired_runs_are_told_and_left_out(store_run, tmp_path):
    for seed in (0, 1):
        store_run(tmp_path / f"a-{seed}", seed=seed)
        store_run(tmp_path / f"b-{seed}", seed=seed, algorithm="fedprox")
    store_run(tmp_path / "c", seed=2)
    (store_run(tmp_path / "d", seed=3) / "summary.json").unlink()
    (store_run(tmp_path / "e", seed=3) / "summary.json").write_text('{"metr')
    (store_run(tmp_path / "f", seed=3) / "config.toml").write_text("seed = = 3")
    store_run(tmp_path / "g", seed=0)
    found = pair(tmp_path)
    assert len(found.matrix) == 2
    told = "\n".join(found.left_out)
    assert "d: not finished" in told
    assert "e: damaged" in told
    assert "f: damaged" in told
    assert "1 of 3 blocks lack a method" in told
    assert "1 runs repeat others" in told


def test_baselines_are_methods_where_they_are_asked_for(store_run, tmp_path):
    for seed in (0, 1):
        run = store_run(tmp_path / f"a-{seed}", seed=seed, accuracy=0.9, selector={"name": "random"})
        store_run(run / "baselines" / "centralised", seed=seed, algorithm="centralised", accuracy=0.95,
                  partition={"name": "pooled"})
    with pytest.raises(ConfigError, match="--baselines"):
        compare(tmp_path)
    found = compare(tmp_path, baselines=True)
    assert [(one.method, one.values.mean) for one in found.standings] == [("centralised", 0.95), ("fedavg", 0.9)]


def test_runs_are_found_by_pattern_by_name_and_by_folder(store_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = store_run(tmp_path / "runs" / "study" / "a-0")
    store_run(run / "baselines" / "alone", algorithm="alone")
    store_run(tmp_path / "runs" / "study" / "b-0")
    names = [path.name for path in find_runs(["runs/study"])]
    assert names == ["a-0", "b-0"]
    assert [path.name for path in find_runs(["runs/study/b*", "runs/study"])] == ["b-0", "a-0"]
    assert [path.name for path in find_runs(["study"])] == names
    assert [path.name for path in find_runs(["runs/study/a-0"])] == ["a-0"]
    assert [path.name for path in find_runs(["runs/study/a-0"], baselines=True)] == ["a-0", "alone"]
    with pytest.raises(RunError, match="no run in 'nowhere'"):
        find_runs(["nowhere"])


def test_the_metric_is_one_that_all_runs_have(store_run, tmp_path):
    store_run(tmp_path / "a", metrics={"train.loss": 1.0, "parties.f1_macro.mean": 0.3, "parties.loss.mean": 1.0})
    store_run(tmp_path / "b", metrics={"train.loss": 1.0, "test.accuracy": 0.5, "parties.f1_macro.mean": 0.3})
    store_run(tmp_path / "c", metrics={"train.loss": 1.0, "test.accuracy": None})
    runs, _ = contenders(find_runs([tmp_path]))
    assert shared_metric([run.result for run in runs[:2]]) == "parties.f1_macro.mean"
    assert shared_metric([run.result for run in runs]) == "train.loss"
    with pytest.raises(ConfigError, match=r"has no metric 'test\.acuracy'"):
        compare(tmp_path / "a", tmp_path / "b", metric="test.acuracy", by=["name"])
    assert compare(tmp_path / "a", tmp_path / "b", metric="bytes_up", by=["name"]).higher_is_better is False
