"""Updates are released only to an aggregator whose code has been attested.

An attestor says, under a key that parties know beforehand, which code answers a fresh challenge. In a trusted execution
environment the hardware says so. The attestor `software` is a declared stand-in: it measures the package's own files
and signs with a key that is in them, so that it shows that the protocol works, and protects against nobody who can
write to the coordinator's disk.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from tequio.errors import PermissionDenied
from tequio.federation.stages import Stage, StageSpec
from tequio.federation.task import Done, NoSettings, Reveals, record, task
from tequio.privacy.aggregation.keys import is_signed, signature, signing_public
from tequio.privacy.updates import OfRound
from tequio.registry import build, register

if TYPE_CHECKING:

    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

_STAND_IN = sha256(b"tequio software attestor: a declared stand-in, no secret").digest()


class Statement(TypedDict):
    """Which code runs, and who says so."""

    measurement: str
    signature: bytes


class Attestor(Protocol):
    """Says which code runs at the coordinator, in words that parties can check."""

    def attest(self, challenge: bytes) -> Statement:
        """At the coordinator: what runs here, bound to a fresh challenge."""
        ...

    def verify(self, statement: Statement, challenge: bytes) -> str:
        """At the party: the measurement that the statement proves; an error where it proves none."""
        ...


@register("attestor", "software", example="[[stages]]\nname = 'attested'\nattestor = 'software'\n")
@dataclass(frozen=True)
class SoftwareAttestor:
    """A declared stand-in for attested hardware: measures the installed package, with a key that everybody has."""

    def attest(self, challenge: bytes) -> Statement:
        """The hash of the package's files."""
        measurement = measured_package()
        return {"measurement": measurement, "signature": signature(_STAND_IN, _words(measurement, challenge))}

    def verify(self, statement: Statement, challenge: bytes) -> str:
        """The measurement, if it is signed for this challenge."""
        measurement, signed = statement.get("measurement"), statement.get("signature")
        if not isinstance(measurement, str) or not isinstance(signed, bytes) or not is_signed(
                signing_public(_STAND_IN), signed, _words(measurement, challenge)):
            raise PermissionDenied("the coordinator's attestation is forged, or answers another challenge",
                                   remedy="do not send updates to it")
        return measurement


@register("stage", "attested")
@dataclass(frozen=True)
class Attested(Stage):
    """Parties release updates only after the coordinator's code has been attested to them, in every round anew.

    Parameters:
        attestor: who attests: 'software' is a declared stand-in that protects against nobody
        measurement: what the code must measure (empty: the same as the party's own installation)
    """

    attestor: str = "software"
    measurement: str = ""

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=("model", "common", "own", "code", "bytes", "hidden"))

    def prepare(self, federation: Federation, parties: NDArray[np.int64]) -> None:
        """At the coordinator: answer a challenge of each party."""
        quiet = federation.off_the_clock()
        challenges = quiet.ask(parties, pose_challenge)
        made: Attestor = build("attestor", self.attestor)
        quiet.ask(challenges.parties, check_attestation, each={
            reply.party: {"statement": made.attest(reply.payload["challenge"])} for reply in challenges},
            settings=AttestationSettings(attestor=self.attestor, measurement=self.measurement))

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: nothing leaves for code that was not attested in this round."""
        seen = party.recall(_Seen)
        if seen.get("round") != party.round or not seen.get("checked"):
            raise PermissionDenied(f"party '{party.name}' has seen no attestation of the coordinator's code in this "
                                   "round", remedy="the coordinator must answer the party's challenge first")
        party.forget(_Seen)
        return payload

@record
class AttestationSettings:
    """Who attests, and what the code must measure (empty: the same as the party's own installation)."""

    attestor: str
    measurement: str


class Challenge(TypedDict):
    """Something that nobody could have known before."""

    challenge: bytes


class Attestation(TypedDict):
    """The coordinator's answer to a challenge."""

    statement: Statement


class _Seen(OfRound, total=False):
    """What a party has posed as a challenge, and whether the answer was right."""

    challenge: bytes
    checked: bool


@task("attested.challenge", settings=NoSettings, reply=Challenge, reveals=Reveals.NOTHING)
def pose_challenge(party: Party, payload: Payload, settings: NoSettings) -> Challenge:
    """A fresh random challenge."""
    challenge = secrets.token_bytes(32)
    party.keep(_Seen, {"round": party.round, "challenge": challenge, "checked": False})
    return {"challenge": challenge}


@task("attested.check", settings=AttestationSettings, reply=Done, reveals=Reveals.NOTHING)
def check_attestation(party: Party, payload: Attestation, settings: AttestationSettings) -> Done:
    """Believe the coordinator only if its code measures what it must."""
    seen = party.recall(_Seen)
    if seen.get("round") != party.round:
        raise PermissionDenied(f"party '{party.name}' has posed no challenge in this round")
    made: Attestor = build("attestor", settings.attestor)
    found, wanted = made.verify(payload["statement"], seen["challenge"]), settings.measurement or measured_package()
    if found != wanted:
        raise PermissionDenied(f"the coordinator runs other code ({found[:12]}...) than party '{party.name}' agreed to "
                               f"({wanted[:12]}...)", remedy="install the same version, or ask what was changed")
    party.keep(_Seen, {"checked": True})
    return {}


@lru_cache(maxsize=1)
def measured_package() -> str:
    """The hash of all Python files of the installed package, with their names."""
    import tequio

    root, whole = Path(tequio.__path__[0]), sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(f"{path.relative_to(root).as_posix()}\0".encode() + sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def _words(measurement: str, challenge: bytes) -> bytes:
    return b"tequio attestation|" + measurement.encode() + b"|" + challenge
