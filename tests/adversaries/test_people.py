"""People who want more than their role allows, and other users of their machine (spec 005, sections 1 and 7).

A researcher and an auditor hold tokens of their own and send whatever they like to the real port; an intruder has a
forged, old or revoked token, or listens where the coordinator should.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from engines.network.fleet import Parties, enrol, make_coordinator, until
from tequio.engines.network import people as module
from tequio.engines.network.approving import asked, decide
from tequio.engines.network.certificates import key_pem, make_request, new_key, role_name, sign_request
from tequio.engines.network.control import Control, ask, asked_over
from tequio.engines.network.people import PREFIX, Desk, People, PersonToken, ask_as, read_person_token
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
from tequio.errors import ConfigError, EngineError
from tequio.experiments.deploying import deploying
from tequio.experiments.deploying.deploying import asked_of, serving

pytestmark = pytest.mark.network

CONFIG = """
name = "tumours"
rounds = 2
[data]
name = "parties"
minimum = 2
[learner]
name = "logistic-regression"
"""
FOR_OWNERS = ("run", "drop", "status", "ready", "predict", "accept", "decline", "people", "add person", "revoke person",
              "token", "revoke", "", "shutdown")


class Served:
    """A coordinator that serves in this process, and tokens for people."""

    def __init__(self, folder: Path) -> None:
        self.home = make_coordinator(folder / "coordinator")
        self.north = enrol(self.home, folder / "north", "north", {})
        self.tokens: dict[str, PersonToken] = {}
        self.done: list[str] = []

    def add(self, name: str, role: str, **more: object) -> PersonToken:
        answer = ask(self.home.folder, "add person", name=name, role=role, days=30, **more)
        self.tokens[name] = read_person_token(answer["token"])
        return self.tokens[name]

    def noted(self, event: str) -> list[dict]:
        return [entry for entry in entries(self.home.folder / "audit.jsonl") if entry["event"] == event]


@pytest.fixture
def served(tmp_path):
    """The real ports of a coordinator; what its service for parties would be asked to do is noted in `done`."""
    made = Served(tmp_path)
    telemetry = Telemetry(AuditLog(made.home.folder / "audit.jsonl"))
    handlers = {action: lambda question, action=action: made.done.append(action) or {}
                for action in ("status", "drop", "predict", "ready", "run")}
    desk = Desk(made.home, handlers, deploying._ProposedRuns(made.home.folder, None, telemetry), telemetry.note)
    control = Control(made.home.folder, desk.for_operator())
    control.start()
    try:
        for name, role in (("olga", "owner"), ("rita", "researcher"), ("rolf", "researcher"), ("anna", "auditor")):
            made.add(name, role)
        yield made
    finally:
        desk.close()
        control.stop()


def everything(home):
    """The content of all files that an action could change, but for the audit log."""
    return {path: path.read_bytes() for path in home.folder.rglob("*") if path.is_file() and path.name != "audit.jsonl"}


@pytest.mark.parametrize("action", FOR_OWNERS)
@pytest.mark.parametrize("name", ["rita", "anna"])
def test_what_is_for_owners_is_refused_where_it_is_done(served, tmp_path, name, action):
    """A researcher cannot run, revoke or mint tokens, and an auditor cannot start anything."""
    before = everything(served.home)
    with pytest.raises(EngineError, match="is for the role owner"):
        ask_as(served.tokens[name], action, name="north", role="owner", days=1, id="1", folder=str(tmp_path), tell="",
               wait=1, report=str(tmp_path / "report"), config=CONFIG)
    assert everything(served.home) == before
    assert not served.home.party("north").get("revoked")
    assert served.done == []
    refused = served.noted("person refused")[-1]
    assert (refused["person"], refused["action"]) == (name, action)


@pytest.mark.parametrize("action", ["propose", "result"])
def test_an_auditor_proposes_nothing_and_reads_no_results(served, action):
    with pytest.raises(EngineError, match="is for the role owner or researcher, and 'anna' is an auditor"):
        ask_as(served.tokens["anna"], action, config=CONFIG, id="1")


@pytest.mark.parametrize("action", ["audit", "ledgers"])
def test_a_researcher_reads_neither_the_audit_log_nor_the_ledgers(served, action):
    with pytest.raises(EngineError, match="is for the role owner or auditor, and 'rita' is a researcher"):
        ask_as(served.tokens["rita"], action)


def test_a_researcher_cannot_take_another_role_or_name_along(served):
    """What a question says about its sender counts for nothing."""
    with pytest.raises(EngineError, match="'rita' is a researcher"):
        ask_as(served.tokens["rita"], "people", role="owner", person="olga", secret="", by="olga")
    made = ask_as(served.tokens["rita"], "propose", config=CONFIG, by="rolf", decision="accepted", run="x", id="9")
    assert (made["by"], made["decision"], made["run"], made["state"]) == ("rita", "", "", "waits")


def test_a_researcher_sees_own_proposals_only(served):
    made = ask_as(served.tokens["rita"], "propose", config=CONFIG)
    assert ask_as(served.tokens["rolf"], "proposals")["proposals"] == []
    with pytest.raises(EngineError) as of_others:
        ask_as(served.tokens["rolf"], "result", id=made["id"])
    with pytest.raises(EngineError) as of_none:
        ask_as(served.tokens["rolf"], "result", id="2")
    assert str(of_others.value).replace("'1'", "'2'") == str(of_none.value)  # not even that there is one
    assert [each["id"] for each in ask_as(served.tokens["rita"], "proposals")["proposals"]] == [made["id"]]


def test_an_auditor_sees_who_decided_but_not_what_was_proposed(served):
    ask_as(served.tokens["rita"], "propose", config=CONFIG)
    ask_as(served.tokens["olga"], "decline", id="1", note="not yet")
    seen, = ask_as(served.tokens["anna"], "proposals")["proposals"]
    assert (seen["by"], seen["decision"], seen["decided_by"], seen["note"]) == ("rita", "declined", "olga", "not yet")
    assert not {"config", "state"} & seen.keys()
    log = ask_as(served.tokens["anna"], "audit")
    assert log["count"] == log["entries"][-1]["number"]
    assert [(entry["event"], entry["person"], entry["action"]) for entry in log["entries"]
            if entry.get("person") not in (None, "operator")] == [
        ("person asked", "rita", "propose"), ("person asked", "olga", "decline"), ("person read", "anna", "proposals")]


def test_an_auditor_is_told_that_the_log_was_changed(served):
    path = served.home.folder / "audit.jsonl"
    path.write_text(path.read_text().replace("rita", "rolf"))
    assert "was changed" in ask_as(served.tokens["anna"], "audit")["changed"]


def test_what_was_decided_stays_decided(served):
    ask_as(served.tokens["rita"], "propose", config=CONFIG)
    ask_as(served.tokens["olga"], "decline", id="1")
    with pytest.raises(EngineError, match="was declined by 'olga' already"):
        ask_as(served.tokens["olga"], "accept", id="1")
    assert not (served.home.folder / "runs").exists()


def forged(token, **changed):
    return PersonToken(**{**{key: getattr(token, key) for key in token.__struct_fields__}, **changed})


@pytest.mark.parametrize("changed", [{"secret": "0" * 64}, {"secret": ""}, {"id": "0" * 16}, {"id": ""},
                                     {"id": "../coordinator"}, {"id": "port"}, {"id": "a" * 100_000},
                                     {"secret": "\udcff\x00"}])
def test_a_forged_token_is_refused(served, changed):
    with pytest.raises(EngineError, match="not one of this coordinator's people"):
        ask_as(forged(served.tokens["olga"], **changed), "people")
    assert served.noted("person refused")


def test_the_hash_that_is_kept_is_no_token(served):
    kept, = [json.loads(path.read_bytes()) for path in (served.home.folder / "people").glob("*.person")
             if json.loads(path.read_bytes())["name"] == "olga"]
    with pytest.raises(EngineError, match="not one of"):
        ask_as(forged(served.tokens["olga"], secret=kept["hash"]), "people")


def test_a_revoked_token_is_refused_at_once(served):
    ask_as(served.tokens["olga"], "revoke person", name="rita")
    with pytest.raises(EngineError, match="the token of 'rita' was revoked"):
        ask_as(served.tokens["rita"], "proposals")


def test_an_expired_token_is_refused(served):
    for path in (served.home.folder / "people").glob("*.person"):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "expires": 1.0}))
    with pytest.raises(EngineError, match="the token of 'olga' has expired"):
        ask_as(served.tokens["olga"], "people")


def test_names_are_not_shared(served):
    with pytest.raises(EngineError, match="the name 'rita' is taken"):
        ask_as(served.tokens["olga"], "add person", name="rita", role="owner", days=1)
    with pytest.raises(EngineError, match="the name 'Operator' is taken"):
        ask_as(served.tokens["olga"], "add person", name="Operator", role="auditor", days=1)


def test_secrets_are_compared_in_constant_time_whether_there_is_such_an_id_or_not(tmp_path, monkeypatch):
    book, compared = People(tmp_path), []
    real = module.hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda *both: compared.append(both) or real(*both))
    id, secret = book.add("rita", "researcher", 1, "operator")
    assert book.identify(id, secret).name == "rita"
    for wrong in ((id, "x"), ("0" * 16, "x"), (None, None), ("../x", "x")):
        with pytest.raises(module.PermissionDenied):
            book.identify(*wrong)
    assert len(compared) == 5
    assert {len(side) for both in compared for side in both} == {64}  # always two hashes, never the secret itself


@pytest.mark.parametrize("line", [b"", b"\n", b"[]\n", b'{"ask": "people"}\n', b'{"ask": "people", "token": 7}\n',
                                  b'{"ask": "people", "token": ["a"]}\n', b'{"ask": "people", "secret": "x"}\n',
                                  b'{"ask": "people", "token": [{"a": 1}, []]}\n', b"\xff" * 5000 + b"\n"])
def test_what_is_no_question_is_answered_with_an_error(served, line):
    token = served.tokens["olga"]
    with connected(token) as connection:
        connection.sendall(line or b"\n")
        answer = json.loads(connection.makefile("rb").readline())
    assert "error" in answer
    assert "Traceback" not in json.dumps(answer)
    assert ask_as(token, "people")["people"]


def connected(token):
    context = ssl.create_default_context(cadata=token.authority.decode())
    return context.wrap_socket(socket.create_connection(("127.0.0.1", token.port), timeout=10),
                               server_hostname=role_name("coordinator"))


def test_the_operators_secret_is_no_key_to_the_port_of_people(served):
    """And a token is none to the operator's port."""
    control = json.loads((served.home.folder / "control.json").read_bytes())
    token = served.tokens["olga"]
    with connected(token) as connection:
        assert "error" in asked_over(connection, {"ask": "people", "secret": control["secret"]})
    with socket.create_connection(("127.0.0.1", control["port"]), timeout=10) as connection:
        assert "error" in asked_over(connection, {"ask": "people", "token": [token.id, token.secret]})


def test_only_tls_1_3_is_spoken(served):
    token = served.tokens["olga"]
    with socket.create_connection(("127.0.0.1", token.port), timeout=10) as plain:
        context = ssl.create_default_context(cadata=token.authority.decode())
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(plain, server_hostname=role_name("coordinator"))
    question = {"ask": "people", "token": [token.id, token.secret]}
    with socket.create_connection(("127.0.0.1", token.port), timeout=10) as plain, \
            pytest.raises((ValueError, ConnectionError)):
        asked_over(plain, question)
    with connected(token) as connection:
        assert asked_over(connection, question)["people"]


def test_the_port_of_people_is_on_this_machine_only(served):
    port = f"{served.tokens['olga'].port:04X}"
    listening = [line.split()[1] for name in ("tcp", "tcp6") for line in
                 Path(f"/proc/net/{name}").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert [place for place in listening if place.endswith(f":{port}")] == [f"0100007F:{port}"]


@pytest.mark.parametrize("role", ["nobody", "party", "aggregator"])
def test_who_listens_in_the_coordinators_place_hears_no_token(tmp_path, role):
    """Another user takes the port while the coordinator is away, even with a member's certificate."""
    home = make_coordinator(tmp_path / "coordinator")
    other = make_coordinator(tmp_path / "other") if role == "nobody" else home
    key = new_key()
    certificate = sign_request(other.identity("authority"), make_request(key, "eve"), "eve",
                               role="party" if role == "nobody" else role)
    (tmp_path / "eve.pem").write_bytes(key_pem(key) + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "eve.pem")
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as door:
        def listen():
            connection, _ = door.accept()
            with connection:
                connection.settimeout(10)
                try:
                    heard.append(context.wrap_socket(connection, server_side=True).recv(1000))
                except OSError:
                    heard.append(b"")

        listening = threading.Thread(target=listen)
        listening.start()
        token = PersonToken(door.getsockname()[1], home.identity("authority").certificate, "id", "the-secret")
        with pytest.raises(EngineError, match="no coordinator that this token is for"):
            ask_as(token, "people")
        listening.join()
    assert b"the-secret" not in b"".join(heard)


def test_no_token_is_kept_logged_or_repeated(served, tmp_path, capfd):
    for token in served.tokens.values():
        for action in ("people", "propose", "nonsense"):
            try:
                ask_as(token, action, config="[")
            except EngineError as cause:
                assert token.secret not in str(cause)
        written = b"".join(path.read_bytes() for path in served.home.folder.rglob("*") if path.is_file())
        assert token.secret.encode() not in written
        assert token.to_text().encode() not in written
    out, err = capfd.readouterr()
    assert all(token.secret not in out + err for token in served.tokens.values())


def command(*words, given=""):
    return subprocess.run([sys.executable, "-m", "tequio", "coordinator", *map(str, words)], input=given, text=True,
                          capture_output=True, check=False, timeout=120)


def test_a_token_on_the_command_line_is_refused_and_not_repeated(served):
    """Others would see it in the list of processes; it comes from a file or from stdin."""
    text = served.tokens["rita"].to_text()
    done = command("proposals", "--as", text)
    assert done.returncode == 2
    assert "does not belong on the command line" in done.stderr
    assert text not in done.stdout + done.stderr
    assert text.startswith(PREFIX)


def test_commands_take_the_token_from_a_file_or_from_stdin(served, tmp_path):
    """None of them needs to read the coordinator's folder."""
    (tmp_path / "rita.token").write_text(served.tokens["rita"].to_text() + "\n")
    (tmp_path / "tumours.toml").write_text(CONFIG)
    done = command("propose", tmp_path / "tumours.toml", "--as", tmp_path / "rita.token", "--home", tmp_path / "none")
    assert (done.returncode, done.stdout) == (0, "proposal 1: tumours (waits)\n"), done.stderr
    done = command("proposals", "1", "--as", "-", given=served.tokens["rita"].to_text() + "\n")
    assert "tumours: waits" in done.stdout
    assert '     | name = "parties"' in done.stdout
    done = command("audit", "--as", tmp_path / "rita.token")
    assert done.returncode == 9
    assert "is for the role owner or auditor" in done.stderr


REACHING = {
    "plugins": 'plugins = ["evil.py"]\n',
    "output": '[output]\nfolder = "elsewhere"\n',
    "sweep": "[sweep]\nseeds = [1, 2]\n",
    "learner.module": '[learner]\nname = "torch"\nmodule = "evil:Net"\n',
    "learner.vectors": '[learner]\nname = "text-classifier"\nvectors = "/etc/passwd"\n',
    "data.test_path": '[data]\nname = "parties"\ntest_path = "rows.csv"\n',
    "a plain name of vectors": '[learner]\nname = "text-classifier"\nvectors = "rows"\n',
    "vectors of one of several": '[algorithm]\nname = "voting"\n'
                                 'learners = [{name = "text-classifier", vectors = "rows"}]\n',
    "a plain name of test rows": '[data]\nname = "parties"\ntest_path = "rows"\n',
    "filter.function": '[algorithm]\nname = "icdta4fl"\nfilter = {name = "custom", function = "evil:bar"}\n',
    "a key": '[learner]\nname = "logistic-regression"\n"../x" = 1\n',
    "another dataset": '[data]\nname = "csv"\npath = "rows"\n',
    "a stage": '[[stages]]\nname = "local-dp"\nwhere = ["~root"]\n',
}


@pytest.mark.parametrize("what", REACHING)
def test_a_proposal_reads_writes_and_imports_nothing_at_the_coordinator(served, tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    text = REACHING[what] + ("" if "[data]" in REACHING[what] else '\n[data]\nname = "parties"\n')
    with pytest.raises(EngineError, match=r"names? a file or code|cannot hold|about the rows of real parties"):
        ask_as(served.tokens["rita"], "propose", config=text)
    assert not (tmp_path / "ran").exists()
    assert ask_as(served.tokens["rita"], "proposals")["proposals"] == []


@pytest.mark.parametrize("config", ["", "[", "rounds = -1", 'rounds = "many"', "\x00", "a = " + "[" * 5000,
                                    '[data]\nname = "parties"\n[learner]\nname = "nonsense"\n', 7, None, {"a": 1}])
def test_a_proposal_that_is_no_config_is_refused_without_a_path_of_this_machine(served, config):
    with pytest.raises(EngineError) as refusal:
        ask_as(served.tokens["rita"], "propose", config=config)
    assert str(served.home.folder) not in str(refusal.value)
    assert ask_as(served.tokens["rita"], "proposals")["proposals"] == []


def test_proposals_cannot_fill_the_disk(served):
    with pytest.raises(EngineError, match="at most 65536 bytes"):
        ask_as(served.tokens["rita"], "propose", config=CONFIG + "#" * (1 << 16))
    for _ in range(module.MOST_WAITING):
        ask_as(served.tokens["rita"], "propose", config=CONFIG)
    with pytest.raises(EngineError, match="20 proposals of 'rita' wait or run already"):
        ask_as(served.tokens["rita"], "propose", config=CONFIG)
    assert ask_as(served.tokens["rolf"], "propose", config=CONFIG)["id"] == "21"


def test_reading_in_a_loop_neither_fills_the_log_nor_hides_what_follows(served):
    for _ in range(150):
        ask_as(served.tokens["rita"], "proposals")
    ask_as(served.tokens["rita"], "propose", config=CONFIG)
    assert 100 <= len(served.noted("person read")) < 110
    assert served.noted("person asked")[-1]["action"] == "propose"


@pytest.mark.parametrize("who", ["operator", "rita"])
def test_a_coordinator_that_is_slow_is_not_taken_for_one_that_is_away(served, monkeypatch, who):
    """It may have done what was asked: asking again would start a second run."""
    monkeypatch.setattr("tequio.engines.network.control._SECONDS_TO_ANSWER", 0.05)
    begun, done = threading.Event(), threading.Event()

    def slow(config):
        begun.set()
        done.wait(60)
        return "tumours"

    monkeypatch.setattr(deploying._ProposedRuns, "check", lambda self, config: slow(config))
    try:
        asking, whom = (ask, served.home.folder) if who == "operator" else (ask_as, served.tokens[who])
        with pytest.raises(EngineError, match="has heard this, and has not answered"):
            asking(whom, "propose", config=CONFIG)
        assert begun.wait(60)
    finally:
        done.set()


def test_tokens_are_good_after_a_restart(tmp_path):
    made = Served(tmp_path)
    for number in range(2):
        with serving(made.home.folder, Telemetry(AuditLog(made.home.folder / "audit.jsonl"))):
            token = made.tokens["olga"] if number else made.add("olga", "owner")
            assert [known["name"] for known in ask_as(token, "people")["people"]] == ["olga"]
    with pytest.raises(EngineError, match="ask its operator to start it"):
        ask_as(token, "people")


def test_an_owner_does_everything_with_a_token(served):
    olga = served.tokens["olga"]
    assert ask_as(olga, "token", name="south")["token"].startswith("tequio1-")
    ask_as(olga, "status")
    ask_as(olga, "run", folder="runs/tumours")
    ask_as(olga, "revoke", name="north")
    assert served.done == ["status", "run", "drop"]
    assert served.home.party("north")["revoked"]
    assert [known["by"] for known in ask_as(olga, "people")["people"]] == ["operator"] * 4
    assert {entry["person"] for entry in served.noted("person asked")} == {"operator", "olga"}


def test_without_a_service_the_operator_alone_acts(tmp_path):
    """In the folder itself, and nothing is started that nobody would serve."""
    made = Served(tmp_path)
    folder = made.home.folder
    token = read_person_token(asked_of(folder, "add person", name="rita", role="researcher", days=1)["token"])
    assert [known["name"] for known in asked_of(folder, "people")["people"]] == ["rita"]
    with pytest.raises(EngineError, match="ask its operator to start it"):
        ask_as(token, "proposals")
    with pytest.raises(EngineError, match="no coordinator runs here"):
        asked_of(folder, "propose", config=CONFIG)
    with pytest.raises(ConfigError, match="there is no role 'king'"):
        asked_of(folder, "add person", name="eve", role="king", days=1)


def test_a_run_starts_by_itself_once_the_owners_of_all_parties_have_approved(tmp_path):
    """And then its researcher, but no other, reads its result, and the auditor its ledger."""
    made, homes = Served(tmp_path), []
    for name in ("north", "south"):
        rows = "".join(f"{row % 7},{row % 5},{'yes' if row % 7 > row % 5 else 'no'}\n" for row in range(60))
        (tmp_path / f"{name}.csv").write_text("a,b,ill\n" + rows)
        home = made.north if name == "north" else enrol(made.home, tmp_path / name, name, {})
        facts = json.loads((home.folder / "party.json").read_bytes())
        facts["data"] = {"path": str(tmp_path / f"{name}.csv"), "target": "ill"}
        (home.folder / "party.json").write_text(json.dumps(facts))
        home.policy.write_text('approval = "run"\n')
        homes.append(home)
    config = CONFIG.replace("minimum = 2", 'parties = ["north", "south"]')
    with serving(made.home.folder, Telemetry(AuditLog(made.home.folder / "audit.jsonl"))), \
            closing(Parties([home.folder for home in homes])):
        rita, rolf = made.add("rita", "researcher", starts=True), made.add("rolf", "researcher")
        anna = made.add("anna", "auditor")
        started = ask_as(rita, "propose", config=config)
        assert (started["decision"], started["decided_by"]) == ("accepted", "rita")

        def state():
            return ask_as(rita, "proposals")["proposals"][0]["state"]

        for home in homes:
            run, = until(lambda home=home: asked(home), "the question")
            assert run == started["run"]
            assert state() != "finished"
            with pytest.raises(EngineError, match="has no result"):
                ask_as(rita, "result", id="1")
            decide(home, run, approved=True, shown=asked(home)[run].hash, by="a person")
        until(lambda: state() == "finished", "the run")
        assert ask_as(rita, "result", id="1")["rounds"] == 2
        with pytest.raises(EngineError, match="there is no proposal"):
            ask_as(rolf, "result", id="1")
        assert list(ask_as(anna, "ledgers")["ledgers"]) == [started["run"]]
