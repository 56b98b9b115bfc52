"""The centralised baseline is federated averaging with one party, and nothing else."""

from __future__ import annotations

import pytest
import toy

from tequio.algorithms.baselines.centralised import Centralised
from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.errors import ConfigError
from tequio.federation.federation import Rules
from tequio.learners.learner import LocalTraining


def test_it_equals_federated_averaging_with_one_party() -> None:
    rows = toy.random_parties([23])
    local = LocalTraining(epochs=2, batch=4, learning_rate=0.05, momentum=0.9, decay=0.9)
    baseline = toy.run(Centralised(parts=toy.parts(local)), toy.federation(rows), rounds=4)
    federated = toy.run(FedAvg(parts=toy.parts(local)), toy.federation(rows), rounds=4)
    assert toy.weights(baseline).tobytes() == toy.weights(federated).tobytes()


def test_two_parties_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"not at 2 parties; set data\.partition\.name = 'pooled'"):
        Centralised(parts=toy.parts()).start(toy.federation(toy.targets(1.0, 2.0)))


def test_a_round_without_an_answer_keeps_the_model() -> None:
    algorithm, federation = Centralised(parts=toy.parts()), toy.federation(toy.targets(8.0))
    state = toy.run(algorithm, federation)
    federation.rules = Rules(dropout=1.0, quorum=0.0)
    assert toy.one_more(algorithm, federation, state) is state
