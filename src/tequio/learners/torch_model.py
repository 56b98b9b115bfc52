"""A torch module behind a learner: built once per process, with its parameters going in and out as named arrays.

What torch keeps for the whole process, its random generator and its devices, is left as it was found.
"""

from __future__ import annotations

import copy
import os
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tequio.errors import ConfigError, DataError, MissingExtra, nearest
from tequio.learners.batched_layers import stack_of
from tequio.learners.descent import loss_for
from tequio.learners.passes import passes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from tequio.data.dataset import Array, Schema
    from tequio.learners.batched_layers import DenseStack
    from tequio.learners.descent import LossKind
    from tequio.learners.learner import Arrays
    from tequio.learners.passes import Passes

_MOST_KEPT = 8
_SEED_OF_FROZEN_PARAMETERS = 0

DEVICES = ("cpu", "cuda", "mps", "auto")


class Builder(Protocol):
    """What makes a module for data of a schema."""

    @property
    def device(self) -> str:
        """Where to compute."""
        ...

    def build(self, schema: Schema) -> nn.Module:
        """A module with fresh parameters, drawn from torch's default generator."""
        ...


@dataclass(frozen=True)
class TorchModel:
    """A module that is ready for use.

    `sent` are the tensors that travel, by name: trainable parameters, and floating-point buffers such as the running
    statistics of batch normalisation. Frozen parameters and counters stay. `parameters` are the trainable ones, and
    `weights` the same memory without autograd. `passes` go through plain layers faster than the module does.
    """

    module: nn.Module
    sent: dict[str, Tensor]
    names: list[str]
    parameters: list[nn.Parameter]
    weights: list[Tensor]
    width: int
    kind: LossKind
    stack: DenseStack | None
    is_random: bool
    device: str
    passes: Passes | None

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of everything that travels."""
        return {name: tuple(tensor.shape) for name, tensor in self.sent.items()}

    @cached_property
    def buffers(self) -> frozenset[str]:
        """Names of what travels and is not trained."""
        return frozenset(self.sent) - frozenset(self.names)

    def load(self, model: Arrays) -> None:
        """Take over a model's values."""
        check_model(model, self.shapes)
        for name, tensor in self.sent.items():
            _fill(tensor, model[name])

    def dump(self) -> Arrays:
        """A copy of the values."""
        return _arrays(self.sent)

    def weights_like(self, values: Arrays) -> list[Tensor]:
        """Other values of the trainable parameters, as tensors on this module's device."""
        import torch

        check_model(values, {name: self.shapes[name] for name in self.names})
        return [torch.from_numpy(np.array(values[name], dtype=np.float32)).to(self.device) for name in self.names]

    def with_zeros_elsewhere(self, weights: list[Tensor]) -> Arrays:
        """Values of the trainable parameters as arrays, with zeros for what else travels."""
        given = dict(zip(self.names, weights, strict=True))
        return _arrays({name: given.get(name, tensor * 0) for name, tensor in self.sent.items()})

    def outputs(self, rows: Tensor) -> Tensor:
        """The module's outputs, (rows, outputs)."""
        outputs: Tensor = self.module(rows)
        return outputs if outputs.ndim == 2 else outputs[:, None]


class _Kept(threading.local):
    def __init__(self) -> None:
        self.models: dict[tuple[type, str, int], tuple[Builder, Schema, TorchModel]] = {}


_kept = _Kept()


def model_for(builder: Builder, schema: Schema) -> TorchModel:
    """The module of a learner for a schema, kept for the next call."""
    key = (type(builder), repr(builder), id(schema))
    if key not in _kept.models:
        if len(_kept.models) >= _MOST_KEPT:
            _kept.models.pop(next(iter(_kept.models)))
        # Builder and schema are kept too: nothing else can then come to live under their ids.
        _kept.models[key] = (builder, schema, _prepare(builder, schema))
    return _kept.models[key][2]


def own_model(builder: Builder, schema: Schema, model: Arrays) -> TorchModel:
    """A module that no learner shares, with a model's parameters, in evaluation mode."""
    ready = _prepare(builder, schema)
    ready.load(model)
    ready.module.eval()
    return ready


def plain_module(builder: Builder, schema: Schema, model: Arrays) -> nn.Module:
    """The module of such a model alone."""
    return own_model(builder, schema, model).module


def fresh_model(builder: Builder, schema: Schema, rng: np.random.Generator) -> Arrays:
    """New parameters: the module's own initialisation, seeded from the rng."""
    with seeded(int(rng.integers(2**63)), "cpu"):
        module = builder.build(schema)
    return _arrays(_sent(module))


def check_model(model: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a model that is not of the learner's shape."""
    for name, shape in shapes.items():
        if name not in model:
            raise DataError(f"the model has no parameter '{name}', which the learner needs",
                            remedy=nearest(name, model))
        if model[name].shape != shape:
            raise DataError(f"the model's parameter '{name}' has shape {model[name].shape}, and the learner needs "
                            f"{shape}", remedy="train with the learner and the schema that the model was made with")


def _prepare(builder: Builder, schema: Schema) -> TorchModel:
    from torch import nn

    device = device_of(builder.device)
    with seeded(_SEED_OF_FROZEN_PARAMETERS, "cpu"):
        module = builder.build(schema).to(device)
    if device == "cpu" and any(isinstance(part, nn.Conv2d) for part in module.modules()):
        _lay_out_for_convolutions(module)
    trainable = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    width = _count_outputs(module, schema, device)
    return TorchModel(module, _sent(module), list(trainable), list(trainable.values()),
                      [parameter.detach() for parameter in trainable.values()], width, loss_for(schema.target, width),
                      stack_of(module), has_own_randomness(module), device,
                      passes_of(module) if device == "cpu" else None)


def _lay_out_for_convolutions(module: nn.Module) -> None:
    import torch

    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


def _count_outputs(module: nn.Module, schema: Schema, device: str) -> int:
    """Send one row of zeros through, which also shows early whether the module takes rows of that shape."""
    import torch

    try:
        with torch.inference_mode():
            outputs = module.eval()(torch.zeros(1, *schema.shape, device=device))
    except (RuntimeError, ValueError, IndexError, TypeError) as cause:
        raise DataError(f"the module cannot take a row of shape {schema.shape}: {cause}",
                        remedy="choose a learner for this kind of rows, or set data.flatten") from cause
    return int(outputs.shape[1]) if outputs.ndim == 2 else 1


def _sent(module: nn.Module) -> dict[str, Tensor]:
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    return {name: tensor for name, tensor in module.state_dict().items()
            if name not in frozen and tensor.is_floating_point()}


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: np.array(tensor.detach().cpu().numpy(), order="C") for name, tensor in tensors.items()}


def _fill(tensor: Tensor, values: Array) -> None:
    import torch

    if tensor.device.type == "cpu":
        np.copyto(tensor.detach().numpy(), values, casting="same_kind")
    else:
        tensor.copy_(torch.from_numpy(np.array(values, dtype=np.float32)))


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


def seeded_beside(rng: np.random.Generator, device: str, *, is_needed: bool) -> AbstractContextManager[None]:
    """Seed torch from a copy of the rng, so that the rng itself goes on to draw row orders and nothing else."""
    return seeded(int(copy.deepcopy(rng).integers(2**63)), device) if is_needed else nullcontext()


def has_own_randomness(module: nn.Module) -> bool:
    """Whether training the module may draw random numbers; modules that are not known to be plain count as such."""
    from torch import nn

    plain = (nn.Sequential, nn.Linear, nn.Conv1d, nn.Conv2d, nn.Flatten, nn.Unflatten, nn.Identity, nn.ReLU, nn.Tanh,
             nn.Sigmoid, nn.MaxPool2d, nn.AvgPool2d, nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.Embedding,
             nn.EmbeddingBag)
    return any(type(part) not in plain for part in module.modules())
