"""What a rehearsal at a party may and may not do, with coordinators that lie about it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.data.dataset import Dataset, Feature, Schema, Target, schema_to_json
from tequio.data.sharing import SharedSchema, save_schema
from tequio.engines.network import rehearsal as rehearsals
from tequio.engines.network.holding import OwnRows
from tequio.engines.network.policy import Approvals
from tequio.engines.network.rehearsal import RehearsingSite, made_up, rehearsed_rows
from tequio.engines.network.site import Site
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
from tequio.engines.network.wire import Declined, Ready, Waiting
from tequio.errors import PermissionDenied, TequioError
from tequio.federation import payload as payloads
from tequio.gate.policy import Budget, Policy, Requirement
from tequio.privacy.accounting import Release, epsilon_of

from .fleet import enrol, make_coordinator
from .test_site import TASKS, noised, parts, told, work

SCHEMA = Schema.of_numbers(["a", "b"], Target("classes", ("no", "yes")))
REAL = np.arange(40, dtype=np.float64).reshape(20, 2) + 777_000


@pytest.fixture
def party_home(tmp_path):
    return enrol(make_coordinator(tmp_path / "coordinator"), tmp_path / "north", "north", {})


def at(party_home, kind=RehearsingSite, features=REAL, **policy):
    policy.setdefault("tasks", TASKS)
    rows = Dataset.of(SCHEMA, features, np.arange(len(features)) % 2)
    return kind(party_home, OwnRows("north", rows), Policy(**policy), Telemetry(AuditLog(party_home.audit)))


def rehearsed(site, run="run-1", **facts):
    return site.begin(run, told(site, rehearsal=True, **facts))


def files(home):
    """All that the party keeps, but for its audit log."""
    return {path.relative_to(home.folder): path.read_bytes() for path in sorted(home.folder.rglob("*"))
            if path.is_file() and path != home.audit}


def reply(site, request, sent=None):
    return payloads.decode(site.run(request, sent or parts()).reply)


ROWS = "site test.rows"


def test_a_rehearsal_hands_out_rows_that_were_made_up_even_where_the_policy_shares_rows(party_home):
    site = at(party_home, share_rows=True)
    assert rehearsed(site) == Ready("run-1", rows=20)
    shown = reply(site, work(1, name=ROWS))["rows"]
    known = {tuple(row) for row in made_up(SCHEMA, 20).features.tolist()}
    assert len(shown) == 18
    assert {tuple(row) for row in shown.tolist()} <= known
    site.begin("run-2", told(site))
    assert {tuple(row) for row in reply(site, work(1, name=ROWS, run="run-2"))["rows"].tolist()} <= {
        tuple(row) for row in REAL.tolist()}


def test_replies_of_a_rehearsal_do_not_depend_on_a_single_value_of_the_party(party_home, tmp_path):
    """Two parties of one schema and as many rows give the same bytes."""
    other = enrol(make_coordinator(tmp_path / "other"), tmp_path / "south", "north", {})
    said = []
    for home, features in ((party_home, REAL), (other, -REAL[::-1])):
        site = at(home, features=features, share_rows=True, private_randomness=False)
        rehearsed(site)
        said.append([bytes(site.run(work(position, name=name, digest=name), parts()).reply)
                     for position, name in enumerate((ROWS, "site test.count"), 1)])
    assert said[0] == said[1]


def test_nothing_that_the_party_keeps_is_changed_and_the_audit_log_says_that_it_was_a_rehearsal(party_home):
    site = at(party_home, budget=Budget(50.0, 1e-5))
    site.begin("run-0", told(site))
    site.run(work(1, name="site test.update", run="run-0"), noised())
    before, known = files(party_home), len(entries(party_home.audit))
    rehearsed(site)
    site.run(work(1, name="site test.update"), noised())
    site.end("run-1")
    assert files(party_home) == before
    assert [entry["event"] for entry in entries(party_home.audit)[known:]] == [
        "rehearsal: run accepted", "rehearsal accepted", "rehearsal: task done", "rehearsal over"]
    assert "calls" not in reply(site, work(2, base=1, run="run-0", name="site test.update"), noised())


def test_its_folder_is_gone_when_it_is_over_and_no_two_rehearsals_share_one(party_home):
    site, place = at(party_home), party_home.folder / "rehearsal"
    rehearsed(site)
    site.run(work(1), parts())
    assert place.stat().st_mode & 0o077 == 0
    rehearsed(site, "run-2")
    assert [path.name for path in place.rglob("run-*")] == ["run-2"]
    with pytest.raises(PermissionDenied, match="takes no part"):
        site.run(work(2, base=1), parts())
    site.end("run-2")
    assert not place.exists()
    rehearsed(site)  # and then the party is killed
    for run, facts, policy in (("run-3", {"algorithm": "none such"}, {"algorithms": ("fedavg",)}),
                               ("run-4", {}, {"approval": "run"}), ("run-5", {"schema": "{}"}, {})):
        rehearsed(at(party_home, **policy), run, **facts)
        assert not place.exists()


@pytest.mark.parametrize(("policy", "facts"), [
    ({"algorithms": ("kmeans",)}, {}), ({"coordinators": ("0" * 64,)}, {}), ({"minimum_rows": 21}, {}),
    ({"minimum_parties": 4}, {}), ({}, {"learner": {"name": "torch", "module": "os:system"}}), ({}, {"share": "abc"}),
    ({}, {"schema": schema_to_json(Schema.of_numbers(["a"], SCHEMA.target))}), ({}, {"index": "one"}),
])
def test_what_the_policy_declines_it_declines_in_a_rehearsal_too_and_in_the_same_words(party_home, policy, facts):
    site = at(party_home, **policy)
    real, tried = site.begin("run-1", told(site, **facts)), rehearsed(site, **facts)
    assert isinstance(real, Declined)
    assert (tried.cause, tried.remedy) == (real.cause, real.remedy)


@pytest.mark.parametrize(("policy", "name"), [
    ({"tasks": ("train",)}, "site test.count"), ({"tasks": ()}, "site test.count"),
    ({}, "site test.nothing"), ({"require": (Requirement("local-dp"),)}, "site test.update"),
    ({"maximum_reply_megabytes": 0.00001}, "site test.count"), ({}, ROWS), ({"budget": Budget(1.0, 1e-5)}, ROWS)])
def test_what_the_policy_refuses_it_refuses_in_a_rehearsal_too_and_in_the_same_words(party_home, policy, name):
    site, causes = at(party_home, **policy), []
    for run, mark in (("real", {}), ("tried", {"rehearsal": True})):
        site.begin(run, told(site, **mark))
        with pytest.raises(TequioError) as refused:
            site.run(work(1, name=name, run=run), parts())
        causes.append(site.explain(work(1, name=name, run=run), refused.value))
    assert causes[0] == causes[1]


def test_a_number_of_rows_that_is_enough_is_enough_although_fewer_are_reported_and_made_up(party_home):
    features = np.zeros((150, 2))
    site = at(party_home, features=features, minimum_rows=150, tell_rows="hundreds")
    assert rehearsed(site) == Ready("run-1", rows=100)


def test_a_person_is_asked_before_anything_is_computed(party_home):
    site = at(party_home, approval="run")
    before = files(party_home)
    said = rehearsed(site)
    assert said.rows == 0
    assert "has to approve each run" in said.note
    with pytest.raises(PermissionDenied, match="takes no part"):
        site.run(work(1), parts())
    assert files(party_home) == before


def test_a_rehearsal_is_no_way_around_the_approval_of_the_real_run(party_home):
    site, people = at(party_home, approval="run"), Approvals(party_home.folder / "approvals")
    rehearsed(site)
    assert isinstance(site.begin("run-1", told(site)), Waiting)
    rehearsed(site)
    with pytest.raises(PermissionDenied, match="takes no part"):
        site.run(work(1, name=ROWS), parts())
    people.decide("run-1", approved=True)
    rehearsed(site)
    with pytest.raises(PermissionDenied, match="takes no part"):
        site.run(work(1), parts())
    assert isinstance(site.begin("run-1", told(site)), Ready)
    assert reply(site, work(1))["rows"] == 18


def test_what_was_rehearsed_counts_for_nothing_in_the_real_run(party_home):
    site = at(party_home)
    rehearsed(site)
    assert reply(site, work(1))["calls"] == 1
    assert reply(site, work(2, base=1))["calls"] == 2
    assert site.begin("run-1", told(site)) == Ready("run-1")
    with pytest.raises(TequioError, match="state after task 2"):
        site.run(work(3, base=2), parts())
    assert reply(site, work(1))["calls"] == 1


def test_a_run_that_takes_place_is_not_rehearsed_under_its_own_name(party_home):
    site = at(party_home)
    site.begin("run-1", told(site))
    reply(site, work(1))
    assert "under the name of one that takes place" in rehearsed(site).cause
    assert reply(site, work(2, base=1))["calls"] == 2
    again = at(party_home)  # the party was started anew and has not heard of the run yet
    assert "under the name of one that takes place" in rehearsed(again).cause


def test_questions_to_models_are_not_rehearsed(party_home):
    """Else new rows that were brought could be asked about without using them up."""
    site = at(party_home)
    site.begin("run-1", told(site))
    said = rehearsed(site, "asked", predicts="run-1", tell="coordinator")
    assert said.cause == "this party brings no new rows to trained models"


@pytest.mark.parametrize("announcement", [b"\x00garbage", payloads.encode({"rehearsal": True}),
                                          payloads.encode({"rehearsal": True, "rounds": "x", "parties": 3})])
def test_rehearsals_that_are_announced_badly_are_declined(party_home, announcement):
    assert isinstance(at(party_home).begin("run-1", announcement), Declined)
    assert isinstance(at(party_home).begin("../run", announcement), Declined)


def test_a_site_that_knows_no_rehearsals_does_not_take_one_for_a_run(party_home):
    site = at(party_home, Site)
    assert rehearsed(site).cause == "this party rehearses no runs"
    assert not site.knows("run-1")


def test_a_rehearsal_is_bounded_in_rounds_tasks_rows_and_how_often_it_is_asked_for(party_home, monkeypatch):
    site = at(party_home)
    rehearsed(site)
    with pytest.raises(PermissionDenied, match="2 rounds and 500 tasks at most"):
        site.run(work(1, round=3), parts())
    monkeypatch.setattr(rehearsals, "MOST_TASKS", 2)
    for position in (1, 2):
        site.run(work(position), parts())
    with pytest.raises(PermissionDenied, match="2 rounds and 2 tasks at most"):
        site.run(work(3), parts())
    assert "not predicted" in rehearsed(site, "run-2", rounds=10**5).cause
    monkeypatch.setattr(rehearsals, "MOST_AN_HOUR", 4)
    assert isinstance(rehearsed(site, "run-3"), Ready)
    monkeypatch.setattr(rehearsals.time, "monotonic", lambda now=rehearsals.time.monotonic: now() + 60)
    assert isinstance(rehearsed(site, "run-4"), Ready)
    assert "asked for 4 rehearsals within an hour" in rehearsed(site, "run-5").cause


@pytest.mark.parametrize(("columns", "rows", "tell", "expected"), [
    (2, 20, "exact", 20), (2, 0, "exact", 0), (2, 9_999, "exact", 5_000), (2, 1_234, "hundreds", 1_200),
    (2, 1_234, "no", 1_000), (2, 9_999, "no", 1_000), (1_000, 9_999, "exact", 2_000)])
def test_as_many_rows_are_made_up_as_the_party_reports_within_bounds(columns, rows, tell, expected):
    schema = Schema.of_numbers(map(str, range(columns)), Target("none"))
    assert rehearsed_rows(schema, Policy(tell_rows=tell), rows) == expected


def test_the_privacy_budget_is_held_against_all_rounds_and_stays_as_it_was(party_home):
    paid = 5
    limit = epsilon_of({Release(2.0): paid + 1}, 1e-5) * 1.0001  # one release was made before
    site = at(party_home, budget=Budget(limit, 1e-5))
    site.begin("run-0", told(site))
    site.run(work(1, name="site test.update", run="run-0"), noised())
    for rounds, fits in ((paid, True), (paid + 1, False)):
        rehearsed(site, f"tried-{rounds}", rounds=rounds)
        request = work(1, name="site test.update", run=f"tried-{rounds}")
        if fits:
            site.run(request, noised())
            site.run(work(2, name="site test.update", run=f"tried-{rounds}", round=2), noised())
        else:
            with pytest.raises(PermissionDenied, match="budget"):
                site.run(request, noised())
    (ledger,) = party_home.ledgers()
    assert ledger.epsilon(1e-5) == pytest.approx(epsilon_of({Release(2.0): 1}, 1e-5))


def test_numbers_are_made_up_within_the_agreed_ranges(party_home, tmp_path):
    save_schema(SharedSchema(SCHEMA, ranges={"a": (40.0, 90.0)}), tmp_path / "schema.json")
    facts = json.loads((party_home.folder / "party.json").read_text())
    (party_home.folder / "party.json").write_text(json.dumps({
        **facts, "data": {"schema_path": str(tmp_path / "schema.json")}}))
    site = at(party_home, share_rows=True)
    rehearsed(site)
    first, second = reply(site, work(1, name=ROWS))["rows"].T
    assert 40 <= first.min() < first.max() <= 90
    assert second.max() < 40


FEATURES = st.one_of(
    st.sampled_from(["number", "date", "text", "flag"]).map(lambda kind: Feature("", kind=kind)),
    st.tuples(st.integers(1, 5), st.sampled_from(["category", "ordered", "hashed"])).map(
        lambda found: Feature("", tuple(map(str, range(found[0]))), found[1])))
TARGETS = st.one_of(st.just(Target("none")), st.just(Target("number")),
                    st.tuples(st.sampled_from(["classes", "multilabel"]), st.integers(1, 4)).map(
                        lambda found: Target(found[0], tuple(map(str, range(found[1]))))))


@settings(max_examples=60, deadline=None)
@given(st.lists(FEATURES, max_size=6), TARGETS, st.integers(0, 40))
def test_made_up_rows_fit_any_schema_and_are_the_same_each_time(features, target, rows):
    named = tuple(replace(feature, name=str(place)) for place, feature in enumerate(features))
    schema = Schema(named, target)
    first, second = made_up(schema, rows), made_up(schema, rows)
    assert first.schema == schema
    assert np.array_equal(first.features, second.features)
    assert first.ids.tolist() == list(range(rows))
    for feature, column in zip(named, first.features.T, strict=True):
        if feature.domain is not None:
            assert set(column.tolist()) <= set(range(len(feature.domain)))
        elif feature.kind == "flag":
            assert set(column.tolist()) <= {0.0, 1.0}
    if target.kind == "classes" and rows >= target.size:
        assert set(first.target.tolist()) == set(range(target.size))
