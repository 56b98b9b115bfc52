"""Weights of labels in training: against autograd by hand, one by one and together, and masks that hide a label."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_cases import rng

from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError, DataError, TequioError
from tequio.learners.learner import Correction, Job, LocalTraining
from tequio.learners.linear import SGDClassifier
from tequio.learners.zoo import MLP

HOW = LocalTraining(epochs=2, batch=6, learning_rate=0.05)
WEIGHTS = np.array([[1.0, 0.5, 0.0], [3.0, 2.0, 0.0]], np.float32)


def data(rows: int = 20, seed: int = 0) -> Dataset:
    draw = rng(seed)
    schema = Schema.of_numbers("wxyz", Target("multilabel", ("a", "b", "c")))
    return Dataset.of(schema, draw.standard_normal((rows, 4)).astype(np.float32),
                      (draw.random((rows, 3)) < 0.4).astype(np.int8))


def by_hand(model, rows, weights):
    """The same descent with autograd written out."""
    tensors = {name: torch.tensor(values, requires_grad=True) for name, values in model.items()}
    orders = rng(5)
    for _ in range(HOW.epochs):
        order = orders.permutation(len(rows))
        for start in range(0, len(order), HOW.batch):
            batch = rows.take(order[start:start + HOW.batch])
            hidden = torch.relu(torch.from_numpy(batch.features) @ tensors["hidden1.weight"].T
                                + tensors["hidden1.bias"])
            outputs = hidden @ tensors["output.weight"].T + tensors["output.bias"]
            truth = torch.from_numpy(batch.target.astype(np.float32))
            weight = torch.where(truth > 0, torch.from_numpy(weights[1]), torch.from_numpy(weights[0]))
            losses = torch.nn.functional.binary_cross_entropy_with_logits(outputs, truth, reduction="none")
            gradients = torch.autograd.grad((weight * losses).mean(), list(tensors.values()))
            with torch.no_grad():
                for tensor, gradient in zip(tensors.values(), gradients, strict=True):
                    tensor -= HOW.learning_rate * gradient
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def test_weighed_training_is_what_autograd_gives_alone_and_together():
    learner, rows = MLP(hidden=(5,)), data()
    model = learner.initial(rows.schema, rng(1))
    correction = Correction(label_weights=WEIGHTS)
    expected = by_hand(model, rows, WEIGHTS)
    alone = learner.train(model, rows, HOW, rng(5), correction=correction)
    jobs = [Job(model, rows, rng(5), correction), Job(model, data(13, seed=2), rng(6))]
    together = learner.train_together(jobs, HOW)
    plain = learner.train(model, data(13, seed=2), HOW, rng(6))
    for name, values in expected.items():
        np.testing.assert_allclose(alone.model[name], values, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(together[0].model[name], values, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(together[1].model[name], plain.model[name], rtol=1e-4, atol=1e-6)
    assert together[0].loss == pytest.approx(alone.loss, rel=1e-4)


def test_a_masked_label_teaches_nothing():
    """Partial labels: what a masked label says does not matter, and its output stays as it was."""
    learner, rows = MLP(hidden=(5,)), data()
    model = learner.initial(rows.schema, rng(1))
    lying = rows.target.copy()
    lying[:, 2] = 1 - lying[:, 2]
    other = Dataset.of(rows.schema, rows.features, lying)
    correction = Correction(label_weights=WEIGHTS)
    first, second = (learner.train(model, which, HOW, rng(5), correction=correction).model for which in (rows, other))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    np.testing.assert_array_equal(first["output.weight"][2], model["output.weight"][2])


def test_weights_that_do_not_fit_are_refused():
    learner, rows = MLP(hidden=(5,)), data()
    model = learner.initial(rows.schema, rng(1))
    with pytest.raises(DataError, match="do not fit a model with 3 outputs"):
        learner.train(model, rows, HOW, rng(5), correction=Correction(label_weights=np.ones((2, 2))))
    classes = Dataset.of(Schema.of_numbers("wxyz", Target("classes", ("n", "y"))), rows.features, rows.target[:, 0])
    linear = SGDClassifier()
    with pytest.raises((ConfigError, TequioError)):
        linear.train(linear.initial(classes.schema, rng(1)), classes, HOW, rng(5),
                     correction=Correction(label_weights=np.ones((2, 1))))
