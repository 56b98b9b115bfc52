"""Routers from novelty detection: PCA, one-class SVM, local outlier factor, Mahalanobis distance and an autoencoder.

Schölkopf et al.: Estimating the support of a high-dimensional distribution, 2001. Breunig et al.: LOF: identifying
density-based local outliers, 2000. Lee et al.: A simple unified framework for detecting out-of-distribution samples,
2018. The autoencoder is that of FLProtector.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.errors import DataError
from tequio.learners.routers.router import Router, dense, principal, seen_through
from tequio.learners.torch_model import require_torch, seeded
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.routers.router import Fitted, Own

    Numbers = NDArray[np.float64]

Count = Annotated[int, Ge(1)]
_ROWS_AT_A_TIME = 2000
_ROWS_TO_JUDGE_BY = 1000  # whether an autoencoder has learnt anything
_ROWS_PER_PASS = 250  # through it: with more, what its layers give no longer fits into caches


@register("router", "pca")
@dataclass(frozen=True)
class Pca(Router):
    """Rows that the main directions of the party's rows do not explain are foreign.

    Parameters:
        sigmas: the threshold is the mean error on the party's rows plus this many standard deviations
        components: how many directions
    """

    sigmas: float = 3.0
    components: Count = 32

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """The directions in which the rows vary most."""
        return principal(rows, self.components)

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """Mean squared error of what the directions leave out."""
        away = dense(rows) - fitted["centre"]
        left = away - away @ fitted["directions"].T @ fitted["directions"]
        errors: Numbers = np.square(left).mean(axis=1)
        return errors


@register("router", "one-class-svm", paper="Schölkopf et al., 2001")
@dataclass(frozen=True)
class OneClassSvm(Router):
    """Rows outside a region that holds most of the party's rows are foreign.

    Parameters:
        sigmas: the threshold is the mean distance from the region plus this many standard deviations; the distance
            has a largest value, so that three would let everything in
        components: how many main directions the rows are seen through
        outside: share of the party's rows that may lie outside
        rows: most rows that the region is learned from
    """

    sigmas: float = 2.0
    components: Count = 32
    outside: Annotated[float, Interval(gt=0, lt=1)] = 0.05
    rows: Count = 2000

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Support vectors and their coefficients, kept as plain arrays."""
        from sklearn.svm import OneClassSVM

        seen = principal(rows, self.components)
        places = seen_through(seen, _some(rows, self.rows, rng))
        gamma = 1.0 / places.shape[1]
        machine = OneClassSVM(nu=self.outside, gamma=gamma).fit(places)
        return {**seen, "support": machine.support_vectors_, "coefficients": machine.dual_coef_[0], "gamma": gamma,
                "offset": float(machine.offset_[0])}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """How far below its border the region's function is."""
        places, support = seen_through(fitted, rows), fitted["support"]
        squares = np.square(support).sum(axis=1)
        values = [_gaussian(part, support, squares, fitted["gamma"]) @ fitted["coefficients"]
                  for part in np.array_split(places, max(-(-len(places) // _ROWS_AT_A_TIME), 1))]
        return np.asarray(fitted["offset"] - np.concatenate(values))


@register("router", "local-outlier-factor", paper="Breunig et al., 2000")
@dataclass(frozen=True)
class LocalOutlier(Router):
    """Rows that lie in thinner places than their neighbours among the party's rows are foreign.

    Parameters:
        sigmas: the threshold is the mean factor of the party's rows plus this many standard deviations
        components: how many main directions the rows are seen through
        neighbours: how many neighbours a row is compared with
        rows: most rows that are kept to compare with
    """

    sigmas: float = 3.0
    components: Count = 32
    neighbours: Count = 20
    rows: Count = 2000

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Keep some rows, seen through the main directions."""
        seen = principal(rows, self.components)
        return {**seen, "kept": seen_through(seen, _some(rows, self.rows, rng))}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """The local outlier factor among the kept rows."""
        from sklearn.neighbors import LocalOutlierFactor

        kept = fitted["kept"]
        if len(kept) < 2:
            return np.zeros(len(rows))
        factor = LocalOutlierFactor(n_neighbors=min(self.neighbours, len(kept) - 1), novelty=True).fit(kept)
        return np.asarray(-factor.score_samples(seen_through(fitted, rows)))


@register("router", "mahalanobis", paper="Lee et al., 2018")
@dataclass(frozen=True)
class Mahalanobis(Router):
    """Rows far from the party's mean row, in units of how its rows vary, are foreign.

    Parameters:
        sigmas: the threshold is the mean distance of the party's rows plus this many standard deviations
        components: how many main directions the distance is taken along
    """

    sigmas: float = 3.0
    components: Count = 128

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Mean and covariance."""
        return principal(rows, self.components)

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """The distance along the directions, a component."""
        places = seen_through(fitted, rows)
        distances: Numbers = np.sqrt(np.square(places).mean(axis=1))
        return distances


def _some(rows: Dataset, most: int, rng: np.random.Generator) -> Dataset:
    return rows if len(rows) <= most else rows.take(np.sort(rng.permutation(len(rows))[:most]))


def _gaussian(places: Numbers, support: Numbers, squares: Numbers, gamma: float) -> Numbers:
    distances = np.square(places).sum(axis=1)[:, None] + squares[None, :] - 2 * places @ support.T
    return np.asarray(np.exp(-gamma * np.maximum(distances, 0.0)))


@register("router", "autoencoder", paper="Martínez Enríquez et al., 2025")
@dataclass(frozen=True)
class Autoencoder(Router):
    """Rows that an autoencoder of the party's own rows cannot reconstruct are foreign.

    Images go through two convolutions and two transposed ones (3,211 parameters for colour); other rows through a
    dense layer of a quarter of their columns.

    Parameters:
        sigmas: the threshold is the mean error on the party's rows plus this many standard deviations
        epochs: passes over the party's rows
        batch: rows a batch
        learning_rate: step size of Adam
        side: images are enlarged to this many pixels a side first (0: they stay as they are)
        restarts: how often to begin anew, from other first weights, if always giving the mean row would have been no
            worse: on dark images its ReLUs may die, and what reconstructs nothing takes foreign rows for its own
    """

    sigmas: float = 3.0
    epochs: Annotated[int, Ge(0)] = 4
    batch: Annotated[int, Ge(1)] = 64
    learning_rate: Annotated[float, Gt(0)] = 1e-3
    side: Annotated[int, Ge(0)] = 32
    restarts: Annotated[int, Ge(0)] = 4

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Train the autoencoder on the rows; the best one, where it took several to learn anything."""
        require_torch("the router 'autoencoder'")
        some = rows.take(np.arange(min(len(rows), _ROWS_TO_JUDGE_BY)))
        images = self._images(some, np.arange(len(some)))
        blind = float((images - images.mean(0)).square().mean())
        found: list[tuple[float, Fitted]] = []
        while not found or (self.epochs and len(found) <= self.restarts and found[-1][0] >= blind > 0):
            fitted = self._trained(rows, rng)
            found.append((float(self.novelty(fitted, some, own).mean()), fitted))
        return min(found, key=lambda one: one[0])[1]

    def _trained(self, rows: Dataset, rng: np.random.Generator) -> Fitted:
        import torch

        with seeded(int(rng.integers(2**63)), "cpu"):
            module = self._module(rows.schema.shape)
        optimizer = torch.optim.Adam(module.parameters(), lr=self.learning_rate)
        for _ in range(self.epochs):
            order = rng.permutation(len(rows))
            for start in range(0, len(rows), self.batch):
                images = self._images(rows, order[start:start + self.batch])
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(module(images), images).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return {"model": {name: np.array(values.numpy()) for name, values in module.state_dict().items()}}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> NDArray[np.float64]:
        """Mean squared error of each row's reconstruction."""
        import torch

        module = self.loaded(fitted, rows.schema.shape)
        errors = []
        with torch.inference_mode():
            for start in range(0, len(rows), _ROWS_PER_PASS):
                images = self._images(rows, np.arange(start, min(start + _ROWS_PER_PASS, len(rows))))
                errors.append((module(images) - images).square().flatten(1).mean(1).double().numpy())
        return np.concatenate(errors) if errors else np.zeros(0)

    def loaded(self, fitted: Fitted, shape: tuple[int, ...]) -> nn.Module:
        """The trained autoencoder for rows of a shape."""
        import torch

        module = self._module(shape)
        module.load_state_dict({name: torch.from_numpy(np.array(values)) for name, values in fitted["model"].items()})
        return module

    def _module(self, shape: tuple[int, ...]) -> nn.Module:
        from torch import nn

        if len(shape) != 3:
            columns, narrow = prod(shape), max(prod(shape) // 4, 1)
            return nn.Sequential(nn.Flatten(), nn.Linear(columns, narrow), nn.ReLU(), nn.Linear(narrow, columns))
        if not self.side and (shape[1] % 4 or shape[2] % 4):
            raise DataError(f"images of {shape[1]} x {shape[2]} pixels cannot be halved twice",
                            remedy="set side = 32 in the router")
        return nn.Sequential(
            nn.Conv2d(shape[0], 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(16, 8, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
            nn.ConvTranspose2d(8, 16, 3, stride=2, padding=1, output_padding=1), nn.ReLU(),
            nn.ConvTranspose2d(16, shape[0], 3, stride=2, padding=1, output_padding=1), nn.Sigmoid())

    def _images(self, rows: Dataset, order: Array) -> Tensor:
        import torch

        values = np.empty((len(order), *rows.schema.shape), np.float32)
        rows.read(order, values)
        images = torch.from_numpy(values)
        if images.ndim == 2:
            return images
        if images.ndim == 4 and self.side:
            return torch.nn.functional.interpolate(images, (self.side, self.side), mode="bilinear")
        return images if images.ndim == 4 else images.flatten(1)
