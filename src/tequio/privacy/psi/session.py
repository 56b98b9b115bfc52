"""One set intersection as a member sees it: who takes part, what each of them signed, and keys to seal lists with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.errors import PayloadError, PermissionDenied
from tequio.privacy.aggregation.encodings import content, derived_key, digest
from tequio.privacy.aggregation.identities import check_signed, signed_by
from tequio.privacy.aggregation.keys import opened, sealed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.population import Party
    from tequio.privacy.aggregation.encodings import Field

ALTERED = "the coordinator altered or replayed a message; stop working with it"
_LEAST = 2


@dataclass(frozen=True)
class Session:
    """An intersection: its members, by their numbers in the roster, and its number, which is a hash of all that was
    agreed about it."""

    party: Party
    members: tuple[int, ...]
    sid: bytes

    @classmethod
    def of(cls, party: Party, members: Sequence[int], *agreed: Field) -> Session:
        """The intersection of some members that this party is asked to take part in."""
        ours = tuple(members)
        if ours != party.roster.holders or party.index not in ours or len(ours) < _LEAST:
            raise PermissionDenied("these are not the parties whose ids are intersected",
                                   remedy="intersect those of all parties that hold rows, as they were announced")
        return cls(party, ours, digest("psi", party.roster.agreed, *ours, *agreed))

    @property
    def place(self) -> int:
        """The own place among the members."""
        return self.members.index(self.party.index)

    @property
    def own(self) -> str:
        """This party, for people."""
        return f"party '{self.party.name}'"

    def after(self, place: int, hops: int) -> int:
        """The place so many hops on, round and round."""
        return (place + hops) % len(self.members)

    def called(self, place: int) -> str:
        """The member at a place, for people."""
        return f"party {self.members[place]}"

    def one_of_each(self, given: Sequence[object], what: str) -> None:
        """Refuse fewer or more messages than there are members."""
        if not isinstance(given, list) or len(given) != len(self.members):
            raise PayloadError(f"there are not {len(self.members)} {what}, one of each party", remedy=ALTERED)

    def sign(self, purpose: str, *fields: Field) -> bytes:
        """The own signature under a statement of this intersection."""
        return signed_by(self.party, content(purpose, self.sid, self.place, *fields))

    def require(self, signed: bytes, place: int, purpose: str, *fields: Field) -> None:
        """Refuse a statement that a member has not signed."""
        check_signed(self.party.roster, self.members[place], signed, content(purpose, self.sid, place, *fields),
                     f"the bytes of the {purpose}")

    def digest(self, purpose: str, *fields: Field) -> bytes:
        """A hash that holds in this intersection only."""
        return digest(purpose, self.sid, *fields)

    def key(self, secret: bytes, purpose: str, *fields: Field) -> bytes:
        """A key for one purpose in this intersection."""
        return derived_key(self.party.roster.agreed, secret, purpose, self.sid, *fields)

    def seal(self, secret: bytes, owner: int, hop: int, points: bytes) -> bytes:
        """A list on its way, for all who know the secret; each step of each list is sealed once."""
        return sealed(self.key(secret, "psi box", self.place, owner, hop), points, b"")

    def open(self, secret: bytes, sender: int, owner: int, hop: int, box: bytes) -> bytes:
        """What a member sealed."""
        return opened(self.key(secret, "psi box", sender, owner, hop), box, b"", self.called(sender))
