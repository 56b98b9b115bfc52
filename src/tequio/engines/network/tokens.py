"""Join tokens: a coordinator's address, its authority's certificate, and a secret that is good for one enrolment.

A token is one line of text. The coordinator keeps the hash of its secret only, in one file a token: taking a token is
renaming its file, so that of two who try at once one succeeds.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tequio.engines.network.files import create_private, private_folder
from tequio.errors import ConfigError, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "tequio1-"
_OPEN, _USED = ".open", ".used"
_REMEDY = "ask the coordinator for a new token: tequio coordinator token"


class Token(msgspec.Struct, frozen=True, array_like=True):
    """What a token holds. `authority` is the certificate that the coordinator has to prove itself with.

    An aggregator's token says where it is to `listen`.
    """

    address: str
    enrolment_address: str
    authority: bytes
    id: str
    secret: bytes
    listen: str = ""

    def to_text(self) -> str:
        """As one line."""
        return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


def read_token(text: str) -> Token:
    """A token from its text, or from the file that holds it."""
    given = text.strip()
    if not given.startswith(PREFIX) and len(given) < 1000 and Path(given).is_file():
        given = Path(given).read_text(encoding="utf-8").strip()
    body = given.removeprefix(PREFIX)
    try:
        if body == given:
            raise ValueError(f"it does not start with '{PREFIX}'")
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Token)
    except (ValueError, msgspec.MsgspecError) as cause:
        raise ConfigError(f"this is not a join token: {cause}",
                          remedy="copy the whole line that 'tequio coordinator token' printed") from None


@dataclass(frozen=True)
class TokenBook:
    """The tokens that a coordinator gave out."""

    folder: Path

    def mint(self, name: str, hours: float, **role: str) -> tuple[str, bytes]:
        """A new token's id and secret, for the party of that name (empty: whoever holds the token).

        `role` says what it makes of the party: an `aggregator` at an address, or one that dials `via` an aggregator.
        """
        id, secret = secrets.token_hex(8), secrets.token_bytes(32)
        facts = {"hash": sha256(secret).hexdigest(), "name": name, "expires": time.time() + 3600 * hours, **role}
        create_private(private_folder(self.folder) / (id + _OPEN), json.dumps(facts).encode())
        return id, secret

    def check(self, id: str, secret: bytes, name: str) -> bool:
        """Refuse a wrong, foreign or expired token; whether it is still unused."""
        facts, unused = self._find(id)
        if not hmac.compare_digest(sha256(secret).hexdigest(), facts["hash"]):
            raise PermissionDenied("the join token is not one of this coordinator's", remedy=_REMEDY)
        if facts["name"] not in ("", name):
            raise PermissionDenied(f"the join token is for another party than '{name}'", remedy=_REMEDY)
        if unused and facts["expires"] < time.time():
            raise PermissionDenied("the join token has expired", remedy=_REMEDY)
        return unused

    def role(self, id: str) -> dict[str, str]:
        """What the token makes of its party."""
        facts, _ = self._find(id)
        return {key: facts[key] for key in ("aggregator", "via") if facts.get(key)}

    def take(self, id: str) -> bool:
        """Use a token up; whether it was this call that did."""
        try:
            (self.folder / (id + _OPEN)).rename(self.folder / (id + _USED))
        except FileNotFoundError:
            return False
        return True

    def waiting(self) -> Iterator[dict[str, Any]]:
        """The tokens that nobody used yet."""
        for path in sorted(self.folder.glob("*" + _OPEN)):
            yield {"id": path.stem, **json.loads(path.read_bytes())}

    def _find(self, id: str) -> tuple[dict[str, Any], bool]:
        if not id.isalnum() or len(id) > 64:
            raise PermissionDenied("the join token is not one of this coordinator's", remedy=_REMEDY)
        for ending in (_OPEN, _USED):
            path = self.folder / (id + ending)
            if path.is_file():
                return json.loads(path.read_bytes()), ending == _OPEN
        raise PermissionDenied("the join token is not one of this coordinator's", remedy=_REMEDY)
