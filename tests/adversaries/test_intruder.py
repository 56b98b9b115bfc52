"""The intruder (spec 005, section 7): reaches the ports, with no certificate or one that is for something else."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import msgspec
import pytest

import tequio
from engines.network.fleet import enrol, free_port, lay_out, make_coordinator, until
from tequio.engines.network import certificates, telemetry, wire
from tequio.engines.network import service as network_service
from tequio.engines.network.certificates import Identity, make_request, new_key, role_name, role_of, sign_request
from tequio.engines.network.dialling import Dialler
from tequio.engines.network.engine import Network
from tequio.engines.network.enrolment import Grant, Request, join
from tequio.engines.network.grpc_setup import LINK, dialling_options
from tequio.engines.network.homes import CoordinatorHome
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries, verify
from tequio.errors import ConfigError, EngineError

pytestmark = pytest.mark.network


@contextmanager
def serving(folder, telemetry):
    service = Network(str(folder)).service(telemetry)
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intruder")
    home = make_coordinator(folder / "coordinator")
    north = enrol(home, folder / "north", "north", {})
    tier = enrol(home, folder / "tier", "tier", {}, aggregator="localhost:1")
    with serving(home.folder, Telemetry(AuditLog(home.folder / "audit.jsonl"))):
        yield home, north, tier


def hello(name="north", **facts):
    return wire.frame(wire.Hello(name, wire.LOWEST, wire.HIGHEST, "0.2.0", 10, "{}", **facts))


def talk(home, identity, *frames, stream=None):
    """What the coordinator says to a peer with this certificate that sends these bytes."""
    credentials = grpc.ssl_channel_credentials(home.identity("authority").certificate, identity.key,
                                               identity.certificate)
    options = dialling_options(role_name("coordinator"))
    with grpc.secure_channel(f"localhost:{home.facts['port']}", credentials, options=options) as channel:
        answers = channel.stream_stream(LINK)(stream or iter(frames), timeout=20)
        return [wire.from_coordinator(data)[0] for data in answers]


def is_served(home, north):
    return isinstance(talk(home, north.identity, hello())[0], wire.Welcome)


class Impostor:
    """A machine at the coordinator's address that answers every link with a welcome and notes what it is told."""

    def __init__(self, authority, identity):
        from concurrent.futures import ThreadPoolExecutor

        self.heard = []
        self.server = grpc.server(ThreadPoolExecutor(4))
        credentials = grpc.ssl_server_credentials([(identity.key, identity.certificate)], authority, bool(authority))
        self.port = self.server.add_secure_port("127.0.0.1:0", credentials)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tequio.Coordinator", {
            "Link": grpc.stream_stream_rpc_method_handler(self.answer)}),))
        self.server.start()

    def answer(self, requests, context):
        self.heard.append(next(requests))
        yield wire.frame(wire.Welcome(wire.HIGHEST, "0.2.0"))


def dialled(home, party, tmp_path, port, identity=None):
    """A party's home that dials that port, and what its log says after one attempt."""
    token = home.new_token("lost")
    own = identity or party.identity
    place = lay_out(tmp_path / "dials", token, party.facts["name"], own.key, own.certificate,
                    {"address": f"localhost:{port}", "data": {}})
    log = io.StringIO()
    dialler = Dialler(place, Telemetry(stream=log), lambda: wire.Hello("north", 1, 3, "0.2.0", 1, "{}"),
                      lambda message, body, assembly: None)
    with pytest.raises(EngineError, match="cannot be reached"):
        dialler.serve(patience=1)
    return log.getvalue()


@pytest.mark.parametrize("who", ["an aggregator", "a party", "an aggregator with the coordinator's host"])
def test_no_other_member_can_stand_in_for_the_coordinator_on_its_own_host(served, tmp_path, who):
    """Section 7: "Aggregators can pose as the coordinator on one host"."""
    home, north, tier = served
    key = certificates.load_key(tier.identity.key)
    hosts = certificates._issue(home.identity("authority"), key.public_key(), "tier", "aggregator",
                                ["localhost", "127.0.0.1"], None)
    identity = {"an aggregator": tier.identity, "a party": north.identity,
                "an aggregator with the coordinator's host": Identity(tier.identity.key, hosts)}[who]
    impostor = Impostor(home.identity("authority").certificate, identity)
    said = dialled(home, north, tmp_path, impostor.port)
    impostor.server.stop(0)
    assert impostor.heard == []
    assert "no certificate of this federation's coordinator" in said


def test_one_aggregator_cannot_stand_in_for_another(served, tmp_path):
    home, _, tier = served
    assert role_name("aggregator", "tier") != role_name("aggregator", "other")
    token = home.new_token("clinic", via="tier")
    other = Identity(tier.identity.key, sign_request(
        home.identity("authority"), make_request(certificates.load_key(tier.identity.key), "x"), "other",
        role="aggregator"))
    for identity, welcome in ((tier.identity, True), (other, False)):
        impostor = Impostor(home.identity("authority").certificate, identity)
        place = tmp_path / str(welcome)
        clinic = lay_out(place, token, "clinic", tier.identity.key, tier.identity.certificate,
                         {"address": f"localhost:{impostor.port}", "data": {}})
        dialler = Dialler(clinic, Telemetry(), lambda: wire.Hello("clinic", 1, 3, "0.2.0", 1, "{}"),
                          lambda message, body, assembly: None)
        with pytest.raises(EngineError, match="cannot be reached"):
            dialler.serve(patience=1)
        impostor.server.stop(0)
        assert bool(impostor.heard) == welcome


def test_an_impostor_learns_no_join_token(served, tmp_path):
    """Enrolment shows its secret only to the coordinator itself."""
    home, _, tier = served
    token = home.new_token("south")
    impostor = Impostor(None, tier.identity)
    fooled = type(token)(token.address, f"localhost:{impostor.port}", token.authority, token.id, token.secret)
    with pytest.raises(EngineError, match="no certificate of this federation's coordinator"):
        join(tmp_path / "south", fooled, "south", {"data": {}})
    impostor.server.stop(0)
    assert impostor.heard == []


def test_a_coordinators_certificate_dials_nowhere(served):
    home, north, _ = served
    with pytest.raises(grpc.RpcError):
        talk(home, home.identity("coordinator"), hello("coordinator"))
    assert is_served(home, north)


def test_roles_do_not_change_on_a_link(served):
    """An aggregator's certificate is for relaying and a party's is for a party's own rows."""
    home, north, tier = served
    (answer,) = talk(home, tier.identity, hello("tier"))
    assert "'tier' is an aggregator and not a party" in answer.cause
    (answer,) = talk(home, north.identity, hello("north", aggregator=True))
    assert "did not join as an aggregator" in answer.cause
    assert is_served(home, north)


def test_a_certificate_without_a_role_is_refused_with_what_to_type(tmp_path, monkeypatch):
    """Certificates of 0.1 said who, but not what for."""
    monkeypatch.setattr(certificates, "role_name", lambda role, name="": "localhost")
    home = make_coordinator(tmp_path / "coordinator")
    north = enrol(home, tmp_path / "north", "north", {})
    monkeypatch.undo()
    assert (role_of(home.identity("coordinator").certificate), role_of(north.identity.certificate)) == ("", "")
    with serving(home.folder, Telemetry(AuditLog(home.folder / "audit.jsonl"))):
        (answer,) = talk(home, north.identity, hello())  # the coordinator's own certificate was made anew at the start
    assert "does not say what it is for" in answer.cause
    assert "tequio coordinator revoke 'north'" in answer.remedy
    assert "tequio party join TOKEN" in answer.remedy
    assert [entry["event"] for entry in entries(home.folder / "audit.jsonl")][:2] == ["certificate renewed",
                                                                                     "link refused"]


@pytest.mark.parametrize("port", ["port", "enrolment_port"])
def test_older_versions_of_tls_are_refused(served, port):
    """Section 7: "TLS 1.2 is accepted"."""
    home, north, _ = served
    own = north.identity
    place = north.folder / "pair.pem"
    place.write_bytes(own.key + own.certificate)
    for version, welcome in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)):
        context = ssl.create_default_context(cadata=home.identity("authority").certificate.decode())
        context.load_cert_chain(place)
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2"])
        with socket.create_connection(("127.0.0.1", home.facts[port])) as plain:
            if welcome:
                with context.wrap_socket(plain, server_hostname=role_name("coordinator")) as wrapped:
                    assert wrapped.version() == "TLSv1.3"
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    context.wrap_socket(plain, server_hostname=role_name("coordinator"))


def test_where_tls_cannot_be_limited_there_are_no_links():
    """gRPC reads which suites it may use when it is imported, which somebody else may have done before."""
    code = ("import grpc\nfrom tequio.engines.network.grpc_setup import require_grpc\n"
            "try:\n    require_grpc()\nexcept Exception as cause:\n    print(cause)")
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_SSL_CIPHER_SUITES"}
    environment["PYTHONPATH"] = str(Path(tequio.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert "before this process could hold it to TLS 1.3" in done.stdout
    assert "set GRPC_SSL_CIPHER_SUITES=" in done.stdout


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_party_does_not_dial_with_an_older_version_of_tls(served, tmp_path, version):
    home, north, _ = served
    own = home.identity("coordinator")
    place = tmp_path / "pair.pem"
    place.write_bytes(own.key + own.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(place)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    agreed = []

    def answer():
        plain, _ = listener.accept()
        try:
            with context.wrap_socket(plain, server_side=True) as wrapped:
                agreed.append(wrapped.version())
        except (ssl.SSLError, OSError):
            agreed.append("refused")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=answer)
        answering.start()
        dialled(home, north, tmp_path, listener.getsockname()[1])
        answering.join()
    assert agreed == ["TLSv1.3" if version == ssl.TLSVersion.TLSv1_3 else "refused"]


def can_connect(host, port):
    try:
        with socket.create_connection((host, port), timeout=10):
            return True
    except OSError:
        return False


@pytest.mark.parametrize(("address", "bind", "elsewhere"), [
    ("localhost", "", False), ("127.0.0.1", "", False), ("localhost", "0.0.0.0", True), ("fed.example.org", "", True),
    ("fed.example.org", "127.0.0.1", False)])
def test_who_is_dialled_on_loopback_listens_nowhere_else(tmp_path, address, bind, elsewhere):
    """Section 7: "the coordinator binds every address". 127.0.0.2 stands for any other address of this machine."""
    home = CoordinatorHome.create(tmp_path / "home", "test", address, free_port(), free_port(), bind)
    with serving(home.folder, Telemetry()):
        for port in (home.facts["port"], home.facts["enrolment_port"]):
            assert can_connect("127.0.0.1", port)
            assert can_connect("127.0.0.2", port) == elsewhere


def test_an_aggregator_listens_where_it_is_dialled(tmp_path):
    home = make_coordinator(tmp_path / "coordinator")
    near, far = (enrol(home, tmp_path / name, name, {}, aggregator=f"{host}:8480")
                 for name, host in (("near", "localhost"), ("far", "far.example.org")))
    assert (near.bind, far.bind) == ("127.0.0.1", "0.0.0.0")
    far.listen_on("192.0.2.7")
    assert far.bind == "192.0.2.7"
    with pytest.raises(ConfigError, match="not an IP address"):
        far.listen_on("eth0")


@pytest.fixture
def still(monkeypatch):
    """A clock that stands still, so that nothing that was spent comes back."""
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=lambda: 0.0))


def noted(home, event, **facts):
    found = [entry for entry in entries(home.folder / "audit.jsonl") if entry["event"] == event]
    return [entry for entry in found if facts.items() <= entry.items()]


def test_remarks_that_no_run_asked_for_fill_no_disk_and_end_the_link(tmp_path, still):
    """Section 6: 20,000 `Ready` messages wrote 9.9 MB of audit log."""
    home = make_coordinator(tmp_path / "coordinator")
    north, south = (enrol(home, tmp_path / name, name, {}) for name in ("north", "south"))
    with serving(home.folder, Telemetry(AuditLog(home.folder / "audit.jsonl"))):
        flood = [hello(), *[wire.frame(wire.Ready(f"run {number}")) for number in range(20_000)]]
        assert "too many messages came that answer no task" in talk(home, north.identity, *flood)[-1].cause
        (answer,) = talk(home, south.identity, hello("south"), wire.frame(wire.Ready("a run")))
        assert isinstance(answer, wire.Welcome)
        again = talk(home, north.identity, hello(), wire.frame(wire.Ready("a run")))  # a new link buys nothing
        assert isinstance(again[-1], wire.Goodbye)
    assert len(noted(home, "unexpected message", party="north")) == 100
    (summary,) = noted(home, "left out", what="unexpected message")
    assert (summary["who"], summary["count"]) == ("north", 902)  # 1,001 and one of the second link, but for 100
    assert "902 more of these were left out" in summary["text"]
    assert len(noted(home, "unexpected message", party="south")) == 1
    assert (home.folder / "audit.jsonl").stat().st_size < 60_000
    assert verify(home.folder / "audit.jsonl") == len(entries(home.folder / "audit.jsonl"))


def test_an_aggregators_noisy_party_does_not_cost_the_others_their_link(tmp_path, still):
    home = make_coordinator(tmp_path / "coordinator")
    tier = enrol(home, tmp_path / "tier", "tier", {}, aggregator="localhost:1")
    for name in ("north", "south"):
        enrol(home, tmp_path / name, name, {}, via="tier")

    def said(name, message):
        return wire.frame(wire.Relayed(name), wire.frame(message))

    def greets(name):
        return said(name, wire.Hello(name, wire.LOWEST, wire.HIGHEST, "0.2.0", 10, "{}"))

    with serving(home.folder, Telemetry(AuditLog(home.folder / "audit.jsonl"))) as service:
        frames = [hello("tier", aggregator=True), greets("north"),
                  *[said("north", wire.Ready(f"run {number}")) for number in range(5_000)], greets("south"),
                  said("south", wire.Ready("its own"))]
        answers = talk(home, tier.identity, *frames)
        assert not [answer for answer in answers if isinstance(answer, wire.Goodbye)]
        assert service.status()["parties"].keys() == {"north", "south"}
    assert len(noted(home, "unexpected message", party="south", run="its own")) == 1
    assert (home.folder / "audit.jsonl").stat().st_size < 90_000


def test_one_party_that_dials_without_end_is_put_off_and_the_others_are_served(tmp_path, still):
    home = make_coordinator(tmp_path / "coordinator")
    north, south = (enrol(home, tmp_path / name, name, {}) for name in ("north", "south"))
    with serving(home.folder, Telemetry(AuditLog(home.folder / "audit.jsonl"))):
        for _ in range(60):
            assert is_served(home, north)
        with pytest.raises(grpc.RpcError) as refusal:
            talk(home, north.identity, hello())
        # Not a farewell, at which a party would stop: it dials again after a pause.
        assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert isinstance(talk(home, south.identity, hello("south"))[0], wire.Welcome)
    assert noted(home, "link refused", party="north")[-1]["cause"] == "too many attempts came from there"


class Caller:
    """What the service sees of one that wants to enrol."""

    def __init__(self, address):
        self.address = address

    def peer(self):
        return self.address


def enrols(service, caller, **request):
    whole = {"token": "a" * 16, "secret": b"x", "name": "south", "request": b"", **request}
    data = msgspec.msgpack.encode(Request(**whole))
    said = asyncio.run_coroutine_threadsafe(service._enrol(data, Caller(caller)), service._loop).result()
    return msgspec.msgpack.decode(said, type=Grant)


def test_guessing_join_tokens_is_slowed_down_by_address(tmp_path, still, monkeypatch):
    """Section 6: rate limits on enrolment. Only what was refused counts: many join behind one address."""
    monkeypatch.setattr(network_service, "_SECONDS_AFTER_REFUSAL", 0.0)
    home = make_coordinator(tmp_path / "coordinator")
    with serving(home.folder, Telemetry(AuditLog(home.folder / "audit.jsonl"))) as service:
        guess(service)
    assert len(noted(home, "enrolment refused")) == 100 + 1 + 25
    assert noted(home, "left out")[-1]["count"] == 1900


def guess(service):
    answers = [enrols(service, f"ipv4:192.0.2.7:{port}").cause for port in range(1000, 3000)]
    assert sum("not one of this coordinator's" in cause for cause in answers) == 20
    assert set(answers[20:]) == {"too many attempts came from there"}
    assert "not one of" in enrols(service, "ipv4:192.0.2.8:1000").cause
    for host in range(25):  # addresses of version 6 are given out by networks
        last = enrols(service, f"ipv6:%5B2001:db8::{host:x}%5D:1000").cause
    assert last == "too many attempts came from there"


def test_a_hundred_parties_join_from_one_address(tmp_path, still):
    home = make_coordinator(tmp_path / "coordinator")
    with serving(home.folder, Telemetry()) as service:
        for number in range(100):
            token, name = home.new_token(), f"party {number}"
            request = {"token": token.id, "secret": token.secret, "name": name,
                       "request": make_request(new_key(), name)}
            assert enrols(service, "ipv4:192.0.2.7:1000", **request).certificate


TELLING = "patients-of-dr-smith"


@pytest.mark.parametrize("fault", ["no folder of parties", "a damaged token", "a folder of tokens that is none"])
def test_a_refused_enrolment_shows_no_path(tmp_path, monkeypatch, fault):
    """Section 7: "enrolment shows a server path in an error"."""
    monkeypatch.setattr(network_service, "_SECONDS_AFTER_REFUSAL", 0.0)
    home = make_coordinator(tmp_path / TELLING / "coordinator")
    token = home.new_token()
    if fault == "no folder of parties":
        (home.folder / "parties").mkdir(exist_ok=True)
        (home.folder / "parties" / "south.json").mkdir()
    elif fault == "a damaged token":
        (home.folder / "tokens" / f"{token.id}.open").write_text(f"{TELLING}: no JSON")
    else:
        for file in (home.folder / "tokens").iterdir():
            file.rename(file.with_suffix(".gone"))
            (home.folder / "tokens" / f"{token.id}.open").symlink_to("/proc/self/mem")
    with serving(home.folder, Telemetry(AuditLog(home.folder / "audit.jsonl"))) as service:
        said = enrols(service, "ipv4:192.0.2.7:1000", token=token.id, secret=token.secret,
                      request=make_request(new_key(), "south"))
    assert said.cause
    assert not said.certificate
    for text in (said.cause, said.remedy):
        assert TELLING not in text
        assert "/" not in text
    assert noted(home, "enrolment refused")


def test_a_refused_or_broken_link_shows_no_path(tmp_path):
    home = make_coordinator(tmp_path / TELLING / "coordinator")
    north, south = (enrol(home, tmp_path / TELLING / name, name, {}) for name in ("north", "south"))
    (home.folder / "parties" / "north.json").write_text(f"{TELLING}: no JSON")
    with serving(home.folder, Telemetry(AuditLog(home.folder / "audit.jsonl"))) as service:
        shown = talk(home, north.identity, hello())
        south_record = home.folder / "parties" / "south.json"

        def breaking():
            yield hello("south")
            until(lambda: "south" in service.hub.present(), "the link")
            south_record.write_text(f"{TELLING}: no JSON")
            yield wire.frame(wire.Renew(make_request(new_key(), "south")))

        shown += talk(home, south.identity, stream=breaking())
    assert [type(message) for message in shown] == [wire.Goodbye, wire.Welcome, wire.Goodbye]
    for message in (shown[0], shown[2]):
        assert TELLING not in message.cause + message.remedy
        assert "/" not in message.cause + message.remedy
        assert "tequio coordinator audit" in message.remedy
    assert noted(home, "link refused")
    assert noted(home, "link cut")
