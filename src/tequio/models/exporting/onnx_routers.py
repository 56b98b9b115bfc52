"""Routers of personal models as nodes of an ONNX graph: whether a party's own model answers a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.learners.routers.detectors import Autoencoder, Mahalanobis, OneClassSvm, Pca
from tequio.learners.routers.router import Confidence, Energy
from tequio.learners.routers.statistics import LikelihoodRatio, Statistics
from tequio.learners.torch_learner import TorchLearner
from tequio.models.exporting.onnx_layers import layer_in, network_outputs, shaped
from tequio.registry import name_of

if TYPE_CHECKING:
    from tequio.algorithms.personal.flprotector import Routed
    from tequio.data.dataset import Schema
    from tequio.learners.routers.router import Fitted
    from tequio.models.exporting.onnx_graph import Graph


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
