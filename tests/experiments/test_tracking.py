import sys

import pytest

from tequio.errors import MissingExtra
from tequio.experiments.config.complete import complete, with_key
from tequio.experiments.running.runner import run_config

pytestmark = pytest.mark.filterwarnings("ignore")


def tracked(given, tracker):
    return run_config(complete(with_key(given, "output.track", [tracker])))


def test_tensorboard_gets_every_metric_of_every_round(given):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = tracked(given, "tensorboard")
    events = EventAccumulator(str(result.folder / "tensorboard"))
    events.Reload()
    points = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert points == [(row["round"], pytest.approx(row["train.loss"])) for row in result.metrics]


def test_mlflow_gets_the_config_and_every_metric(given, tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    result = tracked(given, "mlflow")
    client = MlflowClient(tracking_uri=(tmp_path / "runs" / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("toy").experiment_id])
    assert run.info.run_name == result.folder.name
    assert run.info.status == "FINISHED"
    assert run.data.params["learner.name"] == "toy_mean"
    history = client.get_metric_history(run.info.run_id, "train.loss")
    assert [(point.step, point.value) for point in history] == [
        (row["round"], row["train.loss"]) for row in result.metrics]


@pytest.mark.parametrize(("tracker", "module"), [("mlflow", "mlflow.entities"),
                                                 ("tensorboard", "tensorboard.compat.proto.event_pb2")])
def test_a_missing_package_is_named_with_what_to_type(given, monkeypatch, tracker, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"needs the package .*pip install 'tequio\[track\]'"):
        tracked(given, tracker)
