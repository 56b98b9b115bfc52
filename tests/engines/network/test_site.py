"""A party at work, without a network: a task is done once, states are kept, the policy is held against everything."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.engines.network.holding import OwnRows
from tequio.engines.network.journal import Journal, Record
from tequio.engines.network.policy import Approvals
from tequio.engines.network.site import Site
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
from tequio.engines.network.wire import Declined, Ready, TaskRequest, Waiting
from tequio.errors import ConfigError, EngineError, PermissionDenied, RunError
from tequio.federation import payload as payloads
from tequio.federation.payload import Payload
from tequio.federation.task import Done, NoSettings, Reveals, record, task
from tequio.gate.policy import Policy, read_policy
from tequio.gate.tasks import tasks_of

from .fleet import enrol, make_coordinator


@record
class Asked:
    """What a coordinator may say besides: another model, say."""

    model: int = 1


@task("site test.count", settings=Asked, reply=Payload, reveals=Reveals.COUNTS)
def count(party, payload, settings):
    party.state["calls"] = party.state.get("calls", 0) + 1
    return {"calls": party.state["calls"], "luck": party.rng("luck").random(), "rows": len(party.data.train)}


@task("site test.fail", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def fail(party, payload, settings):
    party.state["calls"] = 99
    raise ValueError("patient 17 is odd")


@task("site test.rows", settings=NoSettings, reply=Payload, reveals=Reveals.ROWS)
def rows(party, payload, settings):
    return {"rows": party.data.train.features}


@pytest.fixture(scope="module")
def party_home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return enrol(make_coordinator(folder / "coordinator"), folder / "north", "north", {})


@pytest.fixture
def site(party_home, tmp_path):
    return make_site(party_home, tmp_path)


def make_site(party_home, tmp_path, **policy):
    for stem in ("authority.pem", "party.pem", "party.key"):
        target = tmp_path / stem
        if not target.exists():
            target.write_bytes((party_home.folder / stem).read_bytes())
    dataset = Dataset.of(Schema.of_numbers(["a", "b"], Target("classes", ("no", "yes"))),
                         np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2)
    policy.setdefault("tasks", TASKS)
    return Site(type(party_home)(tmp_path), OwnRows("north", dataset), Policy(**policy),
                Telemetry(AuditLog(tmp_path / "audit.jsonl")))


TASKS = ("site test.count", "site test.fail", "site test.rows", "site test.update", "site test.nothing", "train")
NOISE = {"$component": ["stage", "local-dp"], "parameters": {"clip": 1.0, "noise": 0.5, "arrays": ["update"]}}
LOCAL_DP = {"$component": ["stage", "local-dp"], "parameters": {"clip": 1.0, "noise": 4.0, "arrays": ["update"]}}


def told(site, **facts):
    plain = {"index": 1, "parties": 3, "seed": 4, "split": {"validation": 0.0, "test": 0.1, "stratify": True},
             "overrides": {}, "name": "run", "rounds": 10, "algorithm": "fedavg", "components": [NOISE, LOCAL_DP],
             "schema": site._holding.schema, **facts}
    return payloads.encode(plain)


def work(position, base=0, name="site test.count", digest="d", keep=0, run="run-1", round=1):
    return TaskRequest(run, position, base, keep, digest, name, round, ((0, 0), (0, 0), (0, 0)))


def parts(**settings):
    return [payloads.encode({"settings": settings, "stages": []}), payloads.encode({}), b""]


def calls(record):
    return payloads.decode(record.reply)["calls"]


def test_the_same_work_is_done_once_even_by_another_process(site, party_home, tmp_path):
    assert isinstance(site.begin("run-1", told(site)), Ready)
    first = site.run(work(1), parts())
    assert site.run(work(1), parts()) == first
    assert calls(site.run(work(2, base=1), parts())) == 2
    again = make_site(party_home, tmp_path)
    again.begin("run-1", told(again))
    assert again.run(work(2, base=1), parts()).reply == site.run(work(2, base=1), parts()).reply
    assert calls(again.run(work(3, base=2), parts())) == 3


def test_a_journal_gives_large_replies_back_from_the_disk(tmp_path):
    reply, state = payloads.encode({"model": np.arange(400_000.0)}), {"kept": np.arange(300_000.0)}
    Journal(tmp_path).add(Record(3, 0, "digest", state, reply, 0.5))
    found = Journal(tmp_path).find(3, 0, "digest")
    assert bytes(found.reply) == reply
    assert found.seconds == 0.5
    assert np.array_equal(Journal(tmp_path).state(3)["kept"], state["kept"])


def test_a_run_that_goes_back_to_a_checkpoint_finds_the_state_of_that_moment(site):
    site.begin("run-1", told(site))
    for position in range(1, 6):
        site.run(work(position, base=position - 1), parts())
    assert calls(site.run(work(4, base=2, digest="other"), parts())) == 3
    assert calls(site.run(work(5, base=4, digest="other"), parts())) == 4
    with pytest.raises(RunError, match=r"state after task 3 .* is not on this party's disk"):
        site.run(work(6, base=3), parts())


def test_states_that_no_checkpoint_refers_to_are_forgotten(site, tmp_path):
    site.begin("run-1", told(site))
    for position in range(1, 6):
        site.run(work(position, base=position - 1, keep=max(position - 2, 0)), parts())
    kept = sorted(path.name for path in (tmp_path / "runs" / "run-1").iterdir())
    assert kept == ["task-000000000003", "task-000000000004", "task-000000000005"]
    site.end("run-1")
    kept = sorted(path.name for path in (tmp_path / "runs" / "run-1").iterdir())
    assert kept == ["over", "task-000000000005"]  # the last state, and a mark for cleaning up
    with pytest.raises(PermissionDenied, match="takes no part"):
        site.run(work(6, base=5), parts())


def test_a_task_that_fails_changes_nothing_and_what_it_said_stays_here(site, tmp_path):
    site.begin("run-1", told(site))
    site.run(work(1), parts())
    with pytest.raises(EngineError) as failure:
        site.run(work(2, base=1, name="site test.fail"), parts())
    cause, remedy = site.explain(work(2), failure.value)
    assert cause == "ValueError"
    assert "tequio party audit" in remedy
    assert entries(tmp_path / "audit.jsonl")[-1]["cause"] == "ValueError: patient 17 is odd"
    assert calls(site.run(work(3, base=1), parts())) == 2


def test_a_full_disk_fails_the_task_and_loses_nothing(site, monkeypatch):
    site.begin("run-1", told(site))
    site.run(work(1), parts())
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", no_space)
        with pytest.raises(EngineError, match="No space left on device") as failure:
            site.run(work(2, base=1), parts())
        assert "free some space" in failure.value.remedy
    assert calls(site.run(work(2, base=1), parts())) == 2


def no_space(*paths):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_random_numbers_follow_from_a_secret_of_the_party(party_home, tmp_path):
    def luck(folder, **policy):
        folder.mkdir(exist_ok=True)
        own = make_site(party_home, folder, **policy)
        own.begin("run-1", told(own))
        return payloads.decode(own.run(work(1), parts()).reply)["luck"]

    here, there = luck(tmp_path / "a"), luck(tmp_path / "b")
    known = luck(tmp_path / "c", private_randomness=False)
    assert len({here, there, known}) == 3
    assert luck(tmp_path / "a") == here
    assert luck(tmp_path / "d", private_randomness=False) == known


def test_noise_is_not_drawn_twice_for_different_replies(site):
    """Else a coordinator that asks for the same round with another model could take it off by their difference."""
    def luck(site, asked, **settings):
        return payloads.decode(site.run(asked, parts(**settings)).reply)["luck"]

    site.begin("run-1", told(site))
    site.begin("run-2", told(site))
    asked = [luck(site, work(1)), luck(site, work(2, base=1)), luck(site, work(1, run="run-2")),
             luck(site, work(1, digest="other"), model=2)]
    assert len(set(asked)) == 4
    assert luck(site, work(1, digest="other"), model=2) == asked[3]


@pytest.mark.parametrize(("policy", "facts", "cause"), [
    ({"algorithms": ("kmeans",)}, {}, "algorithm 'fedavg' is not among the policy's 'algorithms'"),
    ({"coordinators": ("0" * 64,)}, {}, "not among the policy's 'coordinators'"),
    ({"minimum_rows": 21}, {}, "wants at least 21 rows behind anything"),
    ({"minimum_parties": 4}, {}, "the run has 3 parties, the policy wants at least 4"),
    ({}, {"components": [{"$component": ["learner", "torch"], "parameters": {"module": "os:system"}}]},
     "names the function 'os:system'"),
    ({}, {"share": "abc"}, "not about the data that this party holds"),
    ({}, {"schema": '{"features": [], "target": {"kind": "none", "names": [], "name": "t"}, "shape": [0]}'},
     "other columns, categories or classes"),
    ({}, {"index": "one"}, "announced badly"),
])
def test_runs_that_the_policy_does_not_allow_are_declined_and_noted(party_home, tmp_path, policy, facts, cause):
    site = make_site(party_home, tmp_path, **policy)
    answer = site.begin("run-1", told(site, **facts))
    assert isinstance(answer, Declined)
    assert cause in answer.cause
    assert entries(tmp_path / "audit.jsonl")[-1]["event"] == "run declined"


def test_runs_with_names_that_lead_elsewhere_are_declined(site, tmp_path):
    answer = site.begin("../../run", told(site))
    assert isinstance(answer, Declined)
    assert "cannot be called" in answer.cause
    assert not (tmp_path.parent / "run").exists()
    assert isinstance(site.begin("run-1", b"\x00garbage"), Declined)


@pytest.mark.parametrize(("policy", "name", "stages", "settings", "cause"), [
    ({"tasks": ("train",)}, "site test.count", [], {}, "task 'site test.count' is not among"),
    ({"tasks": ()}, "site test.count", [], {}, "no part of the algorithm 'fedavg'"),
    ({}, "site test.nothing", [], {}, "no task 'site test.nothing' is installed"),
    ({}, "site test.count", [], {"learner": {"$component": ["learner", "torch"],
                                             "parameters": {"module": "shutil:rmtree"}}}, "'shutil:rmtree'"),
    ({"require": ({"stage": "local-dp"},)}, "site test.update", [], {},
     "pass the stage 'local-dp', and the run has none"),
    ({"require": ({"stage": "local-dp", "at_least": {"noise": 1.0}},)}, "site test.update", [NOISE], {},
     "noise = 0.5, the policy wants at least 1.0"),
    ({"maximum_reply_megabytes": 0.00001}, "site test.count", [], {}, "more than 1e-05 MB"),
    ({}, "site test.rows", [], {}, "task 'site test.rows' hands over rows"),
])
def test_tasks_that_the_policy_does_not_allow_are_refused(party_home, tmp_path, policy, name, stages, settings, cause):
    import msgspec

    site = make_site(party_home, tmp_path, **msgspec.to_builtins(msgspec.convert(policy, Policy)) | {
        "tasks": policy.get("tasks", TASKS), "require": msgspec.convert(policy, Policy).require, "psi": Policy().psi})
    site.begin("run-1", told(site))
    about = payloads.encode({"settings": settings, "stages": stages})
    with pytest.raises((PermissionDenied, ConfigError, EngineError), match=cause.replace("(", r"\(")):
        site.run(work(1, name=name), [about, payloads.encode({}), b""])
    assert not list(Path(tmp_path / "runs").rglob("task-*"))


def test_an_algorithm_brings_its_own_tasks_with_it():
    assert tasks_of(frozenset({("algorithm", "fedavg")})) == {"train", "evaluate"}


def test_a_person_approves_or_denies_a_run(party_home, tmp_path):
    site = make_site(party_home, tmp_path, approval="run")
    people = Approvals(tmp_path / "approvals")
    assert isinstance(site.begin("run-1", told(site)), Waiting)
    with pytest.raises(PermissionDenied):
        site.run(work(1), parts())
    people.decide("run-1", approved=True)
    assert isinstance(site.begin("run-1", told(site)), Ready)
    assert isinstance(site.begin("run-1", told(site, algorithm="kmeans")), Waiting)  # not what was approved
    people.decide("run-1", approved=False)
    answer = site.begin("run-1", told(site, algorithm="kmeans"))
    assert isinstance(answer, Declined)
    assert "denied" in answer.cause
    with pytest.raises(ConfigError, match="no run 'other' waits"):
        people.decide("other", approved=True)


def test_a_policy_file_is_checked(tmp_path):
    path = tmp_path / "policy.toml"
    assert read_policy(path) == Policy()
    path.write_text('algorithms = ["fedavg"]\nminimum_rows = 50\n[[require]]\nstage = "s"\nat_least = {noise = 1}\n')
    assert read_policy(path).minimum_rows == 50
    path.write_text("minimum_row = 50\n")
    with pytest.raises(ConfigError, match="did you mean 'minimum_rows'"):
        read_policy(path)
    path.write_text("minimum_rows = 'many'\n")
    with pytest.raises(ConfigError, match="Expected `int`"):
        read_policy(path)


def test_what_is_told_of_the_rows_is_the_policys_choice():
    assert [Policy(tell_rows=how).told_rows(1234) for how in ("exact", "hundreds", "no")] == [1234, 1200, 1]


@task("site test.update", settings=NoSettings, reply=Payload, reveals=Reveals.UPDATE)
def update(party, payload, settings):
    return {"update": {"w": np.ones(3, np.float32)}}


def noised(stages=(LOCAL_DP,)):
    return [payloads.encode({"settings": {}, "stages": list(stages)}), payloads.encode({}), b""]


def test_a_privacy_budget_is_kept_over_all_runs_and_restarts(party_home, tmp_path):
    from tequio.gate.policy import Budget
    from tequio.privacy.accounting import Release, epsilon_of

    paid = 5
    limit = epsilon_of({Release(2.0): paid}, 1e-5) * 1.0001

    def opened(run):
        site = make_site(party_home, tmp_path, budget=Budget(limit, 1e-5))
        site.begin(run, told(site))
        return site

    site = opened("run-1")
    for round in (1, 2, 3):
        site.run(work(round, base=0, name="site test.update", round=round), noised())
        site.run(work(round + 10, base=0, name="site test.update", round=round), noised())  # the same work once more
    site = opened("run-2")
    for round in (1, 2):
        site.run(work(round, name="site test.update", run="run-2", round=round), noised())
    with pytest.raises(PermissionDenied, match="budget"):
        site.run(work(3, name="site test.update", run="run-2", round=3), noised())
    (ledger,) = site._home.ledgers()
    assert ledger.epsilon(1e-5) == pytest.approx(limit, rel=1e-3)
    with pytest.raises(PermissionDenied, match="no noise of the party's own"):
        opened("run-3").run(work(1, name="site test.update", run="run-3"), noised(()))
