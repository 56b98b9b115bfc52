"""What the keys of a policy say, on runs and tasks that a coordinator asks for."""

from __future__ import annotations

import pytest

from tequio.errors import ConfigError, PermissionDenied
from tequio.gate.announcement import read_announcement
from tequio.gate.gate import judge_run
from tequio.gate.policy import Budget, OwnSplit, Policy, Requirement, as_policy, policy_file, read_policy, shipped
from tequio.learners.learner import LocalTraining
from tequio.learners.private_training import PrivateTraining
from tequio.registry import build, to_plain


def test_three_policies_come_along_from_the_most_open_one_to_the_strictest():
    assert shipped() == ["open", "hospital", "strict"]
    plain, hospital, strict = (read_policy(policy_file(name), required=True) for name in shipped())
    assert plain == Policy(evaluation="exact")  # what there is without a policy, said aloud
    assert [policy.metrics for policy in (plain, hospital, strict)] == ["exact", "coarse", "noised"]
    assert [policy.cell for policy in (plain, hospital, strict)] == [1, 5, 10]
    assert [policy.minimum_rows for policy in (plain, hospital, strict)] == [0, 20, 20]
    assert strict.budget == Budget(4.0, 1e-5, 5.0)
    assert {policy.functions for policy in (plain, hospital, strict)} == {()}  # code is never trusted unasked


def test_nothing_is_exempt_unless_the_owner_says_so():
    assert Policy().exempt_tasks == ()


@pytest.mark.parametrize(("policy", "cell", "metrics"), [
    (Policy(), 1, "exact"), (Policy(minimum_rows=1), 1, "exact"), (Policy(minimum_rows=50), 5, "coarse"),
    (Policy(minimum_count=12), 12, "coarse"), (Policy(tell_rows="hundreds"), 5, "coarse"),
    (Policy(tell_rows="no"), 5, "no"), (Policy(require=(Requirement("local-dp"),)), 5, "coarse"),
    (Policy(minimum_rows=50, evaluation="exact"), 5, "exact"), (Policy(evaluation="coarse"), 1, "coarse"),
    (Policy(evaluation="no"), 1, "no"), (Policy(budget=Budget(4.0, 1e-5)), 5, "no"),
    (Policy(budget=Budget(4.0, 1e-5, 2.0)), 5, "noised"),
    (Policy(budget=Budget(4.0, 1e-5, 2.0), evaluation="no"), 5, "no")])
def test_metrics_are_coarse_wherever_anything_protects_rows(policy, cell, metrics):
    assert (policy.cell, policy.metrics) == (cell, metrics)


@pytest.mark.parametrize(("tell_rows", "rows", "reported"), [
    ("exact", 145, 145), ("exact", 0, 0), ("hundreds", 145, 100), ("hundreds", 199, 100), ("hundreds", 12, 1),
    ("no", 145, 1)])
def test_rows_are_reported_as_the_policy_says(tell_rows, rows, reported):
    assert Policy(tell_rows=tell_rows).told_rows(rows) == reported


@pytest.mark.parametrize(("given", "cause"), [
    ({"minimum_rows": -1}, "minimum_rows is 0 or more"), ({"minimum_batch": 0}, "minimum_batch and minimum_parties"),
    ({"maximum_reply_megabytes": 0}, "above 0"), ({"maximum_task_seconds": float("nan")}, "is 0 or more"),
    ({"budget": {"epsilon": 0, "delta": 1e-5}}, "epsilon above 0"),
    ({"budget": {"epsilon": 1, "delta": 1}}, "delta between 0 and 1"),
    ({"budget": {"epsilon": 1, "delta": 1e-5}, "private_randomness": False}, "could take noise off again"),
    ({"budget": {"epsilon": 1, "delta": 1e-5}, "evaluation": "exact"}, "set budget.evaluation_noise"),
    ({"evaluation": "exact", "tell_rows": "hundreds"}, "counts test rows exactly"),
    ({"evaluation": "coarse", "tell_rows": "no"}, "about how many test rows"),
    ({"split": {"validation": 0.6, "test": 0.4}}, "together below 1"), ({"approval": "maybe"}, "Invalid enum value"),
    ({"algorithms": "fedavg"}, "Expected `array`"), ({"require": [{"at_least": {}}]}, "field `stage`")])
def test_what_makes_no_sense_is_refused(given, cause):
    with pytest.raises(ConfigError, match=cause):
        as_policy(given, "the policy 'p.toml'")


def test_an_unknown_key_names_the_nearest_one(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("minimum_row = 5")
    with pytest.raises(ConfigError, match="minimum_row") as error:
        read_policy(path)
    assert "did you mean 'minimum_rows'?" in error.value.remedy


def test_a_file_that_is_missing_or_unreadable(tmp_path):
    assert read_policy(tmp_path / "policy.toml") == Policy()
    with pytest.raises(ConfigError, match="there is no policy") as error:
        read_policy(policy_file("hopsital"), required=True)
    assert "open, hospital, strict" in error.value.remedy
    (tmp_path / "policy.toml").write_text("minimum_rows = ")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_policy(tmp_path / "policy.toml")


RUNS = [
    (Policy(coordinators=("5b0b",)), {}, "not among the policy's 'coordinators'"),
    (Policy(algorithms=("fedprox",)), {}, "the algorithm 'fedavg' is not among"),
    (Policy(minimum_parties=6), {}, "has 5 parties, the policy wants at least 6"),
    (Policy(minimum_rows=121), {}, "at least 121 rows behind anything"),
    (Policy(components=("learner/mlp",)), {"learner": {"name": "logistic"}}, "the learner 'logistic' of the announce"),
    (Policy(), {"learner": {"name": "no-such"}}, "there is no learner 'no-such' here"),
    (Policy(), {"overrides": {"local": {"clip_norm": 1.0}}}, "sets local.clip_norm for this party alone"),
    (Policy(overrides=()), {"overrides": {"local": {"epochs": 2}}}, "sets local.epochs for this party alone"),
    (Policy(budget=Budget(1.0, 1e-5)), {"overrides": {"local": {"epochs": 2}}}, "sets local.epochs for this party"),
    (Policy(minimum_rows=20), {"overrides": {"learner": {"name": "mlp"}}}, "sets a learner for this party alone"),
    (Policy(), {"overrides": {"share_rows": True}}, "sets share_rows for this party"),
    (Policy(), {"preparation": {"steps": ["no-such"]}}, "there is no preparation 'no-such' here")]


@pytest.mark.parametrize(("policy", "changes", "cause"), RUNS, ids=[cause for *_, cause in RUNS])
def test_runs_that_are_refused(facts, policy, changes, cause):
    with pytest.raises(PermissionDenied, match=cause):
        judge_run(policy, read_announcement(facts(**changes)), "0000", 120)
    if policy != Policy():
        judge_run(Policy(), read_announcement(facts()), "0000", 120)


def test_overrides_that_the_policy_names_are_allowed(facts):
    found = read_announcement(facts(overrides={"local": {"epochs": 2, "learning_rate": 0.1}}))
    judge_run(Policy(), found, "0000", 120)
    judge_run(Policy(overrides=("epochs", "learning_rate"), minimum_rows=20), found, "0000", 120)


@pytest.mark.parametrize(("local", "allowed"), [
    ({"batch": 8}, True), ({"batch": 0}, True), ({"batch": 7}, False),
    ({"batch": 8, "steps": 5}, True), ({"batch": 8, "steps": 4}, False),  # 4 steps of 8 rows: 32 rows at most
    ({"batch": 16, "steps": 2}, False), ({"batch": 20, "steps": 2}, True), ({"batch": 0, "steps": 1}, True)])
def test_steps_and_batches_leave_enough_rows_behind_each_step_and_reply(gate, training, local, allowed):
    given = training(**local)
    careful = gate(Policy(minimum_rows=40, minimum_batch=8), components=[*given.values()])
    if allowed:
        assert careful.decide("train", 1, given, []).covered == "as it is"
        return
    with pytest.raises(PermissionDenied, match="rests on 7 rows" if local["batch"] == 7 else "behind each reply"):
        careful.decide("train", 1, given, [])


def test_what_a_run_sets_for_one_party_alone_is_counted_with(gate, training):
    given = training(batch=32)
    careful = gate(Policy(minimum_rows=40, minimum_batch=8), components=[*given.values()],
                   overrides={"local": {"batch": 1, "steps": 1}})
    with pytest.raises(PermissionDenied, match="rests on 1 rows"):
        careful.decide("train", 1, given, [])


def test_a_party_with_fewer_rows_than_the_batch_trains_on_all_of_them(gate, training):
    given = training(batch=8)
    careful = gate(Policy(minimum_rows=5, minimum_batch=8), rows=6, components=[*given.values()])
    assert careful.decide("train", 1, given, [])


@pytest.mark.parametrize(("moves", "noise"), [
    ({"counts": 1.0, "sums": 1e-9}, "sums"), ({"counts": 0.5, "sums": 2.0}, "counts"), ({}, "counts"),
    ({"counts": 1.0, "sums": float("nan")}, "sums"), ({"counts": 1.0, "sums": 2.0}, "")])
def test_sums_are_noised_for_as_much_as_a_row_moves_them_by_the_partys_own_reckoning(gate, moves, noise):
    """Rows are shortened to length 2, so that one moves the sums of k-means by 2, and its counts by 1."""
    stage = to_plain(build("stage", "dp-sums", {"noise": 8.0, "moves": moves}))
    settings = {"epochs": 1, "batch": 0, "party_rate": 1.0, "minimum_count": 1, "radius": 2.0}
    party = gate(Policy(budget=Budget(4.0, 1e-5)), algorithm="kmeans", components=[stage], stages=[{"name": "dp-sums"}])
    if noise:
        with pytest.raises(PermissionDenied, match=f"the noise on '{noise}'.*is made for rows that move it"):
            party.decide("kmeans: move centroids", 1, settings, [stage])
        return
    passed = party.decide("kmeans: move centroids", 1, settings, [stage])
    assert (passed.covered, passed.unit) == ("noise of this party: dp-sums", "row")
    assert [(release.noise, count) for release, count in passed.spent.items()] == [(8.0, 1)]


def test_charged_is_the_training_that_takes_place(gate):
    """80 rows, a batch of 8 and 5 steps: each row is in a step with the chance 1/10, five times."""
    local = to_plain(PrivateTraining(batch=8, steps=5, noise=2.0, row_clip=1.0))
    learner, stage = to_plain(build("learner", "logistic")), to_plain(build("stage", "silent-training", {"noise": 1e6}))
    party = gate(Policy(budget=Budget(4.0, 1e-5)), rows=80, components=[stage, local, learner])
    passed = party.decide("train", 1, {"learner": learner, "local": local}, [stage])
    (release, count), = passed.spent.items()
    assert (release.noise, release.rate, release.sampling, count) == (2.0, pytest.approx(0.1), "poisson", 5)


def test_required_stages_have_bounds(gate, training):
    policy = Policy(require=(Requirement("local-dp", at_least={"noise": 1.0}, at_most={"clip": 2.0}),))

    def decide(**parameters):
        given = to_plain(build("stage", "local-dp", {"noise": 1.0, "clip": 1.0, **parameters}))
        settings = training()
        return gate(policy, components=[given, *settings.values()]).decide("train", 1, settings, [given])

    assert decide(noise=1.5).covered == "passes the required stages"
    for parameters, cause in (({"noise": 0.9}, "noise = 0.9, the policy wants at least 1.0"),
                              ({"clip": 3.0}, "clip = 3.0, the policy wants at most 2.0")):
        with pytest.raises(PermissionDenied, match=cause):
            decide(**parameters)
    settings = training()
    with pytest.raises(PermissionDenied, match="to pass the stage 'local-dp', and the run has none"):
        gate(policy, components=[*settings.values()]).decide("train", 1, settings, [])


TASKS = [
    ("trees: fit", 1, {}, "is no part of the algorithm 'fedavg'"), ("train", 11, {}, "is for round 11, and 10 rounds"),
    ("train", -1, {}, "is for round -1")]


@pytest.mark.parametrize(("task", "round", "settings", "cause"), TASKS, ids=[cause for *_, cause in TASKS])
def test_tasks_that_were_not_announced_are_refused(gate, task, round, settings, cause):
    with pytest.raises(PermissionDenied, match=cause):
        gate(Policy()).decide(task, round, settings, [])


def test_another_learner_than_the_announced_one_is_refused(gate, training):
    logistic, local = to_plain(build("learner", "logistic")), to_plain(LocalTraining(batch=8))
    party = gate(Policy(), components=[logistic, local])
    assert party.decide("train", 1, {"learner": logistic, "local": local}, [])
    with pytest.raises(PermissionDenied, match=r"comes with batch = 1 .*, and 8 was announced"):
        party.decide("train", 1, {"learner": logistic, "local": to_plain(LocalTraining(batch=1))}, [])
    with pytest.raises(PermissionDenied, match="the learner 'mlp', which was not announced"):
        party.decide("train", 1, {"learner": to_plain(build("learner", "mlp")), "local": local}, [])


def test_models_are_not_judged_by_training_rows_where_rows_are_protected(gate):
    learner = to_plain(build("learner", "logistic"))

    def decide(policy, part):
        return gate(policy, components=[learner]).decide("evaluate", 1, {"learner": learner, "part": part}, []).covered

    for policy in (Policy(minimum_rows=20), Policy(budget=Budget(4.0, 1e-5, 5.0))):
        with pytest.raises(PermissionDenied, match="by the rows that this party trains on"):
            decide(policy, "train")
    assert decide(Policy(minimum_rows=20), "test") == "rounded at random to multiples of 5"
    assert decide(Policy(budget=Budget(4.0, 1e-5, 5.0)), "test") == "counts with noise of 5 rows"
    assert decide(Policy(), "train") == "exact metrics"


def test_a_split_of_the_partys_own_has_defaults():
    assert as_policy({"split": {}}, "p").split == OwnSplit(0.1, 0.1, stratify=True)


@pytest.mark.parametrize(("policy", "notes"), [
    (Policy(), []),
    (Policy(minimum_rows=100), ["metrics of the parties' own rows are rounded at random to multiples of 5 rows, as the "
                                "policy says"]),
    (Policy(tell_rows="no"), ["no metrics of the parties' own rows leave, as the policy says",
                              "parties report their numbers of rows as 'no', as the policy says"])])
def test_a_run_says_what_its_policy_does_to_its_numbers(policy, notes):
    assert policy.notes() == notes
