"""Forward and backward passes of dense stacks for many parties at once, in batched matrix products without autograd.

A hidden weight is stored as (parties, inputs, outputs), which makes the forward product fastest; the last one as
(parties, outputs, inputs), and with it the outputs as (parties, outputs, rows), because a softmax over the middle axis
is several times faster than over a short last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tequio.learners.batched_memory import Matrices, even, memory, shaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from tequio.learners.losses import LossKind
    from tequio.learners.stacks import Activation, DenseStack

    Predict = Callable[[Tensor, Tensor, Tensor, Tensor | None], None]


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
        numbers = parties * outputs * batch
        given, wanted = (shaped(memory(name, steps * even(numbers)), (steps, even(numbers)))
                         for name in ("given", "wanted"))
        placed = wanted.zero_()[:, :numbers].view(steps, parties, outputs, batch)
        codes = targets[:, :, None] if kind == "softmax" else None
        placed.copy_(targets.transpose(2, 3)) if codes is None else placed.scatter_(2, codes, 1.0)
        room = given[:, :numbers].view_as(placed)
        if label_weights is None:
            return cls(room, given, wanted, codes)
        weights = shaped(memory("label weights", steps * even(numbers)), (steps, even(numbers))).zero_()
        absent, applies = label_weights[:, 0, :, None], label_weights[:, 1, :, None]
        weights[:, :numbers].view_as(placed).copy_(absent + placed * (applies - absent))
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
    return every[:, :shape[1:].numel()].view(shape).sum(2)
