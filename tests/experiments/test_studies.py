"""Studies: what is read, which runs follow from it, what is run again, and what the table says."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tequio import registry
from tequio.errors import ConfigError
from tequio.experiments.comparing.values import fits
from tequio.studies.answered import from_runs
from tequio.studies.answers import answer, higher_is_better
from tequio.studies.comparisons import COMPARISONS
from tequio.studies.description import load_study, studies_folder, study_names
from tequio.studies.missing import missing_runs, run_all
from tequio.studies.plans import make_plan, merged, store_of

SHIPPED = Path(__file__).parents[2] / "studies"
TOY = Path(__file__).parent / "toy_studies" / "flowers" / "study.toml"


def write_study(folder, name="flowers", change=("", "")):
    """The toy study in a folder of studies, with one change to its text."""
    (folder / name).mkdir(parents=True)
    (folder / name / "study.toml").write_text(TOY.read_text().replace(*change))
    return folder


@pytest.fixture
def study(tmp_path):
    return load_study("flowers", write_study(tmp_path / "studies"))


def plan_of(study, tmp_path, **options):
    return make_plan(study, out=tmp_path / "runs", workers=1, **options)


def put(store, planned, metrics, seconds=1.0):
    """A finished run without the work."""
    place = store.place_for(planned)
    summary = {"config_hash": planned.hash, "seconds": seconds, "metrics": metrics}
    (place / "summary.json").write_text(json.dumps(summary))
    return place


def run_missing(plan, store, pattern="*", listen=lambda kind, facts: None):
    """Make the runs behind the cells that fit; why some could not be made."""
    problems = {}
    run_all(missing_runs(plan, store, pattern), problems, listen=listen)
    return problems


class Ear:
    """Hears a study being run; stops it, as Ctrl-C would, at a given event."""

    def __init__(self, stop_at=None):
        self.heard, self._stop_at = [], stop_at

    def __call__(self, kind, facts):
        self.heard.append(kind)
        if self._stop_at is not None and self.heard.count(self._stop_at[0]) == self._stop_at[1]:
            raise KeyboardInterrupt


# --- reading ---------------------------------------------------------------------------------------------------------

def test_a_name_is_the_path_of_the_folder(tmp_path):
    folder = write_study(write_study(tmp_path, "group/second"), "first")
    assert study_names(folder) == ["first", "group/second"]
    assert load_study("group/second", folder).name == "group/second"


@pytest.mark.parametrize(("change", "complaint"), [
    (("seeds = 2", "seeds = 0"), "'seeds': input should be greater than or equal to 1"),
    (("seeds = 2", "sedes = 2"), "there is no key 'sedes'"),
    (('run = "one"', 'run = "won"'), "no run called 'won': did you mean 'one'?"),
    (("one party a round: accuracy", "all parties: loss"), "two lines are called 'all parties: loss'"),
    (("published = 0.5", "published = 0.5, direction = 'up'"), "'higher', 'lower' or 'both'"),
    (("published = 0.5", "published = 0.5, tolerance = 0.1"), "there is no key 'cells.0.tolerance'"),
    (('note = "Quick form: other flowers."', ""), "'quick.note' is missing"),
])
def test_a_wrong_file_is_refused_with_its_place(tmp_path, change, complaint):
    folder = write_study(tmp_path, change=change)
    with pytest.raises(ConfigError, match=r"flowers/study\.toml") as error:
        load_study("flowers", folder)
    assert complaint in str(error.value)


def test_an_unknown_study_names_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'flowers'"):
        load_study("flower", write_study(tmp_path))


def test_studies_are_found_by_variable_then_here_then_in_the_checkout(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.delenv("TEQUIO_STUDIES", raising=False)
    monkeypatch.chdir(tmp_path)
    assert studies_folder() == SHIPPED
    write_study(tmp_path / "studies")
    assert studies_folder() == Path("studies")
    monkeypatch.setenv("TEQUIO_STUDIES", str(write_study(tmp_path / "mine")))
    assert studies_folder() == tmp_path / "mine"
    monkeypatch.setenv("TEQUIO_STUDIES", str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="no studies in"):
        studies_folder()


# --- planning --------------------------------------------------------------------------------------------------------

def test_tables_are_merged_key_by_key():
    below = {"rounds": 3, "local": {"epochs": 1, "batch": 8}, "data": {"name": "iris", "split": {"test": 0.1}}}
    assert merged(below, {"rounds": 4, "local": {"epochs": 2}, "data": {"split": {"validation": 0.2}}}) == {
        "rounds": 4, "local": {"epochs": 2, "batch": 8},
        "data": {"name": "iris", "split": {"test": 0.1, "validation": 0.2}}}
    assert below["local"] == {"epochs": 1, "batch": 8}


def test_a_new_name_drops_the_old_ones_parameters_and_keeps_tables():
    below = {"data": {"name": "cifar10", "full": True, "partition": {"name": "iid", "parties": 7}}, "learner": "mlp"}
    above = {"data": {"name": "digits", "partition": {"name": "pooled"}}, "learner": {"hidden": [32]}}
    assert merged(below, above) == {"data": {"name": "digits", "partition": {"name": "pooled"}},
                                    "learner": {"name": "mlp", "hidden": [32]}}
    assert merged({"learner": {"name": "mlp", "hidden": [32]}}, {"learner": "logistic"}) == {
        "learner": {"name": "logistic"}}


def test_a_table_without_a_name_is_for_whatever_name_comes():
    below = {"data": {"test": 0.0, "split": {"test": 0.1}}}
    assert merged(below, {"data": {"name": "car"}}) == {"data": {"name": "car", "test": 0.0, "split": {"test": 0.1}}}


def test_a_plan_has_every_seed_of_every_run(study, tmp_path):
    plan = plan_of(study, tmp_path, seeds=3)
    assert [(one.run, one.seed) for one in plan.wanted()] == [
        ("all", 0), ("one", 0), ("all", 1), ("one", 1), ("all", 2), ("one", 2)]
    assert len({one.hash for one in plan.wanted()}) == 6
    assert plan.wanted()[0].config.selector["name"] == "all"
    assert plan.wanted()[1].config.selector == {"name": "random", "count": 1, "fraction": 1.0}
    assert [one.run for one in plan.wanted("one party*")] == ["one"] * 3


def test_the_quick_form_changes_the_configs_and_is_stored_apart(study, tmp_path):
    quick, full = plan_of(study, tmp_path, quick=True), plan_of(study, tmp_path)
    assert (quick.seeds, full.seeds) == (1, 2)
    config = quick.wanted()[0].config
    assert (config.rounds, config.data.name, config.local["learning_rate"], config.local["epochs"]) == (
        1, "wine", 0.0001, 20)
    assert config.data.partition["parties"] == 3
    assert {one.hash for one in quick.wanted()}.isdisjoint(one.hash for one in full.wanted())


def test_workers_and_folder_do_not_change_which_run_it_is(study, tmp_path):
    first = make_plan(study, out=tmp_path, workers=1).wanted()
    second = make_plan(study, out=tmp_path / "other", workers=2).wanted()
    assert [one.hash for one in first] == [one.hash for one in second]


@pytest.mark.parametrize(("pattern", "fit"), [("*", True), ("cnn", True), ("*CNN*accuracy", True), ("CNN*", False),
                                              ("loss", False)])
def test_patterns_of_cells(pattern, fit):
    assert fits("10 parties, CNN: accuracy", pattern) is fit


# --- verdicts --------------------------------------------------------------------------------------------------------

def test_seeds_that_never_reach_the_target_are_counted_and_the_cell_is_below(tmp_path):
    change = ('metric = "test.loss"', 'metric = "rounds_to(train.loss, 0.5)"')
    study = load_study("flowers", write_study(tmp_path / "studies", change=change))
    plan = plan_of(study, tmp_path, seeds=3)
    store = store_of(plan, tmp_path / "runs")
    cell = next(cell for cell in study.cells if cell.metric.startswith("rounds_to"))
    for planned, values in zip(plan.runs[cell.run], [(0.1, 0.6), (0.7, 0.1), (0.2, 0.3)], strict=True):
        lines = "".join(f"{round},{value}\n" for round, value in enumerate(values, start=1))
        (put(store, planned, {"test.accuracy": 1.0}) / "metrics.csv").write_text(f"round,train.loss\n{lines}")
    row = next(row for row in answer(plan, store) if row.cell == cell.name)
    assert (row.ours, row.seeds, row.never) == (1.5, 3, 1)
    assert row.verdict == "worse"


def test_which_way_is_better():
    better = {"test.accuracy": True, "parties.f1_macro.mean": True, "parties.accuracy.worst_decile": True,
              "test.loss": False, "parties.loss.max": False, "test.inertia": False, "seconds": False, "bytes_up": False}
    assert {metric: higher_is_better(metric) for metric in better} == better


# --- the table -------------------------------------------------------------------------------------------------------

def test_mean_and_spread_over_the_seeds_that_are_stored(study, tmp_path):
    plan = plan_of(study, tmp_path, seeds=3)
    store = store_of(plan, tmp_path / "runs")
    for planned, accuracy in zip(plan.runs["all"], (0.4, 0.5, 0.6), strict=True):
        put(store, planned, {"test.accuracy": accuracy, "test.loss": 2.0}, seconds=10 * accuracy)
    put(store, plan.runs["one"][1], {"test.accuracy": 0.25})
    accuracy, loss, one = answer(plan, store)
    assert (accuracy.ours, accuracy.sd, accuracy.seeds) == (pytest.approx(0.5), pytest.approx(0.1), 3)
    assert (accuracy.verdict, accuracy.seconds, len(accuracy.runs)) == ("cannot tell", pytest.approx(5.0), 3)
    assert (loss.ours, loss.sd, loss.verdict, loss.note) == (2.0, 0.0, "worse", "too good to be true")
    assert (one.ours, one.sd, one.seeds, one.verdict) == (0.25, None, 1, "no published number")


def with_mean(folder, mean):
    change = ("[config]\n", f"means = [{mean}]\n\n[config]\n")
    return load_study("flowers", write_study(folder, change=change))


def test_a_mean_over_cells_takes_the_seeds_for_which_all_of_them_are_stored(tmp_path):
    mean = '{name = "both", cells = "*: accuracy", published = 0.5}'
    plan = plan_of(with_mean(tmp_path / "studies", mean), tmp_path, seeds=3)
    store = store_of(plan, tmp_path / "runs")
    for planned, accuracy in zip(plan.runs["all"], (0.4, 0.5, 0.6), strict=True):
        put(store, planned, {"test.accuracy": accuracy, "test.loss": 2.0})
    for seed, accuracy in ((0, 0.5), (2, 0.6)):
        put(store, plan.runs["one"][seed], {"test.accuracy": accuracy})
    both = answer(plan, store)[-1]
    assert (both.cell, both.seeds, both.verdict) == ("both", 2, "cannot tell")
    assert (both.ours, both.sd) == (pytest.approx(0.525), pytest.approx(np.std([0.45, 0.6], ddof=1)))


def test_a_mean_over_different_metrics_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'mixed' is of cells with different metrics"):
        with_mean(tmp_path / "studies", '{name = "mixed", cells = "all*"}')


def test_an_empty_store_gives_a_table_of_cells_not_run(study, tmp_path):
    plan = plan_of(study, tmp_path)
    rows = answer(plan, store_of(plan, tmp_path / "runs"))
    assert [(row.ours, row.sd, row.seeds, row.verdict) for row in rows] == [(None, None, 0, "not run")] * 3


def test_a_stored_run_of_another_config_is_not_taken(study, tmp_path):
    plan = plan_of(study, tmp_path)
    store = store_of(plan, tmp_path / "runs")
    place = put(store, plan.runs["all"][0], {"test.accuracy": 1.0})
    (place / "summary.json").write_text(json.dumps({"config_hash": plan.runs["all"][0].hash[:8] + "0" * 56}))
    assert store.finished(plan.runs["all"][0]) is None


def test_a_metric_that_the_run_does_not_have_is_named(study, tmp_path):
    plan = plan_of(study, tmp_path)
    store = store_of(plan, tmp_path / "runs")
    put(store, plan.runs["one"][0], {"test.acuracy": 1.0})
    with pytest.raises(ConfigError, match=r"asks for 'test\.accuracy', which the run 'one' does not have.*acuracy"):
        answer(plan, store)


def test_the_quick_form_shows_the_published_value_and_does_not_judge(study, tmp_path):
    plan = plan_of(study, tmp_path, quick=True)
    store = store_of(plan, tmp_path / "runs")
    run_missing(plan, store)
    whole = from_runs(plan, store).document(quick=True)
    assert [row["verdict"] for row in whole["rows"]] == ["other data", "other data", "no published number"]
    assert whole["rows"][0]["published"] == 0.5
    assert (whole["form"], whole["notes"]) == ("quick", ["Quick form: other flowers.", "Three kinds of iris."])
    assert {"cell", "published", "ours", "sd", "seeds", "verdict", "metric", "note"} <= whole["rows"][0].keys()
    json.dumps(whole)


# --- running ---------------------------------------------------------------------------------------------------------

def test_finished_runs_are_kept_when_stopped_and_never_run_again(study, tmp_path):
    plan = plan_of(study, tmp_path)
    store = store_of(plan, tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        run_missing(plan, store, listen=Ear(("start", 3)))
    before = answer(plan, store)
    assert [row.seeds for row in before] == [1, 1, 1]
    ear = Ear()
    run_missing(plan, store, listen=ear)
    assert ear.heard.count("start") == 2
    after = answer(plan, store)
    assert [row.seeds for row in after] == [2, 2, 2]
    assert after[0].runs[0] == before[0].runs[0]


def test_a_run_stopped_half_way_goes_on_to_the_same_model(study, tmp_path):
    plan = plan_of(study, tmp_path, seeds=1)
    stopped, straight = store_of(plan, tmp_path / "stopped"), store_of(plan, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        run_missing(plan, stopped, pattern="all*", listen=Ear(("round", 3)))
    ear = Ear()
    run_missing(plan, stopped, pattern="all*", listen=ear)
    assert (ear.heard.count("resume"), ear.heard.count("start")) == (1, 0)
    run_missing(plan, straight, pattern="all*")
    shas = [store.finished(plan.runs["all"][0]).summary["model_sha256"] for store in (stopped, straight)]
    assert shas[0] == shas[1]


def test_only_the_cells_that_fit_are_run(study, tmp_path):
    plan = plan_of(study, tmp_path, seeds=1)
    store = store_of(plan, tmp_path / "runs")
    run_missing(plan, store, pattern="one party*")
    assert [row.verdict for row in answer(plan, store)] == ["not run", "not run", "no published number"]


def test_a_run_that_fails_does_not_keep_the_others_from_being_made(tmp_path):
    too_many = ("[runs.all]", '[runs.all]\nselector = {name = "random", count = 5}')
    study = load_study("flowers", write_study(tmp_path / "studies", change=too_many))
    plan = plan_of(study, tmp_path, seeds=1)
    store = store_of(plan, tmp_path / "runs")
    problems = run_missing(plan, store)
    assert list(problems) == [plan.runs["all"][0].hash]
    rows = answer(plan, store, problems)
    assert [row.verdict for row in rows] == ["not run", "not run", "no published number"]
    assert "only 3 are eligible" in rows[0].problem
    assert rows[2].problem == ""


# --- comparisons of clusterings --------------------------------------------------------------------------------------

def clustering(centroids):
    return SimpleNamespace(model={"centroids": np.array(centroids, dtype=float)}, folder=Path("run"))


def test_the_largest_distance_of_centroids_of_the_same_number():
    measure = COMPARISONS["largest_centroid_distance"].measure
    assert measure(clustering([[0, 0], [1, 1]]), clustering([[3, 4], [1, 1]])) == 5.0


def test_a_run_without_centroids_is_named():
    with pytest.raises(ConfigError, match="'run' has no centroids"):
        COMPARISONS["training_inertia"].measure(SimpleNamespace(model={"weights": np.zeros(3)}, folder=Path("run")))


# --- what is shipped -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", study_names(SHIPPED))
def test_shipped_studies_are_whole_and_their_quick_form_needs_no_download(name, tmp_path):
    study = load_study(name, SHIPPED)
    make_plan(study, out=tmp_path)
    for planned in make_plan(study, out=tmp_path, quick=True).wanted():
        assert registry.find("dataset", planned.config.data.name).component.facts.files == ()
    for cell in study.cells:
        assert higher_is_better(cell.metric) in (True, False)


def test_the_tables_of_the_sources_are_all_there():
    names = study_names(SHIPPED)
    assert {"usecases/table-1.3", "usecases/kmeans", "sensitive/mnist", "sensitive/cifar10"} <= set(names)
