"""Which metric stands for a run, and that every view of the run uses that one."""

import json

import numpy as np
import pytest
from rich.console import Console

import tequio
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import ConfigError
from tequio.experiments.comparing.pairing import shared_metric
from tequio.experiments.running.headline import common_headline, headline_of, measured_headline
from tequio.experiments.running.results import Result
from tequio.experiments.showing.results import headline_column, headline_metric, headlines, result_table

SICK = Target("classes", ("no", "yes"), "sick")
KEYS = {"rounds": 2, "learner": "logistic", "engine": {"workers": 1}, "data": {
    "test": 0.2, "partition": {"name": "iid", "parties": 3}, "split": {"validation": 0.2, "test": 0.2}}}


def rows_with(positives, rows=100):
    rng = np.random.default_rng(0)
    target = np.arange(rows) < positives
    return Dataset.of(Schema((Feature("a"), Feature("b")), SICK), rng.normal(size=(rows, 2)), target.astype(np.int64))


def run(positives, folder, *, progress=False, **keys):
    data = {**KEYS["data"], **keys.pop("data", {}), "name": rows_with(positives, 400)}
    return tequio.run({**KEYS, **keys, "output": {"folder": str(folder)}}, data=data, progress=progress)


@pytest.mark.parametrize(("positives", "headline"), [(50, "accuracy"), (20, "accuracy"), (19, "balanced_accuracy"),
                                                     (81, "balanced_accuracy")])
def test_one_class_with_more_than_four_fifths_of_the_rows_makes_the_headline_balanced(positives, headline):
    assert headline_of("", SICK, rows_with(positives)) == headline


def test_a_coordinator_without_rows_cannot_know_how_classes_are_spread():
    assert headline_of("", SICK, None) == "accuracy"


def test_other_targets_have_a_headline_of_their_own():
    assert headline_of("", Target("number"), None) == "rmse"
    assert headline_of("", Target("multilabel", ("a", "b")), None) == "f1_macro"
    assert headline_of("", Target("none"), None) == "inertia"


def test_what_is_asked_for_is_the_headline_or_is_refused_with_the_nearest_name():
    assert headline_of("f1_macro", SICK, rows_with(5)) == "f1_macro"
    with pytest.raises(ConfigError, match=r"evaluation.headline = 'r2' does not exist for this data"):
        headline_of("r2", SICK, None)
    with pytest.raises(ConfigError, match=r"'balanced_acuracy' is not a metric; did you mean 'balanced_accuracy'\?"):
        tequio.run(data="iris", evaluation={"headline": "balanced_acuracy"})
    with pytest.raises(ConfigError, match=r"'f1' is not a metric; did you mean 'f1_macro'\?"):
        tequio.run(data="iris", evaluation={"headline": "f1"})


def test_a_headline_that_the_algorithm_does_not_measure_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"evaluation.headline = 'accuracy' is not measured by this .*; .*inertia"):
        tequio.run(data="iris", algorithm="kmeans", evaluation={"headline": "accuracy"},
                   output={"folder": str(tmp_path)})


def test_of_rare_positives_every_view_shows_balanced_accuracy(tmp_path, capsys):
    result = run(40, tmp_path, progress=True, stop={"patience": 5})
    summary = result.summary
    assert summary["headline"] == "balanced_accuracy" == headline_metric(result)
    assert summary["metric"] == "balanced_accuracy"  # the stop rules' own
    assert headline_column(result) == "test.balanced_accuracy"
    assert shared_metric([result]) == "test.balanced_accuracy"
    assert "test balanced accuracy" in headlines(result)
    assert "test balanced accuracy" in capsys.readouterr().err
    console = Console(width=80, record=True)
    console.print(result_table(result, 80))
    shown = console.export_text()
    assert "mean recall of the classes that occur" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert {"parties.balanced_accuracy.worst_decile", "parties.balanced_accuracy.jain"} <= set(summary["metrics"])
    assert {"parties.accuracy.worst_decile", "parties.accuracy.jain"} <= set(summary["metrics"])


def test_a_search_chooses_by_the_headline(tmp_path):
    data = {**KEYS["data"], "name": rows_with(40, 400)}
    found = tequio.search({**KEYS, "output": {"folder": str(tmp_path)}}, data=data,
                          search={"space": {"local.learning_rate": [0.01, 0.1]}})
    assert found.metric == "validation.balanced_accuracy"


def test_the_dashboard_shows_the_headline_of_finished_and_unfinished_runs(tmp_path):
    from tequio.views.web.index import read_entry

    result = run(40, tmp_path)
    assert read_entry("run", result.folder).metric == "test.balanced_accuracy"
    (result.folder / "summary.json").unlink()
    entry = read_entry("run", result.folder)
    assert (entry.metric, entry.value) == ("test.balanced_accuracy", result.metrics.last("test.balanced_accuracy"))


def test_a_run_with_an_older_summary_shows_what_it_did(tmp_path):
    result = run(40, tmp_path)
    summary = json.loads((result.folder / "summary.json").read_text())
    del summary["headline"]
    (result.folder / "summary.json").write_text(json.dumps(summary))
    assert headline_metric(Result(result.folder)) == "accuracy"


def test_runs_of_several_datasets_are_compared_by_what_suits_the_unbalanced_ones():
    assert common_headline(["accuracy", "accuracy"]) == "accuracy"
    assert common_headline(["accuracy", "balanced_accuracy"]) == "balanced_accuracy"
    assert common_headline(["accuracy", "rmse"]) == ""


def test_what_was_not_measured_is_no_headline():
    assert measured_headline("accuracy", {"test.inertia": 1.0}) == "inertia"
    assert measured_headline("accuracy", {"columns": 3.0}) == ""
