"""Routers that look into a network, against numpy, scikit-learn and scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError
from tequio.learners.routers.networks import last_features
from tequio.learners.routers.router import Own, fit_router, is_own
from tequio.registry import build

CLASSES = Target("classes", ("x", "y", "z"))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def numbers(count: int = 120, target: Target = CLASSES) -> Dataset:
    draw = rng()
    return Dataset.of(Schema.of_numbers("abcd", target), draw.standard_normal((count, 4)), np.arange(count) % 3)


def network(rows: Dataset, hidden: tuple[int, ...] = (6, 5)) -> tuple[Own, list[tuple[Any, Any]]]:
    learner = build("learner", "mlp", {"hidden": list(hidden)})
    model = learner.initial(rows.schema, rng())
    arrays = [values.astype(np.float64) for values in model.values()]
    return Own(learner, model), list(zip(arrays[::2], arrays[1::2], strict=True))


def forward(layers: list[tuple[Any, Any]], values: Any, masks: list[Any]) -> Any:
    for place, ((weight, bias), mask) in enumerate(zip(layers, masks, strict=True)):
        values = (values * mask) @ weight.T + bias
        values = np.maximum(values, 0) if place < len(layers) - 1 else values
    return values


def test_features_are_what_the_last_layer_multiplies() -> None:
    rows = numbers()
    own, layers = network(rows)
    (first, bias), (second, shift), _ = layers
    expected = np.maximum(np.maximum(rows.features @ first.T + bias, 0) @ second.T + shift, 0)
    np.testing.assert_allclose(last_features(own, rows).features, expected, atol=1e-5)


def test_features_of_images_are_those_after_the_convolutions() -> None:
    import torch

    from tequio.learners.torch_model import plain_module

    images = rng().random((7, 3, 16, 16)).astype(np.float32)
    rows = Dataset.of(Schema.of_images((3, 16, 16), tuple("0123456789")), images, np.arange(7))
    learner = build("learner", "digit-five-cnn")
    own = Own(learner, learner.initial(rows.schema, rng()))
    with torch.inference_mode():
        expected = plain_module(learner, rows.schema, own.model)[:-1](torch.from_numpy(images)).numpy()
    assert expected.shape == (7, 16)
    np.testing.assert_allclose(last_features(own, rows).features, expected, rtol=1e-5)
    assert last_features(own, rows.take([])).features.shape == (0, 16)


@pytest.mark.parametrize("detector", ["local-outlier-factor", "one-class-svm", "mahalanobis", "pca"])
def test_a_detector_judges_features_as_it_judges_columns(detector: str) -> None:
    rows = numbers()
    own, layers = network(rows)
    hidden = rows.features
    for weight, bias in layers[:-1]:
        hidden = np.maximum(hidden @ weight.T + bias, 0)
    alike = Dataset.of(Schema.of_numbers("vwxyz", CLASSES), hidden, rows.target)
    plain, router = build("router", detector), build("router", "network-features", {"detector": detector})
    expected, found = fit_router(plain, alike, own, rng()), fit_router(router, rows, own, rng())
    assert router.sigmas == plain.sigmas
    assert found["threshold"] == pytest.approx(expected["threshold"], rel=1e-3)
    np.testing.assert_allclose(router.novelty(found, rows, own), plain.novelty(expected, alike, own), rtol=2e-3,
                               atol=1e-4)


def test_the_outlier_factor_of_features_is_sklearns() -> None:
    from sklearn.decomposition import PCA
    from sklearn.neighbors import LocalOutlierFactor

    rows, learner = numbers(), build("learner", "mlp", {"hidden": [6], "activation": "tanh"})
    own = Own(learner, learner.initial(rows.schema, rng()))
    values = last_features(own, rows).features
    places = PCA(whiten=True).fit(values).transform(values)
    theirs = LocalOutlierFactor(novelty=True).fit(places).score_samples(places)
    router = build("router", "network-features")
    np.testing.assert_allclose(router.novelty(router.fit(rows, own, rng()), rows, own), -theirs, rtol=1e-6)


def test_dropout_gives_the_mutual_information_of_thinned_networks() -> None:
    from scipy.special import softmax
    from scipy.stats import entropy

    rows = numbers(30)
    own, layers = network(rows)
    router = build("router", "bayesian-dropout", {"passes": 7, "rate": 0.4})
    fitted = router.fit(rows, own, rng())
    masks = list(fitted["masks"].values())
    assert [mask.shape for mask in masks] == [(7, 4), (7, 6), (7, 5)]
    assert set(np.unique(np.concatenate([mask.ravel() for mask in masks]))) == {0.0, np.float32(1 / 0.6)}
    copies = np.array([softmax(forward(layers, rows.features, [mask[number] for mask in masks]), axis=1)
                       for number in range(7)])
    expected = entropy(copies.mean(axis=0), axis=1) - entropy(copies, axis=2).mean(axis=0)
    np.testing.assert_allclose(router.novelty(fitted, rows, own), expected, atol=1e-6)
    assert (expected > 1e-4).all()


def test_the_network_itself_is_left_as_it_was() -> None:
    rows = numbers(30)
    own, _ = network(rows)
    before = own.learner.predict(own.model, rows)
    for name in ("bayesian-dropout", "network-features"):
        router = build("router", name)
        is_own(router, fit_router(router, rows, own, rng()), rows, own)
    np.testing.assert_array_equal(own.learner.predict(own.model, rows), before)


@pytest.mark.parametrize("name", ["bayesian-dropout", "network-features"])
def test_what_is_no_network_is_refused(name: str) -> None:
    rows = numbers(30)
    learner = build("learner", "sgd-classifier")
    with pytest.raises(ConfigError, match=f"the router '{name}' needs a network with a dense layer"):
        build("router", name).fit(rows, Own(learner, {}), rng())


def test_dropout_needs_classes() -> None:
    rows = numbers(30, Target("number"))
    own, _ = network(rows)
    router = build("router", "bayesian-dropout")
    with pytest.raises(ConfigError, match="needs a model of classes"):
        router.novelty(router.fit(rows, own, rng()), rows, own)
