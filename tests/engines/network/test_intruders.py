"""Whoever is not who they say, or sends what is no message, is refused and noted; everybody else is served on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import grpc
import msgspec
import pytest

import tequio
from tequio.engines.network import wire
from tequio.engines.network.certificates import key_pem, make_authority, make_request, new_key, sign_request
from tequio.engines.network.enrolment import METHOD, Grant, join
from tequio.engines.network.grpc_setup import LINK
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
from tequio.errors import EngineError, PermissionDenied
from tequio.experiments.deploying.deploying import serving

from .fleet import enrol, make_coordinator, until

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intruders")
    home = make_coordinator(folder / "coordinator")
    north = enrol(home, folder / "north", "north", {})
    telemetry = Telemetry(AuditLog(home.folder / "audit.jsonl"))
    with serving(home.folder, telemetry) as service:
        yield home, north, service


def hello(name="north", lowest=wire.LOWEST, highest=wire.HIGHEST):
    return wire.frame(wire.Hello(name, lowest, highest, "0.1.0", 10, "{}"))


def talk(home, key, certificate, *frames):
    """What the coordinator says to a peer with this certificate that sends these bytes."""
    credentials = grpc.ssl_channel_credentials(home.identity("authority").certificate, key, certificate)
    with grpc.secure_channel(f"localhost:{home.facts['port']}", credentials) as channel:
        answers = channel.stream_stream(LINK)(iter(frames), timeout=20)
        return [wire.from_coordinator(data)[0] for data in answers]


def is_served(home, north):
    """Whether an honest party is still welcome."""
    return isinstance(talk(home, north.identity.key, north.identity.certificate, hello())[0], wire.Welcome)


def noted(home, event):
    return [entry for entry in entries(home.folder / "audit.jsonl") if entry["event"] == event]


@pytest.mark.parametrize("who", ["nobody", "expired", "of another authority"])
def test_without_a_valid_certificate_there_is_no_link(served, who):
    home, north, _ = served
    key, authority = new_key(), home.identity("authority")
    certificate = {"nobody": lambda: None,
                   "expired": lambda: sign_request(authority, make_request(key, "north"), "north", timedelta(days=-1)),
                   "of another authority": lambda: sign_request(make_authority("x"), make_request(key, "north"),
                                                                "north")}[who]()
    with pytest.raises(grpc.RpcError) as refusal:
        talk(home, None if certificate is None else key_pem(key), certificate, hello())
    assert refusal.value.code() == grpc.StatusCode.UNAVAILABLE
    assert is_served(home, north)


def test_a_certificate_that_was_never_given_out_is_refused(served):
    home, north, _ = served
    key = new_key()
    forged = sign_request(home.identity("authority"), make_request(key, "north"), "north")
    (answer,) = talk(home, key_pem(key), forged, hello())
    assert "no party 'north' with this certificate" in answer.cause
    assert is_served(home, north)


def test_a_party_cannot_be_another(served):
    home, north, _ = served
    (answer,) = talk(home, north.identity.key, north.identity.certificate, hello("south"))
    assert isinstance(answer, wire.Goodbye)
    assert "party 'north' says that it is 'south'" in answer.cause
    assert "says that it is 'south'" in noted(home, "link refused")[-1]["cause"]
    assert is_served(home, north)


def test_versions_that_do_not_meet_are_told_to_both_sides(served):
    home, north, _ = served
    (answer,) = talk(home, north.identity.key, north.identity.certificate, hello(lowest=7, highest=9))
    assert "speaks versions 7 to 9 of the protocol" in answer.cause
    assert "same version of tequio" in answer.remedy


@pytest.mark.parametrize("data", [b"", b"nonsense", b"tqn1\xff\xff\xff\xff", wire.frame(wire.Ready("r"))])
def test_a_link_that_does_not_begin_with_a_greeting_is_refused(served, data):
    home, north, _ = served
    (answer,) = talk(home, north.identity.key, north.identity.certificate, data)
    assert isinstance(answer, wire.Goodbye)
    assert is_served(home, north)


@pytest.mark.parametrize(("data", "cause"), [
    (b"nonsense", "not a message"), (b"x", "too short"), (hello(), "greeting came twice"),
    (wire.frame(wire.TaskResult("r", 1, "d", 0.0, (9, 5))), "did not arrive whole"),
    (wire.frame(wire.Chunk(1, 1 << 60, 0), b"x"), "longer than"),
    (wire.frame(wire.Welcome(1, "x")), "cannot be read"),
])
def test_bad_messages_end_the_link_and_nothing_else(served, data, cause):
    home, north, _ = served
    answers = talk(home, north.identity.key, north.identity.certificate, hello(), data)
    assert cause in answers[-1].cause
    assert cause in until(lambda: [entry for entry in noted(home, "link cut") if cause in entry["cause"]],
                          "the note")[-1]["cause"]
    assert is_served(home, north)


def test_a_message_that_is_too_long_for_the_transport_ends_the_link(served):
    home, north, _ = served
    with pytest.raises(grpc.RpcError) as refusal:
        talk(home, north.identity.key, north.identity.certificate, hello(), b"x" * (wire.LARGEST_FRAME + 1))
    assert refusal.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED,
                                    grpc.StatusCode.UNKNOWN)
    assert is_served(home, north)


def test_results_of_runs_that_a_party_has_no_part_in_are_noted_and_ignored(served):
    home, north, _ = served
    stray = wire.frame(wire.TaskResult("somebody-elses", 1, "d", 0.0, (0, 2)), b"ab")
    talk(home, north.identity.key, north.identity.certificate, hello(), stray)
    found = until(lambda: noted(home, "unexpected message"), "the note")
    assert (found[-1]["party"], found[-1]["run"]) == ("north", "somebody-elses")


def test_joining_over_the_network_uses_the_token_up(served, tmp_path):
    home, _, _ = served
    token = home.new_token()
    pinned = join(tmp_path / "south", token, "south", {"data": {}})
    assert json.loads((tmp_path / "south" / "party.json").read_text())["address"].endswith(str(home.facts["port"]))
    assert len(pinned) == 64
    with pytest.raises(PermissionDenied, match="used already"):
        join(tmp_path / "thief", token, "thief", {"data": {}})
    assert "used already" in noted(home, "enrolment refused")[-1]["cause"]
    other = make_coordinator(tmp_path / "other").new_token()
    forged = type(token)(token.address, token.enrolment_address, other.authority, token.id, token.secret)
    with pytest.raises(EngineError, match="cannot be reached"):  # that coordinator is not the one the token pins
        join(tmp_path / "fooled", forged, "fooled", {"data": {}})


@pytest.mark.parametrize("data", [b"", b"\xc1", msgspec.msgpack.encode({"token": 1}), os.urandom(2000)])
def test_enrolments_that_are_none_are_refused(served, data):
    home, north, _ = served
    credentials = grpc.ssl_channel_credentials(home.identity("authority").certificate)
    with grpc.secure_channel(f"localhost:{home.facts['enrolment_port']}", credentials) as channel:
        answer = msgspec.msgpack.decode(channel.unary_unary(METHOD)(data, timeout=20), type=Grant)
    assert not answer.certificate
    assert answer.cause
    assert is_served(home, north)


def test_a_service_notes_refused_handshakes(tmp_path):
    home = make_coordinator(tmp_path / "coordinator")
    environment = {**os.environ, "PYTHONPATH": str(Path(tequio.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-m", "tequio", "coordinator", "serve", "--home", str(home.folder)],
                          stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert '"listening"' in process.stderr.readline()
        with pytest.raises(grpc.RpcError):
            talk(home, None, None, hello())
        refused = json.loads(process.stderr.readline())
        process.terminate()
        rest = process.stderr.read()
    assert (refused["event"], refused["cause"]) == ("handshake refused", "peer did not return a certificate")
    assert all(json.loads(line) for line in rest.splitlines() if line.startswith("{"))
    assert noted(home, "handshake refused")
