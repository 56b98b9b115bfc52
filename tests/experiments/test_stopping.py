import pytest

from tequio.errors import ConfigError
from tequio.experiments.config.tables import Stop
from tequio.experiments.running.limits import Progress, StopRules


def play(values, rounds=10, metric="accuracy", seconds=0.0, **rules):
    """Feed one validation value a round; the round it stopped in, why, and the best round."""
    judge, progress = StopRules(Stop(**rules), rounds), Progress()
    for round, value in enumerate(values, start=1):
        row = {} if value is None else {"validation.loss": 1.0, f"validation.{metric}": value, f"test.{metric}": 99.0}
        progress = judge.judge(progress, round, row, seconds * round)
        if progress.reason:
            return round, progress.reason, progress.best_round
    return None, "", progress.best_round


def test_without_rules_all_rounds_are_done():
    assert play([0.5] * 10) == (10, "rounds", 1)


def test_a_target_looks_at_validation_rows_and_never_at_test_rows():
    assert play([0.5, 0.8, 0.9, 1.0], target=0.9) == (3, "target", 3)
    assert play([0.5, 0.8], rounds=3, target=0.9) == (None, "", 2)


def test_a_metric_where_less_is_better_has_to_come_down_to_the_target():
    assert play([5.0, 3.0, 2.0], metric="rmse", target=3.0) == (2, "target", 2)


def test_patience_counts_rounds_since_the_best_one():
    assert play([0.5, 0.7, 0.6, 0.7, 0.65, 0.9], patience=3) == (5, "patience", 2)
    assert play([0.5, 0.7, 0.6, 0.8, 0.6, 0.6], patience=3) == (None, "", 4)


def test_rounds_without_evaluation_do_not_end_the_patience():
    assert play([0.5, None, None, None, 0.6, None, None, 0.5], patience=3) == (8, "patience", 5)


def test_a_value_that_is_no_number_is_never_the_best():
    assert play([float("nan"), 0.5, float("nan"), 0.4], patience=2) == (4, "patience", 2)


def test_convergence_and_time():
    judge = StopRules(Stop(tolerance=0.1), 10)
    assert judge.judge(Progress(), 3, {"update_norm": 0.2}, 0).reason == ""
    assert judge.judge(Progress(), 3, {"update_norm": 0.05}, 0).reason == "convergence"
    assert play([0.5] * 10, seconds=2.0) == (10, "rounds", 1)
    assert StopRules(Stop(seconds=5.0), 10).judge(Progress(), 2, {}, 5.0).reason == "seconds"


def test_the_metric_of_the_rules_has_to_exist():
    with pytest.raises(ConfigError, match=r"the metric 'auc' does not exist for this data and learner"):
        StopRules(Stop(metric="auc"), 10).judge(Progress(), 1, {"validation.rmse": 1.0}, 0)


def test_loss_may_be_the_metric():
    judge = StopRules(Stop(metric="loss", target=0.5), 10)
    after = judge.judge(Progress(), 1, {"validation.loss": 0.4, "validation.accuracy": 0.1}, 0)
    assert (after.metric, after.reason) == ("loss", "target")
