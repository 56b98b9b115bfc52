"""What momentum and Adam remember from one training to the next, against torch's own optimizers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_cases import assert_close, rng, table

from tequio.data.dataset import Dataset, Schema
from tequio.errors import ConfigError, DataError
from tequio.learners.kmeans import KMeans
from tequio.learners.learner import LocalTraining
from tequio.learners.linear import SGDClassifier
from tequio.learners.own_modules import FromFactory
from tequio.learners.private_training import PrivateTraining
from tequio.learners.zoo import MLP

ADAM = LocalTraining(batch=0, steps=3, optimizer="adam", learning_rate=0.01, shuffle=False, optimizer_memory="kept")
MOMENTUM = replace(ADAM, optimizer="sgd", momentum=0.9)
ways = pytest.mark.parametrize("how", [ADAM, MOMENTUM], ids=["adam", "momentum"])


def images():
    draw = rng(2)
    return Dataset.of(Schema.of_images((2, 8, 8), "abc"), draw.random((20, 2, 8, 8), dtype=np.float32),
                      draw.integers(0, 3, 20))


def convolutions(schema):
    return nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(80, 3))


@ways
@pytest.mark.parametrize("learner", [MLP(hidden=(5,)), FromFactory(convolutions)], ids=["dense", "convolutions"])
def test_two_trainings_with_memory_are_one_long_one(learner, how):
    data = images() if isinstance(learner, FromFactory) else table("classes")
    model = learner.initial(data.schema, rng(1))
    once = learner.train(model, data, replace(how, steps=6, optimizer_memory="fresh"), rng(5))
    first = learner.train(model, data, how, rng(5), memory={})
    second = learner.train(first.model, data, how, rng(6), memory=first.memory)
    assert_close(second.model, once.model, 0)
    assert (first.steps, second.steps, int(first.memory["age"]), int(second.memory["age"])) == (3, 3, 3, 6)
    forgetful = learner.train(first.model, data, how, rng(6), memory={})
    assert any((forgetful.model[name] != once.model[name]).any() for name in model)


@ways
def test_memory_goes_on_from_another_model_as_in_torch(how):
    """What federated averaging does: the weights are overwritten between two trainings, the moments survive."""
    data, learner = images(), FromFactory(convolutions)
    model, other = (learner.initial(data.schema, rng(seed)) for seed in (1, 2))
    module = convolutions(data.schema)
    optimizer = (torch.optim.Adam(module.parameters(), lr=0.01) if how.optimizer == "adam" else
                 torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9))
    memory = {}
    for start in (model, other):
        module.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in start.items()})
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(torch.from_numpy(data.features)),
                                        torch.from_numpy(data.target)).backward()
            optimizer.step()
        ours = learner.train(start, data, how, rng(5), memory=memory)
        memory = ours.memory
    assert_close(ours.model, {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}, 1e-5)


def test_noised_training_keeps_its_moments_too():
    data, learner = table("classes"), MLP(hidden=(5,))
    how = PrivateTraining(batch=0, steps=2, optimizer="adam", learning_rate=0.01, noise=0.0, optimizer_memory="kept")
    model = learner.initial(data.schema, rng(1))
    first = learner.train(model, data, how, rng(5), memory={})
    assert int(learner.train(first.model, data, how, rng(6), memory=first.memory).memory["age"]) == 4


def test_nothing_is_kept_unless_asked_for():
    data, learner = table("classes"), MLP(hidden=(5,))
    model = learner.initial(data.schema, rng(1))
    assert learner.train(model, data, replace(ADAM, optimizer_memory="fresh"), rng(5)).memory == {}
    plain = replace(ADAM, optimizer="sgd")
    assert learner.train(model, data, plain, rng(5), memory={}).memory == {}, "plain steps remember nothing"


def test_memory_of_another_model_is_refused():
    data = table("classes")
    small, large = MLP(hidden=(5,)), MLP(hidden=(6,))
    kept = small.train(small.initial(data.schema, rng(1)), data, ADAM, rng(5), memory={}).memory
    with pytest.raises(DataError, match="first/"):
        large.train(large.initial(data.schema, rng(1)), data, ADAM, rng(5), memory=kept)


def test_whoever_would_forget_refuses():
    data = table("classes")
    learner = MLP(hidden=(5,))
    with pytest.raises(ConfigError, match="cannot keep what the optimizer remembers"):
        learner.train(learner.initial(data.schema, rng(1)), data, ADAM, rng(5))
    for plain in (SGDClassifier(), KMeans(clusters=2)):
        how = LocalTraining(optimizer_memory="kept")
        with pytest.raises(ConfigError, match=r"optimizer_memory|optimizer remembers"):
            plain.train(plain.initial(data.schema, rng(1)), data, how, rng(5))
