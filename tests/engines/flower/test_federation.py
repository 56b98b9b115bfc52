"""A SuperLink and three SuperNodes over TLS, each a process of its own, and the same bits as in one process."""

from __future__ import annotations

import json

import pytest

import tequio
from tequio.engines.network.certificates import make_authority, make_server
from tequio.engines.network.telemetry import entries, verify
from tequio.errors import PayloadError
from tequio.experiments.config.complete import load_config

from .federation import Federation, until
from .village import CONFIGS, make_homes, write_configs

pytestmark = [pytest.mark.flower, pytest.mark.timeout(900)]

# Few exchanges, because each starts a process at every node; one run evaluates at the parties too.
# Its model has more than a megabyte, so that it crosses in several pieces.
SETTINGS = {"fedavg": {"evaluation.every": 2, "learner.hidden": "[4000]"},
            "icdta4fl": {"rounds": 1, "evaluation.at": '["coordinator"]'},
            "kmeans": {"evaluation.at": '["coordinator"]'},
            "one-shot-sum": {"rounds": 1, "evaluation.at": '["coordinator"]'}}


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    authority = make_authority("a test")
    server = make_server(authority, "superlink", ["127.0.0.1", "localhost"])
    content = {"ca": authority.certificate, "certificate": server.certificate, "key": server.key}
    for name, data in content.items():
        (folder / f"{name}.pem").write_bytes(data)
    return {name: str(folder / f"{name}.pem") for name in content}


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    return write_configs(tmp_path_factory.mktemp("configs"))


@pytest.fixture(scope="module")
def homes(dealt, tmp_path_factory):
    made = make_homes(tmp_path_factory.mktemp("homes"), dealt / "fedavg.toml")
    (made[2] / "policy.toml").write_text(f"algorithms = {json.dumps(list(CONFIGS))}\n")
    return made


@pytest.fixture(scope="module")
def federation(homes, tls, tmp_path_factory):
    pytest.importorskip("flwr")
    made = Federation(tmp_path_factory.mktemp("federation"), tls)
    try:
        for party, home in enumerate(homes):
            made.node(f"node-{party}", home)
        made.stay_up(homes)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def runs(federation, dealt):
    """All at once, over the same nodes."""
    return {name: federation.submit(dealt / f"{name}.toml", name, **SETTINGS[name]) for name in CONFIGS}


def at_home(dealt, tmp_path, name):
    settings = {"engine.workers": 1, "output.folder": tmp_path, **SETTINGS[name]}
    config = load_config(dealt / f"{name}.toml", [f"{key}={value}" for key, value in settings.items()])
    return tequio.run(config).summary


def summary_of(federation, name):
    return json.loads((federation.folder / "runs" / name / "summary.json").read_bytes())


@pytest.mark.parametrize("name", CONFIGS)
def test_a_flower_federation_gives_what_a_simulation_gives(name, dealt, federation, homes, runs, tmp_path):
    here = at_home(dealt, tmp_path, name)
    assert federation.end_of(runs[name], name) == "finished:completed"
    there = summary_of(federation, name)
    assert there["model_sha256"] == here["model_sha256"]
    for key in ("metrics", "bytes_up", "bytes_down", "messages"):
        assert there[key] == here[key]
    for home in homes:
        noted = [entry["event"] for entry in entries(home / "audit.jsonl") if entry["run"] == name]
        assert (noted[0], noted[-1]) == ("run accepted", "run over")
        assert verify(home / "audit.jsonl")


def test_a_killed_supernode_stops_the_run_and_the_same_app_goes_on_later(dealt, federation, homes, tmp_path):
    first = federation.submit(dealt / "kmeans.toml", "killed", **SETTINGS["kmeans"], **{"engine.absence": 1})
    events = federation.folder / "runs/killed/events.jsonl"
    until(lambda: events.exists() and b'"exchange"' in events.read_bytes(), "the first exchange")
    federation.kill("node-2")
    assert federation.end_of(first, "killed") == "finished:failed"
    told = json.loads((federation.folder / "runs/killed/stopped.json").read_bytes())
    assert told["kind"] == "PartyError"
    assert "party '2' failed" in told["message"]
    assert "it has been away for" in told["message"]
    federation.node("node-2 again", homes[2])
    second = federation.submit(None, "killed")
    until((federation.folder / "runs/killed/summary.json").exists, "the end of the run")
    assert federation.end_of(second, "killed") == "finished:completed"
    assert summary_of(federation, "killed")["model_sha256"] == at_home(dealt, tmp_path, "kmeans")["model_sha256"]


def test_a_policy_refuses_also_where_nobody_stays_up(dealt, federation, homes):
    federation.kill("parties")
    number = federation.submit(dealt / "fedavg.toml", "refused", **{"algorithm.name": "fedprox"})
    assert federation.end_of(number, "refused") == "finished:failed"
    told = json.loads((federation.folder / "runs/refused/stopped.json").read_bytes())
    assert "party '2' declined the run: the party's policy refuses: the algorithm 'fedprox'" in told["message"]
    assert "declined the run" in federation.log_of(number)
    last = entries(homes[2] / "audit.jsonl")[-1]
    assert (last["event"], last["run"]) == ("run declined", "refused")


def test_a_record_holds_frames_in_their_order_and_nothing_else_is_read():
    pytest.importorskip("flwr")
    from flwr.app import ConfigRecord, RecordDict

    from tequio.engines.flower.transport import from_record, to_record

    frames = [b"", bytes(3_000_000), *(b"%d" % number for number in range(12))]
    assert from_record(to_record(frames)) == frames
    assert from_record(to_record([])) == []
    for other in (RecordDict(), RecordDict({"tequio": ConfigRecord({"0": 1})}), None):
        with pytest.raises(PayloadError, match="does not hold what tequio puts there"):
            from_record(other)
