"""The folder for tables that are larger than memory: private to its owner, swept of what dead processes left there.

It is `tables` in the user's cache. What is being written, or lives only as long as its process, has a name that begins
with a dot and is locked; everything else is a table that is whole.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tequio.data.fetch import cache_folder
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


KEPT_BYTES = 20 << 30
"""When the tables kept in the cache take more than this, those that were not used for longest are removed."""

_SETTLING_SECONDS = 60  # files younger than this may not be locked by their writer yet


def tables_folder() -> Path:
    """The folder, made if need be; refused where others could put files there or read them."""
    folder = cache_folder() / "tables"
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.name == "posix":
            _make_private(folder)
    except OSError as cause:
        raise DataError(f"the cache folder '{folder}' cannot be used: {cause}",
                        remedy="point TEQUIO_CACHE to a folder of your own") from cause
    return folder


def _make_private(folder: Path) -> None:
    cache, own = folder.parent.stat(), folder.lstat()
    theirs = cache.st_uid not in (os.geteuid(), 0)
    shared = cache.st_mode & 0o022 and not cache.st_mode & stat.S_ISVTX
    if shared and cache.st_uid == os.geteuid() and "TEQUIO_CACHE" not in os.environ:
        folder.parent.chmod(stat.S_IMODE(cache.st_mode) & ~0o022)
        shared = 0
    if theirs or shared or not stat.S_ISDIR(own.st_mode) or own.st_uid != os.geteuid():
        raise DataError(f"the cache folder '{folder}' belongs to another user, or others can write beside it",
                        remedy=f"keep others out (chmod go-w '{folder.parent}'), or point TEQUIO_CACHE to a folder of "
                               "your own")
    if stat.S_IMODE(own.st_mode) != 0o700:
        folder.chmod(0o700)


def lock(handle: int) -> bool:
    """Mark an open file or folder as in use, if it is not; the system takes the mark away when the process ends."""
    if os.name == "posix":
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # marked by another process, or a file system without such marks
            return False
    return True


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn what the system says while a table is written there (no room, no permission) into an error with a remedy."""
    try:
        yield
    except OSError as cause:
        free = shutil.disk_usage(folder).free
        raise DataError(f"the table cannot be written to '{folder}': {cause}",
                        remedy=f"{free >> 20} MB are free there; make room or point TEQUIO_CACHE to another folder"
                        ) from cause


def sweep(folder: Path, newest: Path | None = None) -> None:
    """Remove what dead processes left, and the tables that were not used for longest when all take too much."""
    kept = []
    for place in folder.iterdir():
        with suppress(OSError):
            if place.name.startswith("."):
                if time.time() - place.lstat().st_mtime > _SETTLING_SECONDS and not _in_use(place):
                    remove(place)
            elif place.is_dir() and place != newest:
                kept.append((place.stat().st_mtime, stored_bytes(place), place))
    total = stored_bytes(newest) if newest is not None else 0
    for _, size, place in sorted(kept, reverse=True):
        total += size
        if total > KEPT_BYTES:
            remove(place)


def stored_bytes(place: Path) -> int:
    """How much a table in the folder takes."""
    return sum(file.lstat().st_size for file in place.iterdir())


def remove(place: Path) -> None:
    """Remove a table, or what is left of one; whoever has it open can go on reading."""
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            place.unlink(missing_ok=True)


def _in_use(place: Path) -> bool:
    if os.name != "posix":
        return False  # there, a file in use cannot be removed anyway
    handle = os.open(place, os.O_RDONLY)
    try:
        return not lock(handle)
    finally:
        os.close(handle)
