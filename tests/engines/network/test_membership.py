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
from tequio.engines.network.homes import CoordinatorHome, PartyHome, read_token
from tequio.engines.network.telemetry import AuditLog, entries, verify
from tequio.errors import ConfigError, EngineError, PermissionDenied, RunError

from .fleet import enrol, make_coordinator


@pytest.fixture
def home(tmp_path):
    return make_coordinator(tmp_path / "coordinator")


def asked(token, name="north", key=None, *, confirms=False):
    return Request(token.id, token.secret, name, make_request(key or new_key(), name), confirms)


def enrolled(home, token, name="north"):
    """The certificate of a party that has joined to the end."""
    key = new_key()
    grant(home, asked(token, name, key))
    return grant(home, asked(token, name, key, confirms=True))


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
    assert grant(home, asked(token, key=key, confirms=True)) == first
    assert grant(home, asked(token, key=key, confirms=True)) == first
    with pytest.raises(PermissionDenied, match="used already"):
        grant(home, asked(token, "south"))
    with pytest.raises(PermissionDenied, match="used already"):
        grant(home, asked(token))
    assert grant(home, asked(token, key=key)) == first


def test_dialling_in_confirms_as_well(home):
    token = home.new_token()
    home.admit("north", grant(home, asked(token)))
    with pytest.raises(PermissionDenied, match="used already"):
        grant(home, asked(token))


def test_a_join_that_came_to_no_end_takes_neither_the_token_nor_the_name(home):
    """The party's disk was full, say, or it deleted its folder and begins again with another key."""
    token, other = home.new_token(), home.new_token("north")
    lost = grant(home, asked(token))
    again = grant(home, asked(token))
    with pytest.raises(PermissionDenied, match="with this certificate"):
        home.admit("north", lost)
    through_another = enrolled(home, other)  # the operator made a new token in the meantime
    for certificate in (lost, again):
        with pytest.raises(PermissionDenied, match="with this certificate"):
            home.admit("north", certificate)
    home.admit("north", through_another)
    with pytest.raises(PermissionDenied, match="'north' is taken"):
        grant(home, asked(token))


def test_an_enrolment_that_another_one_replaced_cannot_be_confirmed(home):
    token, key = home.new_token(), new_key()
    grant(home, asked(token, key=key))
    grant(home, asked(token, "south"))  # a token gives one party at most
    assert list(home.parties()) == ["south"]
    with pytest.raises(PermissionDenied, match="took the place of this one"):
        grant(home, asked(token, key=key, confirms=True))


def test_a_name_that_is_taken_does_not_use_up_the_token(home):
    enrolled(home, home.new_token())
    token = home.new_token()
    with pytest.raises(PermissionDenied, match="'north' is taken"):
        grant(home, asked(token))
    assert grant(home, asked(token, "south"))


def test_no_token_is_made_for_a_name_that_is_taken_until_it_is_revoked(home):
    older = home.new_token("north")
    certificate = enrolled(home, home.new_token("north"))
    with pytest.raises(ConfigError, match=r"'north' is taken by a party whose certificate is good for 36\d more") as no:
        home.new_token("north")
    assert "renewed by itself" in no.value.remedy
    assert "tequio coordinator revoke 'north'" in no.value.remedy
    home.revoke("north")
    with pytest.raises(PermissionDenied, match="used already"):  # what was made before is void
        grant(home, asked(older))
    with pytest.raises(PermissionDenied, match="'north' is taken"):  # a token for any name does not free this one
        grant(home, asked(home.new_token()))
    second = enrolled(home, home.new_token("north"))
    home.admit("north", second)
    with pytest.raises(PermissionDenied, match="with this certificate"):
        home.admit("north", certificate)


def test_a_party_that_was_revoked_before_it_had_joined_to_the_end_stays_out(home):
    token, key = home.new_token("north"), new_key()
    certificate = grant(home, asked(token, key=key))
    home.revoke("north")
    with pytest.raises(PermissionDenied, match="revoked"):
        home.admit("north", certificate)
    with pytest.raises(PermissionDenied, match="used already"):
        grant(home, asked(token))


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


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("same_folder", [True, False])
def test_whichever_step_of_joining_fails_the_same_token_lets_the_party_join_again(home, tmp_path, monkeypatch, step,
                                                                                  same_folder):
    """The steps: key, certificate, authority, facts, and the confirmation."""
    from tequio.engines.network import enrolment, homes

    done = iter(range(100))

    def failing(real, *arguments):
        if next(done) == step:
            raise EngineError("No space left on device")
        return real(*arguments)

    def ask(token, request):
        return failing(grant, home, request) if request.confirms else grant(home, request)

    token, writing = home.new_token("north"), enrolment.write_private
    with monkeypatch.context() as patch:
        patch.setattr(enrolment, "_ask", ask)
        for module in (enrolment, homes):
            patch.setattr(module, "write_private", lambda path, *content: failing(writing, path, *content)
                          if path.is_relative_to(tmp_path / "north") else writing(path, *content))
        if step < 4:
            with pytest.raises(EngineError, match="No space left"):
                enrolment.join(tmp_path / "north", token, "north", {"data": {}})
            folder = tmp_path / ("north" if same_folder else "elsewhere")
            enrolment.join(folder, token, "north", {"data": {}})
        else:  # a confirmation that is lost is no failure: the first link confirms
            folder = tmp_path / "north"
            enrolment.join(folder, token, "north", {"data": {}})
            assert home.party("north")["pending"]
    home.admit("north", PartyHome(folder).identity.certificate)
    with pytest.raises(PermissionDenied, match="used already"):
        grant(home, asked(token))


def test_a_party_that_was_replaced_while_it_joined_does_not_take_itself_for_a_member(home, tmp_path, monkeypatch):
    from tequio.engines.network import enrolment

    token = home.new_token()

    def ask(token, request):
        if request.confirms:
            enrolled(home, token, "north")
        return grant(home, request)

    monkeypatch.setattr(enrolment, "_ask", ask)
    with pytest.raises(PermissionDenied, match="took the place of this one"):
        enrolment.join(tmp_path / "south", token, "south", {"data": {}})
    with pytest.raises(ConfigError, match="enrol first"):
        _ = PartyHome(tmp_path / "south").facts


def test_other_data_is_brought_under_the_same_name_with_the_same_token(home, tmp_path, monkeypatch):
    from tequio.engines.network import enrolment

    token = home.new_token()
    monkeypatch.setattr(enrolment, "_ask", lambda token, request: grant(home, request))
    enrolment.join(tmp_path / "north", token, "north", {"data": {"path": "old.csv"}})
    with pytest.raises(ConfigError, match="has joined already") as taken:
        enrolment.join(tmp_path / "north", token, "north", {"data": {"path": "new.csv"}})
    assert str(tmp_path / "north" / "party.json") in taken.value.remedy
    (tmp_path / "north" / "party.json").unlink()
    enrolment.join(tmp_path / "north", token, "north", {"data": {"path": "new.csv"}})
    assert PartyHome(tmp_path / "north").facts["data"] == {"path": "new.csv"}
    home.admit("north", PartyHome(tmp_path / "north").identity.certificate)


def test_an_address_with_a_port_is_refused_with_what_to_type(tmp_path):
    with pytest.raises(ConfigError, match="is an address with a port") as caught:
        CoordinatorHome.create(tmp_path / "c", "tumours", "localhost:9470", 8470, 8471)
    assert caught.value.remedy == "set --address localhost --port 9470"
    for number, address in enumerate(("localhost", "10.0.0.7", "::1")):
        CoordinatorHome.create(tmp_path / str(number), "tumours", address, 8470, 8471)
