"""Routers against scikit-learn and by hand; the autoencoder's shape; a router that meets others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError, DataError
from tequio.learners.routers.detectors import Autoencoder
from tequio.learners.routers.router import Own, fit_router, is_own, principal, seen_through
from tequio.registry import build

NOBODY: Any = None


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def numbers(count: int = 300, columns: int = 6, seed: int = 0, shift: float = 0.0) -> Dataset:
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((count, columns)) @ np.diag(np.arange(1, columns + 1)) + shift
    return Dataset.of(Schema.of_numbers("abcdef"[:columns], Target("number")), values, np.zeros(count))


def pictures(noise: float, count: int = 200, seed: int = 0) -> Dataset:
    draw = np.random.default_rng(seed)
    smooth = np.linspace(0, 1, 16)[None, None, :, None] * draw.random((count, 3, 1, 1))
    values = np.clip(smooth + noise * draw.standard_normal((count, 3, 16, 16)), 0, 1).astype(np.float32)
    return Dataset.of(Schema.of_images((3, 16, 16), tuple("01")), values, np.zeros(count, dtype=np.int64))


def test_pca_leaves_what_sklearn_leaves() -> None:
    from sklearn.decomposition import PCA

    rows, router = numbers(), build("router", "pca", {"components": 2})
    theirs = PCA(2).fit(rows.features)
    left = rows.features - theirs.inverse_transform(theirs.transform(rows.features))
    fitted = router.fit(rows, NOBODY, rng())
    np.testing.assert_allclose(router.novelty(fitted, rows, NOBODY), np.square(left).mean(axis=1), rtol=1e-8)


def test_mahalanobis_is_scipys() -> None:
    from scipy.spatial.distance import mahalanobis

    rows, router = numbers(), build("router", "mahalanobis")
    inverse = np.linalg.inv(np.cov(rows.features, rowvar=False, bias=True))
    expected = [mahalanobis(row, rows.features.mean(axis=0), inverse) / np.sqrt(6) for row in rows.features[:20]]
    found = router.novelty(router.fit(rows, NOBODY, rng()), rows.take(np.arange(20)), NOBODY)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_the_one_class_svm_decides_as_sklearn_does() -> None:
    from sklearn.svm import OneClassSVM

    rows, router = numbers(), build("router", "one-class-svm", {"components": 6})
    fitted = router.fit(rows, NOBODY, rng())
    places = seen_through(principal(rows, 6), rows)
    theirs = OneClassSVM(nu=0.05, gamma=1 / 6).fit(places)
    np.testing.assert_allclose(router.novelty(fitted, rows, NOBODY), -theirs.decision_function(places), atol=1e-8)


def test_confidence_and_energy_follow_the_model() -> None:
    from scipy.special import logsumexp

    learner = build("learner", "mlp", {"hidden": [4]})
    schema = Schema.of_numbers("ab", Target("classes", ("x", "y", "z")))
    rows = Dataset.of(schema, rng().random((9, 2)), np.arange(9) % 3)
    own = Own(learner, learner.initial(rows.schema, rng()))
    np.testing.assert_allclose(build("router", "confidence").novelty({}, rows, own),
                               1 - learner.predict(own.model, rows).max(axis=1), rtol=1e-6)
    np.testing.assert_allclose(build("router", "energy").novelty({}, rows, own),
                               -logsumexp(learner.outputs(own.model, rows), axis=1), rtol=1e-6)
    with pytest.raises(ConfigError, match="energy"):
        build("router", "energy").novelty({}, rows, Own(build("learner", "sgd-classifier"), own.model))


def test_the_autoencoder_has_the_published_size_and_learns() -> None:
    rows = pictures(0.05)
    before, after = (build("router", "autoencoder", {"epochs": epochs, "side": 16, "batch": 8}) for epochs in (0, 6))
    fitted = after.fit(rows, NOBODY, rng())
    assert sum(values.size for values in fitted["model"].values()) == 3211
    assert after.novelty(fitted, rows, NOBODY).mean() < 0.7 * before.novelty(before.fit(rows, NOBODY, rng()), rows,
                                                                            NOBODY).mean()


def test_an_autoencoder_that_died_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, trained = pictures(0.05, 64), Autoencoder._trained
    tries: list[Any] = []

    def dies_at_first(self: Any, rows: Any, draw: Any) -> Any:
        dead = {name: 0 * values.numpy() for name, values in self._module(rows.schema.shape).state_dict().items()}
        tries.append({"model": dead} if len(tries) < 2 else trained(self, rows, draw))
        return tries[-1]

    monkeypatch.setattr(Autoencoder, "_trained", dies_at_first)
    told = {"epochs": 20, "side": 16, "batch": 8, "learning_rate": 0.01}
    assert build("router", "autoencoder", told).fit(rows, NOBODY, rng()) is tries[2]
    tries.clear()
    given_up = build("router", "autoencoder", {**told, "restarts": 1}).fit(rows, NOBODY, rng())
    assert len(tries) == 2
    assert not any(values.any() for values in given_up["model"].values())


def test_an_autoencoder_needs_sides_that_halve_twice() -> None:
    schema = Schema.of_images((1, 6, 6), tuple("01"))
    odd = Dataset.of(schema, np.zeros((3, 1, 6, 6), np.float32), np.zeros(3, np.int64))
    with pytest.raises(DataError, match="halved twice"):
        build("router", "autoencoder", {"side": 0}).fit(odd, NOBODY, rng())
    assert len(build("router", "autoencoder", {"epochs": 1}).fit(odd, NOBODY, rng())["model"]) == 8


def test_on_the_threshold_is_own_and_not_a_number_is_not() -> None:
    class Fixed:
        follows_model, sigmas = False, 3.0

        def fit(self, rows: Any, own: Any, rng: Any) -> Any:
            return {}

        def novelty(self, fitted: Any, rows: Any, own: Any) -> Any:
            return np.array([1.0, 2.0, np.nextafter(2.0, 3.0), np.nan, np.inf])

    assert is_own(Fixed(), {"threshold": 2.0}, numbers(5), NOBODY).tolist() == [True, True, False, False, False]


def test_smooth_foreign_images_pass_an_error_threshold_and_not_a_likelihood_ratio() -> None:
    """The published failure: rough images' errors are large, so smoother foreign ones look familiar."""
    rough, smooth = pictures(0.25, seed=1), pictures(0.02, seed=2)
    pca = build("router", "pca")
    assert is_own(pca, fit_router(pca, rough, NOBODY, rng()), smooth, NOBODY).all()
    router = build("router", "likelihood-ratio")
    alone = fit_router(router, rough, NOBODY, rng())
    met = router.meet(alone, rough, [router.describe(pictures(0.02, seed=3))])
    assert not is_own(router, met, smooth, NOBODY).any()
    assert is_own(router, met, pictures(0.25, seed=4), NOBODY).mean() > 0.95


def test_parties_of_the_same_looks_keep_their_rows() -> None:
    router, mine = build("router", "likelihood-ratio"), pictures(0.1, 1500, seed=1)
    met = router.meet(fit_router(router, mine, NOBODY, rng()), mine, [router.describe(pictures(0.1, 1500, seed=2))])
    assert is_own(router, met, mine, NOBODY).mean() >= 0.985
    assert is_own(router, met, pictures(0.1, seed=3), NOBODY).mean() > 0.9


def test_what_parties_tell_each_other_does_not_grow_with_their_rows() -> None:
    router = build("router", "likelihood-ratio")
    few, many = router.describe(pictures(0.1, 20)), router.describe(pictures(0.1, 200))
    assert {name: values.shape for name, values in few.items()} == {name: values.shape for name, values in many.items()}
