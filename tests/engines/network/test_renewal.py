"""Certificates that end: renewed over the link in time, refused where nobody asked for them, revoked at once."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from tequio.cli.main import make_app
from tequio.engines.network import wire
from tequio.engines.network.certificates import (
    days_left,
    fingerprint,
    key_fingerprint,
    key_pem,
    load_key,
    make_authority,
    make_request,
    make_server,
    new_key,
    sign_request,
)
from tequio.engines.network.dialling import Dialler
from tequio.engines.network.enrolment import RenewingCoordinator, RenewingParty
from tequio.engines.network.files import write_private
from tequio.engines.network.hub import Hub, Link
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
from tequio.errors import EngineError, PermissionDenied
from tequio.experiments.deploying.deploying import serving

from .fleet import enrol, make_coordinator, until


def shorten(home, party, days):
    """Give an enrolled party a certificate of its own key that ends soon."""
    key, name = load_key(party.identity.key), party.facts["name"]
    certificate = sign_request(home.identity("authority"), make_request(key, name), name, timedelta(days=days))
    home.renewed(name, certificate, key_fingerprint(key.public_key()))
    write_private(party.folder / "party.pem", certificate)


@pytest.fixture
def coordinator(tmp_path):
    return make_coordinator(tmp_path / "coordinator")


@pytest.fixture
def north(coordinator, tmp_path):
    return enrol(coordinator, tmp_path / "north", "north", {})


class Ends:
    """Both halves without a network between them."""

    def __init__(self, home, party, highest=wire.HIGHEST):
        hello = wire.Hello("north", 1, highest, "0.1.0", 1, "{}")
        self.down, self.up = [], []
        self.link = Link(hello, self.down.extend, lambda: None)
        self.audit = party.folder / "audit.jsonl"
        told = Telemetry(AuditLog(home.folder / "audit.jsonl"))
        self.coordinator = RenewingCoordinator(home, Hub(print, print), told)
        self.party = RenewingParty(party, Telemetry(AuditLog(self.audit)), self.up.extend)

    def said(self, frames):
        return [wire.from_coordinator(data)[0] for data in frames]


def test_a_certificate_that_ends_soon_is_renewed_once(coordinator, north):
    shorten(coordinator, north, 5)
    old, ends = north.identity.certificate, Ends(coordinator, north)
    ends.coordinator.remind(ends.link)
    [reminder] = ends.said(ends.down)
    assert 4.9 < reminder.days < 5
    ends.party.ask(reminder)
    ends.party.ask(reminder)  # the answer to the first was lost
    for data in ends.up:
        ends.coordinator.answer(ends.link, wire.from_party(data)[0])
    first, second = ends.said(ends.down[1:])
    assert first == second
    ends.party.take(first)
    assert days_left(north.identity.certificate) > 300
    coordinator.admit("north", old)
    coordinator.admit("north", north.identity.certificate)
    with pytest.raises(PermissionDenied):  # from the first dialling with the new one on
        coordinator.admit("north", old)
    assert [entry["event"] for entry in entries(ends.audit)] == ["certificate renewed"]
    ends.down.clear()
    ends.coordinator.remind(ends.link)
    assert not ends.down


def test_parties_of_an_earlier_version_are_not_told(coordinator, north):
    shorten(coordinator, north, 5)
    ends = Ends(coordinator, north, highest=1)
    ends.coordinator.remind(ends.link)
    assert not ends.down


def test_nobody_renews_early_with_nonsense_or_after_being_revoked(coordinator, north):
    ends = Ends(coordinator, north)
    request = wire.Renew(make_request(new_key(), "north"))
    ends.coordinator.answer(ends.link, request)
    ends.coordinator.answer(ends.link, wire.Renew(b"garbage"))
    shorten(coordinator, north, 5)
    coordinator.revoke("north")
    ends.coordinator.answer(ends.link, request)
    assert not ends.down
    causes = [entry["cause"] for entry in entries(coordinator.folder / "audit.jsonl")]
    for cause, told in zip(causes, ("does not end soon", "not a usable certificate request", "no party 'north'"),
                           strict=True):
        assert told in cause


@pytest.mark.parametrize(("make", "told"), [
    (lambda home, key: sign_request(make_authority("x"), make_request(key, "north"), "north"), "authority"),
    (lambda home, key: sign_request(home.identity("authority"), make_request(new_key(), "north"), "north"), "another"),
    (lambda home, key: sign_request(home.identity("authority"), make_request(key, "x"), "south"), "another party"),
    (lambda home, key: b"garbage", "authority"),
])
def test_a_party_takes_only_what_it_asked_for(coordinator, north, make, told):
    ends, before = Ends(coordinator, north), north.identity
    key = new_key()
    ends.party.take(wire.Renewed(make(coordinator, key)))
    write_private(north.folder / "renewal.key", key_pem(key))
    ends.party.take(wire.Renewed(make(coordinator, key)))
    assert north.identity == before
    causes = [entry["cause"] for entry in entries(ends.audit)]
    assert causes[0] == "nobody asked for it"
    assert told in causes[1]


def test_the_coordinators_own_certificate_is_made_anew_when_it_ends_soon(coordinator):
    assert not coordinator.renew_own(30)
    authority = coordinator.identity("authority")
    before = coordinator.identity("coordinator")
    assert coordinator.renew_own(100_000)
    assert coordinator.identity("coordinator") != before
    write_private(coordinator.folder / "coordinator.key", make_server(authority, "x", ["localhost"]).key)
    assert coordinator.renew_own(30)  # a crash between the two files
    assert not coordinator.renew_own(30)


def test_the_status_says_how_long_certificates_last(coordinator, north):
    shorten(coordinator, north, 12.5)
    command = ["coordinator", "status", "--home", str(coordinator.folder)]
    said = CliRunner().invoke(make_app(), command).stdout
    assert "north         not connected; certificate ends in 12 days: it is renewed when the party dials" in said
    assert "certificates  authority for 3649 days, coordinator for 3649 days" in said
    shorten(coordinator, north, -2)
    assert "certificate ended, the party has to join anew" in CliRunner().invoke(make_app(), command).stdout
    found = json.loads(CliRunner().invoke(make_app(), [*command, "--json"]).stdout)
    assert found["enrolled"]["north"]["days_left"] < 0


class Dialling:
    """A party that dials until it is stopped or sent away."""

    def __init__(self, home):
        hello = wire.Hello("north", wire.LOWEST, wire.HIGHEST, "0.1.0", 1, "{}")
        self.dialler, self.told = Dialler(home, Telemetry(), lambda: hello, lambda *_: None), ""
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self):
        try:
            self.dialler.serve()
        except EngineError as cause:
            self.told = cause.message

    def stop(self):
        self.dialler.stop()
        self.thread.join()


@pytest.mark.network
def test_over_a_real_link_a_party_renews_dials_anew_and_is_sent_away_when_revoked(coordinator, north):
    shorten(coordinator, north, 5)
    audit = coordinator.folder / "audit.jsonl"
    with serving(coordinator.folder, Telemetry(AuditLog(audit))) as service:
        first = Dialling(north)
        until((north.folder / "renewed.pem").exists, "a renewed certificate")
        first.stop()
        until(lambda: "north" not in service.hub.present(), "the end of the link")
        second = Dialling(north)
        until(lambda: "north" in service.hub.present(), "another link")
        revoked = CliRunner().invoke(make_app(), ["coordinator", "revoke", "north", "--home", str(coordinator.folder)])
        assert "is revoked" in revoked.stdout
        second.thread.join(60)
        assert "was revoked" in second.told
        assert not service.hub.present()
    events = [entry for entry in entries(audit) if entry["event"] == "certificate renewed"]
    assert [entry["fingerprint"] for entry in events] == [fingerprint(north.identity.certificate)]
