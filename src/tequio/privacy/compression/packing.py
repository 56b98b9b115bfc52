"""Lossless packing of whatever crosses.

An update is already the difference from the model that everybody has; what is left to gain lies in exponents that are
alike and in codes that are unequally frequent. Bytes of equal rank are put side by side first, so that zstd sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Interval

from tequio.errors import MissingExtra, PayloadError
from tequio.federation import payload as payloads
from tequio.federation.stages import Stage, StageSpec
from tequio.privacy.updates import received, sent
from tequio.registry import register

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

_BYTES_OF_A_NUMBER = 8


@register("stage", "delta-zstd", paper="Collet and Kucherawy, 2021 (RFC 8878)")
@dataclass(frozen=True)
class DeltaZstd(Stage):
    """Pack an update, which is the difference from the model sent out, by zstd: nothing is lost.

    Parameters:
        level: how hard to try, from fast and large to slow and small
    """

    level: Annotated[int, Interval(ge=1, le=19)] = 3

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=("model", "common", "own", "code"), gives="bytes", adds_up=False)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Packed bytes."""
        return sent(payload, lambda name, update: self._encode(update), "delta-zstd")

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """What was packed."""
        return received(replies, _decode, "delta-zstd", _numbers_in)

    def _encode(self, update: Payload) -> Payload:
        arrays: dict[str, NDArray[np.generic]] = {}
        skeleton = payloads.take_apart(update, arrays)
        data = payloads.encode({"what": skeleton_text(skeleton), "arrays": {
            key: shuffled(array) for key, array in arrays.items()},
            "kinds": {key: [array.dtype.str, list(array.shape)] for key, array in arrays.items()}})
        return {"packed": zstd().ZstdCompressor(level=self.level).compress(data)}


def _numbers_in(content: Payload) -> int:
    """How many numbers of double precision the packed bytes are said to hold."""
    library = zstd()
    try:
        size = int(library.frame_content_size(content["packed"]))
    except library.ZstdError as cause:
        raise PayloadError(f"packed bytes cannot be unpacked: {cause}") from cause
    if size < 0:
        raise PayloadError("packed bytes do not say how long they are")
    return size // _BYTES_OF_A_NUMBER


def _decode(content: Payload) -> Payload:
    packed = content["packed"]
    library = zstd()
    try:
        size = library.frame_content_size(packed)
        whole = payloads.decode(library.ZstdDecompressor().decompress(packed, max_output_size=size))
    except library.ZstdError as cause:
        raise PayloadError(f"packed bytes cannot be unpacked: {cause}") from cause
    arrays = {key: in_order(whole["arrays"][key], np.dtype(kind), shape)
              for key, (kind, shape) in whole["kinds"].items()}
    update: Payload = payloads.put_together(skeleton_of(whole["what"]), arrays)
    return update


def shuffled(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """The first bytes of all numbers, then the second ones, and so on."""
    data = np.frombuffer(np.ascontiguousarray(array).tobytes(), dtype=np.uint8)
    return np.ascontiguousarray(data.reshape(-1, array.dtype.itemsize).T).reshape(-1)


def in_order(data: NDArray[np.generic], kind: np.dtype[np.generic], shape: list[int]) -> NDArray[np.generic]:
    """The numbers back from shuffled bytes."""
    if kind.kind not in "fiub":
        raise PayloadError(f"packed bytes claim to hold numbers of type {kind.str}")
    rows = np.ascontiguousarray(data.reshape(kind.itemsize, -1).T)
    return np.frombuffer(rows.tobytes(), dtype=kind).reshape(shape)


def skeleton_text(skeleton: object) -> bytes:
    """What is left of an update without its arrays, as bytes of their own: references there are no arrays of ours."""
    import msgspec

    return msgspec.msgpack.encode(skeleton)


def skeleton_of(data: bytes) -> Any:
    """The reverse."""
    import msgspec

    try:
        return msgspec.msgpack.decode(data)
    except msgspec.DecodeError as cause:
        raise PayloadError(f"packed bytes hold no update: {cause}") from cause


def zstd() -> ModuleType:
    """The zstandard package."""
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "privacy", "the stage 'delta-zstd'") from None
    return zstandard
