"""A policy in a simulation is the same gate as at a real party, and charges the same."""

from __future__ import annotations

import json

import dp_accounting
import pytest
from dp_accounting import pld

import tequio
from tequio.errors import ConfigError, PartyError, PermissionDenied
from tequio.experiments.config.complete import complete
from tequio.experiments.trying import try_policy
from tequio.gate.policy import Budget, Policy
from tequio.privacy.accounting import Release
from tequio.privacy.dataset_ledger import DatasetLedger
from tequio.registry import build, to_plain

DELTA = 1e-5


def composed(*events):
    """What the library says of these releases together, with an interval of its own."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for event, count in events:
        accountant.compose(event, count)
    return accountant.get_epsilon(DELTA)


@pytest.fixture
def given(tmp_path):
    """A run of three rounds with five parties of some ninety training rows, with changes."""
    def make(**changes):
        return {"name": "toy", "seed": 3, "rounds": 3, "algorithm": {"name": "fedavg", "weights": "uniform"},
                "data": {"name": "breast-cancer", "partition": {"name": "iid", "parties": 5}, "prepare": [],
                         "split": {"validation": 0.0, "test": 0.2}},
                "learner": "logistic", "local": {"epochs": 1, "batch": 16, "learning_rate": 1e-3},
                "evaluation": {"every": 3}, "engine": {"name": "local", "workers": 1},
                "output": {"folder": str(tmp_path / "runs")}} | changes

    return make


LOCAL = {"name": "local-dp", "clip": 1.0, "noise": 20.0}
SPENDING = {"budget": {"epsilon": 6.0, "delta": DELTA}}


def ledgers(folder, policy_epsilon=DELTA):
    """Epsilon by file, of the ledgers that the gates of a folder's runs have written."""
    found = {}
    for path in sorted((folder / "runs" / "ledgers").glob("*.jsonl")):
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        if any(entry.get("task") for entry in entries):  # of one party, and not of the run as a whole
            found[path.stem] = DatasetLedger(path.parent, path.stem).epsilon(policy_epsilon)
    return found


def test_three_runs_at_one_party_cost_what_the_library_composes(gate, training, tmp_path):
    """Three runs with other noise, charged at the gate: thirteen Gaussian releases of an update that may be replaced
    (so that the sensitivity is twice the clip), and two evaluations with noise on counts."""
    ledger = DatasetLedger(tmp_path, "rows")
    learner = to_plain(build("learner", "logistic"))
    policy = Policy(budget=Budget(50.0, DELTA, evaluation_noise=12.0))
    for run, (noise, rounds) in enumerate([(20.0, 4), (24.0, 6), (30.0, 3)]):
        stage, settings = to_plain(build("stage", "local-dp", {"clip": 1.0, "noise": noise})), training()
        party = gate(policy, ledger=ledger, run=f"run {run}", by="abc", rounds=rounds, seed=run,
                     components=[stage, *settings.values()])
        for round in range(1, rounds + 1):
            party.admit("train", round, settings, [stage], f"{run} {round}")
            party.admit("train", round, settings, [stage], f"{run} {round}")  # the same again is no further release
        if run:
            party.admit("evaluate", rounds, {"learner": learner, "part": "test"}, [], f"{run} evaluated")
    gaussian = dp_accounting.GaussianDpEvent
    assert ledger.spent() == {Release(10.0): 4, Release(12.0): 6, Release(15.0): 3,
                              Release(12.0, "discrete-gaussian"): 2}
    expected = composed((gaussian(10.0), 4), (gaussian(12.0), 6), (gaussian(15.0), 3), (gaussian(12.0), 2))
    assert ledger.epsilon(DELTA) == pytest.approx(expected, rel=1e-3)
    assert {run: sum(spent.values()) for run, spent in ledger.by_run().items()} == {"run 0": 4, "run 1": 7, "run 2": 4}


def test_what_the_budget_does_not_pay_for_is_refused_and_not_charged(gate, training, tmp_path):
    """Gaussian noise of twice the sensitivity: one release costs 2.0, two would cost 2.9."""
    ledger, settings = DatasetLedger(tmp_path, "rows"), training()
    stage = to_plain(build("stage", "local-dp", {"clip": 1.0, "noise": 4.0}))
    party = gate(Policy(budget=Budget(2.5, DELTA)), ledger=ledger, components=[stage, *settings.values()])
    one, two = (composed((dp_accounting.GaussianDpEvent(2.0), count)) for count in (1, 2))
    assert one < 2.5 < two
    party.admit("train", 1, settings, [stage], "first")
    with pytest.raises(PermissionDenied, match=f"from epsilon {one:.4g}.* to {two:.4g}.*the budget is 2.5"):
        party.admit("train", 2, settings, [stage], "second")
    assert ledger.spent() == {Release(2.0): 1}


def test_runs_in_a_simulation_are_charged_to_the_ledger_of_the_rows(given, tmp_path):
    """Three runs with other seeds and names, each of three rounds: nine releases at every party."""
    for seed in range(3):
        tequio.run(given(seed=seed, name=f"run {seed}", stages=[LOCAL], policy=SPENDING))
    expected = composed((dp_accounting.GaussianDpEvent(10.0), 9))
    assert list(ledgers(tmp_path).values()) == pytest.approx([expected] * 5, rel=1e-5)
    with pytest.raises(PartyError, match="would take the privacy loss of these rows, over all runs"):
        tequio.run(given(seed=9, stages=[{**LOCAL, "noise": 2.0}], policy=SPENDING))


def test_a_budget_local_noise_and_a_secure_sum_work_together(given, tmp_path):
    stages = [LOCAL, {"name": "secure-sum", "largest": 512.0}]
    plain = tequio.run(given(stages=stages))
    gated = tequio.run(given(stages=stages, policy=SPENDING))
    assert gated.summary["model_sha256"] == plain.summary["model_sha256"]
    assert list(ledgers(tmp_path).values()) == pytest.approx(
        [composed((dp_accounting.GaussianDpEvent(10.0), 3))] * 5, rel=1e-5)


def test_a_secure_sum_alone_does_not_pay(given):
    with pytest.raises(PartyError, match="no noise of the party's own is on what the task 'train' reveals"):
        tequio.run(given(stages=[{"name": "secure-sum"}], policy=SPENDING))


def test_evaluation_is_charged_with_the_rest(given, tmp_path):
    policy = {"budget": {"epsilon": 6.0, "delta": DELTA, "evaluation_noise": 8.0}}
    tequio.run(given(stages=[LOCAL], policy=policy, evaluation={"every": 3, "at": ["parties"]}))
    each = composed((dp_accounting.GaussianDpEvent(10.0), 3), (dp_accounting.GaussianDpEvent(8.0), 1))
    assert list(ledgers(tmp_path).values()) == pytest.approx([each] * 5, rel=1e-5)


def test_a_careful_run_learns_the_same_and_reports_in_multiples(given):
    plain, gated = (tequio.run(given(**more)) for more in ({}, {"policy": {"minimum_rows": 20, "minimum_count": 5}}))
    assert gated.summary["model_sha256"] == plain.summary["model_sha256"]
    assert {row["rows"] for row in plain.parties.rows} == {18}
    found = gated.parties.rows
    assert {row["rows"] % 5 for row in found} == {0}
    assert all("accuracy" in row and "loss" not in row and "auc" not in row for row in found)


def test_rows_are_reported_as_hundreds_in_every_reply(given, monkeypatch):
    from tequio.federation.federation import Federation

    reported = set()
    ask = Federation.ask

    def listen(federation, *args, **more):
        replies = ask(federation, *args, **more)
        reported.update(reply.payload["rows"] for reply in replies if "update" in reply.payload)
        return replies

    monkeypatch.setattr(Federation, "ask", listen)
    data = given()["data"] | {"partition": {"name": "iid", "parties": 3}}  # some 120 training rows each
    tequio.run(given(data=data, policy={"tell_rows": "hundreds"}))
    assert reported == {100}


def test_a_run_that_no_party_may_join_ends_before_it_begins(given):
    with pytest.raises(PermissionDenied, match="party '0': the party's policy refuses: the run has 5 parties"):
        tequio.run(given(policy={"minimum_parties": 6}))


def test_a_party_that_refuses_is_named_and_the_others_go_on(given):
    """The run sets single rows as the batch of one party; that party says no."""
    config = given(policy={"minimum_batch": 8}, overrides={"2": {"local": {"batch": 1}}},
                   rules={"on_failure": "continue", "quorum": 0.5})
    events = [json.loads(line) for line in (tequio.run(config).folder / "events.jsonl").read_text().splitlines()]
    assert [(event["party"], event["cause"].partition(": ")[2]) for event in events if event["event"] == "failure"] == [
        ("2", "a step of task 'train' rests on 1 rows, the policy wants at least 8")] * 3
    assert [event["answered"] for event in events if event.get("task") == "train" and "answered" in event] == [4] * 3


@pytest.mark.parametrize(("policy", "refused", "allowed"), [
    ("open", set(), {"train", "evaluate"}), ("hospital", set(), {"train", "evaluate"}),
    ("strict", {"train"}, {"evaluate"})])
def test_trying_refuses_nothing_and_says_what_would_be(given, policy, refused, allowed):
    found = try_policy(complete(given()), policy)
    assert {task.task for task in found.tasks if task.refused} == refused
    assert {task.task for task in found.tasks if not task.refused} == allowed
    assert found.allowed == (not refused)
    assert (found.played, found.rounds, found.parties) == (2, 3, 5)


def test_trying_says_what_all_rounds_would_cost(given):
    """Thirty rounds of which two are played, and each round's evaluation counts."""
    found = try_policy(complete(given(rounds=30, stages=[{**LOCAL, "noise": 60.0}])), "strict")
    expected = composed((dp_accounting.GaussianDpEvent(30.0), 30), (dp_accounting.GaussianDpEvent(5.0), 30))
    assert found.epsilon == pytest.approx(expected, rel=1e-3)


def test_trying_leaves_nothing_behind(given, tmp_path):
    try_policy(complete(given(stages=[LOCAL])), "strict")
    assert list(tmp_path.iterdir()) == []


def test_a_policy_of_a_config_is_a_name_a_file_or_its_keys(given, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("minimum_parties = 6")
    for policy in (str(path), {"minimum_parties": 6}):
        with pytest.raises(PermissionDenied, match="wants at least 6"):
            tequio.run(given(policy=policy))
    with pytest.raises(ConfigError, match="there is no policy 'no-such'"):
        tequio.run(given(policy="no-such"))
