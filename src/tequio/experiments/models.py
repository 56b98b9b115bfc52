"""The final model on disk, and the fingerprint by which two models are compared."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.experiments.store import MODELS, explained, write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.federation.payload import Payload

ARRAYS, PLAIN = "model.safetensors", "model.json"


def model_sha256(model: Payload) -> str:
    """Over the sorted names, types, shapes and bytes of all that the model holds."""
    digest = hashlib.sha256()
    for name, value in sorted(_leaves(model).items()):
        if isinstance(value, np.ndarray):
            digest.update(f"{name}\0{value.dtype.str}\0{list(value.shape)}\0".encode())
            digest.update(np.asarray(value, order="C").tobytes())
        else:
            digest.update(f"{name}\0{json.dumps(value, sort_keys=True)}\0".encode())
    return digest.hexdigest()


def write_model(folder: Path, model: Payload) -> Path:
    """As safetensors where the model is arrays only (nested names joined by '/'), else as JSON."""
    from safetensors.numpy import save

    leaves = _leaves(model)
    if leaves and all(isinstance(value, np.ndarray) for value in leaves.values()):
        path, content = folder / ARRAYS, save({name: np.asarray(value, order="C") for name, value in leaves.items()})
    else:
        path, content = folder / PLAIN, (json.dumps(_listed(model), indent=1) + "\n").encode()
    write_whole(path, content)
    return path


def read_model(folder: Path) -> Payload:
    """The model that a run left behind; a flat table of names where it was nested."""
    from safetensors.numpy import load

    if (folder / ARRAYS).exists():
        return dict(load((folder / ARRAYS).read_bytes()))
    content: Payload = json.loads((folder / PLAIN).read_text(encoding="utf-8"))
    return content


def write_round_model(folder: Path, round: int, model: Payload) -> Path:
    """Keep what the model was after a round."""
    place = folder / MODELS / str(round)
    with explained(place):
        place.mkdir(parents=True, exist_ok=True)
    return write_model(place, model)


def round_models(folder: Path) -> dict[int, Path]:
    """The rounds whose models were kept, in order, and where these are."""
    return dict(sorted((int(place.name), place) for place in (folder / MODELS).glob("*") if place.name.isdigit()))


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, list | tuple):
        value = {str(index): item for index, item in enumerate(value)}
    if not isinstance(value, dict):
        return {path: value.item() if isinstance(value, np.generic) else value}
    return {name: leaf for key, item in value.items()
            for name, leaf in _leaves(item, f"{path}/{key}" if path else str(key)).items()}


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
