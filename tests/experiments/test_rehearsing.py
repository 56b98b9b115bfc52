"""A rehearsal predicts the run: who takes part, its bytes to the last one, and what its ledger says.

Coordinator and parties are those of real federations; their links are function calls.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.engines.network import wire
from tequio.engines.network.holding import OwnRows
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.hub import Hub, Link
from tequio.engines.network.rehearsal import RehearsingSite
from tequio.engines.network.site import Site, answer
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
from tequio.engines.network.wire import Assembly
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.complete import complete
from tequio.experiments.deploying.rehearsing import document, rehearse
from tequio.experiments.deploying.remote import run_with_parties
from tequio.experiments.showing.rehearsal import rehearsal_lines
from tequio.gate.policy import Budget, Policy

SCHEMA = Schema((Feature("a"), Feature("b"), Feature("c", ("x", "y"))), Target("classes", ("no", "yes"), "ill"))
SIZES = {"north": 200, "south": 150, "east": 140}


class Federation:
    """A coordinator and its parties, all in this process."""

    def __init__(self, folder):
        self.folder, self.telemetry, self.sites, self.heard = folder, Telemetry(), {}, []
        self.sent = 0
        self.hub = Hub(self.telemetry.note, self.telemetry.count)
        self.service = SimpleNamespace(hub=self.hub)

    def add(self, name, *, schema=SCHEMA, kind=RehearsingSite, highest=wire.HIGHEST, rows=None, **policy):
        place = self.folder / name
        place.mkdir()
        (place / "party.json").write_text('{"name": "x", "address": "", "data": {}}')
        draw, rows = np.random.default_rng(len(name)), SIZES[name] if rows is None else rows
        columns = [draw.normal(size=rows), draw.normal(size=rows), draw.integers(2, size=rows)]
        features = np.stack(columns, axis=1)[:, :len(schema.features)]
        target = None if schema.target.kind == "none" else (columns[0] > 0).astype(np.int64)
        table = Dataset.of(schema, features, target, ids=np.arange(rows))
        site = self.sites[name] = kind(PartyHome(place), OwnRows(name, table), Policy(**policy),
                                       Telemetry(AuditLog(place / "audit.jsonl")))
        greeting = site.greeting()
        hello = wire.Hello(greeting.name, 1, highest, "0.2", greeting.rows, greeting.schema, key=greeting.key)
        link = Link(hello, lambda frames: self.take(site, link, frames), lambda: None)
        self.hub.connect(link)
        return self

    def take(self, site, link, frames):
        assembly = Assembly(1 << 30)
        for data in frames:
            message, body = wire.from_coordinator(data)
            self.heard.append((link.hello.name, message))
            if isinstance(message, wire.Chunk):
                assembly.take(message, body)
            elif isinstance(message, wire.Begin):
                self.hub.receive(link, site.begin(message.run, assembly.parts([message.part], body)[0]), [])
            elif isinstance(message, wire.End):
                site.end(message.run)
            elif isinstance(message, wire.TaskRequest):
                self.reply(link, answer(site, message, assembly.parts(message.parts, body)))

    def reply(self, link, frames):
        assembly = Assembly(1 << 30)
        for data in frames:
            message, body = wire.from_party(data)
            if isinstance(message, wire.Chunk):
                assembly.take(message, body)
            else:
                self.sent += message.part[1] if isinstance(message, wire.TaskResult) else 0
                parts = assembly.parts([message.part] if isinstance(message, wire.TaskResult) else [], body)
                self.hub.receive(link, message, parts)

    def config(self, **tables):
        data = {"name": "parties", "parties": list(SIZES), "prepare": ["one-hot", "standardise"],
                "split": {"validation": 0.1, "test": 0.1}, **tables.pop("data", {})}
        return complete({"name": "tumours", "rounds": 4, "data": data, "engine": {"name": "network", "wait": 0.01},
                         "output": {"folder": str(self.folder / "runs")}, **tables})

    def ready(self, **tables):
        return document(rehearse(self.config(**tables), self.service, wait=0.01))

    def events(self, name):
        return [entry["event"] for entry in entries(self.folder / name / "audit.jsonl")]


@pytest.fixture
def federation(tmp_path):
    return Federation(tmp_path)


@pytest.fixture
def three(federation):
    return federation.add("north").add("south").add("east")


@pytest.mark.parametrize("tables", [
    {}, {"evaluation": {"every": 3}}, {"rounds": 1}, {"algorithm": "scaffold", "rounds": 7},
    {"stages": [{"name": "secure-sum"}]}, {"adoption": {"fine_tune_epochs": 1}}, {"algorithm": "ditto"},
    {"rules": {"held_out": ["east"]}}, {"rounds": 2, "evaluation": {"every": 5}}], ids=str)
def test_the_bytes_are_those_of_the_run_to_the_last_one(three, tables):
    found = three.ready(**tables)
    assert found["ready"]
    three.sent = 0
    summary = run_with_parties(three.config(**tables), three.service).summary
    assert (found["rounds"], found["bytes_up"]) == (summary["rounds"], three.sent)


@pytest.mark.parametrize("last", [1, 2])
def test_an_algorithm_that_ends_after_some_rounds_is_not_taken_for_one_that_goes_on(three, monkeypatch, last):
    rounds, play = [], FedAvg.round
    monkeypatch.setattr(FedAvg, "round", lambda *asked: rounds.append(asked) or play(*asked))
    monkeypatch.setattr(FedAvg, "finished", lambda algorithm, state: "done" if len(rounds) >= last else "")
    found = three.ready()
    rounds.clear()
    three.sent = 0
    run_with_parties(three.config(), three.service)
    assert (found["rounds"], found["bytes_up"]) == (last, three.sent)


def test_an_algorithm_that_ends_by_itself_has_the_rounds_that_it_takes(three):
    tables = {"algorithm": "icdta4fl", "learner": {"name": "cart", "depth": 2},
              "data": {"prepare": ["one-hot"]}, "rounds": 9}
    assert three.ready(**tables)["rounds"] == run_with_parties(three.config(**tables), three.service).summary["rounds"]


def test_nothing_is_left_at_the_parties_and_every_message_was_marked(three):
    three.ready()
    for name in SIZES:
        assert {path.name for path in (three.folder / name).iterdir()} == {"party.json", "audit.jsonl", "signing.key"}
        assert all(event.startswith("rehearsal") for event in three.events(name))
        assert three.events(name)[-1] == "rehearsal over"


def verdicts(found):
    return {name: (facts["verdict"], facts["task"], facts["cause"]) for name, facts in found["parties"].items()}


def test_each_party_is_judged_by_its_own_policy_and_those_that_refuse_are_left_out_of_the_numbers(federation):
    federation.add("north").add("south", tasks=("train", "fit preparation"))
    federation.add("east", algorithms=("scaffold",))
    found = federation.ready()
    assert not found["ready"]
    assert verdicts(found) == {
        "north": ("takes part", "", ""),
        "east": ("declines", "", "the party's policy refuses: the algorithm 'fedavg' is not among the policy's "
                                 "'algorithms'"),
        "south": ("refuses", "evaluate", "the party's policy refuses: the task 'evaluate' is not among the policy's "
                                         "'tasks'")}
    assert [facts["bytes_up"] is None for facts in found["parties"].values()] == [False, True, True]
    assert found["bytes_up"] == found["parties"]["north"]["bytes_up"] > 0
    said = list(rehearsal_lines(found))
    assert any(line.startswith("south task 'evaluate': the party's policy refuses") for line in said)
    assert "not ready: 1 of 3 parties would take part" in said


def test_a_policy_on_the_number_of_parties_looks_at_the_real_run(federation):
    """One of them is not there yet, which does not make the others refuse."""
    federation.add("north", minimum_parties=3).add("south", minimum_parties=4)
    found = verdicts(federation.ready())
    assert found["north"][0] == "takes part"
    assert found["south"][0] == "declines"
    assert "the run has 3 parties, the policy wants at least 4" in found["south"][2]
    assert found["east"][0] == "not connected"


def test_a_party_that_asks_a_person_first_computes_nothing(federation):
    federation.add("north").add("south", approval="run").add("east")
    found = federation.ready()
    assert [facts["verdict"] for facts in found["parties"].values()] == ["takes part", "asks a person", "takes part"]
    assert not any(isinstance(message, wire.TaskRequest) for name, message in federation.heard if name == "south")
    assert not (federation.folder / "south" / "approvals").exists()


def test_a_party_that_speaks_an_older_protocol_hears_nothing_that_it_could_take_for_a_run(federation):
    federation.add("north").add("south", kind=Site, highest=2).add("east")
    found = federation.ready()
    assert verdicts(found)["south"] == ("not connected", "", "tequio 0.2 knows no rehearsals")
    assert [message for name, message in federation.heard if name == "south"] == []


def test_where_any_parties_will_do_it_says_how_many_are_missing(federation):
    federation.add("north")
    found = federation.ready(data={"parties": [], "minimum": 3})
    assert list(found["parties"]) == ["north", "(any 2 more)"]
    assert not found["ready"]
    assert not Federation.ready(federation.add("south").add("east"), data={"parties": [], "minimum": 4})["ready"]
    assert federation.ready(data={"parties": [], "minimum": 3})["ready"]


def test_seconds_grow_with_the_rows_that_were_not_made_up(federation):
    federation.add("north", rows=20_000)
    found = rehearse(federation.config(data={"parties": ["north"]}), federation.service, wait=0.01)
    assert found.verdicts["north"].made_up == 5_000
    facts = document(found)["parties"]["north"]
    assert facts["made_up_rows"] == 5_000
    assert facts["seconds"] == pytest.approx(4 * sum(
        answer.seconds * found.times.get(answer.phase, 0) for answer in found.answers))


def test_tables_that_differ_are_named_by_their_columns(federation):
    federation.add("north").add("south", schema=Schema((Feature("aa"), *SCHEMA.features[1:]), SCHEMA.target))
    with pytest.raises(DataError, match="party 'south' has a column 'aa' where party 'north' has 'a'"):
        federation.ready()


def test_parties_with_different_columns_rehearse_all_together_or_not_at_all(federation):
    bank = Schema.of_numbers(["income", "debt"], SCHEMA.target)
    tables = {"algorithm": {"name": "vertical-logistic", "encryption": "plain"}, "evaluation": {"every": 2},
              "data": {"parties": ["bank", "insurer", "key holder"], "columns": True, "prepare": []}}
    federation.add("bank", schema=bank, rows=90).add("key holder", schema=Schema.of_numbers([], Target("none")), rows=0)
    missing = federation.ready(**tables)
    assert missing["problem"] == "parties with different columns are all needed"
    assert (missing["ready"], missing["parties"]["insurer"]["verdict"]) == (False, "not connected")
    federation.add("insurer", schema=Schema.of_numbers(["age", "claims"], Target("none")), rows=80)
    found = federation.ready(**tables)
    assert found["ready"]
    federation.sent = 0
    summary = run_with_parties(federation.config(**tables), federation.service).summary
    assert (found["rounds"], found["bytes_up"]) == (summary["rounds"], federation.sent)


def test_a_simulated_dataset_is_not_rehearsed(federation):
    with pytest.raises(ConfigError, match="no real parties to rehearse with"):
        rehearse(complete({"data": {"name": "digits"}}), federation.service, wait=0.01)


LOCAL = {"stages": [{"name": "local-dp", "clip": 1.0, "noise": 4.0}], "data": {
    "prepare": ["one-hot"], "split": {"validation": 0.0, "test": 0.1}}}
CENTRAL = {"stages": [{"name": "central-dp", "clip": 1.0, "noise": 2.0, "secret": True}], "data": LOCAL["data"],
           "algorithm": {"name": "fedavg", "weights": "uniform"}}


def test_what_is_wrong_with_the_run_itself_is_said_as_when_it_is_run(three):
    with pytest.raises(ConfigError, match="this run would not be private"):
        three.ready(**{**CENTRAL, "algorithm": "fedavg"})


def test_noise_that_every_party_could_compute_from_the_seed_is_no_noise(three):
    """Spec 005, 2.14: parties are told the seed, and the coordinator's noise and draws would follow from it."""
    stages = [{**CENTRAL["stages"][0], "secret": False}]
    with pytest.raises(ConfigError, match="seed, which every party learns: set secret = true in"):
        three.ready(**{**CENTRAL, "stages": stages})


def test_the_coordinator_counts_all_private_runs_of_its_parties_together(three):
    """Spec 005, 2.13: it sees no rows, and so takes them for the same ones."""
    found = [run_with_parties(three.config(**CENTRAL, seed=seed), three.service) for seed in (0, 1)]
    assert [run.privacy_over_runs["runs"] for run in found] == [1, 2]
    assert found[1].privacy_over_runs["epsilon"] > found[1].privacy["epsilon"]


@pytest.mark.parametrize("tables", [LOCAL, CENTRAL, {**CENTRAL, "rounds": 9},
                                    {**LOCAL, "stages": [{"name": "local-dp", "clip": 1.0}], "privacy": {"epsilon": 3}},
                                    {**CENTRAL, "rounds": 50, "privacy": {"epsilon": 12}}], ids=str)
def test_the_privacy_cost_is_that_of_the_run(three, tables):
    found = three.ready(**tables)
    summary = run_with_parties(three.config(**tables), three.service).summary
    assert found["rounds"] == summary["rounds"]
    assert found["epsilon"] == pytest.approx(summary["privacy"]["epsilon"], rel=1e-9)
    assert {facts["epsilon"] for facts in found["parties"].values()} == {found["epsilon"]}


def test_a_run_without_noise_has_no_privacy_cost_to_tell(three):
    found = three.ready()
    assert (found["private"], found["epsilon"], found["delta"]) == (False, None, None)
    assert not any(line.startswith("privacy") for line in rehearsal_lines(found))


def test_a_privacy_budget_that_does_not_pay_for_all_rounds_is_found_out_before_the_run(federation):
    from tequio.privacy.accounting import Release, epsilon_of

    limit = Budget(epsilon_of({Release(2.0): 3}, 1e-5) * 1.0001, 1e-5)
    federation.add("north").add("south", budget=limit, exempt_tasks=("evaluate", "fit preparation")).add("east")
    for rounds, verdict in ((3, "takes part"), (4, "refuses")):
        found = federation.ready(**LOCAL, rounds=rounds)
        assert found["parties"]["south"]["verdict"] == verdict
    assert "would take the privacy loss of these rows" in found["parties"]["south"]["cause"]
    assert not (federation.folder / "south" / "budget.json").exists()
