"""A model as a folder: JSON and safetensors, and a hash over everything in it.

    model.json                what it is, how rows are read, how it answers, and the SHA-256 of every other file
    common.safetensors        arrays of the common model and of the preparation
    parties/NAME.json         a party's own model, which that party alone needs
    parties/NAME.safetensors  its arrays

Nothing in it is code: learners are named, and built by the installed version of tequio. A folder that is not, bit for
bit, what was written is refused, and so is one of a later format.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tequio
from tequio.errors import ConfigError, PayloadError, RunError
from tequio.learners.answers import pack_answer, unpack_answer
from tequio.models.model import Model
from tequio.models.rows import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.learners.answers import Answer

FORMAT = 1
FILE, ARRAYS, PARTIES, FOLDER = "model.json", "common.safetensors", "parties", "model"
_BEGINS = b'{\n "sha256"'
_ARRAY, _BYTES = "$array", "$bytes"


def save(model: Model, folder: Path) -> str:
    """Write a model; its hash, which also covers what parties have of their own."""
    from safetensors.numpy import save as packed

    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}

    def write(name: str, content: bytes) -> None:
        (folder / name).write_bytes(content)
        files[name] = hashlib.sha256(content).hexdigest()

    arrays: dict[str, NDArray[Any]] = {}
    body = {"reading": apart(model.reading.to_payload(), arrays, "reading"),
            "common": None if model.common is None else apart(pack_answer(model.common), arrays, "common")}
    write(ARRAYS, packed(arrays))
    names: dict[str, str] = {}
    for place, (name, answer) in enumerate(model.own.items()):
        (folder / PARTIES).mkdir(exist_ok=True)
        own: dict[str, NDArray[Any]] = {}
        names[name] = f"{PARTIES}/{place:05d}"
        write(f"{names[name]}.json", _json(apart(pack_answer(answer), own, "")))
        write(f"{names[name]}.safetensors", packed(own))
    document = {"format": FORMAT, "tequio": tequio.__version__, "facts": dict(model.facts), "speaks": model.speaks,
                "scored": list(model.scored), "parties": names, **body, "files": files}
    sha256 = _seal(document)
    (folder / FILE).write_bytes(_json({"sha256": sha256, **document}))
    return sha256


def load(place: str | Path) -> Model:
    """Read a model back from its folder, or from the folder of a run."""
    folder = find(Path(place))
    document = read_document(folder)
    arrays = _arrays(folder / ARRAYS)
    try:
        reading = Reading.from_payload(_together(document["reading"], arrays))
        schema = reading.prepared_schema
        common = document["common"] and unpack_answer(_together(document["common"], arrays), schema)
        here = {name: path for name, path in document["parties"].items() if (folder / f"{path}.json").exists()}
        own = Parties(folder, here, schema)
        return Model(reading, common, own, document["speaks"], tuple(document["scored"]),
                     {**document["facts"], "sha256": document["sha256"]})
    except (KeyError, TypeError, ValueError, IndexError) as cause:
        raise RunError(f"the model in '{folder}' is not whole: {cause!r}",
                       remedy="make it anew with this version of tequio") from cause


def find(place: Path) -> Path:
    """The folder of a model: it itself, or the one inside a run."""
    for folder in (place / FOLDER, place):
        if (folder / FILE).is_file() and (folder / FILE).read_bytes().startswith(_BEGINS):
            return folder
    raise ConfigError(f"there is no model in '{place}'",
                      remedy="give the folder of a run that has come to its end, or of a model that was handed over; "
                             "runs of tequio 0.1 have none: run them again")


def read_document(folder: Path) -> dict[str, Any]:
    """The description of a model, once every file is known to be what was written."""
    try:
        document: dict[str, Any] = json.loads((folder / FILE).read_bytes())
    except ValueError as cause:
        raise _tampered(folder / FILE) from cause
    if document.get("format", 0) > FORMAT:
        raise RunError(f"the model in '{folder}' is of format {document['format']}, which tequio {tequio.__version__} "
                       "does not know", remedy="install a newer tequio")
    sealed = document.pop("sha256", "")
    if _seal(document) != sealed:
        raise _tampered(folder / FILE)
    for name, told in document["files"].items():
        path = folder / name
        if document["speaks"] == "together" and name.startswith(f"{PARTIES}/") and not path.exists():
            continue  # a party may be handed its own part only; what answers says whose are missing
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != told:
            raise _tampered(path)
    return {**document, "sha256": sealed}


class Parties(Mapping[str, "Answer"]):
    """Parties' own answers, each read when it is asked for."""

    def __init__(self, folder: Path, names: Mapping[str, str], schema: Any) -> None:
        self._folder, self._names, self._schema = folder, names, schema
        self._known: dict[str, Answer] = {}

    def __getitem__(self, name: str) -> Answer:
        if name not in self._known:
            place = self._folder / self._names[name]
            content = json.loads(place.with_suffix(".json").read_bytes())
            arrays = _arrays(place.with_suffix(".safetensors"))
            self._known[name] = unpack_answer(_together(content, arrays), self._schema)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _seal(document: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _tampered(path: Path) -> RunError:
    return RunError(f"'{path}' is not what was written", remedy="it was damaged or changed: copy the model again")


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpacked

    try:
        return dict(unpacked(path.read_bytes()))
    except (OSError, SafetensorError) as cause:
        raise _tampered(path) from cause


def apart(value: Any, arrays: dict[str, NDArray[Any]], path: str) -> Any:
    """The value with its arrays moved out to `arrays` under readable names."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise PayloadError(f"a model holds an array of type {value.dtype} under '{path}', which has no file format")
        name = path if path not in arrays else f"{path}#{len(arrays)}"
        arrays[name] = np.asarray(value, order="C")
        return {_ARRAY: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(key): apart(item, arrays, f"{path}/{key}" if path else str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [apart(item, arrays, f"{path}/{place}") for place, item in enumerate(value)]
    return value


def _together(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            return arrays[value[_ARRAY]]
        if _BYTES in value:
            return base64.b64decode(value[_BYTES])
        return {key: _together(item, arrays) for key, item in value.items()}
    return [_together(item, arrays) for item in value] if isinstance(value, list) else value
