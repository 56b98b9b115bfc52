"""A model's weights for others to load: as safetensors with their names, and as the state of a torch module.

Neither holds code, and neither is a pickle.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

import tequio
from tequio.learners.answers import pack_answer
from tequio.models.exporting.forms import answer_of
from tequio.models.exporting.plan import plan_of
from tequio.models.folder import apart
from tequio.models.model import Joint
from tequio.models.modules import module_of

if TYPE_CHECKING:
    from torch import nn

    from tequio.models.model import Model

WEIGHTS, DESCRIPTION, README = "weights.safetensors", "description.json", "README.md"


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
    if hasattr(layer, "weight") and isinstance(named.get("in_features", named.get("in_channels")), int):
        named["bias"] = layer.bias is not None
    if type(layer).__name__ == "Dropout":  # torch's, or the faster one of tequio
        named["p"] = float(layer.p) if isinstance(layer, nn.Dropout) else layer.share
    return {name: float(value) if isinstance(value, np.floating) else value for name, value in named.items()}


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
