"""One config, two engines, the same bits: five processes behind mutual TLS are as good as one process."""

from __future__ import annotations

import pytest

import tequio
from tequio.experiments.config import load_config
from tequio.experiments.remote import run_with_parties

from .conftest import CONFIGS

pytestmark = pytest.mark.network


def over_the_network(file, home, service, out, **keys):
    overrides = [f"output.folder={out}", "engine.name=network", f"engine.home={home.folder}",
                 *(f"{key}={value}" for key, value in keys.items())]
    return run_with_parties(load_config(file, overrides), service)


@pytest.mark.parametrize("stages", ['[{name = "secure-sum"}, {name = "verified"}]', '[{name = "attested"}, '
                                    '{name = "random-k", fraction = 0.5}, {name = "encrypted-sum"}]'])
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
