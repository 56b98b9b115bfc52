"""Gradient inversion gives rows back: exactly by division, and to a small error where it has to search."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.privacy.inference import squared_error
from tequio.attacks.privacy.inversion import dense_row, first_dense_layer, label_of, reconstructed, representatives
from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError
from tequio.learners.linear import SGDClassifier
from tequio.learners.zoo import MLP, Logistic

CLASSES = ("a", "b", "c", "d")
SCHEMA = Schema.of_images((1, 4, 4), CLASSES)


def one_row(label: int = 2, seed: int = 0, schema: Schema = SCHEMA) -> Dataset:
    pixels = np.random.default_rng(seed).random((1, *schema.shape)).astype(np.float32)
    return Dataset.of(schema, pixels, np.array([label]))


def gradient_of(learner, row):
    model = learner.initial(row.schema, np.random.default_rng(1))
    return model, learner.gradient(model, row)[0]


@pytest.mark.parametrize("learner", [Logistic(), MLP((8,)), MLP((8, 6), "tanh")], ids=["logistic", "relu", "deep"])
@pytest.mark.parametrize("label", range(4))
def test_a_dense_first_layer_gives_row_and_label_away_exactly(learner, label):
    row = one_row(label)
    model, gradient = gradient_of(learner, row)
    assert label_of(gradient, 4) == label
    guess = reconstructed(learner, SCHEMA, model, gradient, (0.0, 1.0), np.random.default_rng(0))
    np.testing.assert_allclose(guess, row.features[0], atol=1e-5)


def test_by_hand_and_at_any_scale():
    row, bias = np.array([1.0, -2.0, 0.5]), np.array([0.5, -0.25])
    for scale in (1.0, 0.01):
        assert dense_row(scale * np.outer(bias, row), scale * bias) == pytest.approx(row)


def test_one_output_tells_two_classes_by_its_sign():
    schema = Schema.of_numbers("xyz", Target("classes", ("no", "yes")))
    for label in (0, 1):
        row = one_row(label, schema=schema)
        assert label_of(gradient_of(Logistic(), row)[1], 2) == label


def test_noise_of_the_length_of_the_gradient_hides_the_row():
    row, learner, rng = one_row(), MLP((12,)), np.random.default_rng(5)
    model, gradient = gradient_of(learner, row)
    length = np.sqrt(sum(float((part**2).sum()) for part in gradient.values()))
    noised = {name: part + length * rng.standard_normal(part.shape) for name, part in gradient.items()}
    guess = reconstructed(learner, SCHEMA, model, noised, (0.0, 1.0), rng)
    blind = np.full(SCHEMA.shape, 0.5)
    assert squared_error(row.features[0], guess) > squared_error(row.features[0], blind)


def test_layers_that_rows_do_not_enter_are_not_taken_for_dense_ones():
    convolution = {"conv.weight": np.zeros((3, 1, 2, 2)), "conv.bias": np.zeros(3)}
    assert first_dense_layer(convolution, SCHEMA) is None
    with pytest.raises(ConfigError, match="bias of the output layer"):
        label_of({"only.weight": np.zeros((4, 16))}, 4)


def test_representatives_of_a_linear_model_raise_what_the_class_likes():
    schema = Schema.of_numbers("xyz", Target("classes", ("a", "b", "c")))
    model = {"output.weight": 5 * np.eye(3, dtype=np.float32), "output.bias": np.zeros(3, np.float32)}
    made = representatives(Logistic(), schema, model, (0.0, 1.0))
    assert (np.argmax(made, axis=1) == [0, 1, 2]).all()
    assert made.min() >= 0
    assert made.max() <= 1
    with pytest.raises(ConfigError, match="no gradient to follow"):
        representatives(SGDClassifier(), schema, model, (0.0, 1.0))
