"""Files of a coordinator or a party: written whole or not at all, readable by their owner only."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, EngineError
from tequio.federation.population import RESERVED_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._=+ -]{0,198}[A-Za-z0-9._=+-])?")
_LONGEST_PARTY_NAME = 63
_SEPARATORS, _SAME_FORM = re.compile(r"[._=+ -]+"), str.maketrans("1I0", "llO")

Document = dict[str, Any]
"""A JSON document, as it is kept in a folder or sent over a loopback port."""


def write_private(path: Path, *content: bytes | memoryview, sync: bool = True) -> None:
    """Replace a file at once: a reader finds the old content or the new. Without `sync` a power cut may undo it.

    Content in several pieces is put one behind the other.
    """
    descriptor, temporary = -1, ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(content)
            file.flush()
            if sync:
                os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError as cause:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise EngineError(f"'{path}' cannot be written: {cause.strerror or cause}",
                          remedy="free some space there, or check who may write the folder") from cause


def create_private(path: Path, content: bytes) -> bool:
    """Make a file that must not exist yet; whether it was this call that made it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    return True


def private_folder(path: Path) -> Path:
    """The folder, made if need be so that only its owner looks into it, and so are those above it."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(exist_ok=True, mode=0o700)
    return path


def read_required(path: Path, remedy: str) -> bytes:
    """The content of a file that has to be there."""
    try:
        return path.read_bytes()
    except OSError as cause:
        raise ConfigError(f"'{path}' cannot be read: {cause.strerror or cause}", remedy=remedy) from cause


def is_plain_name(name: str) -> bool:
    """Whether a name from somebody else may become the name of a file: no separators, no leading dot."""
    return _NAME.fullmatch(name) is not None


def look_alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Two of the names that a person may take for each other: by case, by 1, l and I, by 0 and O, by what separates."""
    seen: dict[str, str] = {}
    for name in names:
        spaced = _SEPARATORS.sub("-", name)
        for shape in {"case " + spaced.casefold(), "form " + spaced.translate(_SAME_FORM)}:
            if seen.setdefault(shape, name) != name:
                return seen[shape], name
    return None


def check_party_name(name: str) -> str:
    """The name, if a party may be called so."""
    if not is_plain_name(name) or len(name) > _LONGEST_PARTY_NAME or name.lower() in RESERVED_NAMES:
        raise ConfigError(f"a party cannot be called {name[:80]!r}",
                          remedy="use up to 63 letters, digits, dots, dashes, underscores and spaces, starting with a "
                                 f"letter or digit, and none of: {', '.join(RESERVED_NAMES)}")
    return name
