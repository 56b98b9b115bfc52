"""The learner contract on torch modules: what travels, what stays, what is drawn from where."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch_cases import TARGETS, assert_close, assert_same_bits, plain_loss, plain_module, rng, table

from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError, DataError, TequioError
from tequio.learners.learner import BatchedLearner, Job, LocalTraining
from tequio.learners.metrics import summarise
from tequio.learners.own_modules import FromFactory
from tequio.learners.torch_model import model_for
from tequio.learners.zoo import MLP, Logistic

every_target = pytest.mark.parametrize("kind", TARGETS)


def images(rows=20, shape=(1, 6, 6)):
    draw = rng(2)
    return Dataset.of(Schema.of_images(shape, "abc"), draw.random((rows, *shape), dtype=np.float32),
                      draw.integers(0, 3, rows))


def normalised(schema):
    return nn.Sequential(OrderedDict(body=nn.Conv2d(1, 4, 3), norm=nn.BatchNorm2d(4), relu=nn.ReLU(), flat=nn.Flatten(),
                                     out=nn.Linear(64, 3)))


def frozen_body(schema):
    module = nn.Sequential(OrderedDict(body=nn.Linear(9, 8), relu=nn.ReLU(), head=nn.Linear(8, 4)))
    for parameter in module.body.parameters():
        parameter.requires_grad_(False)
    return module


def noisy(schema):
    return nn.Sequential(nn.Linear(9, 32), nn.Dropout(0.5), nn.Linear(32, 4))


@every_target
def test_initial_models_follow_the_rng_and_nothing_else(kind):
    schema, learner = table(kind).schema, MLP(hidden=(5,))
    torch.manual_seed(1)
    first = learner.initial(schema, rng(3))
    torch.manual_seed(2)
    assert_close(learner.initial(schema, rng(3)), first, 0)
    other = learner.initial(schema, rng(4))
    assert all((first[name] != other[name]).any() for name in first)
    assert all(values.dtype == np.float32 for values in first.values())


def test_the_rng_draws_one_row_order_an_epoch_and_nothing_else():
    data, draw, expected = table("classes"), rng(3), rng(3)
    for learner in (MLP(hidden=(5,)), FromFactory(noisy)):
        learner.train(learner.initial(data.schema, rng(1)), data, LocalTraining(epochs=2), draw)
        for _ in range(2):
            expected.permutation(len(data))
    assert draw.integers(2**60) == expected.integers(2**60)


def test_dropout_follows_the_rng_and_leaves_the_global_generator_alone():
    data, learner = table("classes"), FromFactory(noisy)
    model, how = learner.initial(data.schema, rng(1)), LocalTraining(shuffle=False)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = learner.train(model, data, how, rng(5))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert_same_bits(learner.train(model, data, how, rng(5)), first)
    other = learner.train(model, data, how, rng(6))
    assert any((other.model[name] != first.model[name]).any() for name in model)


def test_running_statistics_travel_and_counters_stay():
    data, learner = images(), FromFactory(normalised)
    model = learner.initial(data.schema, rng(1))
    assert list(model) == ["body.weight", "body.bias", "norm.weight", "norm.bias", "norm.running_mean",
                           "norm.running_var", "out.weight", "out.bias"]
    trained = learner.train(model, data, LocalTraining(batch=0, learning_rate=1e-9), rng(2)).model
    with torch.no_grad():
        convolved = nn.functional.conv2d(torch.tensor(data.features), torch.tensor(model["body.weight"]),
                                         torch.tensor(model["body.bias"]))
    seen = convolved.mean((0, 2, 3)).numpy()
    np.testing.assert_allclose(trained["norm.running_mean"], 0.1 * seen, rtol=1e-4)
    again = learner.train(trained, data, LocalTraining(batch=0, learning_rate=1e-9), rng(2)).model
    np.testing.assert_allclose(again["norm.running_mean"], 0.19 * seen, rtol=1e-4)


def test_prediction_uses_the_running_statistics_it_is_given():
    data, learner = images(), FromFactory(normalised)
    model = learner.initial(data.schema, rng(1))
    moved = {**model, "norm.running_mean": model["norm.running_mean"] + 1}
    assert (learner.predict(moved, data) != learner.predict(model, data)).any()
    one_by_one = np.concatenate([learner.predict(model, data.take([row])) for row in range(len(data))])
    np.testing.assert_allclose(learner.predict(model, data), one_by_one, rtol=1e-5)


def test_frozen_parameters_are_neither_sent_nor_changed():
    data, learner = table("classes"), FromFactory(frozen_body)
    model = learner.initial(data.schema, rng(1))
    assert list(model) == ["head.weight", "head.bias"]
    ready = model_for(learner, data.schema)
    before = ready.module.body.weight.detach().clone()
    trained = learner.train(model, data, LocalTraining(weight_decay=0.1), rng(2))
    assert list(trained.model) == list(model)
    assert (trained.model["head.weight"] != model["head.weight"]).any()
    assert torch.equal(ready.module.body.weight, before)
    assert not learner.trains_together(data.schema, LocalTraining())


def test_frozen_parameters_are_the_same_in_every_process():
    """They are not sent, so every party has to build the same ones."""
    schema, values = table("classes").schema, []
    for seed in (1, 2):
        torch.manual_seed(seed)
        module = model_for(FromFactory(frozen_body, device="cpu" if seed == 1 else "auto"), schema).module
        values.append(module.body.weight.detach().cpu().clone())
    assert torch.equal(*values)


@every_target
def test_scores_are_probabilities_or_numbers(kind):
    data, learner = table(kind), MLP(hidden=(5,))
    model = learner.initial(data.schema, rng(1))
    with torch.no_grad():
        outputs = plain_module(model)(torch.tensor(data.features)).numpy()
    expected = {"classes": lambda: np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True),
                "two classes": lambda: np.hstack([1 / (1 + np.exp(outputs)), 1 / (1 + np.exp(-outputs))]),
                "multilabel": lambda: 1 / (1 + np.exp(-outputs)), "number": lambda: outputs[:, 0]}[kind]()
    np.testing.assert_allclose(learner.predict(model, data), expected, rtol=1e-4, atol=1e-6)
    assert len(learner.predict(model, data.take([]))) == 0


@every_target
def test_evaluation_has_the_loss_of_training_and_its_metrics(kind):
    data, learner = table(kind, rows=2300), MLP(hidden=(5,))
    model = learner.initial(data.schema, rng(1))
    with torch.no_grad():
        outputs = plain_module(model)(torch.tensor(data.features))
    tally = learner.evaluate(model, data)
    summary = summarise(data.schema.target, tally)
    assert tally["rows"] == 2300
    assert summary["loss"] == pytest.approx(float(plain_loss(kind, outputs, data.target)), rel=1e-5)
    if kind == "classes":
        assert summary["accuracy"] == pytest.approx((outputs.argmax(1).numpy() == data.target).mean())


@every_target
def test_the_gradient_is_that_of_the_mean_loss(kind):
    data, learner = table(kind, rows=1234), MLP(hidden=(5,))
    model = learner.initial(data.schema, rng(1))
    module = plain_module(model)
    loss = plain_loss(kind, module(torch.tensor(data.features)), data.target)
    gradient, value = learner.gradient(model, data)
    assert value == pytest.approx(loss.item(), rel=1e-5)
    assert_close(gradient, [part.numpy() for part in torch.autograd.grad(loss, list(module.parameters()))], 1e-5)
    assert list(gradient) == list(model)


@every_target
def test_data_and_models_may_be_read_only(kind):
    data, learner = table(kind), MLP(hidden=(5,))
    expected = learner.evaluate(learner.initial(data.schema, rng(1)), data)
    model = learner.initial(data.schema, rng(1))
    for values in (data.source.features, data.source.target, *model.values()):
        values.setflags(write=False)
    np.testing.assert_equal(learner.evaluate(model, data), expected)
    learner.gradient(model, data)
    learner.train(model, data, LocalTraining(batch=0, shuffle=False), rng(1))


def test_what_is_not_trained_has_no_gradient():
    data, learner = images(), FromFactory(normalised)
    gradient, _ = learner.gradient(learner.initial(data.schema, rng(1)), data)
    assert not gradient["norm.running_var"].any()
    assert gradient["body.weight"].any()


def test_a_gradient_step_is_one_step_of_training_on_all_rows():
    data, learner = table("classes"), MLP(hidden=(5,))
    model = learner.initial(data.schema, rng(1))
    gradient, loss = learner.gradient(model, data)
    trained = learner.train(model, data, LocalTraining(batch=0, learning_rate=0.3), rng(2))
    assert trained.loss == pytest.approx(loss)
    assert_close(trained.model, {name: model[name] - 0.3 * gradient[name] for name in model}, 1e-6)


def test_convolutions_train_as_in_a_plain_loop():
    data, learner = images(25), FromFactory(lambda schema: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)))
    for how in (LocalTraining(epochs=2, batch=8), LocalTraining(batch=8, optimizer="adam", learning_rate=0.01)):
        model = learner.initial(data.schema, rng(1))
        module = learner.build(data.schema)
        module.load_state_dict({name: torch.tensor(values) for name, values in model.items()})
        make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[how.optimizer]
        optimizer, draw = make(module.parameters(), lr=how.learning_rate), rng(7)
        for _ in range(how.epochs):
            order = draw.permutation(25)
            for start in range(0, 25, 8):
                rows = order[start:start + 8]
                optimizer.zero_grad()
                plain_loss("classes", module(torch.tensor(data.features[rows])), data.target[rows]).backward()
                optimizer.step()
        trained = learner.train(model, data, how, rng(7)).model
        assert_close(trained, {name: value.numpy() for name, value in module.state_dict().items()}, 1e-5)
        assert all(values.flags.c_contiguous for values in trained.values())


def test_modules_that_are_no_dense_stack_train_one_by_one():
    data, learner, how = images(), FromFactory(normalised), LocalTraining(batch=8)
    model = learner.initial(data.schema, rng(1))
    assert isinstance(learner, BatchedLearner)
    (result,) = learner.train_together([Job(model, data, rng(3))], how)
    assert_same_bits(result, learner.train(model, data, how, rng(3)))


def test_an_unused_parameter_stays_as_it_is():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(9, 4), nn.Parameter(torch.ones(2))

        def forward(self, rows):
            return self.used(rows)

    data, learner = table("classes"), FromFactory(lambda schema: Part())
    trained = learner.train(learner.initial(data.schema, rng(1)), data, LocalTraining(momentum=0.9), rng(2))
    np.testing.assert_array_equal(trained.model["unused"], np.ones(2))


def test_learners_and_schemas_do_not_share_modules():
    small, large = table("classes", columns=3), table("classes", columns=5)
    for data in (small, large, small):
        learner = MLP(hidden=(4,))
        assert learner.initial(data.schema, rng(0))["hidden1.weight"].shape == (4, data.features.shape[1])
        learner.train(learner.initial(data.schema, rng(0)), data, LocalTraining(), rng(1))
    assert model_for(MLP(hidden=(4,)), small.schema) is model_for(MLP(hidden=(4,)), small.schema)
    assert model_for(MLP(hidden=(4,)), small.schema) is not model_for(MLP(hidden=(5,)), small.schema)


def test_a_loss_that_is_no_number_names_the_step_and_the_remedy():
    data, learner = table("number"), Logistic()
    model = learner.initial(data.schema, rng(1))
    with pytest.raises(TequioError, match=r"not finite at step \d+.*lower local.learning_rate"):
        learner.train(model, data, LocalTraining(epochs=40, learning_rate=1e6), rng(1))
    with pytest.raises(TequioError, match="not finite at step 1"):
        learner.train(model, data, LocalTraining(steps=1, learning_rate=3e38), rng(1))


def test_bad_models_and_bad_data_are_named():
    data, learner = table("classes"), MLP(hidden=(6,))
    model = learner.initial(data.schema, rng(1))
    with pytest.raises(DataError, match=r"no parameter 'hidden1\.weight'"):
        learner.predict({"hidden.weight": model["hidden1.weight"]}, data)
    with pytest.raises(DataError, match="no rows to train on"):
        learner.train(model, data.take([]), LocalTraining(), rng(1))
    with pytest.raises(DataError, match=r"the rows have no target; set data\.target"):
        learner.initial(data.without_target().schema, rng(1))


def test_a_module_that_does_not_fit_the_data_is_named():
    data = table("classes")
    with pytest.raises(DataError, match=r"cannot take a row of shape \(9,\)"):
        FromFactory(lambda schema: nn.Linear(8, 4)).trains_together(data.schema, LocalTraining())
    with pytest.raises(DataError, match="has 3 outputs, but the target 'target' needs 4"):
        FromFactory(lambda schema: nn.Linear(9, 3)).trains_together(data.schema, LocalTraining())


def test_two_classes_may_have_one_output_or_two():
    data = table("two classes")
    for width in (1, 2):
        learner = FromFactory(lambda schema, width=width: nn.Linear(9, width))
        model = learner.initial(data.schema, rng(1))
        assert learner.predict(model, data).shape == (120, 2)
        first = summarise(data.schema.target, learner.evaluate(model, data))["loss"]
        trained = learner.train(model, data, LocalTraining(epochs=5), rng(1))
        assert summarise(data.schema.target, learner.evaluate(trained.model, data))["loss"] < first


def test_devices_are_checked(monkeypatch):
    data = table("classes")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="finds no 'cuda' device"):
        MLP(device="cuda").trains_together(data.schema, LocalTraining())
    monkeypatch.setenv("TEQUIO_DEVICE", "cudda")
    with pytest.raises(ConfigError, match="did you mean 'cuda'"):
        MLP(hidden=(3,)).trains_together(data.schema, LocalTraining())


def test_target_of_no_kind_cannot_be_trained_on():
    data = Dataset.of(Schema.of_numbers("ab", Target("none")), np.zeros((3, 2)))
    with pytest.raises(DataError, match="no target"):
        MLP().train({}, data, LocalTraining(), rng(1))


def test_the_package_can_be_imported_without_torch():
    code = ("import sys, pkgutil, importlib, tequio.learners as package\n"
            "for module in pkgutil.iter_modules(package.__path__, 'tequio.learners.'):\n"
            "    importlib.import_module(module.name)\n"
            "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True)
