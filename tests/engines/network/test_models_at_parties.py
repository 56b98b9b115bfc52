"""After a run over the network a party answers offline: with the published model, and with what never left it."""

from __future__ import annotations

import numpy as np
import pytest

import tequio
from tequio.cli.main import call
from tequio.errors import ConfigError, PermissionDenied
from tequio.models.publishing import load_at_party, publish

from .conftest import DEALT
from .test_same_numbers import over_the_network

pytestmark = pytest.mark.network

PERSONAL = {
    "ditto": '[algorithm]\nname = "ditto"\n',
    "flprotector": '[algorithm]\nname = "flprotector"\nrouter = {name = "autoencoder", epochs = 1}\n',
    "alone": '[algorithm]\nname = "alone"\n',
    "fedavg": '[algorithm]\nname = "fedavg"\n',
    "fedavg-mix": '[algorithm]\nname = "fedavg-mix"\n',
}


@pytest.mark.parametrize("name", PERSONAL)
def test_a_party_answers_as_it_does_in_a_simulation(name, federation, tmp_path, capsys):
    file = tmp_path / f"{name}.toml"
    file.write_text(f'name = "{name}"\n{DEALT}{PERSONAL[name]}')
    here = tequio.run(file, engine={"name": "local", "workers": 1}, output={"folder": str(tmp_path / "here")}).trained
    there = over_the_network(file, *federation, tmp_path / "there")
    assert there.trained.parties == []  # no party's own model is with the coordinator
    home, _ = federation
    publish(there.folder, tmp_path / "published", home.identity("coordinator"))
    rows = np.random.default_rng(0).random((50, 64))
    for party in range(5):
        own = here.of(str(party)) if str(party) in here.parties else here
        model = load_at_party(tmp_path / "published", home.folder.parent / str(party))
        assert (model.predict_proba(rows) == own.predict_proba(rows)).all()
    printed = capsys.readouterr()
    (tmp_path / "rows.csv").write_text(",".join(f"pixel_{place}" for place in range(64)) + "\n" +
                                       "\n".join(",".join(map(repr, row.tolist())) for row in rows) + "\n")
    code = call(["predict", str(tmp_path / "published"), "--home", str(home.folder.parent / "4"), "--data",
                 str(tmp_path / "rows.csv"), "--out", str(tmp_path / "told.csv")])
    assert code == 0, printed
    told = [line.split(",")[1] for line in (tmp_path / "told.csv").read_text().splitlines()[1:]]
    assert told == [str(answer) for answer in own.predict(rows)]
    with pytest.raises(PermissionDenied, match="is not signed"):
        load_at_party(there.folder, home.folder.parent / "0")


def test_a_party_that_took_no_part_has_no_model_of_its_own(federation, tmp_path):
    from .fleet import enrol

    file = tmp_path / "ditto.toml"
    file.write_text(f'name = "other"\n{DEALT}{PERSONAL["ditto"]}')
    there = over_the_network(file, *federation, tmp_path / "there")
    home, _ = federation
    publish(there.folder, tmp_path / "published", home.identity("coordinator"))
    late = enrol(home, tmp_path / "late", "late", {"config": str(file)})
    with pytest.raises(ConfigError, match="has no model of its own from the run 'other'"):
        load_at_party(tmp_path / "published", late.folder)
