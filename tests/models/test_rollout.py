"""A candidate takes over in stages: what moves it up, what leaves it, what withdraws it, how often that is wrong."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from models.in_use import outcomes
from tequio.cli.main import call
from tequio.errors import ConfigError
from tequio.models.outcomes import Outcome
from tequio.models.rollout import Rule, decide, look, step_up
from tequio.models.statistics import always_valid

RULE = Rule("accuracy", 0.95, 0.05)
RIGHT, WRONG = (Outcome("", "", "", "", {"accuracy": value}) for value in (1.0, 0.0))


def rows(right, count):
    return [RIGHT] * right + [WRONG] * (count - right)


def shares(registry):
    return [entry["state"]["share"] for entry in registry.audit.entries() if entry["what"] == "share"]


def test_a_better_candidate_reaches_all_ids_in_stages(in_trial):
    step = step_up(in_trial)
    assert (step.decision, step.before, step.after) == ("up", 0.0, 0.01)
    for after in (0.1, 0.5, 1.0):
        outcomes(in_trial, 1, 1500, 0.85)
        outcomes(in_trial, 2, 1500, 0.92)
        step = step_up(in_trial)
        assert (step.decision, step.after) == ("up", after)
    assert in_trial.state == {"production": 2, "candidate": 0, "share": 0.0, "trial": None}
    assert shares(in_trial) == [0.01, 0.1, 0.5]
    assert "it is surely better: accuracy 0.920 of 4,500 outcomes against 0.850 of 4,500" in \
        in_trial.audit.entries()[-1]["why"]


def test_a_worse_candidate_stops_at_a_tenth_of_the_ids(in_trial, capsys):
    step_up(in_trial)
    outcomes(in_trial, 1, 2500, 0.90)
    outcomes(in_trial, 2, 500, 0.87)  # not worse by 0.1 or more, which is enough to go on looking
    assert step_up(in_trial).after == 0.1
    outcomes(in_trial, 1, 2500, 0.90)
    outcomes(in_trial, 2, 2500, 0.86)
    assert call(["models", "promote", "risk", "--if-better", "--folder", str(in_trial.parent)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("'risk' version 2 is withdrawn at 10% of the ids: back to 0%. Why: it is surely worse: "
                           "accuracy 0.862 of 3,000 outcomes against 0.900 of 5,000: difference -0.03")
    assert in_trial.state == {"production": 1, "candidate": 0, "share": 0.0, "trial": None}
    assert in_trial.route("anybody").number == 1
    with pytest.raises(ConfigError, match=r"no candidate: version 2 was withdrawn, it is surely worse"):
        step_up(in_trial)


def test_it_stays_where_outcomes_do_not_decide_and_says_how_many_would(in_trial, capsys):
    step_up(in_trial)
    assert "too few outcomes" in step_up(in_trial).why
    outcomes(in_trial, 1, 400, 0.9)
    outcomes(in_trial, 2, 60, 0.9)
    step = step_up(in_trial)
    assert (step.decision, step.before, step.after) == ("stay", 0.01, 0.01)
    assert in_trial.audit.entries()[-1]["what"] == "looked"
    # As many more as it asks for, with a hundred of production's for each, decide; three quarters of them do not.
    more, old = step.needed, [rows(360, 400)]
    for count, decision in ((round(0.75 * more), "stay"), (more + 2, "up")):
        old_too, new = rows(round(89.1 * count), 99 * count), rows(round(0.9 * count), count)
        assert decide(RULE, 0.01, 2, [old[0] + old_too], [rows(54, 60) + new]).decision == decision


def test_alike_versions_are_left_to_people(in_trial, capsys):
    step = decide(RULE, 0.5, 2, [rows(9000, 10_000)], [rows(9000, 10_000)])
    assert (step.decision, step.needed) == ("stay", None)


def test_each_stage_needs_outcomes_of_its_own():
    old, new = rows(9000, 10_000), rows(950, 1000)
    assert decide(RULE, 0.1, 2, [old, old], [new, rows(29, 29)]).why.startswith("too few outcomes to decide: the "
                                                                               "candidate has 29 at this stage")
    assert decide(RULE, 0.1, 2, [old, old], [new, rows(28, 30)]).decision == "up"


def test_times_that_change_are_not_taken_for_versions_that_differ():
    """Both versions are right in 9 of 10 at first and in 6 of 10 later, when the candidate has a larger share."""
    production, candidate = [rows(8910, 9900), rows(300, 500)], [rows(90, 100), rows(300, 500)]
    found = look(RULE, production, candidate)
    assert found.difference == pytest.approx(0, abs=1e-12)
    assert found.candidate_mean - found.production_mean == pytest.approx(-0.2356, abs=1e-4)


def test_less_is_better_for_errors():
    rule = Rule("absolute_error", 0.95, 0.1)
    rng = np.random.default_rng(0)
    old, new = ([Outcome("", "", "", "", {"absolute_error": float(error)}) for error in rng.exponential(mean, 2000)]
                for mean in (1.0, 0.8))
    assert decide(rule, 0.5, 2, [old], [new]).decision == "up"
    assert decide(rule, 0.5, 2, [new], [old]).decision == "withdrawn"


def test_a_bound_that_is_broken_withdraws_whatever_production_does(in_trial):
    step_up(in_trial, bounds=["accuracy>=0.8", "accuracy[sex=f]>=0.8"])
    outcomes(in_trial, 1, 600, 0.7, groups={"sex": ["f"] * 600})
    outcomes(in_trial, 2, 600, 0.9, groups={"sex": ["m"] * 600})
    assert "0 outcomes for the bound accuracy[sex=f]>=0.8" in step_up(in_trial).why
    outcomes(in_trial, 2, 200, 0.775, groups={"sex": ["f"] * 200})
    step = step_up(in_trial)  # not sure yet
    assert (step.decision, step.why[:40]) == ("stay", "it does not meet the bound accuracy[sex=")
    outcomes(in_trial, 2, 600, 0.7, groups={"sex": ["f"] * 600})
    step = step_up(in_trial)
    assert step.decision == "withdrawn"
    assert step.why.startswith("it surely breaks the bound accuracy[sex=f]>=0.8 with 0.719 of 800 outcomes")


def test_the_rule_of_a_trial_cannot_be_changed(in_trial):
    step_up(in_trial, metric="brier", margin=0.02, bounds=["accuracy>=0.5"])
    assert in_trial.state["trial"] == {"metric": "brier", "confidence": 0.95, "margin": 0.02,
                                       "bounds": ["accuracy>=0.5"]}
    for changed in ({"metric": "accuracy"}, {"confidence": 0.9}, {"margin": 0.1}, {"bounds": ["accuracy>=0.1"]}):
        with pytest.raises(ConfigError, match="began with"):
            step_up(in_trial, **changed)
    assert step_up(in_trial, metric="brier").decision == "stay"


def test_a_trial_that_was_ended_begins_anew_with_a_rule_and_outcomes_of_its_own(in_trial):
    step_up(in_trial, metric="brier", margin=0.02)
    outcomes(in_trial, 1, 100, 0.9)
    outcomes(in_trial, 2, 100, 0.1)
    in_trial.split(0)
    assert step_up(in_trial).why == "the trial begins: accuracy, confidence 0.95, margin 0.05"
    assert "the candidate has 0 at this stage, production 0 since the trial began" in step_up(in_trial).why


@pytest.mark.parametrize(("options", "message"), [
    ({"metric": "rmse"}, "have no 'rmse'"), ({"confidence": 1.2}, "between 0.5 and 1"), ({"margin": 0}, "above 0"),
    ({"bounds": ["accuracy>0.9"]}, "is no bound"), ({"bounds": ["accuracy<=0.9"]}, "asks for a bad model"),
    ({"metric": "brier"}, "how much worse is still acceptable"), ({"bounds": ["absolute_error<=1"]}, "have no"),
])
def test_rules_that_make_no_sense_are_refused(in_trial, options, message):
    with pytest.raises(ConfigError, match=message):
        step_up(in_trial, **options)
    assert in_trial.state["share"] == 0


def test_without_a_version_in_production_there_is_nothing_to_be_better_than(two_runs, in_trial):
    from tequio.models.registry import ModelRegistry

    fresh = ModelRegistry(in_trial.parent, "fresh")
    fresh.add(two_runs[0].folder)
    with pytest.raises(ConfigError, match="no version in production"):
        step_up(fresh)


def test_of_two_people_at_once_one_moves_and_the_other_sees_it(in_trial):
    barrier, steps = threading.Barrier(4), []

    def promote():
        barrier.wait()
        steps.append(step_up(in_trial))

    threads = [threading.Thread(target=promote) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(step.decision for step in steps) == ["stay", "stay", "stay", "up"]
    assert in_trial.state["share"] == 0.01
    assert len(in_trial.audit.entries()) == 7


def test_the_bound_is_that_of_the_mixture():
    """It lies above the exact solution of the half-normal mixture, and by a few per cent at most."""
    for information in (100.0, 2000.0, 50_000.0):
        prior = 1 / 0.05 ** 2

        def excess(distance, v=information, r=prior):
            total = v + r
            return np.log(2 * np.sqrt(r / total)) + (distance * v) ** 2 / (2 * total) + norm.logcdf(
                distance * v / np.sqrt(total)) + np.log(0.05)
        exact = brentq(excess, 0, 0.5)
        assert exact <= always_valid(information, 0.05, 0.05) <= 1.03 * exact


def test_versions_that_are_alike_are_rarely_promoted_however_often_one_looks():
    """Sixty looks per trial: with these bounds at most one trial in twenty ends in a promotion, with those of a single
    look every fourth does."""
    rng = np.random.default_rng(3)
    trials, looks, alpha = 1500, 60, 0.05
    # Outcomes at 50 %, hundred of each version between two looks.
    right = rng.binomial(100, 0.9, size=(2, trials, looks)).cumsum(axis=2)
    count = 100 * np.arange(1, looks + 1)
    smoothed = (right + 1) / (count + 2)
    information = 1 / (smoothed * (1 - smoothed) / count).sum(axis=0)
    difference = (right[1] - right[0]) / count
    off = np.array([[always_valid(float(v), 0.05, alpha) for v in trial] for trial in information])
    promoted = (difference - off > 0).any(axis=1).mean()
    naive = (difference - norm.ppf(1 - alpha) / np.sqrt(information) > 0).any(axis=1).mean()
    assert promoted < alpha
    assert naive > 0.2
    # The decision itself agrees with these numbers.
    for trial, at in ((0, 0), (1, 30), (2, 59)):
        found = look(RULE, [rows(int(right[0, trial, at]), int(count[at]))], [rows(int(right[1, trial, at]),
                                                                                  int(count[at]))])
        assert found.low == pytest.approx(difference[trial, at] - off[trial, at])
