"""FedPer, FedRep and FedBN on a small net: what is sent, what stays, and what may not move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parts import Parts
from tequio.algorithms.personal.layers import FedBN, FedPer, FedRep, KeptPart
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population, state_name
from tequio.learners.learner import Correction, LocalTraining
from tequio.registry import build

LOCAL = LocalTraining(epochs=2, batch=8, learning_rate=0.1, momentum=0.5, weight_decay=0.01)


class Listening(InlineEngine):
    """Keeps every reply that it carries."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def collect(self) -> Any:
        outcome = super().collect()
        self.heard += outcome.replies
        return outcome


def federation() -> Federation:
    draw = np.random.default_rng(0)
    features = draw.standard_normal((64, 3)).astype(np.float32)
    schema = Schema.of_numbers("abc", Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, features, (features[:, 0] > 0).astype(np.int64))
    population = Population(dataset, Partition.of(np.array_split(np.arange(64), 4)), Split(0.0, 0.0), seed=2)
    engine = Listening()
    engine.open(population)
    return Federation(population, engine, seed=2)


def play(algorithm: Any, rounds: int = 2) -> tuple[Federation, Any, Any]:
    world = federation()
    first = state = algorithm.start(world)
    for _ in range(rounds):
        world.round += 1
        state = algorithm.round(world, state)
    return world, first, state


@pytest.mark.parametrize("algorithm", [FedPer, FedRep])
def test_the_head_never_leaves_and_the_body_is_the_mean(algorithm: Any) -> None:
    parts = Parts(build("learner", "mlp", {"hidden": [4]}), LOCAL)
    world, first, state = play(algorithm(weights="uniform", **parts), 1)
    for reply in world.engine.heard:
        assert sorted(reply.payload["update"]) == ["hidden1.bias", "hidden1.weight"]
    for name in ("output.weight", "output.bias"):
        np.testing.assert_array_equal(state.model[name], first.model[name])
    mean = np.mean([reply.payload["update"]["hidden1.weight"] for reply in world.engine.heard], axis=0)
    np.testing.assert_allclose(state.model["hidden1.weight"], first.model["hidden1.weight"] + mean, rtol=1e-5)
    heads = [party[state_name(KeptPart)]["part"]["output.weight"] for party in world.engine.states().values()]
    assert len({head.tobytes() for head in heads}) == 4


def test_parties_answer_with_their_own_head() -> None:
    algorithm = FedPer(**Parts(build("learner", "mlp", {"hidden": [4]}), LOCAL))
    world, _, state = play(algorithm)
    found = algorithm.evaluate(world, state, "train", world.everyone())
    for party, tally in found.items():
        own = {**state.model, **world.engine.states()[party][state_name(KeptPart)]["part"]}
        assert algorithm.learner.evaluate(own, world.population.view(party).train)["loss_sum"] == tally["loss_sum"]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_frozen_parameters_stay_to_the_bit_and_the_others_train(optimizer: Any) -> None:
    learner, world = build("learner", "mlp", {"hidden": [4]}), federation()
    rows = world.population.view(0).train
    model = learner.initial(rows.schema, np.random.default_rng(0))
    how = LocalTraining(epochs=3, batch=4, optimizer=optimizer, weight_decay=0.1)
    trained = learner.train(model, rows, how, np.random.default_rng(1),
                            correction=Correction(frozen=("hidden1.weight", "hidden1.bias"))).model
    for name, values in model.items():
        assert np.array_equal(trained[name], values) == name.startswith("hidden1")


def normalised() -> Any:
    return build("learner", "torch", {"module": "contracts.normalised:build",
                                      "arguments": {"inputs": 3, "outputs": 1}})


def test_batch_normalisation_stays_at_the_party() -> None:
    algorithm = FedBN(**Parts(normalised(), LOCAL))
    world, first, state = play(algorithm)
    private = ["norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"]
    for reply in world.engine.heard:
        assert sorted(reply.payload) == ["loss", "rows", "steps", "update"]
        assert not set(private) & set(reply.payload["update"])
    for name in private:
        np.testing.assert_array_equal(state.model[name], first.model[name])
    kept = [party[state_name(KeptPart)]["part"] for party in world.engine.states().values()]
    assert all(sorted(own) == sorted(private) for own in kept)
    assert len({own["norm.running_mean"].tobytes() for own in kept}) == 4


@pytest.mark.parametrize("algorithm", [FedPer, FedRep])
def test_statistics_of_shared_layers_become_the_weighted_mean(algorithm: Any) -> None:
    world, first, state = play(algorithm(weights="uniform", **Parts(normalised(), LOCAL)), 1)
    sent = [reply.payload["buffers"] for reply in world.engine.heard]
    for name in ("norm.running_mean", "norm.running_var"):
        mean = np.mean([buffers[name] for buffers in sent], axis=0)
        np.testing.assert_allclose(state.model[name], first.model[name] + mean, rtol=1e-6)
    assert not any(name.startswith("norm.running") for reply in world.engine.heard for name in reply.payload["update"])
