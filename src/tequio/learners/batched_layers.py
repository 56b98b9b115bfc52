"""Stacks of dense layers, and their forward and backward passes for many parties at once, without autograd.

A hidden weight is stored as (parties, inputs, outputs), which makes the forward product fastest; the last one as
(parties, outputs, inputs), and with it the outputs as (parties, outputs, rows), because a softmax over the middle axis
is several times faster than over a short last one. Memory is kept from call to call.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    from tequio.learners.descent import LossKind

    Predict = Callable[[Tensor, Tensor, Tensor, Tensor | None], None]

Activation = Literal["relu", "tanh", "sigmoid", "identity"]

EVEN = 32
"""Numbers that the elementwise kernels take in one go. What is left over at the end of a tensor they compute in
another way, which may differ in the last bit; so tensors are filled up, and a party's numbers never lie in the rest."""

ALIGNED = 4
"""Numbers of 16 bytes. Products of some processors round differently where a matrix does not begin at a multiple of
that; so every party's matrix is filled up to whole multiples, and its numbers do not depend on its place."""

_MOST_KEPT = 1024


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


@dataclass(frozen=True)
class Layer:
    """One layer of the active parties. `weight` is straight as (parties, inputs, outputs)."""

    inputs: Matrices
    weight: Matrices
    bias: Matrices
    outputs: Matrices
    deltas: Matrices
    activation: Activation


def layers_of(stack: DenseStack, parties: int, batch: int) -> list[Layer]:
    """The layers of the first `parties` slots; fewer parties see the front part of the same memory."""
    sizes = list(zip(stack.widths, stack.widths[1:], strict=False))
    inputs, layers = Matrices.at("rows", parties, batch, stack.widths[0]), []
    for index, (size, activation) in enumerate(zip(sizes[:-1], stack.activations, strict=True)):
        layers.append(_hidden(index, inputs, *size, activation))
        inputs = layers[-1].outputs
    return [*layers, _last(len(layers), inputs, *sizes[-1])]


def _hidden(index: int, below: Matrices, inputs: int, outputs: int, activation: Activation) -> Layer:
    parties, batch, _ = below.straight.shape
    return Layer(below, Matrices.at(f"weight{index}", parties, inputs, outputs),
                 Matrices.at(f"bias{index}", parties, 1, outputs),
                 Matrices.at(f"outputs{index}", parties, batch, outputs),
                 Matrices.at(f"deltas{index}", parties, batch, outputs), activation)


def _last(index: int, below: Matrices, inputs: int, outputs: int) -> Layer:
    parties, batch, _ = below.straight.shape
    residuals = Matrices.turned_at(f"outputs{index}", parties, batch, outputs)
    return Layer(below, Matrices.turned_at(f"weight{index}", parties, inputs, outputs),
                 Matrices.at(f"bias{index}", parties, 1, outputs), residuals, residuals, "identity")


def backward(layers: list[Layer]) -> None:
    """From the deltas of the last layer to those of all layers below."""
    import torch

    for index in range(len(layers) - 1, 0, -1):
        below, layer = layers[index - 1], layers[index]
        torch.bmm(layer.deltas.straight, layer.weight.turned, out=below.deltas.straight)
        _deactivate(below)


def _feed(layer: Layer) -> None:
    """From the inputs of a hidden layer to its outputs."""
    import torch

    torch.baddbmm(layer.bias.straight, layer.inputs.straight, layer.weight.straight, out=layer.outputs.straight)
    if layer.activation == "relu":
        layer.outputs.flat.relu_()
    elif layer.activation == "tanh":
        layer.outputs.flat.tanh_()
    elif layer.activation == "sigmoid":
        layer.outputs.flat.sigmoid_()


def _deactivate(layer: Layer) -> None:
    import torch

    aten: Any = torch.ops.aten
    deltas, outputs = layer.deltas.flat, layer.outputs.flat
    if layer.activation == "relu":
        aten.threshold_backward.grad_input(deltas, outputs, 0, grad_input=deltas)
    elif layer.activation == "tanh":
        aten.tanh_backward.grad_input(deltas, outputs, grad_input=deltas)
    elif layer.activation == "sigmoid":
        aten.sigmoid_backward.grad_input(deltas, outputs, grad_input=deltas)


@dataclass(frozen=True)
class Outcomes:
    """Outputs and targets of a block of steps, as (steps, parties, outputs, rows) and as filled-up memory a step.

    For a softmax outputs are log-probabilities, and targets one for the right class, nought for the others; `codes`
    (steps, parties, 1, rows) then name the right class. `flat_weights`, where there are any, weigh each label's loss.
    """

    outputs: Tensor
    flat_outputs: Tensor
    flat_targets: Tensor
    codes: Tensor | None
    flat_weights: Tensor | None = None

    @classmethod
    def of(cls, kind: LossKind, targets: Tensor, outputs: int, label_weights: Tensor | None = None) -> Outcomes:
        """Room for outputs, beside targets that are (steps, parties, rows) codes or (steps, parties, rows, outputs).

        `label_weights` are (parties, 2, outputs): for labels that are absent, and for labels that apply.
        """
        steps, parties, batch = targets.shape[:3]
        shape = (parties, outputs, batch)
        numbers = even(parties * aligned(outputs * batch))
        given, wanted = (shaped(memory(name, steps * numbers), (steps, numbers)) for name in ("given", "wanted"))
        placed = without_filling(wanted.zero_(), shape)
        codes = targets[:, :, None] if kind == "softmax" else None
        placed.copy_(targets.transpose(2, 3)) if codes is None else placed.scatter_(2, codes, 1.0)
        room = without_filling(given, shape)
        if label_weights is None:
            return cls(room, given, wanted, codes)
        weights = shaped(memory("label weights", steps * numbers), (steps, numbers)).zero_()
        absent, applies = label_weights[:, 0, :, None], label_weights[:, 1, :, None]
        without_filling(weights, shape).copy_(absent + placed * (applies - absent))
        return cls(room, given, wanted, codes, weights)

    def steps(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """Views of one step each: its outputs, its filled-up outputs and targets, and what weighs its labels."""
        weights = repeat(None, len(self.outputs)) if self.flat_weights is None else self.flat_weights
        return zip(self.outputs, self.flat_outputs, self.flat_targets, weights, strict=True)


def make_prediction(kind: LossKind, layers: list[Layer]) -> Predict:
    """The function that puts one step's outputs into its place among the outcomes, and the deltas of the last layer, up
    to a constant factor, into theirs. The batch is in the inputs of the first layer."""
    import torch

    *hidden, last = layers
    bias, weight, inputs, scores = last.bias.turned, last.weight.turned, last.inputs.turned, last.outputs.turned
    deltas = last.deltas.flat

    def predict(outputs: Tensor, flat_outputs: Tensor, flat_targets: Tensor, flat_weights: Tensor | None) -> None:
        for layer in hidden:
            _feed(layer)
        if kind == "softmax":
            torch.baddbmm(bias, weight, inputs, out=scores)
            torch.log_softmax(scores, 1, out=outputs)
            torch.exp(flat_outputs, out=deltas)
        else:
            torch.baddbmm(bias, weight, inputs, out=outputs)
            torch.sigmoid(flat_outputs, out=deltas) if kind == "sigmoid" else deltas.copy_(flat_outputs)
        deltas.sub_(flat_targets)
        if flat_weights is not None:
            deltas.mul_(flat_weights)

    return predict


def losses_of_rows(kind: LossKind, outcomes: Outcomes) -> Tensor:
    """Loss of every row of a block: (steps, parties, rows)."""
    import torch
    from torch.nn import functional

    outputs, targets, shape = outcomes.flat_outputs, outcomes.flat_targets, outcomes.outputs.shape
    if outcomes.codes is not None:
        return torch.gather(outcomes.outputs, 2, outcomes.codes).squeeze(2).neg_()
    if kind == "sigmoid":
        every = (functional.softplus(outputs) - outputs * targets) / shape[2]
        every = every if outcomes.flat_weights is None else every * outcomes.flat_weights
    else:
        every = (outputs - targets).square_() / shape[2]
    return without_filling(every, (shape[1], shape[2], shape[3])).sum(2)


class _Kept(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}
        self.matrices: dict[tuple[str, int, int, int], Matrices] = {}


_kept = _Kept()


def even(numbers: int) -> int:
    """That many numbers, filled up."""
    return -(-numbers // EVEN) * EVEN


def aligned(numbers: int) -> int:
    """What a matrix of that many numbers takes, filled up."""
    return -(-numbers // ALIGNED) * ALIGNED


def memory(name: str, numbers: int) -> Tensor:
    """A flat buffer of at least that many numbers. It holds whatever the last user of that name left in it."""
    import torch

    buffer = _kept.buffers.get(name)
    if buffer is None or len(buffer) < even(numbers):
        buffer = _kept.buffers[name] = torch.zeros(even(numbers))
        _kept.matrices.clear()
    return buffer


@dataclass(frozen=True)
class Matrices:
    """One matrix a party: as (parties, rows, columns), turned, and as the flat memory below, filled up."""

    straight: Tensor
    turned: Tensor
    flat: Tensor

    @classmethod
    def at(cls, name: str, parties: int, rows: int, columns: int) -> Matrices:
        """Stored row by row in the memory of that name."""
        key = (name, parties, rows, columns)
        if key not in _kept.matrices:
            if len(_kept.matrices) >= _MOST_KEPT:
                _kept.matrices.clear()
            numbers = even(parties * aligned(rows * columns))
            flat = memory(name, numbers)[:numbers]
            straight = without_filling(flat, (parties, rows, columns))
            _kept.matrices[key] = cls(straight, straight.transpose(1, 2), flat)
        return _kept.matrices[key]

    @classmethod
    def turned_at(cls, name: str, parties: int, rows: int, columns: int) -> Matrices:
        """Stored column by column."""
        stored = cls.at(name, parties, columns, rows)
        return cls(stored.turned, stored.straight, stored.flat)


def without_filling(filled: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """What parties' matrices hold: (..., parties, rows, columns) of memory in which each is filled up."""
    parties, rows, columns = shape
    outer, span = filled.shape[:-1], aligned(rows * columns)
    slots = filled[..., :parties * span].view(*outer, parties, span)
    return slots[..., :rows * columns].view(*outer, parties, rows, columns)


def shaped(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The first numbers of a buffer as a tensor of that shape."""
    return buffer[:prod(shape)].view(shape)
