"""A run over real links has a dossier, the model that its coordinator signed has one too, and nobody is left out of
real parties by a config."""

from __future__ import annotations

import json

import pytest

from tequio.cli.main import call
from tequio.errors import ConfigError
from tequio.experiments.config.complete import complete
from tequio.experiments.deploying.remote import check_real
from tequio.models.publishing import publish
from tequio.views.dossier.checking import check_dossier
from tequio.views.dossier.page import save_dossier

from .fleet import make_coordinator
from .test_same_numbers import over_the_network

pytestmark = pytest.mark.network


def test_what_ran_over_the_network_and_what_was_signed_are_sound(federation, dealt, tmp_path):
    home, _ = federation
    there = over_the_network(dealt / "secure-sum.toml", *federation, tmp_path / "there")
    document = save_dossier(there.folder)
    assert check_dossier(there.folder / "dossier.json").wrong == []
    crossing = next(section for section in document["sections"] if section["id"] == "crossing")
    assert "train" in [row[0] for row in crossing["tables"][0]["rows"]]
    published = tmp_path / "published"
    publish(there.folder, published, home.identity("coordinator"))
    signed = save_dossier(published)
    facts = {fact["name"]: fact for section in signed["sections"] for fact in section["facts"]}
    assert facts["model signed by the coordinator's certificate"]["from"]["file"] == "signature.json"
    assert call(["verify", str(published / "dossier.json"), "--authority", str(home.folder)]) == 0
    other = make_coordinator(tmp_path / "other")
    assert call(["verify", str(published / "dossier.json"), "--authority", str(other.folder)]) == 8
    signature = json.loads((published / "signature.json").read_text())
    signature["signature"] = "A" * len(signature["signature"])
    (published / "signature.json").write_text(json.dumps(signature))
    save_dossier(published)  # whose hashes are right now
    assert [file for file, _ in check_dossier(published / "dossier.json").wrong] == ["signature.json"]


def test_real_parties_are_listed_rather_than_left_out():
    with pytest.raises(ConfigError, match=r"data\.without takes simulated parties out") as wrong:
        check_real(complete({"data": {"name": "parties", "without": ["north"]}}))
    assert "data.parties" in wrong.value.remedy
