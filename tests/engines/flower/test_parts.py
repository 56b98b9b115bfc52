"""Letters, the party that stays up, the folder of an app, and the party's shell, each by itself."""

from __future__ import annotations

import json
import threading
import tomllib
from multiprocessing.connection import Client

import pytest

from tequio.engines.flower.party import PartyDaemon, ask_daemon
from tequio.engines.flower.transport import refuse_telemetry, require_flower, split_requests
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.wire import Begin, End, Part, TaskRequest, frame
from tequio.errors import ConfigError, EngineError, MissingExtra
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.flower_coordinator import write_app
from tequio.experiments.deploying.flower_party import answer_at

from .village import make_homes, write_configs


def test_frames_of_a_link_become_one_letter_a_message_with_its_pieces():
    long, short = Part(bytes(3 << 20)), Part(b"told")
    nothing = (0, 0)
    work = frame(TaskRequest("run", 1, 0, 0, "d", "train", 1, (nothing, long.ref, nothing)))
    begin = frame(Begin("run", short.ref), short.inline)
    requests = split_requests([begin, *long.frames, work, frame(End("run"))])
    assert [type(request.message) for request in requests] == [Begin, TaskRequest, End]
    assert [request.frames for request in requests] == [[begin], [*long.frames, work], [frame(End("run"))]]
    assert len(long.frames) == 3


@pytest.fixture
def resident(tmp_path):
    def answer(frames):
        if frames == [b"stumble"]:
            raise EngineError("row 17 is odd")
        return [*frames, b"!"]

    made = PartyDaemon(tmp_path, answer)
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    yield made
    made.close()
    thread.join(10)
    assert not thread.is_alive()  # and does not spin on a listener that is gone


def test_a_party_that_stays_up_answers_letter_after_letter(resident, tmp_path):
    assert ask_daemon(tmp_path, []) == [b"!"]
    assert ask_daemon(tmp_path, [b"", bytes(2 << 20)]) == [b"", bytes(2 << 20), b"!"]


def test_what_goes_wrong_there_is_in_its_own_log_and_does_not_stop_it(resident, tmp_path, capfd):
    with pytest.raises(EngineError, match="engine error; its own log has the details") as failure:
        ask_daemon(tmp_path, [b"stumble"])
    assert "row 17" not in str(failure.value)
    assert "row 17 is odd" in capfd.readouterr().err
    assert ask_daemon(tmp_path, [b"again"]) == [b"again", b"!"]


def test_whoever_does_not_know_the_secret_is_not_answered(resident, tmp_path):
    facts = json.loads((tmp_path / "resident.json").read_bytes())
    assert (tmp_path / "resident.json").stat().st_mode & 0o077 == 0
    (tmp_path / "resident.json").write_text(json.dumps(facts | {"secret": "guessed"}))
    assert ask_daemon(tmp_path, [b"hello"]) is None
    (tmp_path / "resident.json").write_text(json.dumps(facts))
    with Client(("127.0.0.1", facts["port"]), authkey=facts["secret"].encode()) as line:
        line.send_bytes(b"not a number")
    assert ask_daemon(tmp_path, [b"hello"]) == [b"hello", b"!"]


def test_where_nobody_stays_up_there_is_no_answer(tmp_path):
    assert ask_daemon(tmp_path, [b"hello"]) is None
    (tmp_path / "resident.json").write_text('{"port": 1, "secret": "left behind"}')
    assert ask_daemon(tmp_path, [b"hello"]) is None


@pytest.fixture
def file(tmp_path):
    return write_configs(tmp_path) / "fedavg.toml"


def test_an_app_holds_the_whole_config_and_the_name_of_its_run(file, tmp_path):
    run = write_app(file, tmp_path / "app", ["rounds=7"])
    config = load_config(tmp_path / "app/experiment.toml")
    assert (config.engine["name"], config.rounds, config.seed) == ("flower", 7, 3)
    project = tomllib.loads((tmp_path / "app/pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["config"] == {"run": run}
    assert project["project"]["dependencies"] == []
    for part in project["tool"]["flwr"]["app"]["components"].values():
        module, _, name = part.partition(":")
        assert f"\n{name} = " in (tmp_path / f"app/{module}.py").read_text()
    assert run.startswith("fedavg-2")


def test_an_app_among_real_parties_goes_on_without_those_that_fail(tmp_path):
    file = tmp_path / "real.toml"
    file.write_text('[data]\nname = "parties"\n')
    write_app(file, tmp_path / "app", [], "mine")
    assert load_config(tmp_path / "app/experiment.toml").rules["on_failure"] == "continue"


def test_an_app_is_one_run_in_a_folder_of_its_own(file, tmp_path):
    with pytest.raises(ConfigError, match="an app is one run"):
        write_app(file, tmp_path / "app", ["sweep.rounds=[1, 2]"])
    with pytest.raises(ConfigError, match="is not empty"):
        write_app(file, file.parent, [])


def test_a_node_without_a_party_says_what_to_start_it_with():
    with pytest.raises(ConfigError, match="not told which party") as refused:
        answer_at({}, [])
    assert "tequio-home" in refused.value.remedy


def test_what_is_wrong_with_a_folder_stays_there(tmp_path, capsys):
    PartyHome.create(tmp_path / "secret", "north", {"data": {"path": str(tmp_path / "patients.csv")}})
    with pytest.raises(EngineError) as refused:
        answer_at({"tequio-home": str(tmp_path / "secret")}, [])
    assert "patients" not in str(refused.value)
    assert "patients.csv" in capsys.readouterr().err


def test_a_folder_belongs_to_one_party(file, tmp_path):
    make_homes(tmp_path / "homes", file, parties=1)
    with pytest.raises(ConfigError, match="belongs to a party that has joined already"):
        make_homes(tmp_path / "homes", file, parties=1)
    with pytest.raises(ConfigError, match="a party cannot be called"):
        PartyHome.create(tmp_path / "other", "../north", {})


@pytest.mark.parametrize("value", [None, "1", ""])
def test_telemetry_has_to_be_off(value, monkeypatch):
    monkeypatch.delenv("FLWR_TELEMETRY_ENABLED", raising=False)
    if value is not None:
        monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", value)
    with pytest.raises(EngineError, match="telemetry is on") as refused:
        refuse_telemetry()
    assert "FLWR_TELEMETRY_ENABLED=0" in refused.value.remedy
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    refuse_telemetry()


def test_without_flower_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "flwr", None)
    monkeypatch.setitem(__import__("sys").modules, "flwr.app", None)
    with pytest.raises(MissingExtra, match=r"tequio\[flower\]"):
        require_flower()
