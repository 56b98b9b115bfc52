"""Files as others released them: found in a folder or in the published archive, and compared with their checksums.

Of an archive only the files that are asked for are taken out, by name, into the cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tequio.data.fetch import cache_folder
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

TFF = "https://storage.googleapis.com/tff-datasets-public"
"""Where the releases of TensorFlow Federated lie."""

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Release:
    """An archive as it was published: its name, the algorithm and digest of its checksum, and where it is."""

    archive: str
    algorithm: str
    digest: str
    source: str


def released_files(path: str, names: Sequence[str], release: Release) -> dict[str, Path]:
    """Where these files are, by name: in the folder `path`, or taken out of the archive that it is or holds."""
    place = Path(path)
    if place.is_dir():
        missing = [name for name in names if not (place / name).is_file()]
        if not missing:
            return {name: place / name for name in names}
        archive = place / release.archive
    else:
        archive, missing = place, list(names)
    if not archive.is_file():
        raise DataError(f"there is no file '{place / missing[0] if place.is_dir() else place}'",
                        remedy=f"set data.path to the folder with {' and '.join(names)}, or to {release.archive}; "
                               f"source: {release.source}")
    check(archive, release.algorithm, release.digest, release.source)
    return _unpacked(archive, names, release)


def check(path: Path, algorithm: str, digest: str, source: str) -> None:
    """Refuse a file whose content is not the published one."""
    found = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
    if found.hexdigest() != digest:
        raise DataError(f"'{path}' is not the file that was published: its {algorithm} is {found.hexdigest()}, "
                        f"expected {digest}", remedy=f"get it again; source: {source}")


def _unpacked(archive: Path, names: Sequence[str], release: Release) -> dict[str, Path]:
    folder = cache_folder() / "released" / f"{release.archive}-{release.digest[:16]}"
    wanted = {name: folder / name for name in names}
    if all(path.is_file() for path in wanted.values()):
        return wanted
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as members:
            for member in members:
                name = Path(member.name).name
                content = members.extractfile(member) if name in wanted and member.isfile() else None
                if content is not None:
                    _keep(content, wanted[name])
    except (tarfile.TarError, EOFError) as cause:
        raise DataError(f"'{archive}' cannot be unpacked: {cause}", remedy=f"get it again; source: {release.source}") \
            from cause
    for name, path in wanted.items():
        if not path.is_file():
            raise DataError(f"'{archive}' holds no file '{name}'", remedy=f"get it again; source: {release.source}")
    return wanted


def _keep(content: IO[bytes], path: Path) -> None:
    """Write a file that is whole, or not there; it may be larger than memory."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            shutil.copyfileobj(content, stream, _CHUNK)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
