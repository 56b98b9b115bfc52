"""What torch keeps for a whole process, handled with care: its random generator and its devices."""

from __future__ import annotations

import copy
import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import numpy as np
    from torch import nn

DEVICES = ("cpu", "cuda", "mps", "auto")


def require_torch(needed_for: str) -> None:
    """Say what to install where torch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError as cause:
        raise MissingExtra("torch", "torch", needed_for) from cause


def device_of(wish: str) -> str:
    """The device to compute on; an empty wish means $TEQUIO_DEVICE or else the CPU."""
    import torch

    name = wish or os.environ.get("TEQUIO_DEVICE", "") or "cpu"
    if name not in DEVICES:
        raise ConfigError(f"there is no device called '{name}'", remedy=nearest(name, DEVICES))
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(device for device, is_there in present.items() if is_there)
    if not present[name]:
        raise ConfigError(f"torch finds no '{name}' device on this machine", remedy="set device = 'auto' or 'cpu'")
    return name


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Let torch draw from that seed, and leave its generators as they were."""
    import torch

    if device == "cpu":
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
    else:
        with torch.random.fork_rng(device_type=device):
            torch.manual_seed(seed)
            yield


def seeded_beside(rng: np.random.Generator, device: str, *, is_needed: bool) -> AbstractContextManager[Any]:
    """Seed torch from a copy of the rng, so that the rng itself goes on to draw row orders and nothing else."""
    return seeded(int(copy.deepcopy(rng).integers(2**63)), device) if is_needed else nullcontext()


def has_own_randomness(module: nn.Module) -> bool:
    """Whether training the module may draw random numbers; modules that are not known to be plain count as such."""
    from torch import nn

    plain = (nn.Sequential, nn.Linear, nn.Conv1d, nn.Conv2d, nn.Flatten, nn.Unflatten, nn.Identity, nn.ReLU, nn.Tanh,
             nn.Sigmoid, nn.MaxPool2d, nn.AvgPool2d, nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.Embedding,
             nn.EmbeddingBag)
    return any(type(part) not in plain for part in module.modules())
