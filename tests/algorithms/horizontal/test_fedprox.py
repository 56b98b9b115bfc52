"""FedProx: nothing without its term, and the term worked by hand."""

from __future__ import annotations

import pytest
import toy

from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.horizontal.fedprox import FedProx
from tequio.learners.learner import LocalTraining

LOCAL = LocalTraining(epochs=2, batch=2, learning_rate=0.1, momentum=0.5)


def test_without_its_term_it_is_federated_averaging_bit_for_bit() -> None:
    rows = toy.random_parties([5, 9, 2])
    plain = toy.run(FedAvg(**toy.parts(LOCAL)), toy.federation(rows), rounds=3)
    proximal = toy.run(FedProx(proximal=0.0, **toy.parts(LOCAL)), toy.federation(rows), rounds=3)
    assert toy.weights(proximal).tobytes() == toy.weights(plain).tobytes()


def test_the_pull_by_hand() -> None:
    # Target 8, rate 0.5, mu 1: 0 -> 4; then the gradient is (4 - 8) + 1 * (4 - 0) = 0, so it stays.
    local = LocalTraining(epochs=2, batch=0, learning_rate=0.5)
    state = toy.run(FedProx(proximal=1.0, **toy.parts(local)), toy.federation(toy.targets(8.0)))
    assert toy.weights(state) == [4.0]


def test_the_stronger_the_term_the_nearer_parties_stay() -> None:
    local = LocalTraining(epochs=5, batch=0, learning_rate=0.1)
    moved = [toy.weights(toy.run(FedProx(proximal=strength, **toy.parts(local)),
                                 toy.federation(toy.targets(8.0))))[0] for strength in (0.0, 0.5, 2.0)]
    assert moved == sorted(moved, reverse=True)
    assert moved[0] == pytest.approx(8 * (1 - 0.9**5))
