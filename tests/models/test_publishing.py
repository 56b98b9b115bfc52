"""A published model is known by its coordinator's signature, and by nobody else's."""

from __future__ import annotations

import json
import shutil

import pytest

import tequio
from tequio.cli.main import call
from tequio.engines.network.certificates import Identity, key_pem, make_authority, make_request, new_key, sign_request
from tequio.engines.network.homes import CoordinatorHome
from tequio.errors import PermissionDenied, RunError
from tequio.models.publishing import FILE, check_signature, sign


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    return tequio.run(name="wine", data={"name": "wine", "partition": {"name": "iid", "parties": 3}}, rounds=1,
                      algorithm="ditto", output={"folder": str(folder)}, engine={"name": "local", "workers": 1})


@pytest.fixture
def home(tmp_path):
    return CoordinatorHome.create(tmp_path / "coordinator", "here", "127.0.0.1", 1, 2)


@pytest.fixture
def published(run, home, tmp_path, capsys):
    out = tmp_path / "published"
    assert call(["coordinator", "publish", str(run.folder), "--out", str(out), "--home", str(home.folder)]) == 0
    assert json.loads((out / FILE).read_text())["sha256"] in capsys.readouterr().out
    return out


def test_the_coordinators_model_is_accepted_and_holds_no_partys_own(published, home, run):
    model = tequio.load(published, authority=home.folder)
    assert model.parties == []
    rows = {name: [1.0] for name in model.reading.schema.names}
    assert model.predict(rows) == run.trained.of("coordinator").predict(rows)


def test_without_a_signature_it_is_refused_where_there_is_an_authority(run, home):
    with pytest.raises(PermissionDenied, match="is not signed"):
        tequio.load(run.folder, authority=home.folder)


def test_another_federation_has_another_signature(published, tmp_path):
    other = CoordinatorHome.create(tmp_path / "other", "there", "127.0.0.1", 3, 4)
    with pytest.raises(PermissionDenied, match="is not of this federation's coordinator"):
        tequio.load(published, authority=other.folder)


def test_a_party_cannot_sign_in_the_coordinators_place(published, home):
    key = new_key()
    party = sign_request(home.identity("authority"), make_request(key, "north"), "north")
    sign(published, json.loads((published / FILE).read_text())["sha256"], Identity(key_pem(key), party))
    with pytest.raises(PermissionDenied, match="not the coordinator's certificate"):
        tequio.load(published, authority=home.folder)


def test_a_certificate_in_the_coordinators_name_of_another_authority_is_refused(published, home):
    key, foreign = new_key(), make_authority("other")
    fake = sign_request(foreign, make_request(key, "coordinator"), "coordinator")
    sign(published, json.loads((published / FILE).read_text())["sha256"], Identity(key_pem(key), fake))
    with pytest.raises(PermissionDenied, match="is not of this federation's coordinator"):
        tequio.load(published, authority=home.folder)


def test_a_signature_of_another_model_is_refused(published, run, home, tmp_path):
    other = tmp_path / "changed"
    shutil.copytree(run.folder / "model", other)
    shutil.copy(published / FILE, other / FILE)
    with pytest.raises(PermissionDenied, match="is not of this federation's coordinator"):
        tequio.load(other, authority=home.folder)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"certificate": 1, "signature": ""}', '{"certificate": "--"}'])
def test_what_is_no_signature_is_refused(published, home, content):
    (published / FILE).write_text(content)
    sha256 = tequio.load(published).facts["sha256"]
    with pytest.raises(PermissionDenied, match="is not of this federation's coordinator"):
        check_signature(published, sha256, (home.folder / "authority.pem").read_bytes())


def test_nothing_is_overwritten(published, run, home):
    before = {path.name: path.read_bytes() for path in published.iterdir()}
    code = call(["coordinator", "publish", str(run.folder), "--out", str(published), "--home", str(home.folder)])
    assert code == RunError.exit_code
    assert {path.name: path.read_bytes() for path in published.iterdir()} == before
