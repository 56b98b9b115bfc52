"""Passes without autograd give what autograd gives, to the last bit, or are not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_cases import TARGETS, assert_same_bits, rng

from tequio.data.dataset import Dataset, Schema
from tequio.learners.descent import loss_and_slopes, mean_loss
from tequio.learners.learner import Correction, LocalTraining
from tequio.learners.passes import dropout, passes_of
from tequio.learners.torch_model import model_for
from tequio.registry import build

IMAGES = {"simple-cnn": (3, 12, 12), "digit-five-cnn": (3, 16, 16), "mcmahan-cnn": (1, 12, 12),
          "usecase-cnn": (1, 12, 12), "mnist-cnn": (1, 14, 14), "cifar-cnn": (3, 16, 16), "pfl-cnn": (3, 12, 12)}

WAYS = {"sgd": LocalTraining(epochs=2, batch=16, learning_rate=0.05),
        "adam": LocalTraining(epochs=2, batch=16, learning_rate=0.001, optimizer="adam"),
        "everything": LocalTraining(epochs=2, batch=16, momentum=0.9, clip_norm=0.5, weight_decay=0.01)}

MODULES = {
    "strides and gaps": lambda: nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), nn.ReLU(),
                                              nn.Flatten(), nn.Linear(6 * 5 * 5, 3)),
    "odd pooling": lambda: nn.Sequential(nn.Conv2d(4, 5, (3, 1)), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.ReLU(),
                                         nn.Conv2d(5, 3, 2), nn.MaxPool2d((2, 3), (1, 2)), nn.Flatten()),
    "relu again and again": lambda: nn.Sequential(nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.ReLU(), nn.MaxPool2d(2),
                                                  nn.Flatten(), nn.ReLU(), nn.Linear(200, 7), nn.ReLU()),
    "dropout between": lambda: nn.Sequential(nn.Conv2d(4, 8, 3), dropout(0.3), nn.ReLU(), dropout(0.25), nn.Flatten(),
                                             dropout(0.0), nn.Linear(800, 20), nn.ReLU(), dropout(0.5),
                                             nn.Linear(20, 4)),
    "kernels of one": lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.ReLU(), nn.Conv2d(8, 1, 1), nn.MaxPool2d(2),
                                            nn.Conv2d(1, 6, 3), nn.Flatten(), nn.Linear(96, 3)),
    "no image": lambda: nn.Sequential(nn.Flatten(), nn.Linear(576, 9), nn.ReLU(), nn.Linear(9, 2)),
}


def images(kind, shape, rows=37):
    target = TARGETS[kind]
    draw, schema = rng(2), replace(Schema.of_images(shape, "abcd"), target=target)
    values = {"classes": draw.integers(0, 4, rows), "multilabel": draw.integers(0, 2, (rows, 3)),
              "number": draw.standard_normal(rows)}
    return Dataset.of(schema, draw.random((rows, *shape), dtype=np.float32), values[kind])


def both_ways(monkeypatch, learner, data, how, **options):
    """Training by passes, and by autograd with the module as it is."""
    results = []
    for has_passes in (True, False):
        schema = replace(data.schema)  # a module is kept for every schema
        if not has_passes:
            monkeypatch.setattr("tequio.learners.torch_model.passes_of", lambda module: None)
        assert (model_for(learner, schema).passes is not None) == has_passes
        model = learner.initial(schema, rng(1))
        results.append(learner.train(model, replace(data, schema=schema), how, rng(3), **options))
    return results


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", IMAGES)
def test_models_for_images_train_as_by_autograd(monkeypatch, name, way):
    # 37 rows in batches of 16: a short batch as well.
    assert_same_bits(*both_ways(monkeypatch, build("learner", name), images("classes", IMAGES[name]), WAYS[way]))


@pytest.mark.parametrize("kind", ["multilabel", "number"])
def test_every_loss_trains_as_by_autograd(monkeypatch, kind):
    assert_same_bits(*both_ways(monkeypatch, build("learner", "simple-cnn"), images(kind, (3, 12, 12)), WAYS["sgd"]))


def test_corrections_act_as_by_autograd(monkeypatch):
    learner, data = build("learner", "simple-cnn"), images("multilabel", (3, 12, 12))
    anchor = learner.initial(data.schema, rng(8))
    correction = Correction(pull=0.1, anchor=anchor, label_weights=rng(9).random((2, 3)))
    assert_same_bits(*both_ways(monkeypatch, learner, data, WAYS["adam"], correction=correction))


@pytest.mark.parametrize("is_channels_last", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_gradients_are_those_of_autograd(name, is_channels_last):
    torch.manual_seed(4)
    module = MODULES[name]().train()
    if is_channels_last:
        module = module.to(memory_format=torch.channels_last)
    rows, passes = torch.randn(7, 4, 12, 12), passes_of(module)
    torch.manual_seed(5)
    wanted = module(rows.clone())
    slopes = torch.randn_like(wanted)
    expected = torch.autograd.grad(wanted, list(module.parameters()), slopes)
    torch.manual_seed(5)
    outputs, backward = passes.forward(rows.clone())
    assert torch.equal(outputs, wanted)
    for found, gradient in zip(backward(slopes.clone()), expected, strict=True):
        assert torch.equal(found, gradient)


@pytest.mark.parametrize(("kind", "target"), [
    ("softmax", torch.tensor([2, 0, 1, 1])), ("sigmoid", torch.tensor([[0.0, 1, 1]] * 4)),
    ("squares", torch.arange(12.0).reshape(4, 3))])
def test_loss_and_its_slopes_are_those_of_autograd(kind, target):
    torch.manual_seed(0)
    outputs = (5 * torch.randn(4, 3)).requires_grad_()
    loss = mean_loss(kind, outputs, target)
    value, slopes = loss_and_slopes(kind, outputs.detach().clone(), target)
    assert value == float(loss.detach())
    assert torch.equal(slopes, torch.autograd.grad(loss, outputs)[0])


def hooked():
    module = nn.Sequential(nn.Linear(3, 2))
    module[0].register_forward_pre_hook(lambda module, inputs: None)
    return module


def frozen():
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    return module


def shared():
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


class Doubled(nn.Sequential):
    def forward(self, rows):
        return 2 * super().forward(rows)


@pytest.mark.parametrize("make", [
    hooked, frozen, shared, lambda: Doubled(nn.Linear(3, 2)), lambda: nn.Linear(3, 2),
    lambda: nn.Sequential(nn.Linear(3, 2, bias=False)), lambda: nn.Sequential(nn.Conv2d(1, 1, 3, bias=False)),
    lambda: nn.Sequential(nn.Conv2d(1, 1, 3, padding="same")), lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)),
    lambda: nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")),
    lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)),
    lambda: nn.Sequential(nn.Flatten(0), nn.Linear(9, 2)),
    lambda: nn.Sequential(nn.Sequential(nn.Linear(3, 2))),
    lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))])
def test_anything_unusual_is_left_to_autograd(make):
    assert passes_of(make()) is None
