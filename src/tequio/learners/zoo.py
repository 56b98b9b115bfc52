"""Torch models for tables and texts: logistic regression, multilayer perceptron, text classifier."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge

from tequio.errors import DataError
from tequio.learners.batched_layers import Activation
from tequio.learners.descent import outputs_for
from tequio.learners.learner import check_numeric
from tequio.learners.torch_learner import TorchLearner
from tequio.registry import register

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tequio.data.dataset import Schema

Width = Annotated[int, Ge(1)]


@register("learner", "logistic")
@dataclass(frozen=True)
class Logistic(TorchLearner):
    """Logistic regression: multinomial for classes, binary for two classes or each label, linear for numbers.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """One dense layer."""
        return _dense(schema, (), "identity", "logistic")


@register("learner", "mlp")
@dataclass(frozen=True)
class MLP(TorchLearner):
    """Multilayer perceptron: dense layers with an activation between each two; rows that are images are flattened.

    Parameters:
        hidden: widths of the hidden layers, from the first to the last
        activation: what follows each hidden layer: relu, tanh, sigmoid or identity
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    hidden: tuple[Width, ...] = (128,)
    activation: Activation = "relu"

    def build(self, schema: Schema) -> nn.Module:
        """Dense layers named hidden1, hidden2, ... and output."""
        return _dense(schema, self.hidden, self.activation, "mlp")


def _dense(schema: Schema, hidden: tuple[int, ...], activation: Activation, learner: str) -> nn.Module:
    from torch import nn

    check_numeric(schema, learner)
    activations = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "identity": nn.Identity}
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    inputs = prod(schema.shape)
    for number, width in enumerate(hidden, start=1):
        layers[f"hidden{number}"] = nn.Linear(inputs, width)
        layers[f"activation{number}"] = activations[activation]()
        inputs = width
    layers["output"] = nn.Linear(inputs, outputs_for(schema.target))
    return nn.Sequential(layers)


@register("learner", "text-classifier")
@dataclass(frozen=True)
class TextClassifier(TorchLearner):
    """Mean of word vectors, one dense layer with ReLU, and the output. A row holds token ids, filled up with 0.

    Parameters:
        vocabulary: how many token ids there are, 0 (no word) included
        dimension: length of a word vector
        hidden: width of the dense layer
        frozen: keep the word vectors as they are; they are then not sent
        vectors: NumPy file of word vectors (vocabulary, dimension) to begin with (empty: random ones)
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    vocabulary: Annotated[int, Ge(2)] = 10_000
    dimension: Width = 50
    hidden: Width = 16
    frozen: bool = False
    vectors: str = ""

    def build(self, schema: Schema) -> nn.Module:
        """An embedding bag and two dense layers."""
        from torch import nn

        embedding = nn.EmbeddingBag(self.vocabulary, self.dimension, mode="mean", padding_idx=0)
        if self.vectors:
            embedding.weight.data.copy_(self._load_vectors())
        embedding.weight.requires_grad_(not self.frozen)
        embedding.register_forward_pre_hook(_as_token_ids)
        return nn.Sequential(OrderedDict(embedding=embedding, hidden=nn.Linear(self.dimension, self.hidden),
                                         activation=nn.ReLU(),
                                         output=nn.Linear(self.hidden, outputs_for(schema.target))))

    def _load_vectors(self) -> Tensor:
        import torch

        try:
            vectors = np.load(self.vectors, allow_pickle=False)
        except (OSError, ValueError) as cause:
            raise DataError(f"the word vectors '{self.vectors}' cannot be read: {cause}",
                            remedy="give a NumPy file written by numpy.save") from cause
        if vectors.shape != (self.vocabulary, self.dimension):
            raise DataError(f"the word vectors '{self.vectors}' have shape {vectors.shape}, not "
                            f"{(self.vocabulary, self.dimension)}", remedy="set vocabulary and dimension to match")
        return torch.from_numpy(vectors.astype(np.float32))


def _as_token_ids(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (inputs[0].long(),)
