"""A router by reconstruction error of an autoencoder, as in FLProtector."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Gt

from tequio.errors import DataError
from tequio.learners.torch_state import require_torch, seeded
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tequio.data.dataset import Dataset
    from tequio.learners.routers.router import Fitted, Own

_ROWS_AT_A_TIME = 1000


@register("router", "autoencoder", paper="Martínez Enríquez et al., 2025")
@dataclass(frozen=True)
class Autoencoder:
    """Rows that an autoencoder of the party's own rows cannot reconstruct are foreign.

    Images go through two convolutions and two transposed ones (3,211 parameters for colour); other rows through a
    dense layer of a quarter of their columns.

    Parameters:
        sigmas: the threshold is the mean error on the party's rows plus so many standard deviations
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

    follows_model = False

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Train the autoencoder on the rows; the best one, where it took several to learn anything."""
        require_torch("the router 'autoencoder'")
        some = rows.take(np.arange(min(len(rows), _ROWS_AT_A_TIME)))
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

        module = self._loaded(fitted, rows.schema.shape)
        errors = []
        with torch.inference_mode():
            for start in range(0, len(rows), _ROWS_AT_A_TIME):
                images = self._images(rows, np.arange(start, min(start + _ROWS_AT_A_TIME, len(rows))))
                errors.append((module(images) - images).square().flatten(1).mean(1).double().numpy())
        return np.concatenate(errors) if errors else np.zeros(0)

    def _loaded(self, fitted: Fitted, shape: tuple[int, ...]) -> nn.Module:
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
            nn.Conv2d(shape[0], 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.ConvTranspose2d(8, 16, 3, stride=2, padding=1, output_padding=1), nn.ReLU(),
            nn.ConvTranspose2d(16, shape[0], 3, stride=2, padding=1, output_padding=1), nn.Sigmoid())

    def _images(self, rows: Dataset, order: NDArray[Any]) -> Tensor:
        import torch

        values = np.empty((len(order), *rows.schema.shape), np.float32)
        rows.read(order, values)
        images = torch.from_numpy(values)
        if images.ndim == 2:
            return images
        if images.ndim == 4 and self.side:
            return torch.nn.functional.interpolate(images, (self.side, self.side), mode="bilinear")
        return images if images.ndim == 4 else images.flatten(1)
