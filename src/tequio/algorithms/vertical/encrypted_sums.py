"""The coordinator's part in computing under encryption: it adds what it cannot read, and relays to the key holder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.algorithms.vertical.regression_tasks import open_hidden
from tequio.algorithms.vertical.roles import require_key_holder
from tequio.errors import EncryptionError
from tequio.privacy.encryption.fixed_point import FixedPoint
from tequio.privacy.encryption.randomness import source

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.payload import Payload
    from tequio.federation.task import Task
    from tequio.privacy.encryption.scheme import Encrypted, PublicKey, Scheme


def encrypted_sum(talk: Conversation, public: PublicKey, how: Task, name: str, each: Mapping[int, Payload],
                  settings: dict[str, Any]) -> Payload:
    """What the parties answer under that name, added up; a party whose answer cannot be added is named."""
    received: dict[str, Encrypted] = {}

    def check(payload: Payload, whose: str) -> None:
        received[whose] = public.receive(payload.get(name, {}), whose)

    replies = talk.ask(each, how, each=each, settings=settings, check=check)
    parts = {reply.party: received[f"party '{talk.federation.name(reply.party)}'"] for reply in replies}
    try:
        total = public.add(*parts.values())
    except EncryptionError as cause:
        talk.refuse(how, _odd_one(public, parts), cause.message)
        raise
    # What is fresh stays so when added: no randomness is needed to send it.
    return public.send(total, source("system", talk.federation.rng("send")))


def _odd_one(public: PublicKey, parts: Mapping[int, Encrypted]) -> int:
    """The first party whose ciphertexts do not go with those of most others."""
    def strangers(party: int) -> int:
        return sum(not _go_together(public, parts[party], other) for other in parts.values())

    return max(parts, key=lambda party: (strangers(party), party))


def _go_together(public: PublicKey, first: Encrypted, second: Encrypted) -> bool:
    try:
        public.add(first, second)
    except EncryptionError:
        return False
    return True


def opened(talk: Conversation, hidden: Payload, settings: dict[str, Any]) -> Payload:
    """What the key holder makes of some hidden ciphertexts, by the same names."""
    told = talk.tell(require_key_holder(talk.federation), open_hidden, {"hidden": hidden}, settings=settings)["opened"]
    if told.keys() != hidden.keys():
        talk.refuse(open_hidden, require_key_holder(talk.federation), "it did not open what it was asked to open")
    result: Payload = told
    return result


def encrypted_mask(talk: Conversation, scheme: Scheme, public: PublicKey, flags: NDArray[np.uint8],
                   step: object) -> Payload:
    """Which rows of a batch count, as it goes to the parties."""
    draw = source(scheme.randomness, talk.federation.rng(f"mask {step}"))
    return public.send(public.encrypt(flags, draw, FixedPoint(0, 0)), draw)
