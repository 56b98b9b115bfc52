"""A user's own torch module as a learner."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn
from torch_cases import assert_close, plain_training, rng, table

from tequio.errors import ConfigError
from tequio.learners.learner import Job, LocalTraining
from tequio.learners.own_modules import FromFactory, NamedModule
from tequio.registry import build, from_plain, to_plain


def network(width=5, outputs=4):
    return nn.Sequential(nn.Linear(9, width), nn.Tanh(), nn.Linear(width, outputs))


def no_network():
    return 7


def test_a_named_factory_is_called_with_its_arguments():
    data, how = table("classes"), LocalTraining(epochs=2)
    learner = build("learner", "torch", {"module": "test_own_modules:network", "arguments": {"width": 6}})
    model = learner.initial(data.schema, rng(1))
    assert {name: values.shape for name, values in model.items()} == {
        "0.weight": (6, 9), "0.bias": (6,), "2.weight": (4, 6), "2.bias": (4,)}
    expected = plain_training("classes", model, data, how, 3, activation=nn.Tanh)
    assert_close(learner.train(model, data, how, rng(3)).model, expected)


def test_a_named_factory_survives_as_plain_data():
    learner = NamedModule("test_own_modules:network", {"width": 6})
    assert from_plain(to_plain(learner)) == learner


def test_a_dense_stack_of_ones_own_trains_together():
    data, how = table("classes"), LocalTraining(epochs=2)
    learner = FromFactory(lambda schema: network(outputs=len(schema.target.names)))
    assert learner.trains_together(data.schema, how)
    model = learner.initial(data.schema, rng(1))
    (result,) = learner.train_together([Job(model, data, rng(3))], how)
    assert_close(result.model, plain_training("classes", model, data, how, 3, activation=nn.Tanh))
    assert np.isfinite(result.loss)


@pytest.mark.parametrize(("module", "arguments", "message"), [
    ("network", {}, "does not name a factory.*package.module:name"),
    ("no.such.module:network", {}, "cannot be imported"),
    ("test_own_modules:netwrok", {}, "did you mean 'network'"),
    ("test_own_modules:network", {"wdith": 3}, "does not take these arguments"),
    ("test_own_modules:no_network", {}, "gave a int and not a torch module"),
])
def test_a_factory_that_cannot_be_used_is_named(module, arguments, message):
    with pytest.raises(ConfigError, match=message):
        NamedModule(module, arguments).initial(table("classes").schema, rng(0))
