"""Every learner: no state of its own, no touch of global randomness, additive evaluation, odd data survived."""

from __future__ import annotations

import numpy as np
import pytest

from tequio import registry
from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import TequioError
from tequio.learners.learner import LocalTraining
from tequio.learners.metrics import merge, summarise

from .subjects import make, table

# Learners that fit trees in one go have a battery of their own: test_tree_learners.py.
every_learner = pytest.mark.parametrize(
    "name", [entry.name for entry in registry.entries("learner") if not hasattr(entry.component, "fit")])
HOW = LocalTraining(epochs=2, batch=8, learning_rate=0.05)


def images(rows, shape, seed=0):
    draw = np.random.default_rng(seed)
    schema = Schema.of_images(shape, "0123456789")
    return Dataset.of(schema, draw.random((rows, *shape), dtype=np.float32), draw.integers(0, 10, rows))


def tokens(rows, seed=0):
    draw = np.random.default_rng(seed)
    schema = Schema.of_numbers([f"token_{place}" for place in range(6)], Target("classes", ("bad", "good")))
    return Dataset.of(schema, draw.integers(0, 50, (rows, 6)), draw.integers(0, 2, rows))


# Learners that only make sense on data of a certain form.
DATA = {
    "sgd-regressor": lambda: table(40, target="number"),
    "usecase-cnn": lambda: images(12, (1, 28, 28)), "mcmahan-cnn": lambda: images(12, (1, 28, 28)),
    "mnist-cnn": lambda: images(12, (1, 28, 28)), "simple-cnn": lambda: images(12, (3, 32, 32)),
    "digit-five-cnn": lambda: images(12, (3, 16, 16)),
    "complex-cnn": lambda: images(12, (3, 32, 32)), "cifar-cnn": lambda: images(12, (3, 32, 32)),
    "pfl-cnn": lambda: images(12, (3, 32, 32)), "text-classifier": lambda: tokens(30),
}
NEEDS_ARGUMENTS = {"torch", "given"}


def subject(name):
    if name in NEEDS_ARGUMENTS:
        pytest.skip("stands for the user's own module")
    data = DATA.get(name, lambda: table(40))()
    learner = make("learner", name)
    return learner, data, learner.initial(data.schema, np.random.default_rng(0))


def train(learner, model, data, seed=1):
    return learner.train(model, data, HOW, np.random.default_rng(seed))


@every_learner
def test_training_is_repeatable_and_leaves_its_input_alone(name):
    learner, data, model = subject(name)
    before = {key: values.copy() for key, values in model.items()}
    first, second = train(learner, model, data), train(learner, model, data)
    for key in before:
        np.testing.assert_array_equal(model[key], before[key])
        np.testing.assert_array_equal(first.model[key], second.model[key])
        assert first.model[key].shape == before[key].shape
        assert first.model[key].dtype == before[key].dtype
    assert any((first.model[key] != before[key]).any() for key in before)
    assert first.rows == len(data)


@every_learner
def test_global_randomness_is_not_touched(name):
    torch = pytest.importorskip("torch")
    learner, data, model = subject(name)
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    train(learner, model, data)
    learner.evaluate(model, data)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


@every_learner
def test_tallies_of_parts_add_up_to_the_whole(name):
    learner, data, model = subject(name)
    half = len(data) // 3
    parts = [learner.evaluate(model, data.take(rows)) for rows in np.split(np.arange(len(data)), [half])]
    target = data.schema.target if "inertia" not in name else Target("none")
    together, whole = summarise(target, merge(parts)), summarise(target, learner.evaluate(model, data))
    assert together.keys() == whole.keys()
    for metric, value in whole.items():
        assert together[metric] == pytest.approx(value, rel=1e-4, nan_ok=True), metric


@every_learner
def test_one_row_and_one_class_can_be_trained_on(name):
    learner, data, model = subject(name)
    for rows in ([0], np.flatnonzero(data.target == data.target[0])):
        trained = train(learner, model, data.take(rows))
        assert all(np.isfinite(values).all() for values in trained.model.values())


@every_learner
def test_a_step_too_large_is_an_error_or_stays_finite(name):
    learner, data, model = subject(name)
    wild = LocalTraining(epochs=30, batch=8, learning_rate=1e30)
    try:
        trained = learner.train(model, data, wild, np.random.default_rng(0))
    except TequioError as error:
        assert "finite" in str(error) or "learning_rate" in str(error)
    else:
        assert all(np.isfinite(values).all() for values in trained.model.values())
