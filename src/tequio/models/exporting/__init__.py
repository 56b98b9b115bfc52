"""A trained model in formats that others read: ONNX, rules, torch weights, safetensors, scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from tequio.errors import ConfigError, RunError, nearest

if TYPE_CHECKING:
    from os import PathLike

    from tequio.models.model import Model

Format = Literal["onnx", "torch", "sklearn", "rules", "safetensors"]

SUFFIXES: dict[str, str] = {"onnx": ".onnx", "torch": "", "rules": ".json", "safetensors": ".safetensors"}
"""How the file of each format ends; torch is a folder."""


def export(model: Model, to: Format | str, path: str | PathLike[str] | None = None) -> Any:
    """Write a model in another format, and give the path; for sklearn give the fitted estimator."""
    if to not in get_args(Format):
        raise ConfigError(f"there is no format '{to}'", remedy=nearest(to, get_args(Format)))
    if to == "sklearn":
        from tequio.models.exporting.libraries import to_estimator

        if path is not None:
            raise ConfigError("a scikit-learn estimator is written as a pickle, which runs code when it is read, so "
                              "tequio writes none", remedy="in Python: estimator = model.export('sklearn'); for a "
                              "file: tequio export MODEL --to onnx")
        return to_estimator(model)
    if path is None:
        raise ConfigError(f"the export to {to} needs a path to write to",
                          remedy=f"model.export('{to}', 'model{SUFFIXES[to]}')")
    files = _content(model, to)
    place = Path(path)
    try:
        if to != "torch":
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(files[""])
        else:
            place.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (place / name).write_bytes(content)
    except OSError as cause:
        raise RunError(f"'{place}' cannot be written: {cause.strerror}",
                       remedy="choose another place: --out FILE") from cause
    return place


def _content(model: Model, to: str) -> dict[str, bytes]:
    """The files of an export by name, an empty one where there is but one file."""
    if to == "onnx":
        from tequio.models.exporting.onnx_graph import to_onnx

        return {"": to_onnx(model)}
    if to == "rules":
        from tequio.models.exporting.rules import to_rules

        return {"": (json.dumps(to_rules(model), indent=1, ensure_ascii=False) + "\n").encode()}
    from tequio.models.exporting.libraries import to_safetensors, torch_files

    return torch_files(model) if to == "torch" else {"": to_safetensors(model)}
