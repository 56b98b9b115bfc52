"""What is going wrong in a run is said once, with the key to change, wherever people look."""

import json

import numpy as np
import pytest

import tequio
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.experiments.config.complete import complete
from tequio.experiments.config.tables import Stop
from tequio.experiments.running.limits import Progress, StopRules
from tequio.experiments.running.measuring import one_answer
from tequio.experiments.running.scenario import make_scenario
from tequio.experiments.running.signs import leaks, loss_of_ignorance, signs_in_results
from tequio.learners.metrics import tally

RNG = np.random.default_rng(0)
CLASSES = Target("classes", ("no", "yes"), "sick")
NUMBER = Target("number", name="cost")
GIVEN = {"rounds": 2, "learner": "logistic", "engine": {"workers": 1}}


def table(target, *, kind=CLASSES, columns=2, groups=None):
    """Rows of noise with this target."""
    values = np.asarray(target)
    features = np.random.default_rng(1).normal(size=(len(values), columns))
    schema = Schema(tuple(Feature(f"x{column}") for column in range(columns)), kind)
    return Dataset.of(schema, features, values, groups=groups)


def warned(dataset, *, data=None, **keys):
    """The warnings of a run over this dataset before its first round."""
    own = {"name": "given", "test": 0.0, "partition": {"name": "iid", "parties": 2}, **(data or {})}
    return make_scenario(complete({**GIVEN, **keys, "data": own}), dataset).warnings


def balanced(rows):
    return np.arange(rows) % 2


def test_nothing_is_said_where_nothing_is_wrong():
    assert warned(table(balanced(400))) == ()


def test_one_class_with_nearly_all_rows_is_said_with_the_key_for_another_headline():
    few = np.arange(1000) % 10 == 0
    assert warned(table(few.astype(int))) == (
        "more than 80% of the rows are 'no', so balanced accuracy stands for this run; to choose another metric set "
        'evaluation.headline = "f1_macro", for instance',)
    assert warned(table(few.astype(int)), evaluation={"headline": "accuracy"}) == ()


def test_a_batch_of_more_rows_than_parties_have():
    assert warned(table(balanced(60))) == (  # 30 rows each, of which a tenth validates and a tenth tests
        "local.batch = 32 is more than the training rows of 2 of 2 parties (as few as 24), so each of them takes one "
        "step per epoch; set local.batch = 8",)
    assert warned(table(balanced(60)), local={"batch": 8}) == ()
    assert warned(table(balanced(60)), local={"batch": 0}) == ()
    assert warned(table(balanced(60)), learner="sgd-classifier") == ()  # takes one row at a time


def test_a_party_without_a_class_that_it_should_have_is_named():
    three = Target("classes", ("a", "b", "c"), "kind")
    target, groups = np.arange(600) % 3, np.array(["north", "south"])[np.arange(600) // 3 % 2]
    target[(groups == "south") & (target == 2)] = 0
    given = table(target, kind=three, groups=groups)
    assert warned(given, data={"partition": {"name": "natural"}}) == (
        "1 of 2 parties have no row of some class, such as 'c' at party 'south', and learn that it never occurs; to "
        'leave that party out of training set rules.held_out = ["south"]',)


def test_a_rare_class_is_not_missed_and_neither_is_one_that_the_partition_takes_away():
    three = Target("classes", ("a", "b", "c"), "kind")
    rare = np.arange(400) % 2
    rare[:2] = 2
    assert warned(table(rare, kind=three)) == ()
    by_design = {"partition": {"name": "dirichlet", "parties": 4, "alpha": 0.1}, "one_class": "allow"}
    said = warned(table(np.arange(900) % 3, kind=three), data=by_design, local={"batch": 1})
    assert not any("no row of some class" in warning for warning in said)


@pytest.mark.parametrize("kind", [CLASSES, NUMBER], ids=["classes", "number"])
def test_a_column_that_gives_the_answer_away_is_named_with_the_key_that_leaves_it_out(kind):
    target = balanced(400) if kind is CLASSES else RNG.normal(size=400)
    given = table(target, kind=kind)
    assert list(leaks(given)) == []
    given.source.features[:, 1] = target * 3.0 + 1
    (found,) = leaks(given)
    assert found.startswith(f"column 'x1' alone predicts '{kind.name}' almost without error (")
    assert found.endswith('if it is only known afterwards set data.ignore = ["x1"]')


def test_columns_of_the_catalogue_are_not_looked_through(tmp_path):
    given = table(balanced(400))
    given.source.features[:, 1] = balanced(400)
    assert any("alone predicts" in warning for warning in warned(given))
    scenario = make_scenario(complete({**GIVEN, "data": {"name": "breast-cancer", "partition": {"name": "iid"}}}))
    assert not any("alone predicts" in warning for warning in scenario.warnings)


def test_what_a_model_that_knows_nothing_loses():
    assert loss_of_ignorance(table(balanced(10))) == pytest.approx(np.log(2))
    assert loss_of_ignorance(table([3.0, -4.0], kind=NUMBER)) == pytest.approx(12.5)
    assert loss_of_ignorance(table([[0, 1], [1, 1]], kind=Target("multilabel", ("a", "b")))) == pytest.approx(np.log(2))


def judged(*losses, rounds=10, ignorance=1.0, key="train.loss"):
    judge, progress = StopRules(Stop(), rounds, ignorance=ignorance), Progress()
    for round, loss in enumerate(losses, start=1):
        progress = judge.judge(progress, round, {key: loss}, 0.0)
        if progress.reason:
            return round, progress.reason
    return len(losses), ""


@pytest.mark.parametrize("key", ["train.loss", "validation.loss"])
def test_a_run_has_diverged_where_its_loss_is_absurd_and_does_not_fall(key):
    assert judged(0.5, 900.0, 1001.0, 5000.0, key=key) == (3, "diverged")
    assert judged(5000.0, 5000.0, key=key) == (2, "diverged")
    assert judged(0.5, float("nan"), key=key) == (2, "diverged")
    assert judged(float("inf"), key=key) == (1, "diverged")


def test_a_loss_that_falls_has_time_until_the_last_round():
    assert judged(9000.0, 8000.0, 7000.0, 100.0) == (4, "")
    assert judged(9000.0, 8000.0, 7000.0, rounds=3) == (3, "diverged")
    assert judged(9000.0, 800.0, 700.0, rounds=3) == (3, "rounds")


def test_without_a_measure_of_ignorance_nothing_has_diverged():
    assert judged(1e9, 1e12, ignorance=0.0) == (2, "")
    assert StopRules(Stop(), 9, ignorance=1.0).judge(Progress(), 1, {"test.loss": 1e9}, 0.0).reason == ""


def test_test_rows_never_end_a_run():
    row = {"test.loss": 1e12, "parties.loss.pooled": 1e12}
    assert StopRules(Stop(), 9, ignorance=1.0).judge(Progress(loss=1e12), 1, row, 0.0).reason == ""


def exploding(folder, **keys):
    X = RNG.normal(size=(400, 2)) * [1, 100]
    y = X @ [1.0, 0.1] + RNG.normal(size=400)
    return tequio.run({**GIVEN, "rounds": 20, "local": {"learning_rate": 1.0, "batch": 16}, **keys,
                       "output": {"folder": str(folder)}}, data={"name": (X, y), "prepare": []})


def test_a_run_that_diverges_ends_early_with_a_whole_folder_that_says_so(tmp_path):
    result = exploding(tmp_path)
    assert result.summary["stopped"] == "diverged"
    assert result.summary["rounds"] < 20
    assert np.isfinite(np.concatenate([np.ravel(values) for values in result.model.values()])).all()
    (said,) = [warning for warning in result.warnings if "diverged" in warning]
    assert said.endswith('; set local.learning_rate = 0.1 or local.clip_norm = 1.0 or data.prepare = ["standardise"]')
    assert [event["message"] for event in result.events if event["event"] == "warning"] == result.warnings
    assert "warnings" in repr(result)
    assert said.replace('"', "&quot;") in result._repr_html_()
    again = tequio.run(resume=result.folder)
    assert (again.summary["stopped"], again.summary["rounds"]) == ("diverged", result.summary["rounds"])


def test_what_is_advised_against_divergence_can_be_set(tmp_path):
    X = RNG.normal(size=(400, 2)) * [1, 100]
    rows = {"data": {"name": (X, 1e3 * X[:, 1]), "prepare": []}, "learner": "sgd-regressor"}
    said = " ".join(tequio.run(GIVEN, output={"folder": str(tmp_path)}, **rows).warnings)
    assert "set local.learning_rate = 0.01 or data.prepare" in said  # scikit-learn clips no gradients


def test_an_attacked_run_may_end_in_any_way(tmp_path):
    scenario = make_scenario(complete({**GIVEN, "data": {"name": "iris", "partition": {"name": "iid", "parties": 5}},
                                       "attack": {"name": "sign-flip", "fraction": 0.4}}))
    assert scenario.ignorance == 0.0


def test_a_worse_model_than_the_mean_is_said():
    config = complete({**GIVEN, "data": {"name": "diabetes"}})
    (said,) = signs_in_results(config, {"test.r2": -0.25}, "", "rounds")
    assert said == ("the model is worse than always answering the mean (r2 = -0.25); set local.learning_rate = 0.01 or "
                    'local.clip_norm = 1.0 or data.prepare = ["standardise"], or train longer (rounds = 4)')
    assert list(signs_in_results(config, {"test.r2": 0.0}, "", "rounds")) == []


def test_one_answer_for_all_rows_of_several_classes():
    truth, sure = np.array([0, 0, 1]), np.array([[0.9, 0.1]] * 3)
    assert one_answer(CLASSES, tally(CLASSES, sure, truth)) == "no"
    assert one_answer(CLASSES, tally(CLASSES, sure[::-1], truth * 0)) == ""  # it is right
    assert one_answer(CLASSES, tally(CLASSES, np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]]), truth)) == ""
    assert one_answer(NUMBER, tally(NUMBER, truth, truth)) == ""


@pytest.mark.parametrize("at", ["coordinator", "parties"])
def test_a_model_that_always_says_the_same_is_reported_once_at_the_end(at, tmp_path):
    few = table((np.arange(1000) % 20 == 0).astype(int))
    result = tequio.run({**GIVEN, "local": {"epochs": 20}, "output": {"folder": str(tmp_path)},
                         "evaluation": {"at": [at]}}, data={"name": few, "partition": {"name": "iid", "parties": 2}})
    said = [warning for warning in result.warnings if "answers 'no' for every test row" in warning]
    assert said == ["the model answers 'no' for every test row; train longer (rounds = 4), or try other features or "
                    "settings, such as local.learning_rate = 1"]
    assert json.loads((result.folder / "summary.json").read_text())["warnings"] == result.warnings


def test_a_report_shows_the_warnings_before_the_curves(tmp_path):
    from tequio.views.report import report_page

    page = report_page([exploding(tmp_path).folder])
    assert 0 < page.index("the run has diverged: its loss") < page.index("Learning</h2>")
    assert page.count("the run has diverged: its loss") == 1
