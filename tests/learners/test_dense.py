"""Dense stacks by hand: gradients against finite differences, losses and steps against torch."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.data.dataset import Target
from tequio.learners.dense import backward, forward, fresh_stack, loss_and_delta, scores_of_outputs, stepped
from tequio.learners.descent import scores_of
from tequio.learners.learner import LocalTraining

torch = pytest.importorskip("torch")
RNG = np.random.default_rng


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "identity"])
def test_gradients_are_those_of_autograd(activation):
    draw = RNG(0)
    model, rows = fresh_stack((5, 4, 3, 2), draw), draw.standard_normal((7, 5))
    passed = forward(model, rows, activation)
    delta = draw.standard_normal((7, 2))
    gradients, back = backward(model, passed, delta, activation)
    weights = {name: torch.tensor(values, dtype=torch.float64, requires_grad=True) for name, values in model.items()}
    given = torch.tensor(rows, requires_grad=True)
    values = given
    between = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "identity": lambda same: same}
    for layer in (1, 2, 3):
        values = values @ weights[f"weight{layer}"] + weights[f"bias{layer}"]
        values = between[activation](values) if layer < 3 else values
    np.testing.assert_allclose(passed.output, values.detach().numpy(), rtol=1e-4, atol=1e-5)
    values.backward(torch.tensor(delta))
    assert list(gradients) == list(model)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, weights[name].grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(back, given.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "target", "width"), [
    ("softmax", Target("classes", ("a", "b", "c")), 3), ("sigmoid", Target("classes", ("a", "b")), 1),
    ("sigmoid", Target("multilabel", ("a", "b", "c")), 3), ("squares", Target("number"), 1)])
def test_losses_and_scores_are_those_of_torch(kind, target, width):
    draw = RNG(1)
    outputs = (20 * draw.standard_normal((9, width))).astype(np.float32)
    wanted = draw.integers(0, 3, 9) if kind == "softmax" else draw.integers(0, 2, (9, width)).astype(np.float32)
    loss, delta = loss_and_delta(kind, outputs, wanted)
    leaf = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
    losses = {"softmax": torch.nn.functional.cross_entropy, "squares": torch.nn.functional.mse_loss,
              "sigmoid": torch.nn.functional.binary_cross_entropy_with_logits}
    expected = losses[kind](leaf, torch.tensor(wanted) if kind == "softmax" else torch.tensor(wanted).double())
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    np.testing.assert_allclose(delta, leaf.grad.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scores_of_outputs(kind, outputs, target),
                               scores_of(kind, torch.tensor(outputs), target).numpy(), atol=1e-6)


@pytest.mark.parametrize("how", [
    LocalTraining(), LocalTraining(momentum=0.9, weight_decay=0.1), LocalTraining(optimizer="adam", weight_decay=0.01)])
def test_steps_are_those_of_torch(how):
    draw = RNG(2)
    model, memory = {"w": draw.standard_normal(6).astype(np.float32)}, {}
    leaf = torch.tensor(model["w"].copy(), requires_grad=True)
    theirs = torch.optim.Adam([leaf], 0.1, weight_decay=how.weight_decay) if how.optimizer == "adam" else \
        torch.optim.SGD([leaf], 0.1, momentum=how.momentum, weight_decay=how.weight_decay)
    for _ in range(5):
        gradient = draw.standard_normal(6).astype(np.float32)
        model, memory = stepped(model, {"w": gradient}, memory, how, 0.1)
        leaf.grad = torch.tensor(gradient)
        theirs.step()
    np.testing.assert_allclose(model["w"], leaf.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_long_gradient_is_clipped():
    model = {"w": np.zeros(2, np.float32)}
    moved, _ = stepped(model, {"w": np.array([30.0, 40.0], np.float32)}, {}, LocalTraining(clip_norm=5.0), 1.0)
    np.testing.assert_allclose(moved["w"], [-3.0, -4.0], rtol=1e-5)
