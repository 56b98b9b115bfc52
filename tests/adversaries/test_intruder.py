"""The intruder (spec 005, section 7): reaches the ports, with no certificate or one that is for something else."""

from __future__ import annotations

import io
import socket
import ssl
import threading
from contextlib import contextmanager

import grpc
import pytest

from engines.network.fleet import enrol, free_port, lay_out, make_coordinator
from tequio.engines.network import certificates, wire
from tequio.engines.network.certificates import Identity, make_request, role_name, role_of, sign_request
from tequio.engines.network.dialling import Dialler
from tequio.engines.network.engine import Network
from tequio.engines.network.enrolment import join
from tequio.engines.network.grpc_setup import LINK, dialling_options
from tequio.engines.network.homes import CoordinatorHome
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
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


def talk(home, identity, *frames, port="port"):
    """What the coordinator says to a peer with this certificate that sends these bytes."""
    credentials = grpc.ssl_channel_credentials(home.identity("authority").certificate, identity.key,
                                               identity.certificate)
    options = dialling_options(role_name("coordinator"))
    with grpc.secure_channel(f"localhost:{home.facts[port]}", credentials, options=options) as channel:
        return [wire.from_coordinator(data)[0] for data in channel.stream_stream(LINK)(iter(frames), timeout=20)]


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
