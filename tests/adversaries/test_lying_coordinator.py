"""The lying coordinator: what a party's own protection holds against (spec 005, section 2, attacks 1 to 14).

Each attack is made on a party's real site with real tasks. Both sides read why it fails, and an honest run passes.
"""

from __future__ import annotations

import json
import sys
from math import inf, nan

import numpy as np
import pytest

from adversaries.hostile import (
    LOGISTIC,
    SOUTH,
    Coordinator,
    Refused,
    component,
    linear,
    refuses,
    stage,
    table,
    training,
    zeros,
)
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.preprocessing.filling import Impute
from tequio.engines.network.policy import MOST_WAITING, MOST_WAITING_BYTES, Approvals
from tequio.engines.network.wire import Ready, Waiting
from tequio.errors import ConfigError
from tequio.federation.exchange import Order, execute
from tequio.federation.task import installed_tasks
from tequio.gate.policy import Budget, Policy, as_policy
from tequio.privacy.accounting import Release, epsilon_of
from tequio.privacy.updates import PROTOCOL_TASKS
from tequio.registry import build, to_plain

DELTA = 1e-5
SPENDING = {"budget": Budget(4.0, DELTA), "tell_rows": "hundreds"}
LOCAL_DP = stage("local-dp", clip=1.0, noise=20.0)
NOISED = {"stages": [{"name": "local-dp", "clip": 1.0, "noise": 20.0}], "components": [LOGISTIC, training(), LOCAL_DP]}


@pytest.fixture(autouse=True)
def _quick_files(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def party(tmp_path):
    """Makes a party with a policy, and the coordinator that lies to it."""
    def make(where="south", rows=None, **policy):
        return Coordinator(tmp_path / where, Policy(**policy), table() if rows is None else rows)

    return make


def works(coordinator, run="honest", stages=(), **facts):
    """An honest run passes."""
    assert isinstance(coordinator.announce(run, **facts), Ready)
    reply = coordinator.train(run=run, stages=stages)
    assert set(reply["update"]) == {"output.weight", "output.bias"}
    assert coordinator.noted[-1]["event"] == "task done"


def rows_in(reply):
    """The row behind the gradient of a logistic model from zero weights, if it is that of one row."""
    change = reply["update"]
    return change["output.weight"][0] / change["output.bias"][0]


def recovered(found, rows):
    """How many rows of a table are among what was found, to four digits."""
    return sum(bool((np.abs(np.asarray(found) - row) <= 1e-4 * np.abs(row)).all(axis=1).any()) for row in rows) \
        if len(found) else 0


# 1. Split


def shares(test):
    return {"split": {"validation": 0.0, "test": test, "stratify": False}}


def test_a_split_that_leaves_one_row_to_train_on_reads_no_row(party):
    """Attack 1: 120 seeds x test share 0.999, a logistic model from zero weights. Without a minimum it reads rows."""
    def attack(coordinator):
        found = []
        for seed in range(120):
            if isinstance(coordinator.announce(f"run-{seed}", seed=seed, **shares(0.999)), Ready):
                found.append(rows_in(coordinator.train(run=f"run-{seed}")))
        return recovered(found, coordinator.rows.features)

    south = party(**SOUTH)
    assert attack(south) == 0
    refuses(south.announce("again", **shares(0.999)), "wants at least 100 rows behind each reply", south)
    assert attack(party("open")) == 1  # its split is its own as well: one row, and not another one for each seed
    works(south)


def test_a_run_that_is_refused_fixes_no_split_and_an_owner_can_change_the_one_that_is_fixed(party, tmp_path):
    """A first run that is refused would otherwise keep all honest ones out for ever."""
    south = party(**SOUTH)
    for lie in (shares(0.999), {**shares(0.3), "parties": 2}, {**shares(0.2), "algorithm": "kmeans"}):
        assert isinstance(south.announce("first", **lie), Refused)
    works(south)
    refuses(south.announce("other", **shares(0.2)), "keeps back other shares of the rows", south)
    split = {"validation": 0.0, "test": 0.2, "stratify": False}
    changed = Coordinator(tmp_path / "south", as_policy({**SOUTH, "split": split}, "policy.toml"))
    works(changed, run="later", **shares(0.2))


@pytest.mark.parametrize("columns", [["radius", "texture", "smoothness", "concavity"], None])
def test_no_two_runs_split_the_same_rows_otherwise(party, columns):
    """Attack 1, between runs: two sums over all rows but one show that one. Naming columns asked for a fresh split."""
    south, facts = party(**SOUTH), {} if columns is None else {"columns": columns}
    trained = []
    for seed in range(5):
        assert isinstance(south.announce(f"run-{seed}", seed=seed, **facts), Ready)
        trained.append(south.data(f"run-{seed}").train.features)
    assert all(np.array_equal(other, trained[0]) for other in trained)
    refuses(south.announce("whole", **facts, **shares(0.0)), "keeps back other shares", south)


def row_left_over(coordinator, batch, rows):
    """The row in the last batch of an epoch: all rows in one batch, and then batches that leave one row over."""
    local = {"learning_rate": 1e-6, "epochs": 1}
    whole = training(batch=0, **local)
    parted = training(batch=batch, **local)
    for run, one in (("whole", whole), ("parted", parted)):
        assert isinstance(coordinator.announce(run, components=[LOGISTIC, one]), Ready)
    mean, parts = (coordinator.train(run=run, local=one)["update"]
                   for run, one in (("whole", whole), ("parted", parted)))
    times = (rows - 1) // batch
    # parts = (rows * mean - row) / batch + row where there is one more batch with that row alone
    row = {name: (parts[name] - rows * mean[name] / batch) / (1 - 1 / batch) for name in mean}
    assert times * batch == rows - 1
    return row["output.weight"][0] / row["output.bias"][0]


@pytest.mark.parametrize("batch", [144, 72])
def test_no_step_rests_on_the_one_row_that_batches_leave_over(party, batch):
    """Attack 1: 145 rows in batches of 144 or 72 leave one over, which then counts as much as a whole batch."""
    def distance(coordinator):
        found = row_left_over(coordinator, batch, 145)
        return np.abs(found / coordinator.data("whole").train.features - 1).max(axis=1).min()

    assert distance(party("open")) < 1e-3
    assert distance(party(**SOUTH)) > 0.02


@pytest.mark.parametrize(("local", "why"), [
    ({"batch": 1}, "a step of task 'train' rests on 1 rows"),
    ({"batch": 1, "steps": 1, "learning_rate": 1e9}, "a step of task 'train' rests on 1 rows"),
    ({"batch": 32, "steps": 3}, "would rest on fewer"),
    ({"batch": 101, "steps": 1, "shuffle": False}, "takes rows in the order in which they are stored"),
    ({"epochs": 10**15}, "would train for 1000000000000000 epochs or steps"),
    ({"steps": 10**12}, "would train for 1000000000000 epochs or steps")])
def test_steps_on_few_rows_or_without_end_are_refused(party, local, why):
    """Attack 1: batch sizes and numbers of steps that show single rows."""
    south = party(**SOUTH)
    south.announce(components=[LOGISTIC, training(**local)])
    refuses(south.train(local=training(**local)), why, south)
    works(south)


# 2. Overrides


@pytest.mark.parametrize(("policy", "overrides", "why"), [
    (SPENDING, {"local": {"noise": 0.0}}, "sets local.noise for this party alone"),
    (SPENDING, {"local": {"epochs": 9}}, "sets local.epochs for this party alone"),
    (SOUTH, {"local": {"clip_norm": 0.0}}, "sets local.clip_norm for this party alone"),
    (SOUTH, {"learner": "mlp"}, "sets a learner for this party alone"),
    (SOUTH, {"share_rows": True}, "sets share_rows for this party"),
    (SOUTH, {"local": {"batch": "all"}}, "holds what no training has"),
    (SOUTH, {"local": {"no such key": 1}}, "holds what no training has"),
    (SOUTH, {"local": [1]}, "holds what no training has"),
    (SOUTH, {"local": {"learning_rate": nan}}, "holds what no training has")])
def test_overrides_undo_nothing_that_protects(party, policy, overrides, why):
    """Attack 2: noise 1e6 announced and charged, noise 0 trained with."""
    south, private = party(**policy), training(noise=1e6)
    refuses(south.announce(overrides=overrides, components=[LOGISTIC, private, stage("silent-training")]), why, south)


def test_a_batch_for_this_party_alone_is_held_to_the_same_minimum(party):
    south = party(**SOUTH)
    south.announce(overrides={"local": {"batch": 1}, "least_batch": 1})
    refuses(south.train(), "rests on 1 rows", south)


def test_the_noise_that_is_charged_is_the_noise_that_was_trained_with(party):
    """Attack 2: noise 8 announced, noise 0 sent; and what is charged follows from what runs."""
    south, private, silent = party(**SPENDING), training(noise=8.0, batch=64), stage("silent-training")
    facts = {"components": [LOGISTIC, private, silent]}
    south.announce(**facts)
    refuses(south.train(local=training(noise=0.0, batch=64), stages=[silent]), "comes with noise = 0.0", south)
    refuses(south.train(local=training(batch=64), stages=[silent]), "was not announced", south)
    south.announce("none", components=[LOGISTIC, training(noise=0.0), silent])
    refuses(south.train(run="none", local=training(noise=0.0), stages=[silent]), "to inf", south)
    assert "update" in south.train(local=private, stages=[silent])
    train = len(south.data().train)
    spent = {Release(8.0, sampling="poisson", rate=64 / train): -(-train // 64)}
    assert south.epsilon() == pytest.approx(epsilon_of(spent, DELTA), rel=1e-6)


# 3. A task under a stage that hides nothing


@pytest.mark.parametrize(("task", "algorithm", "settings"), [
    ("fit preparation", "fedavg", {"steps": ["standardise"]}),
    ("trees: fit", "local-trees", {"agreed": "a", "learner": to_plain(build("learner", "cart"))})])
@pytest.mark.parametrize("hiding", [stage("silent-training"), stage("top-k"), stage("quantise"), LOCAL_DP],
                         ids=lambda hiding: hiding["$component"][1])
def test_a_stage_covers_only_what_it_acts_on(party, task, algorithm, settings, hiding):
    """Attack 3: exact answers under 'silent-training', at no charge."""
    south = party(**SPENDING, tasks=("fit preparation", "trees: fit", "train"))
    learner = [settings["learner"]] if "learner" in settings else []
    south.announce(components=[*learner, hiding], preparation={"steps": ["standardise"], "statistics": []})
    said = south.ask(task, {"statistics": []}, stages=[hiding], **settings)
    refuses(said, "no noise of the party's own is on", south)
    assert south.epsilon() == 0


# 4. Digest


def test_each_release_is_paid_for_whatever_it_is_called(party):
    """Attack 4: 100 releases under one digest, at two positions in turn, cost what 100 releases cost."""
    south = party(budget=Budget(50.0, DELTA))
    south.announce(**NOISED)
    replies = [south.train(linear(np.full(4, 1e-6 * number), 0.0), stages=[LOCAL_DP], digest="always the same")
               for number in range(100)]
    assert len({reply["update"]["output.weight"].tobytes() for reply in replies}) == 100
    assert south.epsilon() == pytest.approx(epsilon_of({Release(10.0): 100}, DELTA), rel=1e-6)


@pytest.mark.parametrize(("secret", "different", "paid"), [(False, 1, 1), (True, 20, 20)])
def test_the_same_question_is_free_only_while_its_noise_is_the_same(party, secret, different, paid):
    """Attack 4, the other way round: fresh noise on the same reply, twenty times for the price of one."""
    south, noise = party(budget=Budget(50.0, DELTA)), stage("local-dp", clip=1.0, noise=20.0, secret=secret)
    south.announce(components=[LOGISTIC, training(), noise])
    replies = [south.train(stages=[noise]) for _ in range(20)]
    assert len({reply["update"]["output.weight"].tobytes() for reply in replies}) == different
    assert south.epsilon() == pytest.approx(epsilon_of({Release(10.0): paid}, DELTA), rel=1e-6)


@pytest.mark.parametrize("changes", [
    {"seed": 5}, {"rounds": 9}, {"preparation": {"steps": ["standardise"], "statistics": [
        {"mean": np.zeros(4), "scale": np.full(4, 1e9)}]}}])
def test_the_same_question_about_another_announcement_is_another_release(party, changes):
    """Attack 4 by the announcement: columns scaled to nothing, and the same request again. With the same noise, at no
    price, the difference of the two replies was the update as it is."""
    south, one = party(budget=Budget(50.0, DELTA)), epsilon_of({Release(10.0): 1}, DELTA)
    prepared = {"preparation": {"steps": ["standardise"], "statistics": [{"mean": np.zeros(4), "scale": np.ones(4)}]}}
    found = []
    for facts in ({**prepared, **NOISED}, {**prepared, **NOISED}, {**prepared, **NOISED, **changes}):
        assert isinstance(south.announce(**facts), Ready)
        found.append((south.train(stages=[LOCAL_DP])["update"]["output.weight"], south.epsilon()))
    (first, cost), (again, still), (other, more) = found
    assert np.array_equal(first, again)
    assert cost == still == pytest.approx(one, rel=1e-6)
    assert np.abs(other - first).max() > 1
    assert more == pytest.approx(epsilon_of({Release(10.0): 2}, DELTA), rel=1e-6)


# 5. Approval


APPROVED = {"stages": [{"name": "local-dp", "clip": 1.0, "noise": 20.0}], "learner": {"name": "logistic"},
            "components": [LOGISTIC, training(), LOCAL_DP], "work": {"algorithm": {"name": "fedavg"}, "local": {}}}


@pytest.mark.parametrize("change", [
    {"algorithm": "fedprox", "work": {"algorithm": {"name": "fedprox"}, "local": {}}}, {"rounds": 11}, {"seed": 5},
    {"parties": 4}, {"roster": ["north", "south", "mallory"]}, {"overrides": {"local": {"epochs": 2}}},
    {"components": [LOGISTIC, training(epochs=2), LOCAL_DP]}, {"components": [LOGISTIC, training()]},
    {"components": [*APPROVED["components"], stage("top-k")]}, {"components": []},
    {"work": {"algorithm": {"name": "fedavg", "weights": "uniform"}, "local": {}}},
    {"preparation": {"steps": ["standardise"]}}, {"learner": {"name": "logistic", "dropout": 0.5}},
    {"stages": [{"name": "local-dp", "clip": 1.0, "noise": 0.1}]}])
def test_a_person_approves_one_announcement_and_no_other(party, change):
    """Attack 5: other work under an approved name."""
    south = party(approval="run")
    assert isinstance(south.announce(**APPROVED), Waiting)
    Approvals(south.folder / "approvals").decide("run-1", approved=True)
    assert isinstance(south.announce(**APPROVED), Ready)
    said = south.announce(**{**APPROVED, **change})
    assert isinstance(said, Waiting | Refused)
    shown = json.loads((south.folder / "approvals" / "run-1.json").read_bytes())
    assert isinstance(said, Refused) or shown["before"] != shown["asked"]


@pytest.mark.parametrize("key", ["rounds", "learner", "stages", "split", "overrides", "components", "roster", "seed"])
def test_what_a_person_reads_is_what_runs(party, key):
    """Attack 5: tables of work that overwrite what is shown."""
    south = party(approval="run")
    refuses(south.announce(work={"algorithm": {"name": "fedavg"}, key: "harmless"}), f"says '{key}' again", south)


@pytest.mark.parametrize(("roster", "why"), [
    (["north", "south", "n\u043erth"], "is not plain"), (["north", "south", "north\u200b"], "is not plain"),
    (["north", "south", "../east"], "is not plain"), (["north", "south", ""], "is not plain"),
    (["north", "south", "North"], "'north' and 'North'"), (["site1", "south", "sitel"], "'site1' and 'sitel'"),
    (["site-10", "south", "site 1O"], "'site-10' and 'site 1O'"), (["north", "south", "south"], "same"),
    (["north", "south", "A" * 64], "is not plain")])
def test_no_roster_has_names_that_a_person_takes_for_others(party, roster, why):
    """Attack 5: a person approves a roster by its names."""
    south = party(approval="run")
    said = south.announce(roster=roster)
    if why == "same":
        why = "more than once"
    refuses(said, why, south)
    assert not list(south.folder.glob("approvals/*.json"))


def test_runs_that_wait_fill_neither_the_disk_nor_the_log(party):
    """Attack 5: nobody decides about thousands of announcements of a megabyte each."""
    south = party(approval="run")
    said = [south.announce(run=f"run-{number}", work={"algorithm": {"name": "fedavg"}, "said": "x" * 500_000})
            for number in range(MOST_WAITING)]
    assert sum(isinstance(one, Waiting) for one in said) == MOST_WAITING_BYTES // 500_000
    refuses(said[33], "would take more than 16 MB", south)
    held = sum(path.stat().st_size for path in south.folder.rglob("*") if path.is_file())
    assert held < MOST_WAITING_BYTES + 200_000
    assert isinstance(south.announce(run="run-0", rounds=11), Waiting)  # one that waits already may change


def test_what_is_nested_deeply_takes_no_more_room_than_it_had(party):
    """Lists in lists are short, and were ten times as long once they were indented in the file."""
    said = [0] * 100_000
    for _ in range(12):
        said = [said]
    south = party(approval="run")
    assert isinstance(south.announce(work={"algorithm": {"name": "fedavg"}, "said": said}), Waiting)
    assert (south.folder / "approvals" / "run-1.json").stat().st_size < 400_000


def test_no_more_runs_wait_than_a_person_reads(party):
    south = party(approval="run")
    said = [south.announce(run=f"run-{number}") for number in range(3 * MOST_WAITING)]
    assert [isinstance(one, Waiting) for one in said] == [True] * MOST_WAITING + [False] * 2 * MOST_WAITING
    assert said[-1].cause == f"{MOST_WAITING} runs wait for a person at the party already"
    assert len([entry for entry in south.noted if entry["event"] == "run declined"]) < 2 * MOST_WAITING
    south.site._telemetry.sum_up()
    left_out = [entry for entry in south.noted if entry["event"] == "left out"]
    assert [entry["what"] for entry in left_out] == ["run declined"]
    Approvals(south.folder / "approvals").decide("run-7", approved=True)
    assert isinstance(south.announce(run="run-7"), Ready)
    assert isinstance(south.announce(run="one-more"), Waiting)


def test_runs_without_end_fill_neither_memory_nor_disk(party, monkeypatch):
    """Runs that begin and end, and runs that only begin, where no person is asked."""
    monkeypatch.setattr("tequio.engines.network.site._MOST_RUNS", 20)
    south = party()
    for number in range(40):
        assert isinstance(south.announce(run=f"short-{number}"), Ready)
        south.site.end(f"short-{number}")
    assert not list(south.folder.rglob("short-*"))
    said = [south.announce(run=f"open-{number}") for number in range(25)]
    assert [isinstance(one, Ready) for one in said] == [True] * 20 + [False] * 5
    assert isinstance(south.announce(run="open-3"), Ready)  # again, after a link broke
    refuses(said[-1], "takes part in 20 runs already", south)


def test_an_algorithm_cannot_bring_the_tasks_of_another(party):
    """Attacks 5 and 12: 'fedavg' on the list, 'statistics' in the work."""
    south = party(**SOUTH)
    refuses(south.announce(work={"algorithm": {"name": "statistics"}}), "names another algorithm than 'fedavg'", south)
    works(south)


@pytest.mark.parametrize(("told", "asked", "why"), [
    ([], {"stages": ()}, "comes with the training 'minibatch', which was not announced"),
    ([component("learner", "logistic"), component("training", "minibatch")],
     {"local": training(batch=1)}, "comes with batch = 1"),
    ([LOGISTIC, training()], {"local": {"epochs": 1, "batch": 1}}, "comes with batch = 1"),
    ([LOGISTIC, training(), LOCAL_DP], {}, "comes without the stage 'local-dp'"),
    ([LOGISTIC, training(), LOCAL_DP], {"stages": [stage("local-dp", clip=1.0, noise=1e-9)]},
     "comes with noise = 1e-09"),
    ([LOGISTIC, training()], {"stages": [stage("top-k")]}, "comes with the stage 'top-k', which was not announced")])
def test_tasks_come_with_what_was_approved(party, told, asked, why):
    """Attack 5: nothing announced, defaults left out, plain tables in place of components, stages left out."""
    south = party(approval="run")
    south.announce(components=told)
    Approvals(south.folder / "approvals").decide("run-1", approved=True)
    assert isinstance(south.announce(components=told), Ready)
    refuses(south.train(**asked), why, south)


def test_noise_of_the_config_is_the_noise_of_the_stage(party):
    """Attack 5: the person reads noise 20, and the component has 0.001."""
    south, weak = party(approval="run"), stage("local-dp", clip=1.0, noise=0.001)
    south.announce(**{**APPROVED, "components": [LOGISTIC, training(), weak]})
    Approvals(south.folder / "approvals").decide("run-1", approved=True)
    south.announce(**{**APPROVED, "components": [LOGISTIC, training(), weak]})
    refuses(south.train(stages=[weak]), "announces noise = 20.0 of the stage 'local-dp', and comes with 0.001", south)


@pytest.mark.parametrize(("private", "stages"), [(False, [{"name": "local-dp", "clip": 1.0}]), (True, [])])
def test_noise_that_a_budget_asks_for_is_approved_once_it_is_known(party, private, stages):
    """Attack 5: a person approves epsilon 2, and the noise that is filled in afterwards is next to none."""
    south = party(approval="run")
    work = {"algorithm": {"name": "fedavg"}, "privacy": {"epsilon": 2.0}}

    def announced(noise):
        parts = [training(noise=noise), stage("silent-training")] if private else [
            training(), stage("local-dp", clip=1.0, noise=noise)]
        return south.announce(components=[LOGISTIC, *parts], stages=stages, work=work)

    announced(None)
    Approvals(south.folder / "approvals").decide("run-1", approved=True)
    assert isinstance(announced(None), Ready)
    assert isinstance(announced(1e-6), Waiting)
    shown = json.loads((south.folder / "approvals" / "run-1.json").read_bytes())
    asked = [part["noise"] for part in shown["asked"]["components"] if "noise" in part]
    assert 1e-6 in asked
    assert [part["noise"] for part in shown["before"]["components"] if "noise" in part] != asked


SUMS = stage("dp-sums", noise=4.0, moves={"counts": 1.0, "sums": 30.0})


@pytest.mark.parametrize(("stages", "why"), [
    ([], "comes without the stage 'dp-sums' that was announced"),
    ([stage("dp-sums", noise=4.0, moves={"counts": 1e-9, "sums": 1e-9})], "comes with moves = ")])
def test_sums_pass_the_stage_that_was_approved(party, stages, why):
    """Attack 5: a person approved noise on sums, and sums were asked for without."""
    south = party(approval="run")
    facts = {"algorithm": "kmeans", "components": [SUMS], "stages": [{"name": "dp-sums", "noise": 4.0}]}
    south.announce(**facts)
    Approvals(south.folder / "approvals").decide("run-1", approved=True)
    assert isinstance(south.announce(**facts), Ready)
    said = south.ask("kmeans: move centroids", {"centroids": np.zeros((2, 4))}, stages=stages, epochs=1, batch=0,
                     party_rate=1.0, minimum_count=1, radius=30.0)
    refuses(said, why, south)


def test_a_party_reckons_how_far_a_row_moves_a_sum_without_a_budget_as_well(party):
    """Attacks 5 and 7: what is filled in later is no part of what a person approves, and makes the noise nothing."""
    south, lie = party(approval="run"), stage("dp-sums", noise=4.0, moves={"counts": 1e-9, "sums": 1e-9})
    facts = {"algorithm": "kmeans", "stages": [{"name": "dp-sums", "noise": 4.0}]}
    south.announce(**facts, components=[SUMS])
    Approvals(south.folder / "approvals").decide("run-1", approved=True)
    assert isinstance(south.announce(**facts, components=[lie]), Ready)
    said = south.ask("kmeans: move centroids", {"centroids": np.zeros((2, 4))}, stages=[lie], epochs=1, batch=0,
                     party_rate=1.0, minimum_count=1, radius=30.0)
    refuses(said, "is made for rows that move it by 1e-09", south)


@pytest.mark.parametrize("steps", [["minmax"], ["standardise", "standardise"], [{"name": "standardise"}]])
def test_rows_are_prepared_by_the_steps_that_were_approved(party, steps):
    """Attack 5: 'standardise' was approved, and 'minmax' asked for the smallest and the largest values."""
    south, facts = party(approval="run"), {"preparation": {"steps": ["standardise"], "statistics": []}}
    south.announce(**facts)
    Approvals(south.folder / "approvals").decide("run-1", approved=True)
    assert isinstance(south.announce(**facts), Ready)
    refuses(south.ask("fit preparation", {"statistics": [{}]}, steps=steps), "other steps than were announced", south)
    assert set(south.ask("fit preparation", {"statistics": []}, steps=["standardise"])["statistics"]) >= {"mean"}


# 6. Evaluation


def above(column, threshold):
    """A model that says 'malignant' of rows above a threshold."""
    weights = np.zeros(4)
    weights[column] = 1e4
    return linear(weights, -1e4 * threshold)


def largest_found(coordinator, column=0, low=0.0, high=60.0, queries=17):
    """Binary search for the largest value of a column in the test rows: where counts begin to differ from none."""
    nothing = coordinator.evaluate(above(column, high))["confusion"].tolist()
    for _ in range(queries):
        middle = (low + high) / 2
        if coordinator.evaluate(above(column, middle))["confusion"].tolist() == nothing:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def test_the_largest_value_of_a_column_is_not_found_by_17_models(party):
    """Attack 6. A count that is rounded to fives at random shows one of the five largest values at most, and not
    which: it is the largest with a chance of 0.36, so that of 40 parties it is found at 23 at most (2.8 deviations)."""
    exact = party("open")
    exact.announce()
    assert largest_found(exact) == pytest.approx(exact.data().test.features[:, 0].max(), abs=1e-3)
    found = 0
    for number in range(40):
        south = party(f"south-{number}", **SOUTH)
        south.announce()
        found += abs(largest_found(south) - south.data().test.features[:, 0].max()) < 1e-3
    assert found <= 23


def test_asking_a_thousand_times_shows_what_asking_once_shows(party):
    """Attack 6: rounding that is drawn anew would be averaged away by models that hardly differ."""
    south = party(**SOUTH)
    south.announce()
    threshold = float(np.sort(south.data().test.features[:, 0])[-4:-2].mean())  # three rows are above it
    counts = {south.evaluate(above(0, threshold + 1e-7 * number))["confusion"].tobytes() for number in range(1000)}
    assert len(counts) == 1
    assert not (np.frombuffer(counts.pop(), np.int64) % 5).any()


def test_a_column_is_not_rebuilt_by_20_models(party):
    """Attack 6: 20 thresholds, whose exact counts say between which two each row lies."""
    def cells(coordinator):
        coordinator.announce()
        grid = np.linspace(8, 24, 20)
        counts = np.array([coordinator.evaluate(above(0, edge))["confusion"][:, 1].sum() for edge in grid])
        true = np.array([(coordinator.data().test.features[:, 0] > edge).sum() for edge in grid])
        return counts, true

    counts, true = cells(party("open"))
    assert counts.tolist() == true.tolist()
    counts, true = cells(party(**SOUTH))
    assert not (counts % 5).any()
    assert len(set(counts.tolist())) <= 8 < len(set(true.tolist()))


def test_metrics_leave_about_no_training_rows_and_without_scores(party):
    south = party(**SOUTH)
    south.announce()
    refuses(south.evaluate(zeros(), part="train"), "judges a model by the rows that this party trains on", south)
    assert set(south.evaluate(zeros())) == {"rows", "confusion"}


def test_metrics_under_a_budget_are_noised_and_charged(party):
    """Attack 6: `evaluate` is exempt of nothing."""
    south = party(budget=Budget(4.0, DELTA, evaluation_noise=20.0))
    south.announce()
    spent, noted = 0, south.evaluate(zeros())
    while not isinstance(noted, Refused):
        spent, noted = spent + 1, south.evaluate(linear(np.full(4, spent + 1), 0.0))
    refuses(noted, "the budget is 4", south)
    assert epsilon_of({Release(20.0): spent}, DELTA) <= 4.0 < epsilon_of({Release(20.0): spent + 1}, DELTA)


SCOPE = {"columns": ["radius"], "part": "train", "minimum_count": 5}


def test_no_value_is_found_by_counts_that_differ_by_one_row(party):
    """Two counts of many rows each, whose difference is one row: exact counts would show every value in 17 queries."""
    south = party(minimum_rows=20, minimum_count=5, tell_rows="hundreds")
    facts = {"algorithm": "statistics", "components": []}
    assert isinstance(south.announce(**facts), Ready)
    values = np.sort(south.data().train.features[:, 0])
    between = np.concatenate([(values[:-1] + values[1:]) / 2, values[-1:] + 1])
    replies = [south.ask("statistics: histogram", {"edges": np.array([[-100.0, edge]])}, **SCOPE) for edge in between]
    counts = [int(reply["sums"]["histogram"][0, 0]) for reply in replies]
    assert {count % 5 for count in counts} == {0}
    assert len(set(counts)) <= len(values) // 5 + 1
    refuses(south.ask("statistics: summary", **{**SCOPE, "minimum_count": 1}), "fewer than 5 rows", south)


def test_no_value_is_found_by_edges_that_are_moved_from_row_to_row(party):
    """Counts of whole fives show where the fifth row lies; counted from just before it, the next five end at the ninth
    row, and so on: 1,500 histograms gave every value of a column. Edges now find means of five rows and no others."""
    south = party(minimum_rows=20, minimum_count=5, tell_rows="hundreds")
    south.announce(algorithm="statistics", components=[])

    def next_five(low):
        """The least edge up to which there are five rows."""
        high = 60.0
        for _ in range(25):
            middle = (low + high) / 2
            reply = south.ask("statistics: histogram", {"edges": np.array([[start, middle]])}, **SCOPE)
            low, high = (middle, high) if reply["sums"]["histogram"][0, 0] < 5 else (low, middle)
        return high

    rows, start, found = south.data().train.features[:, 0], -100.0, []
    for _ in range(8):
        found.append(next_five(start))
        start = found[-1] - 1e-4
    groups = np.sort(rows)[:145].reshape(-1, 5).mean(axis=1)
    assert np.abs(np.array(found)[:, None] - rows).min() > 1e-3
    assert np.abs(np.array(found)[:, None] - groups).min(axis=1).max() < 1e-3


@pytest.mark.parametrize("policy", [{"minimum_rows": 20, "minimum_count": 5}, SPENDING])
def test_no_row_is_found_by_what_fails(party, policy):
    """Attack 6 by failures: 'log1p' fails where a value is -1 or less, so that a made-up mean before it asks whether
    any value is below a threshold, in the announcement itself and at no cost."""
    south, said = party(**policy), []
    lowest = south.rows.features[:, 0].min()
    for threshold in (lowest - 1e-6, lowest + 1e-6):
        mean = np.array([threshold + 1, -1e9, -1e9, -1e9])
        said.append(south.announce(preparation={"steps": ["standardise", "log1p"], "statistics": [
            {"mean": mean, "scale": np.ones(4)}, {}]}))
        refuses(said[-1], "it would show whether there are any above a threshold", south)
    assert said[0] == said[1]
    assert isinstance(south.announce(preparation={"steps": ["standardise"], "statistics": []}), Ready)


def overflowing(south):
    """Two thresholds, with no row and with one above it, and for each a model whose numbers overflow above it alone."""
    rows = np.sort(south.data().train.features[:, 0].astype(np.float64))[::-1]
    for threshold in (rows[0] * 1.0001, (rows[0] + rows[1]) / 2):
        large = np.finfo(np.float32).max / threshold
        yield from (linear([large, 0, 0, 0], 0.0), linear([large, -2 * large, 0, 0], 0.0))


@pytest.mark.parametrize(("local", "noise"), [(training(batch=0), LOCAL_DP),
                                              (training(noise=8.0, batch=0), stage("silent-training"))])
def test_no_row_is_found_by_training_that_diverges(party, local, noise):
    """A model whose numbers overflow at rows above a threshold: training failed, noise or none, if there was such a
    row."""
    south = party(budget=Budget(50.0, DELTA))
    south.announce(components=[LOGISTIC, local, noise])
    for model in overflowing(south):
        reply = south.train(model, local=local, stages=[noise])
        assert not isinstance(reply, Refused), reply
        assert all(np.isfinite(values).all() for values in reply["update"].values())
        assert any(values.any() for values in reply["update"].values())  # noise is on it all the same


@pytest.mark.parametrize("policy", [SOUTH, {"budget": Budget(50.0, DELTA, evaluation_noise=1.0)}])
def test_no_row_is_found_by_an_evaluation_that_fails(party, policy):
    """The same for scores that are no numbers: coarse or noised counts come back, whatever the rows are."""
    south = party(**policy)
    south.announce()
    rows = np.sort(south.data().test.features[:, 0].astype(np.float64))[::-1]
    for threshold in (rows[0] * 1.0001, (rows[0] + rows[1]) / 2):
        large = np.finfo(np.float32).max / threshold
        reply = south.evaluate(linear([large, -large * threshold / 10, 0, 0], 0.0))
        assert not isinstance(reply, Refused), reply
        assert set(reply) == {"confusion", "rows"}


# 7. Sensitivity


def test_a_party_reckons_itself_how_far_a_row_moves_a_sum(party):
    """Attack 7: dp-sums with moves = 1e-9."""
    south = party(budget=Budget(4.0, DELTA))
    lie = stage("dp-sums", noise=4.0, moves={"counts": 1e-9, "sums": 1e-9})
    south.announce(algorithm="kmeans", components=[lie])
    said = south.ask("kmeans: move centroids", {"centroids": np.zeros((2, 4))}, stages=[lie], epochs=1, batch=0,
                     party_rate=1.0, minimum_count=1, radius=30.0)
    refuses(said, "is made for rows that move it by 1e-09", south)
    assert south.epsilon() == 0


@pytest.mark.parametrize("expected", [1e12, 4.0, inf])
def test_no_stage_expects_more_parties_than_there_are(party, expected):
    """Attack 7: distributed-dp with expected = 1e12 adds next to no noise."""
    south, lie = party(), stage("distributed-dp", clip=1.0, noise=1.0, expected=expected)
    south.announce(components=[LOGISTIC, training(), lie])
    refuses(south.train(stages=[lie]), "which would make each share of noise too small", south)


@pytest.mark.parametrize("parameters", [{"clip": 1e-45, "noise": 0.4}, {"clip": 1e-30, "noise": 20.0},
                                        {"clip": 1.0, "noise": 1e-30}, {"clip": 1e300, "noise": 20.0},
                                        {"clip": 1.0, "noise": inf}])
def test_noise_is_of_a_size_that_numbers_hold(party, parameters):
    """A clip of 1e-45 in single precision: noise vanishes, and the sign of the largest entry does not."""
    south, lie = party(budget=Budget(1e6, DELTA)), stage("local-dp", **parameters)
    south.announce(components=[LOGISTIC, training(), lie])
    refuses(south.train(stages=[lie]), "by which no noise can be drawn", south)


# 8. Files


def texts(path):
    return component("learner", "text-classifier", vectors=str(path))


@pytest.mark.parametrize("way", ["components", "learner", "settings"])
@pytest.mark.parametrize("policy", [{}, SOUTH])
def test_no_file_is_read_and_none_is_known_to_exist(party, tmp_path, way, policy):
    """Attack 8: the learner 'text-classifier' with a path, which exists or does not."""
    south, said = party(**policy), []
    (tmp_path / "there.npy").write_bytes(b"private")
    for path in (tmp_path / "there.npy", tmp_path / "not there.npy", "/etc/passwd"):
        if way == "components":
            said.append(south.announce(components=[texts(path)]))
        elif way == "learner":
            said.append(south.announce(learner={"name": "text-classifier", "vectors": str(path)}))
        else:
            south.announce()
            said.append(south.ask("train", {"model": zeros()}, learner=texts(path), local=training()))
        refuses(said[-1], "sets vectors of the learner 'text-classifier', which could name a file", south)
        assert str(path) not in said[-1].cause + said[-1].remedy
    assert len({(each.cause, each.remedy) for each in said}) == 1


# 9. Import


@pytest.mark.parametrize("spec", [
    component("learner", "torch", module="antigravity:fly"), component("learner", "torch", module="os:system"),
    component("learner", "given", module="antigravity"), component("filter", "custom", function="antigravity:fly"),
    component("learner", "no such learner"), component("dataset", "csv", path="/etc/passwd"),
    component("attack", "sign-flip"), component("engine", "network", home="/"),
    component("stage", "attack", attack="label-flip")])
def test_nothing_is_imported_or_built_that_was_not_listed(party, spec):
    """Attack 9: a module that a pattern missed."""
    south = party(**SOUTH)
    assert isinstance(south.announce(components=[spec]), Refused)
    assert south.noted[-1]["event"] == "run declined"
    south.announce()
    said = south.ask("train", {"model": zeros()}, learner=spec, local=training())
    assert isinstance(said, Refused)
    assert south.noted[-1]["event"] == "task refused"
    assert "antigravity" not in sys.modules
    works(south)


# 10. Announcements that kill


@pytest.mark.parametrize("lie", [
    {"parties": inf}, {"parties": 10**18}, {"parties": -1}, {"parties": nan}, {"parties": True, "index": 0},
    {"index": 2**40}, {"index": -1}, {"index": 3}, {"index": 1.5}, {"rounds": 10**12}, {"rounds": -1},
    {"rounds": "ten"},
    {"seed": -5}, {"seed": 2**63}, {"preparation": [1]}, {"preparation": {"steps": [1]}},
    {"preparation": {"steps": ["standardise"], "statistics": [{}, {}]}}, {"preparation": {"steps": "standardise"}},
    {"preparation": {"steps": ["standardise"], "statistics": [{"mean": np.zeros(9), "scale": np.zeros(9)}]}},
    {"split": {"validation": 0.5, "test": 0.5, "stratify": True}}, {"split": {"validation": nan, "test": 0.0,
                                                                              "stratify": True}},
    {"split": {"validation": -0.1, "test": 0.0, "stratify": True}}, {"split": []}, {"components": [{}]},
    {"components": [[]]}, {"components": [{"$component": "learner"}]}, {"work": []}, {"work": {"algorithm": "fedavg"}},
    {"work": {"deep": "x" * (1 << 21)}}, {"unknown": 1}, {"roster": ["x" * 1000]}, {"stages": [[]] * 3},
    {"schema": "{"}, {"schema": '{"features": 3}'}, {"overrides": {"local": "all"}}, {"learner": {"name": 3}}])
def test_announcements_out_of_bounds_are_refused_and_nothing_else_happens(party, lie):
    """Attack 10: an infinite number of parties, the index 2^40, the preparation [1]."""
    south = party()
    said = south.announce(**lie)
    assert isinstance(said, Refused)
    assert south.noted[-1]["event"] == "run declined"
    assert not south.site.knows("run-1")
    assert not (south.folder / "split.json").exists()
    works(south)


# 11. Budget and secure sum


def test_a_budget_and_a_secure_sum_go_together(party):
    """Attack 11: protocol tasks were refused under a budget; now those of the announced stage are covered by it."""
    south, hiding = party(budget=Budget(4.0, DELTA)), stage("secure-sum")
    south.announce(components=[LOGISTIC, training(), LOCAL_DP, hiding],
                   stages=[{"name": "local-dp"}, {"name": "secure-sum"}])
    reply = south.train(stages=[LOCAL_DP, hiding])
    assert "layout" in reply["update"]
    keys = south.ask("secure-sum.keys", {"session": b"1" * 16, "name": "update"}, base=1, bits=32, largest=16.0,
                     threshold=0.5, local=training())
    assert not isinstance(keys, Refused) or "policy" not in keys.cause
    assert south.epsilon() == pytest.approx(epsilon_of({Release(10.0): 1}, DELTA), rel=1e-6)


@pytest.mark.parametrize("name", sorted(PROTOCOL_TASKS))
def test_what_one_sum_hides_no_other_protocol_opens(party, name):
    """An update that is held for a secure sum, handed over by the task of another stage."""
    south, hiding = party(**SOUTH), stage("secure-sum")
    south.announce(components=[LOGISTIC, training(), hiding], stages=[{"name": "secure-sum"}])
    assert "layout" in south.train(stages=[hiding])["update"]
    said = south.ask(name, {"name": "update", "weight": 1.0, "together": [], "session": b"1"}, base=1, local=training())
    assert isinstance(said, Refused)
    if not name.startswith(("secure-sum", "joint")):
        refuses(said, "is no part of the algorithm 'fedavg'", south)
    two = [hiding, stage("group-sum")]
    south.announce("two", components=[LOGISTIC, training(), *two])
    refuses(south.train(run="two", stages=two), "one could open what the other hides", south)


# 12. Numbers of rows


def test_the_number_of_rows_is_in_no_reply(party):
    """Attack 12: tell_rows = "hundreds", and the reply of `train` said 145."""
    south = party(**{**SOUTH, "minimum_rows": 0})
    assert south.site.greeting().rows == 100
    south.announce(preparation={"steps": ["standardise"], "statistics": []})
    rows = len(south.data().train)
    assert rows == 145
    for batch in (1, 2, 3, 5, 7, 11):
        local = training(batch=batch, epochs=1000 // batch, learning_rate=1e-6)
        run = f"batch-{batch}"
        south.announce(run, components=[LOGISTIC, local])
        reply = south.train(run=run, local=local)
        assert (reply["rows"], reply["steps"]) == (100, 1000 // batch * -(-100 // batch))
    found = south.ask("fit preparation", {"statistics": []}, steps=["standardise"])["statistics"]
    assert found["count"].tolist() == [100]
    assert found["sums"].sum(axis=0) / 100 == pytest.approx(found["mean"], rel=1e-12)
    assert found["mean"] == pytest.approx(south.data().train.features.astype(np.float64).mean(axis=0))


@pytest.mark.parametrize("step", ["minmax", {"name": "discretise"}, {"name": "discretise", "method": "quantile"},
                                  {"name": "impute"}, {"name": "select"}])
def test_preparing_shows_no_value_of_a_single_row(party, step):
    """Ranges and fine histograms are values of single rows, whatever step asks for them."""
    south = party(**SOUTH)
    south.announce(preparation={"steps": [step], "statistics": []})
    said = south.ask("fit preparation", {"statistics": []}, steps=[step])
    assert isinstance(said, Refused)
    assert south.noted[-1]["event"] in ("task refused", "task failed")


def wards():
    """A table in which one row lacks its age, seven lack their weight, and one is of a ward of its own."""
    draw, count = np.random.default_rng(3), 181
    features = np.column_stack([draw.normal(50, 9, count), draw.normal(70, 9, count), np.arange(count) % 2])
    features[3, 0] = features[:7, 1] = np.nan
    features[11, 2] = 2
    schema = Schema((Feature("age"), Feature("weight"), Feature("ward", ("A", "B", "C"))),
                    Target("classes", ("no", "yes"), "ill"))
    return Dataset.of(schema, features, (np.arange(count) % 3 == 0).astype(np.int64), name="wards", missing="keep")


def test_preparing_counts_no_few_rows(party):
    """A minimum count holds for what filling in counts, and for means that are counts: of one row with a category."""
    fill = {"name": "impute", "numbers": "mean", "indicators": False}
    south, step = party(rows=wards(), minimum_count=5), Impute(numbers="mean", indicators=False)
    south.announce(preparation={"steps": [fill, "standardise", "one-hot"], "statistics": []})
    found = south.ask("fit preparation", {"statistics": []}, steps=[fill])["statistics"]
    known = step.fit(south.data().train)
    assert known["counts"][2] == 1
    for name in ("missing", "gaps", "counts"):
        assert (found[name] == known[name] // 5 * 5).all()
    assert found["fill"] == pytest.approx(known["fill"])
    assert not found.keys() & {"lacking", "open", "frequent"}
    assert step.merge([found, found])["fill"] == pytest.approx(known["fill"])
    for steps in (["one-hot", "standardise"], [{**fill, "indicators": True}, "standardise"]):
        run = f"run of {len(str(steps))}"
        south.announce(run, preparation={"steps": steps, "statistics": []})
        refuses(south.ask("fit preparation", {"statistics": [{}]}, run=run, steps=steps), "however few they are", south)


def test_a_list_of_algorithms_lets_in_the_tasks_of_no_other(party):
    """Attack 12: algorithms = ["fedavg"] also allowed tree tasks."""
    south = party(**SOUTH)
    south.announce()
    for task in installed_tasks():
        if task.name not in ("train", "evaluate"):
            assert isinstance(south.ask(task.name), Refused), task.name
    refuses(south.announce(algorithm="icdta4fl"), "algorithm 'icdta4fl' is not among the policy's 'algorithms'", south)
    works(south)


# 13. One ledger


def test_seeds_forks_names_homes_and_federations_share_one_ledger(party, tmp_path):
    """Attack 13: each of these started at zero."""
    policy = {"budget": Budget(1.2, DELTA)}
    first, spent = party("first", **policy), 0
    homes = [first, party("second", **policy), Coordinator(tmp_path / "third", Policy(**policy), table())]
    said = None
    for number in range(60):
        south = homes[number % 3]
        run = f"run-{number}"
        assert isinstance(south.announce(run, seed=number, name=f"fork {number}", **NOISED), Ready)
        said = south.train(run=run, stages=[LOCAL_DP], round=number % 10)
        if isinstance(said, Refused):
            break
        spent += 1
    refuses(said, "the budget is 1.2", south)
    assert epsilon_of({Release(10.0): spent}, DELTA) <= 1.2 < epsilon_of({Release(10.0): spent + 1}, DELTA)
    assert {home.epsilon() for home in homes} == {first.epsilon()}
    other = party("other rows", rows=table(seed=8), **policy)
    other.announce(**NOISED)
    assert "update" in other.train(stages=[LOCAL_DP])
    assert other.epsilon() == pytest.approx(epsilon_of({Release(10.0): 1}, DELTA))


# 14. Coins


def test_who_was_drawn_and_which_noise_cannot_be_worked_out_from_the_seed(party):
    """Attack 14: with the seed known, epsilon 1.62 was 4.38."""
    private, silent = training(noise=1.0, batch=16, epochs=1), stage("silent-training")
    facts = {"components": [LOGISTIC, private, silent]}

    def guessed(coordinator):
        """What the announced seed alone would give, for one who knows all rows and how they are split."""
        population = coordinator.site._runs["run-1"].population
        order = Order(1, "train", (1,), 1, {"model": zeros()}, {"learner": LOGISTIC, "local": private}, (silent,))
        return execute(order, population, {}, 4).replies[0].payload["update"]["output.weight"]

    known = party("known", private_randomness=False)
    known.announce(**facts)
    assert np.array_equal(known.train(local=private, stages=[silent])["update"]["output.weight"], guessed(known))
    south = party(budget=Budget(50.0, DELTA))
    south.announce(**facts)
    assert not np.array_equal(south.train(local=private, stages=[silent])["update"]["output.weight"], guessed(south))
    with pytest.raises(ConfigError, match="a budget needs private_randomness = true"):
        as_policy({"budget": {"epsilon": 1.0, "delta": DELTA}, "private_randomness": False}, "policy.toml")


# What a minimum of rows is not


def test_a_minimum_of_rows_is_no_defence_against_a_model_made_for_the_attack_but_noise_is(party):
    """An honest limit. Large weights silence all rows but those on the wrong side of a plane: the mean over 145 rows is
    then the row of one, divided by 145. Noise of the party's own hides it."""
    local = training(batch=0, learning_rate=145.0)

    def distance(coordinator, **ways):
        rows = coordinator.data().train
        others = np.sort(rows.features[rows.target == 0, 1])[-2:].mean()
        model = linear([0, 1e4, 0, 0], -1e4 * others)
        # All rows of the other class below the plane are on the wrong side as well: a label turns them around.
        change = coordinator.train(model, local=local, **ways)["update"]
        wrong = (rows.features[:, 1] > others) != (rows.target == 1)
        sums = np.where(rows.target[wrong] == 1, 1, -1) @ rows.features[wrong]
        return np.abs(change["output.weight"][0] / sums - 1).max()

    south = party(**SOUTH)
    south.announce(components=[LOGISTIC, local])
    assert distance(south) < 1e-3
    private = party("private", budget=Budget(4.0, DELTA))
    private.announce(components=[LOGISTIC, local, LOCAL_DP], stages=NOISED["stages"])
    assert distance(private, stages=[LOCAL_DP]) > 0.5


def test_a_list_of_the_same_trees_shows_no_exact_mean(party):
    """Attack 6 through another task: trees that the coordinator made up, the same a thousand times in one request."""
    tree = to_plain(build("learner", "cart"))
    trained = party("open")
    trained.announce(algorithm="icdta4fl", components=[tree])
    made = trained.ask("icdta4fl: fit tree", learner=tree, agreed=trained.schema, epsilon=0.0,
                       prune=False)
    assert not isinstance(made, Refused), made
    asked = {"learner": tree, "part": "test", "leaves": True}
    exact = trained.ask("icdta4fl: cross-evaluate", {"trees": [made["tree"]]}, **asked)
    south = party(minimum_rows=20, minimum_count=5)
    south.announce(algorithm="icdta4fl", components=[tree])
    coarse = south.ask("icdta4fl: cross-evaluate", {"trees": [made["tree"]] * 1000}, **asked)
    assert len(exact["scores"]) == 1
    assert (coarse["scores"] == coarse["scores"][0]).all()
    assert coarse["scores"][0] * coarse["rows"] % 5 == pytest.approx(0, abs=1e-9)
    assert all(not (counts % 5).any() for counts in coarse["leaves"])


@pytest.mark.parametrize(("name", "parameters", "fine"), [
    ("cart", {}, False), ("cart", {"min_leaf": 4}, False), ("cart", {"min_leaf": 5}, True), ("id3", {}, False)])
def test_no_leaf_of_a_tree_stands_for_one_row(party, name, parameters, fine):
    """A tree that is grown to its end has each row's values in the thresholds around its leaf."""
    south, tree = party(minimum_rows=20, minimum_count=5), to_plain(build("learner", name, parameters))
    south.announce(algorithm="icdta4fl", components=[tree])
    said = south.ask("icdta4fl: fit tree", learner=tree, agreed=south.schema, epsilon=0.0, prune=False)
    if fine:
        assert "tree" in said
    else:
        refuses(said, "may stand for fewer than 5 rows", south)
