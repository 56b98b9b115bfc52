"""Arrays that take long to decode, kept in the user's cache."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.fetch import cache_folder, write_atomically
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    # not NDArray: numpy types the keyword arrays of savez loosely
    Arrays = dict[str, Any]


def decoded(name: str, sha256: str, decode: Callable[[], Arrays]) -> Arrays:
    """What `decode` gives, read from the cache if it was decoded before from a source with that sha256."""
    path = cache_folder() / "decoded" / f"{name}-{sha256[:16]}.npz"
    kept = _read(path)
    if kept is not None:
        return kept
    arrays = decode()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    # without room in the cache the work is only done again next time
    with suppress(DataError):
        write_atomically(path, buffer.getvalue())
    return arrays


def _read(path: Path) -> Arrays | None:
    try:
        # opened here, because numpy leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
