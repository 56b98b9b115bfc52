import numpy as np
import pytest

import tequio
from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError, DataError
from tequio.experiments.api import fingerprint, gather
from tequio.experiments.config.complete import load_config
from tequio.experiments.running.results import Result

ROWS = np.arange(40.0)[:, None]


@pytest.fixture
def dataset():
    return Dataset.of(Schema.of_numbers(["x"], Target("classes", ("low", "high"))), ROWS, (ROWS[:, 0] > 20).astype(int))


def test_a_file_a_dict_and_a_config_give_the_same_run(toy, given):
    results = [tequio.run(config, rounds=3) for config in (toy, str(toy), given, load_config(toy))]
    assert {result.summary["model_sha256"] for result in results} == {results[0].summary["model_sha256"]}
    assert results[0].summary["rounds"] == 3


def test_a_table_with_a_name_replaces_and_one_without_adds(toy):
    given, _ = gather(toy, {"local": {"epochs": 2}, "learner": {"name": "kmeans"}})
    assert given["local"] == {"learning_rate": 0.5, "epochs": 2}
    assert given["learner"] == {"name": "kmeans"}
    given, _ = gather(toy, {"data": {"copies": 2}})
    assert given["data"]["name"] == "toy_numbers"
    given, _ = gather({"learner": "mlp"}, {"learner": {"hidden": [4]}})
    assert given["learner"] == {"name": "mlp", "hidden": [4]}


def test_datasets_arrays_and_frames_are_taken_for_data(dataset, tmp_path, monkeypatch):
    import pandas

    monkeypatch.chdir(tmp_path)
    frame = pandas.DataFrame({"x": ROWS[:, 0], "y": np.where(ROWS[:, 0] > 20, "high", "low")})
    forms = [dataset, (ROWS, ROWS[:, 0] > 20), {"name": frame, "target": "y"}]
    for data in forms:
        result = tequio.run(data=data, learner="sgd-classifier", rounds=1, engine={"workers": 1},
                            **{"data.partition": {"name": "iid", "parties": 2}})
        assert result.summary["parties"] == 2
        assert result.config.data.name == "given"
    with pytest.raises(DataError):
        tequio.run(data={"name": frame, "target": "z"})


def test_a_run_on_an_object_goes_on_only_with_the_same_rows(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = {"learner": "sgd-classifier", "engine": {"workers": 1}, "data.partition.parties": 2}
    short = tequio.run(data=dataset, rounds=1, **keys)
    long = tequio.run(data=dataset, rounds=3, **keys)
    with pytest.raises(ConfigError, match="hand it over again"):
        tequio.run(resume=short.folder, rounds=3)
    with pytest.raises(ConfigError, match="'data' is changed"):
        tequio.run(resume=short.folder, data=dataset.take(np.arange(30)), rounds=3)
    resumed = tequio.run(resume=short.folder, data=dataset, rounds=3)
    assert resumed.summary["model_sha256"] == long.summary["model_sha256"]


def test_fingerprints_tell_datasets_apart(dataset):
    assert fingerprint(dataset) == fingerprint(dataset.take(np.arange(40)))
    assert fingerprint(dataset) != fingerprint(dataset.take(np.arange(39)))
    assert fingerprint(dataset) != fingerprint(dataset.without_target())


def test_baselines_run_beside_and_inside_the_folder(toy, monkeypatch):
    result = tequio.run(toy, rounds=2, baselines=["alone", "centralised"])
    assert list(result.baselines) == ["alone", "centralised"]
    # One party that holds all rows moves half of the way to their mean in each round, as the federation does.
    assert result.baselines["centralised"].model["mean"] == pytest.approx([26 / 6 * 0.75])
    assert result.baselines["centralised"].summary["parties"] == 1
    assert result.baselines["alone"].summary["parties"] == 3
    assert result.to_dict()["baselines"]["alone"]["name"] == "toy-alone"
    again = Result(result.folder)
    assert list(again.baselines) == ["alone", "centralised"]


def test_a_resumed_run_catches_up_with_its_baselines(toy, monkeypatch):
    seen = []

    def stop_before_the_baseline(kind, facts):
        seen.append((kind, facts))
        if kind == "start" and facts["name"] == "toy-alone":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tequio.run(toy, baselines=["alone"], listen=stop_before_the_baseline)
    result = tequio.run(resume=next(facts["folder"] for kind, facts in seen if kind == "start"))
    assert list(result.baselines) == ["alone"]


def test_a_result_shows_itself(toy):
    result = tequio.run(toy, baselines=["alone"], **{"data.copies": 10, "data.test": 0.5})
    html, metrics = result._repr_html_(), result.summary["metrics"]
    assert "<svg" in html
    few, rest = html.split("<details>")
    assert "test.rmse" not in few
    assert f"<td style='text-align:left'>{metrics['test.rmse']:.3f}</td>" in few
    assert "test.rmse" in rest
    lines = repr(result).splitlines()
    assert lines == [f"toy: fedavg on toy_numbers, {result.summary['parties']} parties",
                     f"  test rmse           {metrics['test.rmse']:.3f}",
                     f"  baselines           alone {result.baselines['alone'].summary['metrics']['test.rmse']:.3f}",
                     f"  rounds              2: all rounds done, {result.summary['seconds']:.2f} s",
                     "  warnings            1: see result.warnings",
                     f"  folder              {result.folder}"]
    everywhere = tequio.run(rounds=1, data={"name": "iris", "partition": {"name": "iid", "parties": 3}})
    metrics = everywhere.summary["metrics"]
    assert repr(everywhere).splitlines()[2] == (
        f"  at parties          mean {metrics['parties.accuracy.mean']:.3f}, worst tenth "
        f"{metrics['parties.accuracy.worst_decile']:.3f}")
    unmeasured = tequio.run(toy, **{"evaluation.at": []})
    assert [line.split()[0] for line in repr(unmeasured).splitlines()[1:]] == ["rounds", "folder"]
    assert unmeasured._repr_html_().startswith("<b>toy: fedavg on toy_numbers")


def test_a_run_that_has_not_finished_shows_its_folder(tmp_path):
    assert repr(Result(tmp_path)) == f"a run that is not finished\n  folder      {tmp_path}"
    assert str(tmp_path) in Result(tmp_path)._repr_html_()


def test_progress_may_be_shown(toy, capsys):
    tequio.run(toy, progress=True, rounds=2)
    assert "toy: round 2 of 2  train loss" in capsys.readouterr().err
