"""The model zoo: sizes as published, and what each model takes."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn
from torch_cases import rng, table

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import DataError
from tequio.learners.learner import LocalTraining
from tequio.learners.metrics import summarise
from tequio.learners.own_modules import FromFactory
from tequio.learners.torch_model import model_for
from tequio.learners.zoo import MLP, Logistic, TextClassifier
from tequio.learners.zoo_images import (
    CifarCNN,
    ComplexCNN,
    DigitFiveCNN,
    McMahanCNN,
    MnistCNN,
    PflCNN,
    SimpleCNN,
    UsecaseCNN,
)
from tequio.registry import find

MNIST = Schema.of_images((1, 28, 28), "0123456789")
CIFAR = Schema.of_images((3, 32, 32), "0123456789")
DROPOUT = Schema.of_numbers([f"activity{column}" for column in range(21)], Target("classes", ("stays", "leaves")))


def trainable(learner, schema):
    return sum(weight.numel() for weight in model_for(learner, schema).weights)


@pytest.mark.parametrize(("learner", "schema", "parameters"), [
    (Logistic(), MNIST, 7_850),
    (MLP(), MNIST, 101_770),
    (MLP(hidden=(32,)), MNIST, 25_450),
    (MLP(hidden=(100, 100, 100)), DROPOUT, 22_501),
    (SimpleCNN(), CIFAR, 5_354),
    (ComplexCNN(), CIFAR, 1_342_122),
    (McMahanCNN(), MNIST, 1_663_370),
    (UsecaseCNN(), MNIST, 63_562),
    (MnistCNN(), MNIST, 320 + 18_496 + 51_232 + 330),
    (CifarCNN(), CIFAR, 896 + 9_248 + 18_496 + 36_928 + 73_856 + 147_584 + 262_272 + 1_290),
    (PflCNN(), CIFAR, 1_626_442),
    (TextClassifier(vocabulary=1_000, dimension=50), DROPOUT, 50_000 + 816 + 17),
    (TextClassifier(vocabulary=1_000, dimension=50, frozen=True), DROPOUT, 816 + 17),
])
def test_sizes_are_as_published(learner, schema, parameters):
    assert trainable(learner, schema) == parameters
    sent = learner.initial(schema, rng(0))
    buffers = sum(values.size for name, values in sent.items() if "running" in name)
    assert sum(values.size for values in sent.values()) == parameters + buffers


@pytest.mark.parametrize("learner", [SimpleCNN(), UsecaseCNN(), MnistCNN()])
def test_image_models_learn_to_tell_bright_from_dark(learner):
    draw = rng(1)
    target = np.arange(60) % 2
    pictures = (draw.random((60, 1, 12, 12)) + target[:, None, None, None]) / 2
    data = Dataset.of(Schema.of_images((1, 12, 12), ("dark", "bright")), pictures.astype(np.float32), target)
    model = learner.initial(data.schema, rng(2))
    how = LocalTraining(epochs=25, batch=10, optimizer="adam", learning_rate=0.01)
    trained = learner.train(model, data, how, rng(3))
    assert summarise(data.schema.target, learner.evaluate(trained.model, data))["accuracy"] > 0.95


def test_pooling_before_relu_changes_no_bit():
    data = Dataset.of(Schema.of_images((3, 16, 16), "abc"), rng(2).standard_normal((40, 3, 16, 16), dtype=np.float32),
                      rng(3).integers(0, 3, 40))
    learner = DigitFiveCNN()
    published = [type(part).__name__ for part in learner.build(data.schema)][:12]
    assert published == ["Conv2d", "MaxPool2d", "ReLU"] * 4

    def relu_first(schema):
        parts = list(learner.build(schema))
        for place in range(1, 12, 3):
            parts[place], parts[place + 1] = parts[place + 1], parts[place]
        return nn.Sequential(*parts)

    model, how = learner.initial(data.schema, rng(1)), LocalTraining(batch=16, optimizer="adam", learning_rate=0.01)
    ours, theirs = (one.train(model, data, how, rng(4)).model for one in (learner, FromFactory(relu_first)))
    assert all((ours[name] == theirs[name]).all() for name in model)


def test_all_kinds_of_targets_have_the_outputs_they_need():
    for kind, outputs in (("classes", 4), ("two classes", 1), ("multilabel", 3), ("number", 1)):
        assert Logistic().initial(table(kind).schema, rng(0))["output.weight"].shape == (outputs, 9)


def test_pfl_cnn_starts_from_xaviers_weights():
    weight = PflCNN().initial(CIFAR, rng(0))["7.weight"]
    bound = np.sqrt(6 / (12_544 + 128))
    assert bound * 0.99 < np.abs(weight).max() <= bound


def tokens():
    """Rows of three words and three empty places; rows with word 3 are good."""
    draw = rng(4)
    ids = np.zeros((80, 6), np.int64)
    ids[:, :3] = draw.integers(1, 8, (80, 3))
    schema = Schema.of_numbers([f"token{place}" for place in range(6)], Target("classes", ("bad", "good")))
    return Dataset.of(schema, ids, (ids == 3).any(1).astype(np.int64))


def test_texts_are_learnt_and_empty_places_do_not_count():
    data, learner = tokens(), TextClassifier(vocabulary=8, dimension=6)
    model = learner.initial(data.schema, rng(0))
    how = LocalTraining(epochs=60, batch=10, optimizer="adam", learning_rate=0.03)
    trained = learner.train(model, data, how, rng(1))
    assert summarise(data.schema.target, learner.evaluate(trained.model, data))["accuracy"] > 0.95
    shorter = Dataset.of(Schema(data.schema.features[:3], data.schema.target), data.features[:, :3], data.target)
    np.testing.assert_allclose(learner.predict(trained.model, shorter), learner.predict(trained.model, data), rtol=1e-4)


def test_word_vectors_come_from_a_file_and_stay_when_frozen(tmp_path):
    vectors = rng(5).standard_normal((8, 6))
    np.save(tmp_path / "vectors.npy", vectors)
    data = tokens()
    free = TextClassifier(vocabulary=8, dimension=6, vectors=str(tmp_path / "vectors.npy"))
    np.testing.assert_allclose(free.initial(data.schema, rng(0))["embedding.weight"], vectors, rtol=1e-6)
    frozen = TextClassifier(vocabulary=8, dimension=6, frozen=True, vectors=free.vectors)
    model = frozen.initial(data.schema, rng(0))
    assert "embedding.weight" not in model
    bags = np.stack([vectors[row[row > 0]].mean(0) for row in data.features])
    hidden = np.maximum(bags @ model["hidden.weight"].T + model["hidden.bias"], 0)
    good = 1 / (1 + np.exp(-(hidden @ model["output.weight"].T + model["output.bias"])))
    np.testing.assert_allclose(frozen.predict(model, data)[:, 1:], good, rtol=1e-4)


def test_word_vectors_that_cannot_be_used_are_named(tmp_path):
    np.save(tmp_path / "vectors.npy", np.zeros((3, 2)))
    schema = tokens().schema
    with pytest.raises(DataError, match=r"have shape \(3, 2\), not \(8, 6\)"):
        TextClassifier(vocabulary=8, dimension=6, vectors=str(tmp_path / "vectors.npy")).initial(schema, rng(0))
    with pytest.raises(DataError, match="cannot be read"):
        TextClassifier(vectors=str(tmp_path / "none.npy")).initial(schema, rng(0))


def test_categories_and_flat_rows_are_refused():
    categorical = Schema((Feature("colour", ("red", "blue")),), Target("number"))
    with pytest.raises(DataError, match="column 'colour' is categorical"):
        MLP().initial(categorical, rng(0))
    with pytest.raises(DataError, match=r"images of shape \(channels, height, width\)"):
        SimpleCNN().initial(DROPOUT, rng(0))
    with pytest.raises(DataError, match="too small for this model"):
        MnistCNN().initial(Schema.of_images((1, 4, 4), "ab"), rng(0))


def test_every_model_is_registered_under_its_name():
    for name in ("logistic", "mlp", "text-classifier", "simple-cnn", "complex-cnn", "mcmahan-cnn", "usecase-cnn",
                 "mnist-cnn", "cifar-cnn", "pfl-cnn", "torch"):
        assert find("learner", name).summary
