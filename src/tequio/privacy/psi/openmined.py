"""OpenMined's private set intersection (ECDH on P-256 in C++), which needs the extra `privacy`.

It knows a client, who learns which of its own ids the server has, and a server, who learns nothing. Messages travel as
the bytes of their protocol buffers, and keys as bytes in a party's state.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError, MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

_FALSE_POSITIVES = 1e-9  # plays no part in the raw form of a setup, but the library asks for it


def new_key() -> bytes:
    """A fresh key, good for a client or a server."""
    key: bytes = _library().client.CreateWithNewKey(True).GetPrivateKeyBytes()
    return key


def request(key: bytes, ids: list[bytes]) -> bytes:
    """The client asks about its ids, masked."""
    asked: bytes = _client(key).CreateRequest(_texts(ids)).SerializeToString()
    return asked


def answer(key: bytes, ids: list[bytes], asked: bytes, asked_ids: int) -> dict[str, bytes]:
    """The server masks what was asked once more, and gives its own ids, masked."""
    server, library = _server(key), _library()
    response = server.ProcessRequest(_read(library.Request, asked))
    setup = server.CreateSetupMessage(_FALSE_POSITIVES, max(asked_ids, 1), _texts(ids), library.DataStructure.RAW)
    return {"setup": setup.SerializeToString(), "response": response.SerializeToString()}


def common(key: bytes, answered: dict[str, bytes]) -> NDArray[np.int64]:
    """The client learns the places of its own ids that the server has too."""
    library = _library()
    setup, response = _read(library.ServerSetup, answered["setup"]), _read(library.Response, answered["response"])
    try:
        found = _client(key).GetIntersection(setup, response)
    except RuntimeError as cause:
        raise DataError(f"an answer to masked ids cannot be used: {cause}",
                        remedy="the party that sent it does not follow the protocol; stop working with it") from None
    return np.sort(np.array(found, dtype=np.int64))


def _texts(ids: list[bytes]) -> list[str]:
    return [identity.hex() for identity in ids]


def _client(key: bytes) -> Any:
    return _library().client.CreateFromKey(key, True)


def _server(key: bytes) -> Any:
    return _library().server.CreateFromKey(key, True)


def _read(kind: Any, content: bytes) -> Any:
    from google.protobuf.message import DecodeError

    message = kind()
    try:
        message.ParseFromString(content)
    except DecodeError as cause:
        raise DataError("a message of the set intersection is damaged",
                        remedy="both sides need the same version of openmined.psi") from cause
    return message


def _library() -> ModuleType:
    try:
        return import_module("private_set_intersection.python")
    except ImportError:
        raise MissingExtra("openmined.psi", "privacy", "the alignment 'openmined'") from None
