"""The training task: batched form, parties' own settings, divergence, and the arithmetic of effective steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import toy
from hypothesis import given
from hypothesis import strategies as st

from tequio.algorithms.horizontal.fedavg import FedAvg, FedAvgMix
from tequio.algorithms.horizontal.scaffold import Scaffold
from tequio.algorithms.training import Phase, effective_steps, job_from, train, training_task
from tequio.errors import ConfigError, PartyError
from tequio.federation.federation import Rules
from tequio.federation.task import Done, TrainSettings, find_task
from tequio.learners.learner import LocalTraining, TrainedTogether

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.learners.learner import Job

SETTINGS = TrainSettings(learner=toy.LeastSquares(), local=toy.FULL_BATCH)


def test_the_reply_says_how_the_model_changed_and_what_weighs_it() -> None:
    # Loss (w - 3)^2 / 2 + (w - 1)^2 / 2, halved: the gradient at 1 is -1, one step of 0.5 goes to 1.5.
    replies = toy.federation(toy.targets([3.0, 1.0])).ask([0], train, {"model": {"w": np.array([1.0])}},
                                                          settings=SETTINGS)
    assert replies[0].payload["update"]["w"] == [0.5]
    assert (replies[0].payload["rows"], replies[0].payload["steps"]) == (2, 1)
    assert replies[0].payload["loss"] == (1.5**2 + 0.5**2) / 4


def test_a_batched_learner_gets_all_parties_of_a_chunk_in_one_call() -> None:
    local = LocalTraining(epochs=2, batch=2, learning_rate=0.1)
    rows = toy.random_parties([5, 3, 4])
    one_by_one = toy.run(FedAvg(**toy.parts(local)), toy.federation(rows), rounds=3)
    toy.batched_calls.clear()
    together = toy.run(FedAvg(**toy.parts(local, toy.LeastSquares(batched=True))), toy.federation(rows), rounds=3)
    assert toy.batched_calls == [3, 3, 3]
    np.testing.assert_array_equal(toy.weights(together), toy.weights(one_by_one))


@pytest.mark.parametrize("mix", [None, 0.5])
def test_results_that_come_side_by_side_give_the_same_replies(mix: float | None,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def side_by_side(self: toy.LeastSquares, jobs: Sequence[Job], how: LocalTraining, **rate: float) -> TrainedTogether:
        results = one_by_one(self, jobs, how, **rate)
        return TrainedTogether({"w": np.stack([result.model["w"] for result in results])},
                               *([getattr(result, name) for result in results] for name in ("steps", "loss", "rows")))

    one_by_one = toy.LeastSquares.train_together
    local, rows = LocalTraining(epochs=2, batch=2, learning_rate=0.1), toy.random_parties([5, 3, 4])
    parts = toy.parts(local, toy.LeastSquares(batched=True))
    algorithm = FedAvg(**parts) if mix is None else FedAvgMix(**parts, mix=mix)
    expected = toy.run(algorithm, toy.federation(rows), rounds=3)
    monkeypatch.setattr(toy.LeastSquares, "train_together", side_by_side)
    federation = toy.federation(rows)
    np.testing.assert_array_equal(toy.weights(toy.run(algorithm, federation, rounds=3)), toy.weights(expected))
    assert bool(federation.engine.states()) is (mix is not None)


def test_parties_with_their_own_settings_train_by_them_and_not_in_the_batch() -> None:
    toy.batched_calls.clear()
    federation = toy.federation(toy.targets(8.0, 8.0), overrides={1: {"local": {"epochs": 2}}})
    settings = replace(SETTINGS, learner=toy.LeastSquares(batched=True))
    replies = federation.ask([0, 1], train, {"model": {"w": np.array([0.0])}}, settings=settings)
    assert [reply.payload["update"]["w"][0] for reply in replies] == [4.0, 6.0]
    assert replies.values("steps").tolist() == [1, 2]
    assert toy.batched_calls == []


def test_the_learning_rate_decays_by_round() -> None:
    federation = toy.federation(toy.targets(8.0))
    federation.round = 3
    local = LocalTraining(batch=0, learning_rate=0.5, decay=0.5)
    replies = federation.ask([0], train, {"model": {"w": np.array([0.0])}}, settings=replace(SETTINGS, local=local))
    assert replies[0].payload["update"]["w"] == [8.0 * 0.5**3]


@pytest.mark.parametrize("batched", [False, True])
def test_a_party_that_diverges_is_named_and_keeps_the_state_it_had(batched: bool) -> None:
    rows = [*toy.targets(1.0), (np.array([1e200]), np.array([1.0]))]
    algorithm = Scaffold(**toy.parts(learner=toy.LeastSquares(1.0, batched=batched)))
    federation = toy.federation(rows, rules=Rules(on_failure="continue", quorum=0.0))
    toy.run(algorithm, federation)
    assert list(federation.engine.states()) == [0]
    with pytest.raises(PartyError, match=r"'1' failed in round 1 at task 'scaffold\.train': training diverged") as told:
        toy.run(algorithm, toy.federation(rows))
    assert "lower the learning rate" in told.value.remedy


def test_a_party_without_rows_is_told_so() -> None:
    federation = toy.federation([*toy.targets(1.0), (np.ones(0), np.ones(0))])
    with pytest.raises(PartyError, match="party '1' has no rows to train on"):
        federation.ask([0, 1], train, {"model": {"w": np.zeros(1)}}, settings=SETTINGS)


def test_two_modules_cannot_claim_one_task_name() -> None:
    def elsewhere(party, payload, settings):
        return job_from(party, payload["model"])

    with pytest.raises(ConfigError, match="two tasks claim the name 'train'"):
        training_task("train", TrainSettings, Done, Phase(elsewhere, lambda party, payload, result, settings: {}))
    assert find_task("train") is train


def test_plain_steps_count_as_they_are() -> None:
    assert effective_steps(LocalTraining(), 7) == 7.0
    assert effective_steps(LocalTraining(momentum=0.9), 0) == 0.0


@given(steps=st.integers(1, 60), momentum=st.floats(0.0, 0.99), pull=st.floats(1e-3, 0.5))
def test_effective_steps_have_the_closed_forms_of_the_paper(steps: int, momentum: float, pull: float) -> None:
    # Wang et al. (2020), section 4: ||a||_1 with momentum rho, and with a proximal term of eta * mu = alpha.
    with_momentum = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    assert effective_steps(LocalTraining(momentum=momentum), steps) == pytest.approx(with_momentum)
    with_pull = (1 - (1 - pull) ** steps) / pull
    assert effective_steps(LocalTraining(), steps, pull) == pytest.approx(with_pull)


@given(steps=st.integers(1, 20), momentum=st.floats(0.0, 0.9), proximal=st.floats(0.0, 2.0))
def test_effective_steps_are_what_a_constant_gradient_walks(steps: int, momentum: float, proximal: float) -> None:
    rate, position, velocity = 0.1, 0.0, 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1.0 + proximal * (position - 0.0)
        position -= rate * velocity
    assert effective_steps(LocalTraining(momentum=momentum), steps, rate * proximal) == pytest.approx(-position / rate)
