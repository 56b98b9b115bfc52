"""A model for other libraries: a scikit-learn pipeline, weights of a torch module, and arrays as safetensors.

The pipeline prepares raw rows and ends with a plain estimator, which knows nothing of tequio. scikit-learn's trees
round rows to single precision before they compare; a row that lies nearer to a threshold than that may go another way.
What is written to files is no code and no pickle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

import tequio
from tequio.errors import ConfigError
from tequio.learners.answers import One, pack_answer
from tequio.learners.kmeans import KMeans
from tequio.learners.learner import flat_features
from tequio.learners.trees.sklearn_form import to_sklearn
from tequio.learners.trees.tree import Tree
from tequio.learners.zoo import MLP
from tequio.models.exporting.forms import answer_of, linear, tree_sum
from tequio.models.exporting.plan import plan_of
from tequio.models.folder import apart
from tequio.models.model import Joint
from tequio.models.modules import module_of
from tequio.models.rows import asked, batches
from tequio.registry import name_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.base import BaseEstimator
    from sklearn.pipeline import Pipeline
    from torch import nn

    from tequio.data.dataset import Array, Matrix, Schema
    from tequio.learners.learner import Payload
    from tequio.models.exporting.forms import Linear, TreeSum
    from tequio.models.model import Model
    from tequio.models.rows import Reading

WEIGHTS, DESCRIPTION, README = "weights.safetensors", "description.json", "README.md"


def to_estimator(model: Model) -> Pipeline:
    """The pipeline: preparation, and the estimator, whose classes are those of the model."""
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    answer, schema = answer_of(model), model.reading.prepared_schema
    if not isinstance(answer, One):
        raise ConfigError("several models answer together here, which scikit-learn has no form for",
                          remedy="export it to onnx: tequio export MODEL --to onnx")
    estimator = _estimator(answer.learner, answer.model, schema, np.array(model.classes.tolist()))
    prepare = FunctionTransformer(Prepared(model.reading, model.party), check_inverse=False)
    return Pipeline([("preparation", prepare), ("model", estimator)])


@dataclass(frozen=True)
class Prepared:
    """A function from raw rows, as `Model.predict` takes them, to the numbers that the model was trained on."""

    reading: Reading
    party: str = ""

    def __call__(self, rows: object) -> Matrix:
        """Prepared rows, (rows, columns)."""
        parts = [flat_features(self.reading.prepared(asked(self.reading, part).rows, self.party))
                 for part in batches(rows)]
        return parts[0] if len(parts) == 1 else (sparse.vstack if self.reading.sparse else np.concatenate)(parts)


def _estimator(learner: object, model: Payload, schema: Schema, classes: Array) -> BaseEstimator:
    kind = schema.target.kind
    if isinstance(learner, KMeans):
        return _clusters(model["centroids"])
    if (trees := tree_sum(learner, model, schema)) is not None:
        return _forest(trees, schema, classes, name_of(type(learner)))
    if kind in ("classes", "number") and (plain := linear(learner, model, schema)) is not None:
        return _linear(plain, classes)
    if kind in ("classes", "number") and isinstance(learner, MLP):
        return _network(learner, model, classes)
    raise ConfigError(f"scikit-learn has no form for a model of the learner '{name_of(type(learner))}' that predicts "
                      f"{kind}", remedy="export it to onnx: tequio export MODEL --to onnx")


def _clusters(centroids: NDArray[np.float64]) -> BaseEstimator:
    from sklearn.cluster import KMeans as Clusters

    estimator = Clusters(len(centroids), n_init=1)
    estimator.cluster_centers_ = np.ascontiguousarray(centroids, dtype=np.float64)
    estimator.n_features_in_, estimator._n_threads = centroids.shape[1], 1
    return estimator


def _linear(model: Linear, classes: Array) -> BaseEstimator:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if model.link == "identity":
        regression = LinearRegression()
        regression.coef_, regression.intercept_ = model.coef[0], float(model.intercept[0])
        regression.n_features_in_ = model.coef.shape[1]
        return regression
    pair = model.link == "softmax" and len(model.coef) == 2
    estimator = LogisticRegression()
    estimator.coef_ = np.diff(model.coef, axis=0) if pair else model.coef
    estimator.intercept_ = np.diff(model.intercept) if pair else model.intercept.astype(np.float64)
    estimator.n_features_in_, estimator.classes_ = model.coef.shape[1], classes
    return estimator


def _forest(model: TreeSum, schema: Schema, classes: Array, learner: str) -> BaseEstimator:
    """A tree or a forest; what boosted trees add up to has no estimator that can be filled in from outside."""
    from sklearn.ensemble import RandomForestClassifier

    if model.link != "identity" or schema.target.kind != "classes" or len(model.start) < 2:
        raise ConfigError(f"scikit-learn has no form for boosted trees such as those of '{learner}'",
                          remedy="export them to onnx: tequio export MODEL --to onnx")
    trees = [to_sklearn(Tree(tree.kind, tree.feature, tree.threshold, tree.children,
                             tree.values * np.maximum(tree.rows, 1e-300)[:, None]), schema) for tree in model.trees]
    trees[0].classes_ = classes
    if len(trees) == 1:
        return trees[0]
    forest = RandomForestClassifier(len(trees))
    forest.estimators_, forest.estimator_ = trees, trees[0]
    forest.classes_, forest.n_classes_ = classes, len(classes)
    forest.n_outputs_, forest.n_features_in_ = 1, len(schema.features)
    return forest


def _network(learner: MLP, model: Payload, classes: Array) -> BaseEstimator:
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.preprocessing import LabelBinarizer

    names = [*(f"hidden{number}" for number in range(1, len(learner.hidden) + 1)), "output"]
    activation = {"sigmoid": "logistic"}.get(learner.activation, learner.activation)
    is_number = not len(classes)
    made = (MLPRegressor if is_number else MLPClassifier)(learner.hidden, activation=activation)
    made.coefs_ = [np.ascontiguousarray(model[f"{name}.weight"].T) for name in names]
    made.intercepts_ = [model[f"{name}.bias"] for name in names]
    made.n_layers_, made.n_outputs_ = len(names) + 1, len(made.intercepts_[-1])
    made.n_features_in_ = len(made.coefs_[0])
    made.out_activation_ = "identity" if is_number else "logistic" if made.n_outputs_ == 1 else "softmax"
    if not is_number:
        made.classes_ = classes
        made._label_binarizer = LabelBinarizer().fit(np.arange(len(classes)))
        made._label_binarizer.classes_ = classes  # in the model's order, which need not be that of their names
    return made


def to_safetensors(model: Model) -> bytes:
    """All arrays of a model in one file, by name; everything else is JSON in the file's metadata under `tequio`."""
    from safetensors.numpy import save

    arrays: dict[str, Any] = {}
    answer = answer_of(model)
    packed = [pack_answer(part) for part in answer.answers] if isinstance(answer, Joint) else pack_answer(answer)
    document = {"tequio": tequio.__version__, "facts": dict(model.facts), "party": model.party,
                "classes": model.classes.tolist(), "reading": apart(model.reading.to_payload(), arrays, "reading"),
                "answer": apart(packed, arrays, "answer")}
    return save(arrays, {"tequio": json.dumps(document)})


def torch_files(model: Model) -> dict[str, bytes]:
    """The files of a folder: the state dict, what it is of and how rows are prepared, and how to load it."""
    from safetensors.torch import save

    answer_of(model)
    module, plan = module_of(model), plan_of(model.reading, model.party)
    layers = _layers(module)
    document = {"format": "tequio torch", "tequio": tequio.__version__, "facts": dict(model.facts),
                "party": model.party, "columns": list(plan.raw.names), "shape": list(plan.schema.shape),
                "prepared_columns": list(plan.schema.names), "preparation": plan.to_plain(),
                "target": {"name": model.target.name, "kind": model.target.kind, "classes": model.classes.tolist()},
                "learner": pack_answer(answer_of(model))["learner"], "layers": layers,
                "dtype": str(next(module.parameters()).dtype).removeprefix("torch.")}
    state = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    return {WEIGHTS: save(state), DESCRIPTION: (json.dumps(document, indent=1) + "\n").encode(),
            README: (_README if layers else _README_OWN).encode()}


def _layers(module: nn.Module) -> list[dict[str, Any]]:
    """Layers by which a plain sequence can be built again; nothing for modules with a forward of their own."""
    from torch import nn

    parts = list(module.named_children()) if isinstance(module, nn.Sequential) else [("", module)]
    told = [{"name": name, "layer": type(part).__name__, "arguments": _arguments(part)} for name, part in parts]
    return told if all(layer["layer"] in _ARGUMENTS for layer in told) else []


_WINDOW = ("kernel_size", "stride", "padding", "dilation")
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features"), "Conv2d": ("in_channels", "out_channels", *_WINDOW, "groups"),
    "BatchNorm1d": ("num_features", "eps"), "BatchNorm2d": ("num_features", "eps"), "MaxPool2d": _WINDOW,
    "AvgPool2d": _WINDOW[:3], "Flatten": (), "ReLU": (), "Tanh": (), "Sigmoid": (), "Identity": (), "Dropout": ()}


def _arguments(layer: nn.Module) -> dict[str, Any]:
    """The arguments that make such a layer again."""
    from torch import nn

    named = {name: getattr(layer, name) for name in _ARGUMENTS.get(type(layer).__name__, ())}
    if isinstance(layer, nn.Linear | nn.Conv2d):
        named["bias"] = layer.bias is not None
    if type(layer).__name__ == "Dropout":  # torch's, or the faster one of tequio
        named["p"] = float(layer.p) if isinstance(layer, nn.Dropout) else layer.share
    return named


_BEGINS = """# A model as the weights of a torch module

`weights.safetensors` is the state dict, `description.json` says what it is of: the columns, how raw rows are prepared
(`preparation`, step by step), the classes, and the layers. The module takes prepared rows and gives outputs before
softmax or sigmoid. To have the preparation in the same file, export to ONNX instead.
"""

_README = _BEGINS + """
```python
import json
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import load_file

description = json.loads(Path("description.json").read_text())
layers = OrderedDict((layer["name"] or "layer", getattr(torch.nn, layer["layer"])(**layer["arguments"]))
                     for layer in description["layers"])
module = torch.nn.Sequential(layers) if len(layers) > 1 else layers["layer"]
module.to(getattr(torch, description["dtype"]))
module.load_state_dict(load_file("weights.safetensors"))
module.eval()
```
"""

_README_OWN = _BEGINS + """
The module is more than a sequence of plain layers; `learner` in `description.json` names what makes it.

```python
from safetensors.torch import load_file

module = ...  # made as `learner` says
module.load_state_dict(load_file("weights.safetensors"))
module.eval()
```
"""
