"""An ONNX graph around a model: raw rows in, prepared in the graph, class and probabilities out.

Rows of numbers only (tables, arrays, images) are one input `rows` of shape (rows, *shape), its columns in the order of
the metadata `columns`. A table with categories has one input (rows, 1) a raw column, by the column's name: numbers as
the model reads them, categories as strings. Everything but networks is computed in double precision, by the operations
that tequio itself uses, so that a row exactly at a threshold goes the same way.

A graph cannot refuse a row. One with a category never seen, or a missing value where training filled none in, gets
probabilities of NaN and an empty class, as `predict(..., unseen="skip")` gives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import tequio
from tequio.data.dataset import OTHER
from tequio.data.inputs.column import MISSING_MARKERS
from tequio.errors import MissingExtra
from tequio.models.exporting.forms import answer_of
from tequio.models.exporting.onnx_models import Rows, scores_in
from tequio.models.exporting.plan import Log, Recode, Scale, Spread, plan_of
from tequio.models.exporting.raw_columns import RawColumns

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import ArrayLike, DTypeLike

    from tequio.data.dataset import Array, Feature
    from tequio.models.exporting.plan import Operation, Plan
    from tequio.models.model import Model

    Proto = Any
    """A part of an ONNX file."""
    Attribute = int | float | str | list[int] | list[float] | list[str]

OPSET, ML_OPSET, IR_VERSION = 18, 3, 9
"""What onnxruntime knows from version 1.14 on."""

OUTPUTS = ("label", "probabilities")
_INNER = "tequio/"  # begins the names of everything between inputs and outputs


def onnx_package() -> ModuleType:
    """The package, or what to install."""
    try:
        import onnx
    except ImportError as cause:
        raise MissingExtra("onnx", "export", "exporting to ONNX") from cause
    return onnx


@dataclass
class Graph:
    """A graph that is being written. Calling it adds a node and gives the name of its output."""

    onnx: ModuleType = field(default_factory=onnx_package)
    nodes: list[Proto] = field(default_factory=list)
    inputs: list[Proto] = field(default_factory=list)
    constants: list[Proto] = field(default_factory=list)

    def __call__(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node."""
        output = f"{_INNER}{operator.lower()}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, values: ArrayLike, dtype: DTypeLike | None = None) -> str:
        """A constant array of numbers or texts."""
        array, name = np.asarray(values, dtype=dtype), f"{_INNER}constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def cast(self, value: str, dtype: DTypeLike) -> str:
        """The same numbers as another type."""
        return self("Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def input(self, name: str, dtype: DTypeLike, shape: tuple[int, ...]) -> str:
        """An input whose first dimension is the number of rows."""
        kind = self.onnx.TensorProto.STRING if dtype is str else \
            self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["rows", *shape]))
        return name

    def all_of(self, conditions: str) -> str:
        """(rows, 1): whether conditions (rows, columns) hold in all columns."""
        failures = self("ReduceSum", self.cast(self("Not", conditions), np.int64), self.constant([1]))
        return self("Equal", failures, self.constant([0]))


def to_onnx(model: Model) -> bytes:
    """A model as the bytes of an ONNX file."""
    answer = answer_of(model)
    graph, plan = Graph(), plan_of(model.reading, model.party)
    plan.refuse_hashed("ONNX")
    raw, usable = _raw_rows(graph, plan)
    rows, usable = prepared_in(graph, plan, raw, usable)
    if any(isinstance(operation, Log) for operation in plan.operations) and (by := RawColumns(plan)).cuts:
        # the last digit of a logarithm may differ from numpy's, so intervals are told apart before it is taken
        exact, _ = prepared_in(graph, replace(plan, operations=by.by_pieces), raw, usable)
        rows = graph("Where", graph.constant(np.isin(by.source, list(by.pieces))), exact, rows)
    scores = scores_in(graph, answer, Rows(plan, raw, graph.cast(rows, np.float64)))
    outputs = _outputs(graph, model, scores, usable)
    helper = graph.onnx.helper
    whole = helper.make_graph(graph.nodes, "tequio", graph.inputs, outputs, graph.constants)
    document = helper.make_model(whole, producer_name="tequio", producer_version=tequio.__version__,
                                 ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET),
                                                                       helper.make_opsetid("ai.onnx.ml", ML_OPSET)])
    helper.set_model_props(document, _metadata(model, plan))
    graph.onnx.checker.check_model(document, full_check=True)
    return bytes(document.SerializeToString())


def _raw_rows(graph: Graph, plan: Plan) -> tuple[str, str]:
    """Raw rows (rows, columns) in double precision or single, and which of them can be answered."""
    schema, dtype = plan.raw, plan.reading.dtype
    features = [feature for feature in schema.features if feature.kind != "flag"]
    flagged = [feature.column for feature in schema.features if feature.kind == "flag"]
    columns: dict[str, str] = {}
    if not any(feature.categorical for feature in features):
        shape = (len(features),) if flagged else schema.shape
        rows = graph("Flatten", graph.input("rows", dtype, shape), axis=1)
    else:
        columns = {feature.name: graph.input(input_name(feature.name), str if feature.categorical else dtype, (1,))
                   for feature in features}
        rows = graph("Concat", *(graph.cast(_codes(graph, plan, feature, columns[feature.name]), dtype)
                                 if feature.categorical else columns[feature.name] for feature in features), axis=1)
    flags = [_flag(graph, feature, place, rows, columns) for place, feature in enumerate(features)
             if feature.name in flagged]
    if np.dtype(dtype).kind != "f":
        return rows, graph.all_of(graph("Equal", rows, rows))
    usual = [plan.reading.usual[feature.name] if feature.name in plan.reading.filled and not feature.categorical
             else np.nan for feature in features]
    if not np.isnan(np.array(usual, dtype=np.float64)).all():
        rows = graph("Where", graph("IsNaN", rows), graph.constant(usual, dtype), rows)
    if flags:
        rows = graph("Concat", rows, *(graph.cast(flag, dtype) for flag in flags), axis=1)
    # nought times infinity is not a number either
    finite = graph("Equal", graph("Mul", rows, graph.constant(0, dtype)), graph.constant(0, dtype))
    if plan.reading.missing:
        finite = graph("Or", finite, graph("IsNaN", rows))
    usable = graph.all_of(finite)
    return graph("Where", usable, rows, graph.constant(0, dtype)), usable


def _flag(graph: Graph, feature: Feature, place: int, rows: str, columns: dict[str, str]) -> str:
    """(rows, 1): 1 where a raw column has no value."""
    if not feature.categorical:
        return graph("IsNaN", graph("Gather", rows, graph.constant([place]), axis=1))
    markers = sorted(MISSING_MARKERS)
    return graph("LabelEncoder", columns[feature.name], domain="ai.onnx.ml", keys_strings=markers,
                 values_floats=[1.0] * len(markers), default_float=0.0)


def input_name(column: str) -> str:
    """The input of a column: its name, unless an output is called so or it is empty, which ONNX takes for nothing."""
    return f"column {column}" if column in ("", *OUTPUTS) or column.startswith(_INNER) else column


def _codes(graph: Graph, plan: Plan, feature: Feature, name: str) -> str:
    """Codes of categories, NaN for others; a missing value is the usual one where training took that.

    Where the model takes missing values these are NaN, and others are infinite.
    """
    domain = feature.domain or ()
    codes = {spelt: float(code) for code, text in enumerate(domain) for spelt in (f"{text}.0", text)
             if spelt == text or (text.lstrip("-").isdecimal() and spelt not in domain)}
    if OTHER in domain:
        codes |= dict.fromkeys(sorted(MISSING_MARKERS), float("nan"))
    if feature.name in plan.reading.filled:
        codes |= dict.fromkeys(sorted(MISSING_MARKERS), codes[str(plan.reading.usual[feature.name])])
    others = float("nan")
    if plan.reading.missing:
        codes = {**dict.fromkeys(sorted(MISSING_MARKERS), float("nan")), **codes}
        others = float("inf")
    return graph("LabelEncoder", name, domain="ai.onnx.ml", keys_strings=list(codes),
                 values_floats=list(codes.values()), default_float=codes.get(OTHER, others))


def prepared_in(graph: Graph, plan: Plan, rows: str, usable: str = "") -> tuple[str, str]:
    """The rows after all operations of a plan, and which of them can still be answered."""
    for operation in plan.operations:
        rows, usable = _applied(graph, operation, rows, usable, plan.reading.dtype)
    return rows, usable


def _applied(graph: Graph, operation: Operation, rows: str, usable: str, dtype: str) -> tuple[str, str]:
    """The rows after an operation of the plan, and which of them can still be answered."""
    def number(values: Array | float) -> str:
        return graph.constant(values, dtype)

    if isinstance(operation, Scale):
        if operation.sparse:
            product = graph("Mul", graph.cast(rows, np.float64), graph.constant(1 / operation.scale))
            return graph.cast(product, dtype), usable
        return graph("Div", graph("Sub", rows, number(operation.shift)), number(operation.scale)), usable
    if isinstance(operation, Spread):
        taken = graph("Gather", rows, graph.constant(operation.source), axis=1)
        if (operation.category < 0).all():
            return taken, usable
        same = graph.cast(graph("Equal", taken, number(operation.category)), dtype)
        return graph("Where", graph.constant(operation.category < 0), taken, same), usable
    which = graph.constant(operation.which)
    if isinstance(operation, Log):
        valid = graph("Or", graph("Greater", rows, number(-1)), graph.constant(~operation.which))
        usable = graph("And", usable, graph.all_of(valid))
        kept = graph("Where", valid, rows, number(0))
        # log(1 + x) loses the digits of a small x; what 1 + x really added to 1 gives them back
        wide = graph.cast(kept, np.float64)
        sum_ = graph("Add", wide, graph.constant(1.0))
        added = graph("Sub", sum_, graph.constant(1.0))
        nothing = graph("Equal", added, graph.constant(0.0))
        ratio = graph("Div", wide, graph("Where", nothing, graph.constant(1.0), added))
        logs = graph("Where", nothing, wide, graph("Mul", graph("Log", graph("Abs", sum_)), ratio))
        return graph("Where", which, graph.cast(logs, dtype), rows), usable
    if isinstance(operation, Recode):
        places = graph.cast(graph("Where", which, rows, number(0)), np.int64)
        codes = graph("GatherElements", graph.constant(operation.codes.T, dtype), places, axis=0)
        return graph("Where", which, codes, rows), usable
    deep = graph("Unsqueeze", graph.cast(rows, np.float64), graph.constant([2]))
    below = graph.cast(graph("Greater", deep, graph.constant(operation.points)), np.float64)
    codes = graph.cast(graph("ReduceSum", below, graph.constant([2]), keepdims=0), dtype)
    return graph("Where", which, codes, rows), usable


def _outputs(graph: Graph, model: Model, scores: str, usable: str) -> list[Proto]:
    """Name the answers `label` and, where there are any, `probabilities`."""
    helper, kinds = graph.onnx.helper, graph.onnx.TensorProto
    labels = len(model.answer.labels(model.target.size))

    def output(name: str, value: str, kind: int, *shape: int) -> Proto:
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
        return helper.make_tensor_value_info(name, kind, ["rows", *shape])

    def flat(value: str) -> str:
        return graph("Reshape", value, graph.constant([-1]))

    if model.clusters or model.target.kind not in ("classes", "multilabel"):
        empty, kind = (graph.constant([-1]), kinds.INT64) if model.clusters else \
            (graph.constant([np.nan]), kinds.DOUBLE)
        return [output("label", graph("Where", flat(usable), flat(scores), empty), kind)]
    shares = graph("Where", usable, scores, graph.constant(np.nan))
    if model.target.kind == "multilabel":
        is_on = graph.cast(graph("Greater", scores, graph.constant(0.5)), np.int64)
        return [output("label", graph("Where", usable, is_on, graph.constant([-1])), kinds.INT64, labels),
                output("probabilities", shares, kinds.DOUBLE, labels)]
    best = graph("ArgMax", scores, axis=1, keepdims=0)
    place = graph("Where", flat(usable), best, graph.constant([len(model.classes)]))
    numbers = model.classes.dtype.kind == "i"
    names = [*model.classes, min(0, *model.classes) - 1] if numbers else [*model.target.names, ""]
    label = graph("Gather", graph.constant(names, np.int64 if numbers else object), place)
    return [output("label", label, kinds.INT64 if numbers else kinds.STRING),
            output("probabilities", shares, kinds.DOUBLE, labels)]


def _metadata(model: Model, plan: Plan) -> dict[str, str]:
    """What the file says of itself: columns, classes, what stands in for missing values, and where it came from."""
    labels = model.answer.labels(model.target.size) if model.target.kind == "multilabel" else \
        range(len(model.target.names))
    columns = [feature.name for feature in plan.raw.features if feature.kind != "flag"]
    said = {"columns": columns, "classes": [model.target.names[label] for label in labels],
            "target": model.target.name, "kind": "clusters" if model.clusters else model.target.kind,
            "categories": {feature.name: list(feature.domain) for feature in plan.raw.features
                           if feature.domain is not None},
            "filled": {name: plan.reading.usual[name] for name in sorted(plan.reading.filled)},
            "party": model.party, "facts": dict(model.facts)}
    return {key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in said.items()}
