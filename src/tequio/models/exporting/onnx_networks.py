"""Torch networks as nodes of an ONNX graph, layer by layer, in single precision as torch computes them; and routers.

A router says whether a party's own network answers a row, or the one that all share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError
from tequio.learners.descent import loss_for
from tequio.learners.routers.detectors import Autoencoder, Mahalanobis, OneClassSvm, Pca
from tequio.learners.routers.router import Confidence, Energy
from tequio.learners.routers.statistics import LikelihoodRatio, Statistics
from tequio.learners.torch_learner import TorchLearner
from tequio.learners.torch_model import plain_module, require_torch
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from tequio.algorithms.personal.flprotector import Routed
    from tequio.data.dataset import Array, Schema
    from tequio.learners.learner import Arrays
    from tequio.learners.routers.router import Fitted
    from tequio.models.exporting.onnx_graph import Graph

    Layer = Any
    """A torch module that is known by the name of its class."""


def network_outputs(graph: Graph, learner: TorchLearner, model: Arrays, schema: Schema, rows: str) -> tuple[str, int]:
    """What a network gives for prepared rows before they become probabilities, and how many outputs that are."""
    require_torch("exporting a network")
    import torch

    module = plain_module(learner, schema, model).cpu()
    with torch.inference_mode():
        width = int(module(torch.zeros(1, *schema.shape)).reshape(-1).shape[0])
    return layer_in(graph, module, shaped(graph, rows, schema.shape)), width


def network_scores(graph: Graph, learner: TorchLearner, model: Arrays, schema: Schema, rows: str) -> str:
    """Probabilities or numbers, (rows, outputs), as double precision of what is computed in single precision."""
    outputs, width = network_outputs(graph, learner, model, schema, rows)
    return scores_of_outputs(graph, outputs, schema, width)


def scores_of_outputs(graph: Graph, outputs: str, schema: Schema, width: int) -> str:
    """Softmax, sigmoid or nothing, as the loss has it; rounded to single precision before classes are told apart."""
    kind, wide = loss_for(schema.target, width), graph.cast(outputs, np.float64)
    if kind == "squares":
        return wide
    if kind == "softmax":
        return graph.cast(graph.cast(graph("Softmax", wide, axis=1), np.float32), np.float64)
    shares = graph.cast(sigmoid_in(graph, wide), np.float32)
    if schema.target.kind == "classes":
        shares = graph("Concat", graph("Sub", graph.constant(1, np.float32), shares), shares, axis=1)
    return graph.cast(shares, np.float64)


def sigmoid_in(graph: Graph, values: str) -> str:
    """1 / (1 + exp(-x)) in double precision."""
    one = graph.constant(1.0)
    return graph("Div", one, graph("Add", one, graph("Exp", graph("Neg", values))))


def shaped(graph: Graph, rows: str, shape: tuple[int, ...]) -> str:
    """Rows in single precision and of their own shape."""
    single = graph.cast(rows, np.float32)
    return single if len(shape) == 1 else graph("Reshape", single, graph.constant([-1, *shape]))


def layer_in(graph: Graph, layer: nn.Module, values: str) -> str:
    """The output of a layer in evaluation mode, or of a sequence of layers."""
    from torch import nn

    if isinstance(layer, nn.Sequential):
        for inner in layer:
            values = layer_in(graph, inner, values)
        return values
    name = type(layer).__name__
    if name not in _LAYERS:
        raise ConfigError(f"the network has a layer '{name}' that the export to ONNX does not know",
                          remedy=f"it knows sequences of {', '.join(_LAYERS)}; for others, export the module yourself: "
                                 "torch.onnx.export(model.module(), ...), and prepare rows before")
    return _LAYERS[name](graph, layer, values)


def _array(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _linear(graph: Graph, layer: Layer, values: str) -> str:
    product = graph("MatMul", values, graph.constant(_array(layer.weight).T))
    return product if layer.bias is None else graph("Add", product, graph.constant(_array(layer.bias)))


def _convolution(graph: Graph, layer: Layer, values: str) -> str:
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise ConfigError(f"the network has a convolution with padding '{layer.padding_mode}' {layer.padding}, which "
                          "the export to ONNX does not know", remedy="give its padding as numbers")
    more = {"output_padding": list(layer.output_padding)} if layer.transposed else {}
    weights = [graph.constant(_array(part)) for part in (layer.weight, layer.bias) if part is not None]
    return graph("ConvTranspose" if layer.transposed else "Conv", values, *weights, strides=list(layer.stride),
                 pads=[*layer.padding, *layer.padding], dilations=list(layer.dilation), group=layer.groups, **more)


def _normalised(graph: Graph, layer: Layer, values: str) -> str:
    if layer.running_mean is None:
        raise ConfigError("the network normalises by the batch at hand, which no exported file can",
                          remedy="train it with track_running_stats = True")
    ones, zeros = np.ones(layer.num_features, np.float32), np.zeros(layer.num_features, np.float32)
    arrays = (ones if layer.weight is None else _array(layer.weight),
              zeros if layer.bias is None else _array(layer.bias),
              _array(layer.running_mean), _array(layer.running_var))
    return graph("BatchNormalization", values, *(graph.constant(array) for array in arrays), epsilon=layer.eps)


def _pooled(graph: Graph, layer: Layer, values: str) -> str:
    def pair(value: int | tuple[int, ...]) -> list[int]:
        return [value, value] if isinstance(value, int) else list(value)

    greatest = type(layer).__name__ == "MaxPool2d"
    more: dict[str, int | list[int]] = {"dilations": pair(layer.dilation)} if greatest else \
        {"count_include_pad": int(layer.count_include_pad)}
    return graph("MaxPool" if greatest else "AveragePool", values, kernel_shape=pair(layer.kernel_size),
                 strides=pair(layer.stride), pads=pair(layer.padding) * 2, ceil_mode=int(layer.ceil_mode), **more)


def _flattened(graph: Graph, layer: Layer, values: str) -> str:
    if (layer.start_dim, layer.end_dim) != (1, -1):
        raise ConfigError("the network flattens other dimensions than all but the rows, which the export to ONNX does "
                          "not know", remedy="use torch.nn.Flatten() without arguments")
    return graph("Flatten", values, axis=1)


def _plain(operator: str) -> Callable[[Graph, Layer, str], str]:
    return lambda graph, layer, values: graph(operator, values)


def _same(graph: Graph, layer: Layer, values: str) -> str:
    return values


_LAYERS: dict[str, Callable[[Graph, Layer, str], str]] = {
    "Linear": _linear, "Conv2d": _convolution, "ConvTranspose2d": _convolution, "BatchNorm1d": _normalised,
    "BatchNorm2d": _normalised, "MaxPool2d": _pooled, "AvgPool2d": _pooled, "Flatten": _flattened,
    "ReLU": _plain("Relu"), "Tanh": _plain("Tanh"), "Sigmoid": _plain("Sigmoid"), "Identity": _same, "Dropout": _same}


def is_own_in(graph: Graph, answer: Routed, schema: Schema, rows: str, own: str) -> str:
    """(rows, 1): whether the novelty of a row is at most the party's threshold; `own` are its model's scores."""
    return graph("LessOrEqual", _novelty(graph, answer, schema, rows, own),
                 graph.constant(float(answer.fitted["threshold"])))


def _novelty(graph: Graph, answer: Routed, schema: Schema, rows: str, own: str) -> str:
    router, fitted = answer.router, answer.fitted
    axis = graph.constant([1])
    if isinstance(router, Confidence):
        dtype = np.float32 if isinstance(answer.learner, TorchLearner) else np.float64
        doubt = graph("Sub", graph.constant(1, dtype), graph.cast(graph("ReduceMax", own, axis), dtype))
        return graph.cast(doubt, np.float64)
    if isinstance(router, Energy) and isinstance(answer.learner, TorchLearner) and answer.own is not None:
        outputs, _ = network_outputs(graph, answer.learner, answer.own, schema, rows)
        return graph("Neg", graph("ReduceLogSumExp", graph.cast(outputs, np.float64), axis))
    if isinstance(router, Pca):
        away = graph("Sub", rows, graph.constant(fitted["centre"]))
        along = graph("MatMul", away, graph.constant(fitted["directions"].T))
        left = graph("Sub", away, graph("MatMul", along, graph.constant(fitted["directions"])))
        return graph("ReduceMean", graph("Mul", left, left), axis)
    if isinstance(router, Mahalanobis):
        places = _places(graph, fitted, rows)
        return graph("Sqrt", graph("ReduceMean", graph("Mul", places, places), axis))
    if isinstance(router, OneClassSvm):
        return _outside(graph, fitted, _places(graph, fitted, rows))
    if isinstance(router, Autoencoder):
        return _unlike(graph, router, fitted, schema, rows)
    if isinstance(router, Statistics | LikelihoodRatio) and len(schema.shape) != 3:
        return _unlikely(graph, fitted, rows)
    raise ConfigError(f"the router '{name_of(type(router))}' cannot be exported to ONNX for rows of shape "
                      f"{schema.shape}", remedy="export the model that parties share: --party coordinator")


def _places(graph: Graph, fitted: Fitted, rows: str) -> str:
    """Rows along the main directions, in standard deviations."""
    away = graph("Sub", rows, graph.constant(fitted["centre"]))
    return graph("Div", graph("MatMul", away, graph.constant(fitted["directions"].T)),
                 graph.constant(fitted["scales"]))


def _outside(graph: Graph, fitted: Fitted, places: str) -> str:
    """How far below its border the function of a one-class support-vector machine is."""
    support, axis = fitted["support"], graph.constant([1])
    squares = graph("Add", graph("ReduceSum", graph("Mul", places, places), axis),
                    graph.constant(np.square(support).sum(axis=1)))
    distances = graph("Sub", squares, graph("MatMul", places, graph.constant(2 * support.T)))
    near = graph("Exp", graph("Mul", graph("Max", distances, graph.constant(0.0)),
                              graph.constant(-float(fitted["gamma"]))))
    values = graph("MatMul", near, graph.constant(fitted["coefficients"][:, None]))
    return graph("Sub", graph.constant(float(fitted["offset"])), values)


def _unlike(graph: Graph, router: Autoencoder, fitted: Fitted, schema: Schema, rows: str) -> str:
    """Mean squared error of an autoencoder's reconstruction."""
    module = router.loaded(fitted, schema.shape)
    images = shaped(graph, rows, schema.shape)
    if len(schema.shape) == 3 and router.side:
        sizes = graph("Concat", graph("Slice", graph("Shape", images), graph.constant([0]), graph.constant([2])),
                      graph.constant([router.side, router.side]), axis=0)
        images = graph("Resize", images, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    elif len(schema.shape) != 3:
        images = graph("Flatten", images, axis=1)
    away = graph("Flatten", graph("Sub", layer_in(graph, module, images), images), axis=1)
    return graph.cast(graph("ReduceMean", graph("Mul", away, away), graph.constant([1])), np.float64)


def _unlikely(graph: Graph, fitted: Fitted, rows: str) -> str:
    """How much likelier a row is among another party's rows; without others, its distance from the own mean."""
    def likelihood(gaussian: Fitted) -> str:
        away = graph("Sub", rows, graph.constant(gaussian["centre"]))
        squares = graph("ReduceSum", graph("Mul", graph("MatMul", away, graph.constant(gaussian["inverse"])), away),
                        graph.constant([1]))
        return graph("Div", graph("Sub", graph.constant(float(gaussian["constant"])), squares), graph.constant(2.0))

    mine, others = likelihood(fitted), [likelihood(other) for other in fitted.get("others", [])]
    if others:
        return graph("Sub", graph("Max", *others), mine)
    twice = graph("Sub", graph.constant(float(fitted["constant"])), graph("Mul", mine, graph.constant(2.0)))
    return graph("Sqrt", graph("Max", twice, graph.constant(0.0)))
