"""Stacks of dense layers by hand in NumPy: forward, backward and a step, with everything handed in and out.

Where a network is cut between parties no single autograd sees it whole; each party runs its own stack here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from tequio.learners.learner import Arrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Target
    from tequio.learners.batched_layers import Activation
    from tequio.learners.descent import LossKind
    from tequio.learners.learner import LocalTraining

    Matrix = NDArray[np.float32]

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Passed:
    """What a forward pass leaves for the backward one: the input of each layer, and the stack's output."""

    inputs: list[Matrix]
    output: Matrix


class Memory(TypedDict, total=False):
    """What an optimizer remembers of earlier steps: nothing, a velocity, or Adam's steps and moments."""

    velocity: Arrays
    steps: int
    first: Arrays
    second: Arrays


def fresh_stack(widths: Sequence[int], rng: np.random.Generator) -> Arrays:
    """Weights and biases between widths, uniform within one over the root of the inputs."""
    model: Arrays = {}
    for layer, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        bound = 1.0 / np.sqrt(max(inputs, 1))
        model[f"weight{layer}"] = rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32)
        model[f"bias{layer}"] = rng.uniform(-bound, bound, outputs).astype(np.float32)
    return model


def forward(model: Arrays, rows: Array, activation: Activation) -> Passed:
    """Through all layers, with the activation between each two; the last one's output is plain."""
    values, inputs = np.asarray(rows, np.float32), []
    layers = len(model) // 2
    for layer in range(1, layers + 1):
        inputs.append(values)
        values = values @ model[f"weight{layer}"] + model[f"bias{layer}"]
        values = _activated(values, activation) if layer < layers else values
    return Passed(inputs, values)


def backward(model: Arrays, passed: Passed, delta: Array, activation: Activation) -> tuple[Arrays, Matrix]:
    """Gradients of all weights and of the rows, from that of the output."""
    gradients: Arrays = {}
    delta = np.asarray(delta, np.float32)
    for layer in range(len(passed.inputs), 0, -1):
        inputs = passed.inputs[layer - 1]
        gradients[f"weight{layer}"] = inputs.T @ delta
        gradients[f"bias{layer}"] = delta.sum(axis=0)
        delta = delta @ model[f"weight{layer}"].T
        delta = delta * _slope(inputs, activation) if layer > 1 else delta
    return {name: gradients[name] for name in model}, delta


def stepped(model: Arrays, gradients: Arrays, memory: Memory, training: LocalTraining,
            rate: float) -> tuple[Arrays, Memory]:
    """The model after one step of the optimizer, and the optimizer's memory for the next; both empty at the start."""
    if training.clip_norm and model:
        length = float(np.sqrt(sum(float(np.vdot(values, values)) for values in gradients.values())))
        shrink = np.float32(min(1.0, training.clip_norm / (length + 1e-6)))
        gradients = {name: values * shrink for name, values in gradients.items()}
    if training.weight_decay:
        gradients = {name: values + np.float32(training.weight_decay) * model[name]
                     for name, values in gradients.items()}
    moves, memory = _adam(gradients, memory) if training.optimizer == "adam" else \
        _momentum(gradients, memory, training.momentum)
    return {name: values - np.float32(rate) * moves[name] for name, values in model.items()}, memory


def loss_and_delta(kind: LossKind, outputs: Matrix, wanted: Array) -> tuple[float, Matrix]:
    """Mean loss of a batch, and its gradient by the outputs. `wanted` is what `losses.target_array` gives."""
    rows = len(outputs)
    if kind == "softmax":
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        delta = np.exp(logs)
        delta[np.arange(rows), wanted] -= 1
        return float(-logs[np.arange(rows), wanted].mean(dtype=np.float64)), delta / rows
    if kind == "sigmoid":
        losses = np.logaddexp(0.0, outputs) - wanted * outputs
        return float(losses.mean(dtype=np.float64)), np.asarray((_sigmoid(outputs) - wanted) / outputs.size, np.float32)
    error = outputs - wanted
    return float(np.square(error).mean(dtype=np.float64)), np.asarray(2 * error / outputs.size, np.float32)


def scores_of_outputs(kind: LossKind, outputs: Matrix, target: Target) -> Array:
    """Probabilities (rows, classes or labels), or numbers (rows,)."""
    if kind == "squares":
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs
    if kind == "softmax":
        raised = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))
    positive = _sigmoid(outputs)
    return np.concatenate([1 - positive, positive], axis=1) if target.kind == "classes" else positive


def _activated(values: Matrix, activation: Activation) -> Matrix:
    if activation == "relu":
        return np.maximum(values, 0)
    if activation == "tanh":
        return np.tanh(values)
    return _sigmoid(values) if activation == "sigmoid" else values


def _slope(outputs: Matrix, activation: Activation) -> Matrix:
    """Derivative of the activation, told by its output."""
    if activation == "relu":
        return (outputs > 0).astype(np.float32)
    if activation == "tanh":
        return 1 - outputs * outputs
    return outputs * (1 - outputs) if activation == "sigmoid" else np.ones_like(outputs)


def _sigmoid(values: Matrix) -> Matrix:
    half: Matrix = 0.5 * (1 + np.tanh(0.5 * values))  # never overflows
    return half


def _momentum(gradients: Arrays, memory: Memory, momentum: float) -> tuple[Arrays, Memory]:
    if not momentum:
        return gradients, {}
    old = memory.get("velocity", {})
    velocity = {name: np.float32(momentum) * old[name] + values if old else values
                for name, values in gradients.items()}
    return velocity, {"velocity": velocity}


def _adam(gradients: Arrays, memory: Memory) -> tuple[Arrays, Memory]:
    steps = memory.get("steps", 0) + 1
    nought = {name: np.zeros_like(values) for name, values in gradients.items()}
    first, second = memory.get("first", nought), memory.get("second", nought)
    first = {name: np.float32(_BETA1) * first[name] + np.float32(1 - _BETA1) * gradients[name] for name in gradients}
    second = {name: np.float32(_BETA2) * second[name] + np.float32(1 - _BETA2) * np.square(gradients[name])
              for name in gradients}
    pace, scale = 1 / (1 - _BETA1**steps), 1 / np.sqrt(1 - _BETA2**steps)
    moves = {name: np.float32(pace) * first[name] / (np.sqrt(second[name]) * np.float32(scale) + np.float32(_EPSILON))
             for name in gradients}
    return moves, {"steps": steps, "first": first, "second": second}
