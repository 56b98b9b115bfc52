"""Questions to real parties: the numbers of a simulation, written down beside each party's ledger, over all runs."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import tequio
from tequio.engines.network.telemetry import Telemetry
from tequio.errors import PermissionDenied
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import serving
from tequio.experiments.deploying.remote import run_with_parties

from .fleet import Parties, enrol, make_coordinator

ASK = """
name = "ask"
rounds = 1
[algorithm]
name = "ask"
questions = ["count, mean(age) by sex where age >= 40"]
scales = {age = [0, 100, 5]}
floor = 10
"""
WHOLE = "prepare = []\nsplit = {validation = 0.0, test = 0.0}\n"
NAMES = ("east", "north", "south")


@pytest.mark.network
def test_real_parties_answer_as_simulated_ones_and_remember_what_they_answered(tmp_path):
    rng = np.random.default_rng(4)
    rows = [f"{rng.integers(18, 95)},{rng.choice(['F', 'M'])},{rng.choice(['no', 'yes'])}" for _ in range(450)]
    simulated, real = tmp_path / "simulated.toml", tmp_path / "real.toml"
    (tmp_path / "all.csv").write_text("\n".join(["age,sex,ill,hospital", *(
        f"{row},{NAMES[index % 3]}" for index, row in enumerate(rows))]))
    simulated.write_text(f'{ASK}[data]\nname = "csv"\npath = "{tmp_path}/all.csv"\ntarget = "ill"\ngroup = "hospital"\n'
                         f'partition = "natural"\ntest = 0.0\n{WHOLE}')
    real.write_text(f'{ASK}[data]\nname = "parties"\nparties = {list(NAMES)}\n{WHOLE}')
    home, homes = make_coordinator(tmp_path / "coordinator"), []
    for party, name in enumerate(NAMES):
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,sex,ill", *rows[party::3]]))
        folder = enrol(home, tmp_path / name, name, {"path": str(tmp_path / f"{name}.csv"), "target": "ill"}).folder
        (folder / "policy.toml").write_text("minimum_rows = 20\nminimum_count = 10\n")
        homes.append(folder)

    def over_network(service, *settings):
        return run_with_parties(load_config(real, [*settings, f"output.folder={tmp_path / 'runs'}",
                                                   "engine.name=network", f"engine.home={home.folder}"]), service).model

    with serving(home.folder, Telemetry()) as service, closing(Parties(homes)):
        here = tequio.run(load_config(simulated, ["engine.workers=1", f"output.folder={tmp_path / 'own'}"])).model
        there = over_network(service)
        assert there["answers"] == here["answers"]
        assert over_network(service, "stages=[{name = 'secure-sum'}]")["answers"] == here["answers"]
        # One row more than before: the ledger of another run knows.
        with pytest.raises(PermissionDenied, match="together with earlier questions"):
            over_network(service, "algorithm.questions=[\"count where age >= 40 or (age >= 35 and sex = 'F' and "
                                  "ill = 'yes')\"]")
        assert over_network(service)["answers"] == here["answers"]
    ledgers = sorted((Path(os.environ["TEQUIO_STATE"]) / "ledgers").glob("*.atoms.jsonl"))
    assert len(ledgers) == 3
    lines = [file.read_text() for file in ledgers]
    assert all(text.count('"answered"') == 1 for text in lines)
    assert sum('"refused"' in text for text in lines) >= 1
