"""Stacks of dense layers: the models that many parties can train in one batched call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

Activation = Literal["relu", "tanh", "sigmoid", "identity"]


@dataclass(frozen=True)
class DenseStack:
    """Linear layers with an activation between each two, and the names their parameters travel under.

    `widths` are the sizes from the inputs to the outputs, so there is one layer less than there are widths.
    """

    widths: tuple[int, ...]
    activations: tuple[Activation, ...]
    names: tuple[tuple[str, str], ...]

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter as it travels."""
        shapes: dict[str, tuple[int, ...]] = {}
        for (weight, bias), inputs, outputs in zip(self.names, self.widths, self.widths[1:], strict=False):
            shapes[weight], shapes[bias] = (outputs, inputs), (outputs,)
        return shapes

    @property
    def parameters(self) -> int:
        """How many numbers travel."""
        return sum(prod(shape) for shape in self.shapes.values())


def stack_of(module: nn.Module) -> DenseStack | None:
    """The dense stack that a module is, or None where it is anything else."""
    from torch import nn

    if not isinstance(module, nn.Sequential):
        return None
    children = [(name, child) for name, child in module.named_children() if not _changes_nothing(child)]
    layers = [(name, child) for name, child in children if isinstance(child, nn.Linear)]
    activations = _activations_between([child for _, child in children])
    if not layers or activations is None or not all(_is_plain(layer) for _, layer in layers):
        return None
    widths = (layers[0][1].in_features, *(layer.out_features for _, layer in layers))
    return DenseStack(widths, activations, tuple((f"{name}.weight", f"{name}.bias") for name, _ in layers))


def _changes_nothing(child: nn.Module) -> bool:
    from torch import nn

    return isinstance(child, nn.Flatten | nn.Identity)


def _is_plain(layer: nn.Linear) -> bool:
    from torch import nn

    has_bias = layer.bias is not None and layer.bias.requires_grad
    return type(layer) is nn.Linear and has_bias and layer.weight.requires_grad


def _activations_between(children: Sequence[nn.Module]) -> tuple[Activation, ...] | None:
    """The activation after each layer but the last, or None where the modules do not alternate like that."""
    from torch import nn

    known: dict[type[nn.Module], Activation] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
    found: list[Activation] = []
    awaits_activation = False
    for child in children:
        if isinstance(child, nn.Linear):
            found.extend(["identity"] if awaits_activation else [])
            awaits_activation = True
        elif awaits_activation and type(child) in known:
            found.append(known[type(child)])
            awaits_activation = False
        else:
            return None
    return tuple(found) if awaits_activation else None
