"""The coordinator's half and the party's half, with a post in between that is not Flower's."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tequio
from tequio.engines.flower import engine as flower_engine
from tequio.engines.flower.transport import NodeReply
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.telemetry import entries, verify
from tequio.engines.network.wire import Begin, End, Hello, TaskRequest, frame
from tequio.errors import ConfigError, EngineError, PartyError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.flower_coordinator import lead
from tequio.experiments.running.scenario import make_scenario

from .village import CONFIGS, Village, living_at, make_homes, write_configs


@pytest.fixture(autouse=True)
def no_time_lost(monkeypatch):
    for name in ("POLL", "ASK_AGAIN", "LOOK_FOR_NODES"):
        monkeypatch.setattr(flower_engine, name, 0.001)


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    folder = write_configs(tmp_path_factory.mktemp("configs"))
    make_scenario(load_config(folder / "fedavg.toml"))  # what has to be imported is imported before anybody waits
    return folder


@pytest.fixture
def homes(dealt, tmp_path):
    return make_homes(tmp_path / "homes", dealt / "fedavg.toml")


@pytest.fixture
def village(homes):
    return Village(**{str(71 + party): living_at(home) for party, home in enumerate(homes)})


def config_of(dealt, tmp_path, name="kmeans", **keys):
    changes = {"output.folder": tmp_path / "runs", "engine.name": "flower", "engine.wait": 60, **keys}
    return load_config(dealt / f"{name}.toml", [f"{key}={value}" for key, value in changes.items()])


@pytest.mark.parametrize("name", CONFIGS)
def test_letters_carry_a_run_to_the_numbers_of_a_simulation(name, dealt, village, tmp_path):
    here = tequio.run(dealt / f"{name}.toml", engine={"name": "local", "workers": 1}, output={"folder": str(tmp_path)})
    there = lead(config_of(dealt, tmp_path, name), village, "a-run")
    assert there.summary["model_sha256"] == here.summary["model_sha256"]
    for key in ("metrics", "bytes_up", "bytes_down", "messages"):
        assert there.summary[key] == here.summary[key]


def test_each_letter_tells_a_party_of_the_run_again_and_the_audit_log_says_so_once(dealt, homes, village, tmp_path):
    lead(config_of(dealt, tmp_path, rounds=1), village, "a-run")
    kinds = [type(request.message) for node, request in village.sent if node == 71]
    assert kinds[:2] == [type(None), Begin]
    assert set(kinds[2:-1]) == {TaskRequest}
    assert kinds[-1] is End
    events = [entry["event"] for entry in entries(homes[0] / "audit.jsonl")]
    assert events == ["run accepted", *["task done"] * kinds.count(TaskRequest), "run over"]
    assert verify(homes[0] / "audit.jsonl") == len(events)


def test_a_finished_run_is_not_done_again_and_a_stopped_one_goes_on(dealt, village, tmp_path):
    whole = lead(config_of(dealt, tmp_path, "fedavg"), village, "whole").summary["model_sha256"]
    first = lead(config_of(dealt, tmp_path, "fedavg", rounds=1), village, "halves")
    sent = len(village.sent)
    assert lead(config_of(dealt, tmp_path, "fedavg", rounds=1), village, "halves").folder == first.folder
    assert len(village.sent) == sent
    assert lead(config_of(dealt, tmp_path, "fedavg"), village, "halves").summary["model_sha256"] == whole
    with pytest.raises(ConfigError, match="a resumed run keeps its settings"):
        lead(config_of(dealt, tmp_path, "fedavg", seed=4), village, "halves")


def test_a_policy_refuses_a_run_and_both_sides_say_so(dealt, homes, village, tmp_path):
    (homes[1] / "policy.toml").write_text('algorithms = ["fedavg"]\n')
    with pytest.raises(EngineError, match="party '1' declined the run: the party's policy refuses: the algorithm "
                                          "'kmeans' is not among"):
        lead(config_of(dealt, tmp_path), village, "a-run")
    assert [entry["event"] for entry in entries(homes[1] / "audit.jsonl")] == ["run declined"]
    told = json.loads((tmp_path / "runs/a-run/stopped.json").read_bytes())
    assert "declined the run" in told["message"]


def test_a_list_of_coordinators_cannot_be_kept_inside_flower(dealt, homes, village, tmp_path):
    (homes[0] / "policy.toml").write_text('coordinators = ["00:11"]\n')
    with pytest.raises(EngineError, match="this one shows no certificate of its own"):
        lead(config_of(dealt, tmp_path), village, "a-run")


def test_a_run_that_waits_for_a_person_is_asked_about_until_it_is_approved(dealt, homes, village, tmp_path):
    from tequio.engines.network.policy import Approvals

    (homes[2] / "policy.toml").write_text('approval = "run"\n')
    asked, answer = [], village.people[73]

    def person(name, request):
        said = answer(name, request)
        if isinstance(request.message, Begin):
            asked.append(request)
            if len(asked) == 3:
                Approvals(homes[2] / "approvals").decide("a-run", approved=True)
        return said

    village.people[73] = person
    lead(config_of(dealt, tmp_path, rounds=1), village, "a-run")
    assert len(asked) == 4


def test_two_nodes_that_say_they_are_one_party_are_both_refused(dealt, homes, village, tmp_path):
    village.people[79] = living_at(homes[0])
    with pytest.raises(EngineError, match=r"1 of 3 parties did not dial in within 2 s: 0; SuperNode 71 and SuperNode "
                                          r"79 both say that they are party '0'") as refused:
        lead(config_of(dealt, tmp_path, **{"engine.wait": 2}), village, "a-run")
    assert "start their SuperNodes" in refused.value.remedy


def test_a_second_claim_during_a_run_does_not_take_the_party_over(dealt, homes, village, tmp_path):
    first = village.people[71]

    def and_then_an_impostor(name, request):
        if isinstance(request.message, TaskRequest):
            village.people[79] = living_at(homes[0])
        return first(name, request)

    village.people[71] = and_then_an_impostor
    lead(config_of(dealt, tmp_path), village, "a-run")
    told = {type(request.message) for node, request in village.sent if node == 79}
    assert told == {type(None)}


def test_a_node_that_is_no_party_is_named_when_one_is_missing(dealt, village, tmp_path):
    village.people[72] = lambda name, request: NodeReply(name, error="No module named 'tequio'")
    with pytest.raises(EngineError, match=r"parties did not dial in .*: 1; SuperNode 72 is no party of tequio: its "
                                          "SuperNode says: No module named 'tequio'"):
        lead(config_of(dealt, tmp_path, **{"engine.wait": 2}), village, "a-run")


def test_nodes_of_others_do_not_disturb_a_run(dealt, village, tmp_path):
    alone = lead(config_of(dealt, tmp_path, rounds=1), village, "undisturbed")
    village.people[99] = lambda name, request: NodeReply(name, error="ValueError")
    disturbed = lead(config_of(dealt, tmp_path, rounds=1), village, "a-run")
    assert disturbed.summary["model_sha256"] == alone.summary["model_sha256"]


@pytest.mark.parametrize("answer", [
    [b"nonsense"],
    [frame(Hello("1", 1, 1, "0", 1, "{}"))],
    [frame(End("a-run"))],
])
def test_an_answer_that_cannot_be_one_fails_the_task_of_that_party(answer, dealt, village, tmp_path):
    honest = village.people[72]
    village.people[72] = lambda name, request: (
        NodeReply(name, answer) if isinstance(request.message, TaskRequest) else honest(name, request))
    with pytest.raises(PartyError, match=r"party '1'.*its answer was refused"):
        lead(config_of(dealt, tmp_path), village, "a-run")


def test_a_reply_that_is_too_long_is_refused(dealt, village, tmp_path, monkeypatch):
    monkeypatch.setattr("tequio.engines.flower.engine._MEGABYTE", 1000)
    monkeypatch.setattr("tequio.engines.network.wire.LARGEST_BODY", 2000)
    with pytest.raises(PartyError, match=r"its answer was refused: a message of .* bytes is longer than the 1000"):
        lead(config_of(dealt, tmp_path, "fedavg", **{"engine.maximum_reply_megabytes": 1}), village, "a-run")


def test_what_kills_the_process_at_a_node_is_said_with_the_party(dealt, village, tmp_path):
    village.failing[73] = "the process ran out of memory"
    with pytest.raises(EngineError, match="party '2' declined the run: its SuperNode says: the process ran out of mem"):
        lead(config_of(dealt, tmp_path), village, "a-run")


def test_a_silent_party_fails_at_the_deadline_and_the_others_go_on(dealt, village, tmp_path):
    honest = village.people[73]

    def dies_at_work(name, request):
        if isinstance(request.message, TaskRequest):
            village.silent.add(73)
            return NodeReply("nobody asked for this")
        return honest(name, request)

    village.people[73] = dies_at_work
    changes = {"engine.deadline": 2, "rules.on_failure": "continue", "evaluation.at": '["coordinator"]'}
    result = lead(config_of(dealt, tmp_path, rounds=1, **changes), village, "a-run")
    exchanges = [event for event in result.events if event["event"] == "exchange"]
    assert {event["failed"] for event in exchanges} == {1}


def test_a_party_that_stays_away_fails_and_says_for_how_long(dealt, village, tmp_path):
    honest = village.people[73]

    def goes_away(name, request):
        if isinstance(request.message, TaskRequest):
            del village.people[73]
            return NodeReply(name, away=True)
        return honest(name, request)

    village.people[73] = goes_away
    with pytest.raises(PartyError, match=r"party '2'.*it has been away for"):
        lead(config_of(dealt, tmp_path, **{"engine.absence": 0.1}), village, "a-run")


def test_a_party_that_comes_back_as_another_node_goes_on_where_it_was(dealt, homes, village, tmp_path):
    here = tequio.run(dealt / "fedavg.toml", engine={"name": "local", "workers": 1}, output={"folder": str(tmp_path)})
    honest = village.people[73]

    def moves(name, request):
        if isinstance(request.message, TaskRequest) and request.message.position == 2:
            del village.people[73]
            village.people[80] = honest
            honest(name, request)  # done, but the answer is lost
            return NodeReply(name, away=True)
        return honest(name, request)

    village.people[73] = moves
    there = lead(config_of(dealt, tmp_path, "fedavg"), village, "a-run")
    assert there.summary["model_sha256"] == here.summary["model_sha256"]
    done = [entry for entry in entries(homes[2] / "audit.jsonl") if entry["event"] == "task done"]
    assert len(done) == len([entry for entry in entries(homes[0] / "audit.jsonl") if entry["event"] == "task done"])


def test_a_federation_that_is_out_of_reach_for_a_while_is_waited_for(dealt, village, tmp_path):
    village.out_of_order = 3
    result = lead(config_of(dealt, tmp_path, rounds=1), village, "a-run")
    notes = [entry for entry in entries(result.folder / "audit.jsonl") if entry["event"] == "federation out of reach"]
    assert [note["cause"] for note in notes] == ["ConnectionError('no federation')"]


def test_parties_with_tables_of_their_own_prepare_them_together(tmp_path):
    draw = np.random.default_rng(0)
    nodes = {}
    for number, name in enumerate(("north", "south"), 71):
        rows = draw.normal(size=(60, 2)) * (1, 100)
        lines = [f"{a},{b},{'sick' if a > 0 else 'well'}" for a, b in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,dose,state", *lines]))
        PartyHome.create(tmp_path / name, name, {"data": {"path": str(tmp_path / f"{name}.csv"), "target": "state"}})
        nodes[str(number)] = living_at(tmp_path / name)
    file = tmp_path / "real.toml"
    file.write_text('rounds = 5\n[data]\nname = "parties"\nminimum = 2\nprepare = ["standardise"]\n[engine]\n'
                    'name = "flower"\n[learner]\nname = "logistic"\n[local]\nlearning_rate = 0.5\n')
    result = lead(load_config(file, [f"output.folder={tmp_path / 'runs'}"]), Village(**nodes), "a-run")
    assert result.summary["metrics"]["parties.accuracy.pooled"] > 0.8
    assert (result.folder / "roster").read_text().split() == ["north", "south"]
    assert (tmp_path / "north/randomness").exists()


@pytest.mark.parametrize("run", ["", "../elsewhere", ".hidden", "a/b"])
def test_a_run_cannot_be_called_so_that_it_leaves_its_folder(run, dealt, village, tmp_path):
    with pytest.raises(ConfigError, match="a run cannot be called"):
        lead(config_of(dealt, tmp_path), village, run)


def test_outside_of_an_app_the_engine_says_how_to_get_one(dealt, tmp_path):
    with pytest.raises(EngineError, match="works inside a Flower app") as refused:
        tequio.run(dealt / "kmeans.toml", engine={"name": "flower"}, output={"folder": str(tmp_path)})
    assert "tequio flower app" in refused.value.remedy
