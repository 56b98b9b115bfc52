"""Joining as an aggregator, and as a party that dials one, by the commands that people type."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tequio.cli.main import call, make_app
from tequio.engines.network.certificates import role_name
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.telemetry import Telemetry
from tequio.experiments.deploying.deploying import serving

from .fleet import make_coordinator

pytestmark = pytest.mark.network


def tequio(*words):
    done = CliRunner().invoke(make_app(), [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def coordinator(tmp_path):
    home = make_coordinator(tmp_path / "coordinator")
    with serving(home.folder, Telemetry()):
        yield home


def test_an_aggregator_joins_and_a_party_is_sent_to_it(coordinator, tmp_path):
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID as Use

    tokens = [tmp_path / "north.token", tmp_path / "clinic.token"]
    tequio("coordinator", "token", "north", "--aggregator", "north.example.org:8480", "--home", coordinator.folder,
           "--out", tokens[0])
    said = tequio("aggregator", "join", tokens[0], "--name", "north", "--home", tmp_path / "north")
    assert "parties dial north.example.org:8480" in said
    north = PartyHome(tmp_path / "north")
    shown = x509.load_pem_x509_certificate(north.identity.certificate)
    assert set(shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == {Use.CLIENT_AUTH,
                                                                                          Use.SERVER_AUTH}
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [role_name("aggregator", "north")]

    (tmp_path / "rows.csv").write_text("x,y\n" + "1.0,a\n2.0,b\n" * 10)
    tequio("coordinator", "token", "clinic", "--via", "north", "--home", coordinator.folder, "--out", tokens[1])
    tequio("party", "join", tokens[1], "--name", "clinic", "--data", tmp_path / "rows.csv", "--target", "y", "--home",
           tmp_path / "clinic")
    clinic = PartyHome(tmp_path / "clinic")
    assert (clinic.facts["address"], clinic.dials) == ("north.example.org:8480", role_name("aggregator", "north"))
    assert list(coordinator.members("north")) == ["clinic"]
    said = tequio("coordinator", "status", "--home", coordinator.folder)
    assert "north         aggregator at north.example.org:8480, not connected" in said


def test_tokens_are_for_what_they_were_made_for(coordinator, tmp_path, capsys):
    plain = coordinator.new_token("west").to_text()
    assert call(["aggregator", "join", plain, "--name", "west", "--home", str(tmp_path / "west")]) != 0
    assert "this token is for a party" in capsys.readouterr().err
    for words in (["--aggregator", "nowhere"], ["--via", "west"]):
        assert call(["coordinator", "token", "east", "--home", str(coordinator.folder), *words]) != 0
    said = capsys.readouterr().err
    assert "an address with a port" in said
    assert "no aggregator 'west' is enrolled" in said
