"""Where a dataset's files are: `$TEQUIO_DATA`, then the user's cache, then a download. Every file is checked."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import sys
import tempfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.data.archives import ArchiveError, contents
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tequio.data.archives import Archive

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class DataFile:
    """A file of a dataset: its place under the data folder, the sha256 of its content, and where it can be had.

    The content of a `.gz` file is what it unpacks to, so that a file compressed by another program is accepted too.
    """

    path: str
    sha256: str
    archives: tuple[Archive, ...] = ()
    url: str = ""


def cache_folder() -> Path:
    """`$TEQUIO_CACHE`, or the place this operating system has for caches."""
    chosen = os.environ.get("TEQUIO_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "tequio"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/tequio").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tequio"


def find(file: DataFile) -> Path | None:
    """The checked file, if it is on this machine."""
    for folder in _folders():
        path = folder / file.path
        if path.is_file():
            verify(path, file)
            return path
    return None


def locate(file: DataFile) -> Path:
    """The checked file; downloaded when it is not on this machine yet."""
    return find(file) or download(file)


def download(file: DataFile) -> Path:
    """Get the file into the user's cache from the first source that answers with the right content."""
    reasons: list[str] = []
    for archive in file.archives:
        try:
            _store_all(contents(archive))
            return _stored(file)
        except (ArchiveError, DataError) as cause:
            reasons.append(str(cause))
    if file.url:
        try:
            _store(file.path, _read_url(file))
            return _stored(file)
        except (OSError, ValueError, EOFError, zlib.error, DataError) as cause:
            reasons.append(f"{file.url}: {cause}")
    raise DataError(f"the file '{file.path}' is not on this machine and could not be downloaded"
                    + (f" ({'; '.join(reasons)})" if reasons else " (it has no public download)"),
                    remedy=_how_to_provide(file))


def verify(path: Path, file: DataFile) -> None:
    """Refuse a file whose content is not the expected one. A file that passed is not read again until it changes."""
    stamp = _stamp(path, file)
    if _remembered().get(str(path.resolve())) == stamp:
        return
    try:
        found = content_sha256(path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
        raise DataError(f"'{path}' is truncated or damaged: {cause}", remedy=_how_to_replace(file)) from cause
    if found != file.sha256:
        raise DataError(f"'{path}' is not the file it should be: its content has sha256 {found}, expected "
                        f"{file.sha256}", remedy=_how_to_replace(file))
    _remember(path, stamp)


def content_sha256(path: Path) -> str:
    """sha256 of what the file holds, unpacked if it is a `.gz` file."""
    digest = hashlib.sha256()
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as cause:
        free = shutil.disk_usage(_existing_parent(path)).free
        raise DataError(f"'{path}' cannot be written: {cause}", remedy=f"{free // 2**20} MB are free there; make room "
                        "or point TEQUIO_CACHE to another folder") from cause


def _folders() -> list[Path]:
    shared = os.environ.get("TEQUIO_DATA")
    return [Path(shared).expanduser(), _downloads()] if shared else [_downloads()]


def _downloads() -> Path:
    return cache_folder() / "data"


def _store_all(files: Iterable[tuple[str, bytes]]) -> None:
    for path, data in files:
        _store(path, data)


def _store(path: str, data: bytes) -> None:
    # mtime 0: the same content gives the same bytes on every machine
    write_atomically(_downloads() / path, gzip.compress(data, 6, mtime=0) if path.endswith(".gz") else data)


def _stored(file: DataFile) -> Path:
    """The freshly stored file; one with wrong content is removed, so that it is never mistaken for the right one."""
    path = _downloads() / file.path
    if not path.is_file():
        raise DataError(f"the download does not hold '{file.path}'")
    try:
        verify(path, file)
    except DataError:
        path.unlink(missing_ok=True)
        raise
    return path


def _read_url(file: DataFile) -> bytes:
    from urllib.request import urlopen

    with urlopen(file.url, timeout=_TIMEOUT_SECONDS) as reply:
        data: bytes = reply.read()
    packed = file.path.endswith(".gz") and data[:2] == b"\x1f\x8b"
    return gzip.decompress(data) if packed else data


def _stamp(path: Path, file: DataFile) -> list[object]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, file.sha256]


def _memory() -> Path:
    return cache_folder() / "verified.json"


def _remembered() -> dict[str, list[object]]:
    try:
        known = json.loads(_memory().read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(path: Path, stamp: list[object]) -> None:
    # a cache that cannot be written only costs another check next time
    with suppress(DataError):
        write_atomically(_memory(), json.dumps({**_remembered(), str(path.resolve()): stamp}, indent=0).encode())


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if parent.exists())


def _how_to_provide(file: DataFile) -> str:
    content = "unpacked content" if file.path.endswith(".gz") else "content"
    return (f"put it at '{_folders()[0] / file.path}' (its {content} has sha256 {file.sha256}), or point TEQUIO_DATA "
            "to a folder that holds it")


def _how_to_replace(file: DataFile) -> str:
    if file.archives or file.url:
        return "delete it and run the command again: it is then downloaded"
    return f"replace it by one whose content has sha256 {file.sha256}"
