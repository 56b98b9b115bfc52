"""Who may join: tokens are good once, names are plain, certificates are of this authority, logs cannot be changed."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from cryptography import x509

from tequio.engines.network.certificates import (
    days_left,
    fingerprint,
    make_authority,
    make_request,
    new_key,
    sign_request,
)
from tequio.engines.network.enrolment import Request, grant
from tequio.engines.network.homes import PartyHome, read_token
from tequio.engines.network.telemetry import AuditLog, entries, verify
from tequio.errors import ConfigError, PermissionDenied, RunError

from .fleet import enrol, make_coordinator


@pytest.fixture
def home(tmp_path):
    return make_coordinator(tmp_path / "coordinator")


def asked(token, name="north", key=None):
    return Request(token.id, token.secret, name, make_request(key or new_key(), name))


def test_a_token_gives_one_party_a_certificate(home):
    certificate = grant(home, asked(home.new_token()))
    issued = x509.load_pem_x509_certificate(certificate)
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(home.identity("authority").certificate))
    home.admit("north", certificate)
    assert 364 < days_left(certificate) < 366


def test_a_token_survives_as_text_and_in_a_file(home, tmp_path):
    token = home.new_token("north")
    assert read_token(token.to_text() + "\n") == token
    (tmp_path / "token").write_text(token.to_text())
    assert read_token(str(tmp_path / "token")) == token
    with pytest.raises(ConfigError, match="not a join token"):
        read_token(token.to_text()[:-20])
    with pytest.raises(ConfigError, match="does not start with"):
        read_token("hello")


def test_the_secret_of_a_token_is_not_kept(home):
    token = home.new_token()
    stored = b"".join(path.read_bytes() for path in home.folder.rglob("*") if path.is_file())
    assert token.secret not in stored
    assert token.secret.hex().encode() not in stored


def test_a_stolen_token_is_refused_the_second_time_but_a_lost_answer_can_be_asked_for_again(home):
    token, key = home.new_token(), new_key()
    first = grant(home, asked(token, key=key))
    assert grant(home, asked(token, key=key)) == first
    with pytest.raises(PermissionDenied, match="used already"):
        grant(home, asked(token, "south"))
    with pytest.raises(PermissionDenied, match="used already"):
        grant(home, asked(token))


def test_a_name_that_is_taken_does_not_use_up_the_token(home):
    grant(home, asked(home.new_token()))
    token = home.new_token()
    with pytest.raises(PermissionDenied, match="'north' is taken"):
        grant(home, asked(token))
    assert grant(home, asked(token, "south"))


def test_tokens_of_others_are_refused(home, tmp_path):
    other = make_coordinator(tmp_path / "other").new_token()
    with pytest.raises(PermissionDenied, match="not one of this coordinator's"):
        grant(home, asked(other))
    mine = home.new_token()
    forged = type(mine)(mine.address, mine.enrolment_address, mine.authority, mine.id, other.secret)
    with pytest.raises(PermissionDenied, match="not one of this coordinator's"):
        grant(home, asked(forged))
    with pytest.raises(PermissionDenied, match="for another party"):
        grant(home, asked(home.new_token("south")))
    with pytest.raises(PermissionDenied, match="expired"):
        grant(home, asked(home.new_token(hours=-1)))


@pytest.mark.parametrize("name", [
    "../north", "a/b", ".hidden", "", "x" * 64, "coordinator", "north\n", "a\tb", "a ", "ñ"])
def test_names_that_could_lead_elsewhere_are_refused(home, name):
    token = home.new_token()
    with pytest.raises(ConfigError, match="cannot be called"):
        grant(home, Request(token.id, token.secret, name, make_request(new_key(), "north")))
    with pytest.raises(PermissionDenied, match="not one of"):
        grant(home, Request("../" + token.id, token.secret, "north", make_request(new_key(), "north")))
    assert not list(home.folder.parent.glob("*.json"))


def test_a_party_keeps_runs_of_any_name_in_its_own_folder(tmp_path):
    home = PartyHome(tmp_path)
    assert home.run("fed-2026").parent == tmp_path / "runs"
    for name in ("../x", "a/b", "..", ""):
        with pytest.raises(PermissionDenied, match="cannot be called"):
            home.run(name)


@pytest.mark.parametrize("request_pem", [b"", b"nonsense", b"x" * 10_000])
def test_requests_that_are_none_are_refused(home, request_pem):
    token = home.new_token()
    with pytest.raises(PermissionDenied, match="not a usable certificate request"):
        grant(home, Request(token.id, token.secret, "north", request_pem))


def test_only_the_certificate_that_was_given_is_let_in(home):
    certificate = grant(home, asked(home.new_token()))
    again = sign_request(home.identity("authority"), make_request(new_key(), "north"), "north", timedelta(days=1))
    foreign = sign_request(make_authority("other"), make_request(new_key(), "north"), "north")
    for wrong in (again, foreign):
        with pytest.raises(PermissionDenied, match="with this certificate"):
            home.admit("north", wrong)
    with pytest.raises(PermissionDenied, match="no party"):
        home.admit("../../etc", certificate)
    home.revoke("north")
    with pytest.raises(PermissionDenied, match="revoked"):
        home.admit("north", certificate)


def test_keys_are_readable_by_their_owner_only(home, tmp_path):
    enrol(home, tmp_path / "north", "north", {})
    for path in (home.folder / "authority.key", home.folder / "coordinator.key"):
        assert path.stat().st_mode & 0o077 == 0
    assert fingerprint(home.identity("authority").certificate) == fingerprint(PartyHome(tmp_path / "north").authority)


def test_an_audit_log_that_was_changed_is_found_out(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    for number in range(3):
        log.note("task done", number_of=number, text="x" * 2000)
    AuditLog(path).note("again")  # another process goes on with the chain
    assert verify(path) == 4
    assert len(entries(path)[0]["text"]) == 500
    lines = path.read_text().splitlines()
    for wrong in (lines[:1] + lines[2:], lines[1:], [lines[0].replace("done", "none"), *lines[1:]], [*lines, "{}"]):
        path.write_text("\n".join(wrong) + "\n")
        with pytest.raises(RunError, match="was changed"):
            verify(path)
    forged = json.loads(lines[3])
    path.write_text("\n".join([*lines[:3], json.dumps({**forged, "event": "x"})]) + "\n")
    with pytest.raises(RunError, match="line 4"):
        verify(path)
