"""Who may ask a service: whoever brings the token, or, where there is none, this machine alone.

A token file holds only the SHA-256 of a token, so that it is of no use to somebody who reads it. A token is a long
random text, which cannot be guessed from its hash. It is compared by hash and in constant time.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import stat
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tequio.errors import ConfigError
from tequio.views.web.guard import is_loopback

if TYPE_CHECKING:
    from pathlib import Path

_LINE = re.compile(r"sha256:([0-9a-f]{64})")
PAGES = ("/docs", "/openapi.json", "/schema")
"""What a browser may open with the token as a password."""


@dataclass(frozen=True)
class Access:
    """The rules. `hashes` are those of tokens; any of them will do, so that one can be replaced while both are used."""

    host: str = "127.0.0.1"
    hashes: tuple[bytes, ...] = ()
    host_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.hashes:
            raise ConfigError(f"'{self.host}' can be reached from other machines, so a token is needed",
                              remedy="give a file for it: --token-file token.txt; or leave --host out")

    def refuses(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str, str] | None:
        """Why a request may not pass: status, error, remedy."""
        origin, host = headers.get(b"origin"), headers.get(b"host", b"").decode("latin-1")
        if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
            return 403, "the request comes from a page of another site", "ask from a program, not from a web page"
        if self.hashes:
            if path == "/health" or self._is_known(path, headers.get(b"authorization", b"")):
                return None
            return 401, "the token is missing or wrong", "send the header 'Authorization: Bearer TOKEN'"
        if not self._is_ours(host):
            return (403, "this service is not known under that host name",
                    "ask for 127.0.0.1, or start the service with --host-name NAME")
        return None

    def _is_known(self, path: str, authorization: bytes) -> bool:
        scheme, _, brought = authorization.partition(b" ")
        if scheme.lower() == b"basic" and path in PAGES:
            try:
                brought = base64.b64decode(brought, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != b"bearer":
            return False
        digest = sha256(brought.strip()).digest()
        return sum(compare_digest(digest, known) for known in self.hashes) > 0  # none is skipped, which would show

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self.host_names


def tokens_of(path: Path) -> tuple[tuple[bytes, ...], str]:
    """The hashes in a token file, and the token itself if the file had to be made."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path), ""
    except OSError as cause:
        raise ConfigError(f"the token file '{path}' cannot be made: {cause.strerror or cause}",
                          remedy="name a file in a folder that you may write: --token-file FILE") from cause
    token = secrets.token_urlsafe(32)
    digest = sha256(token.encode())
    with os.fdopen(descriptor, "w") as file:
        file.write(f"sha256:{digest.hexdigest()}\n")
    return (digest.digest(),), token


def _read(path: Path) -> tuple[bytes, ...]:
    try:
        with path.open(encoding="ascii") as file:
            mode, lines = os.fstat(file.fileno()).st_mode, file.read().split()
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"the token file '{path}' cannot be read: {cause}",
                          remedy="name another one, which is then made: --token-file FILE") from cause
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"others on this machine may read or write the token file '{path}'",
                          remedy=f"type: chmod 600 {path}")
    found = [_LINE.fullmatch(line) for line in lines]
    if not found or None in found:
        raise ConfigError(f"the token file '{path}' holds something else than hashes of tokens",
                          remedy="name a file that is not there yet, and a token is made: --token-file FILE")
    return tuple(bytes.fromhex(line[1]) for line in found if line)
