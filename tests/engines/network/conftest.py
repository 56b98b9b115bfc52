from __future__ import annotations

import pytest

from tequio.engines.network.telemetry import AuditLog, Telemetry
from tequio.experiments.deploying.deploying import serving

from .fleet import Parties, enrol, make_coordinator

DEALT = """
seed = 3
rounds = 3
[data]
name = "digits"
one_class = "allow"
[data.partition]
name = "dirichlet"
parties = 5
"""

CONFIGS = {
    "fedavg": '[learner]\nname = "mlp"\nhidden = [16]\n',
    "scaffold": '[algorithm]\nname = "scaffold"\n',
    "secure-sum": '[[stages]]\nname = "secure-sum"\n',
    "one-shot-sum": '[[stages]]\nname = "one-shot-sum"\n',
    "gossip": '[algorithm]\nname = "gossip"\n[topology]\nname = "parallel"\n',
    "icdta4fl": '[algorithm]\nname = "icdta4fl"\n[learner]\nname = "cart"\ndepth = 3\n',
    "glm": '[algorithm]\nname = "glm"\nformula = "pixel_20 ~ pixel_21 + pixel_28"\n[[stages]]\nname = "secure-sum"\n',
    "kmeans": '[algorithm]\nname = "kmeans"\nclusters = 10\n',
}


@pytest.fixture(scope="session")
def dealt(tmp_path_factory):
    """Config files of one data hash, by name."""
    folder = tmp_path_factory.mktemp("configs")
    for name, text in CONFIGS.items():
        (folder / f"{name}.toml").write_text(f'name = "{name}"\n' + DEALT + text)
    return folder


@pytest.fixture(scope="session")
def federation(tmp_path_factory, dealt):
    """A coordinator in this process and five parties in processes of their own, for as many runs as there are."""
    folder = tmp_path_factory.mktemp("federation")
    home = make_coordinator(folder / "coordinator")
    homes = [enrol(home, folder / str(party), str(party), {"config": str(dealt / "fedavg.toml")}).folder
             for party in range(5)]
    telemetry = Telemetry(AuditLog(home.folder / "audit.jsonl"))
    with serving(home.folder, telemetry) as service:
        parties = Parties(homes)
        yield home, service
        parties.close()
