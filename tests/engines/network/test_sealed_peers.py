"""Peers whose models travel end to end encrypted over real links: the coordinator is a mailbox that cannot read."""

from __future__ import annotations

import numpy as np
import pytest

import tequio
from tequio.algorithms.peer import peers
from tequio.engines.network.telemetry import entries
from tequio.errors import PartyError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.remote import run_with_parties
from tequio.federation import payload as payloads
from tequio.federation.evaluation import OwnModel
from tequio.federation.population import state_name

pytestmark = pytest.mark.network

SEALED = "algorithm={name = 'gossip', sealed = true}"


def over_the_network(dealt, federation, out):
    home, service = federation
    return run_with_parties(load_config(dealt / "gossip.toml", [
        SEALED, "rounds=2", f"output.folder={out}", "engine.name=network", f"engine.home={home.folder}"]), service)


class Eavesdropper:
    """All that reaches the coordinator's process from the parties, after TLS."""

    def __init__(self, hub, monkeypatch):
        self.heard = []
        receive = hub.receive

        def listening(link, message, parts):
            self.heard += map(bytes, parts)
            return receive(link, message, parts)

        monkeypatch.setattr(hub, "receive", listening)

    def knows(self, array):
        return any(array.tobytes() in content for content in self.heard)


def models_of(homes, run):
    """The models in the journals of the parties: what nobody else may see."""
    for home in homes:
        for path in (home / "runs" / run).glob("task-*"):
            model = payloads.decode(path.read_bytes())["state"].get(state_name(OwnModel))
            if model:
                yield home.name, model["model"]


def test_the_coordinator_never_holds_a_model_and_the_peers_learn_as_in_a_simulation(dealt, federation, tmp_path,
                                                                                    monkeypatch):
    home, service = federation
    ear = Eavesdropper(service.hub, monkeypatch)
    there = over_the_network(dealt, federation, tmp_path)
    here = tequio.run(load_config(dealt / "gossip.toml", [SEALED, "rounds=2", f"output.folder={tmp_path / 'own'}",
                                                          "engine.workers=1"]))
    assert there.summary["metrics"] == here.summary["metrics"]
    homes = [home.folder.parent / str(party) for party in range(5)]
    models = list(models_of(homes, there.folder.name))
    assert {name for name, _ in models} == {"0", "1", "2", "3", "4"}
    for _, model in models:
        assert all(values.size < 8 or not ear.knows(np.asarray(values)) for values in model.values())
    assert sum(map(len, ear.heard)) > 100_000


@pytest.mark.parametrize("change", [lambda box: box[:-1] + bytes([box[-1] ^ 1]), lambda box: box[:-1],
                                    lambda box: box[8:] + box[:8]])
def test_a_letter_that_the_coordinator_tampers_with_is_refused(change, dealt, federation, tmp_path, monkeypatch):
    honest = peers.delivered

    def meddling(*arguments):
        mail = honest(*arguments)
        mail[3]["boxes"][0] = change(mail[3]["boxes"][0])
        return mail

    monkeypatch.setattr(peers, "delivered", meddling)
    with pytest.raises(PartyError, match=r"party '3' failed in round 1 .*payload error"):
        over_the_network(dealt, federation, tmp_path)
    refused = entries(federation[0].folder.parent / "3" / "audit.jsonl")[-1]
    assert refused["event"] == "task failed"
    assert "altered on its way" in refused["cause"]
