"""One config, two engines, the same bits: five processes behind mutual TLS are as good as one process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import tequio
from tequio.engines.network.control import ask
from tequio.engines.network.telemetry import Telemetry
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import prepared_run, serving
from tequio.experiments.deploying.remote import run_with_parties
from tequio.experiments.running.results import Result
from tequio.experiments.running.scenario import make_scenario

from .conftest import CONFIGS
from .fleet import Parties, enrol, make_coordinator, until

pytestmark = pytest.mark.network

EXAMPLES = Path(__file__).parents[3] / "examples"


def over_the_network(file, home, service, out, **keys):
    overrides = [f"output.folder={out}", "engine.name=network", f"engine.home={home.folder}",
                 *(f"{key}={value}" for key, value in keys.items())]
    return run_with_parties(load_config(file, overrides), service)


@pytest.mark.parametrize("stages", ['[{name = "secure-sum"}, {name = "verified"}]', '[{name = "attested"}, '
                                    '{name = "random-k", fraction = 0.5}, {name = "one-shot-sum"}]'])
def test_updates_are_hidden_over_a_network_too(stages, dealt, federation, tmp_path):
    here = tequio.run(load_config(dealt / "fedavg.toml", [f"stages={stages}", f"output.folder={tmp_path}",
                                                          "engine.workers=1"]))
    there = over_the_network(dealt / "fedavg.toml", *federation, tmp_path, stages=stages)
    assert there.summary["model_sha256"] == here.summary["model_sha256"]


@pytest.mark.parametrize("name", CONFIGS)
def test_parties_behind_a_network_give_what_a_simulation_gives(name, dealt, federation, tmp_path):
    here = tequio.run(dealt / f"{name}.toml", engine={"name": "local", "workers": 1}, output={"folder": str(tmp_path)})
    there = over_the_network(dealt / f"{name}.toml", *federation, tmp_path)
    assert there.summary["model_sha256"] == here.summary["model_sha256"]
    for key in ("metrics", "bytes_up", "bytes_down", "messages"):
        assert there.summary[key] == here.summary[key]


def test_several_runs_at_once_over_the_same_links_give_the_same_numbers(dealt, federation, tmp_path):
    home, service = federation
    folders = []
    for name in ("fedavg", "kmeans", "fedavg"):
        _, folder = prepared_run(home.folder, dealt / f"{name}.toml", [f"output.folder={tmp_path}"], None)
        assert ask(home.folder, "run", folder=str(folder)) == {"folder": str(folder)}
        folders.append(folder)
    for folder in folders:
        until((folder / "summary.json").exists, f"the end of {folder.name}")
    found = [Result(folder).summary["model_sha256"] for folder in folders]
    alone = over_the_network(dealt / "fedavg.toml", home, service, tmp_path / "alone").summary["model_sha256"]
    assert found[0] == found[2] == alone != found[1]


def test_vertical_regression_under_encryption_works_over_the_network(tmp_path):
    pytest.importorskip("tenseal")
    file = tmp_path / "vertical.toml"
    text = (EXAMPLES / "bank-and-insurer.toml").read_text().replace("rounds = 6", "rounds = 2")
    file.write_text(text.replace('path = "bank', f'path = "{EXAMPLES}/bank').replace('["centralised"]', "[]"))
    here = tequio.run(file, engine={"name": "local", "workers": 1}, output={"folder": str(tmp_path / "own")})
    population, home = make_scenario(load_config(file)).population, make_coordinator(tmp_path / "coordinator")
    names = [population.name(party) for party in range(len(population))]
    homes = [enrol(home, tmp_path / name, name, {"config": str(file)}).folder for name in names]
    with serving(home.folder, Telemetry()) as service, closing(Parties(homes)):
        there = over_the_network(file, home, service, tmp_path / "runs")
    assert there.summary["rounds"] == 2
    for name, value in here.summary["metrics"].items():
        # Encryption is random in its last digits, and a few of the 1,920 pairs behind the AUC are nearly ties.
        assert there.summary["metrics"][name] == pytest.approx(value, abs=5e-3 if name.endswith("auc") else 1e-3)
