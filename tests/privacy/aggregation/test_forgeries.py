"""A coordinator, a network or a party that cheats in a secure sum is found out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tequio.errors import PartyError, PayloadError, QuorumError
from tequio.federation.federation import Rules
from tequio.federation.population import state_name
from tequio.privacy.aggregation.keys import SHARE_BYTES, Identity, fresh_key, public_of
from tequio.privacy.aggregation.secure_sum import SecureSum
from tequio.privacy.aggregation.secure_sum_tasks import Secrets

from .summed import Hostile, federation, in_plain, total, vectors

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.federation.exchange import Order, Reply

STRICT = Rules(on_failure="stop")
IDENTITY = state_name(Identity)


def on_reply(task: str, party: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    def changed(name: str, reply: Reply) -> Reply:
        if name != f"secure-sum.{task}" or reply.party != party:
            return reply
        return replace(reply, payload={**reply.payload, **change(reply.payload)})

    return changed


def on_order(task: str, party: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    def changed(order: Order) -> Order:
        if order.task != f"secure-sum.{task}" or order.each is None or party not in order.parties:
            return order
        place = order.parties.index(party)
        each = [dict(own) for own in order.each]
        each[place] |= change(each[place])
        return replace(order, each=tuple(each))

    return changed


def first_flipped(pieces: list[bytes]) -> list[bytes]:
    return [bytes([pieces[0][0] ^ 1]) + pieces[0][1:], *pieces[1:]]


@pytest.mark.parametrize(("task", "change", "complaint"), [
    ("keys", lambda said: {"keys": public_of(fresh_key()) * 2}, "has not signed"),
    ("keys", lambda said: {"keys": said["keys"][:40]}, "has not signed"),
    ("keys", lambda said: {"signature": 4}, "'signature' of its reply is not bytes"),
    ("shares", lambda said: {"boxes": said["boxes"][:-1]}, "one sealed box"),
    ("shares", lambda said: {"boxes": [b"", *said["boxes"][1:]]}, "one sealed box"),
    ("shares", lambda said: {"commitments": 7}, "'commitments' of its reply is not a list"),
    ("shares", lambda said: {"own_mask": None}, "'own_mask' of its reply is not bytes"),
    ("masked", lambda said: {"masked": said["masked"][:-1]}, "masked update of 50"),
    ("masked", lambda said: {"masked": said["masked"].astype(np.int64)}, "an array of unsigned whole numbers"),
])
def test_a_malformed_message_is_the_failure_of_its_party(task: str, change: Any, complaint: str) -> None:
    given = vectors(6)
    here = federation(given, rules=STRICT)
    here.engine.on_reply = on_reply(task, 2, change)
    with pytest.raises(PartyError, match=rf"party '2' .*{complaint}"):
        total(here, SecureSum())
    lenient = federation(given)
    lenient.engine.on_reply = on_reply(task, 2, change)
    np.testing.assert_array_equal(total(lenient, SecureSum()).mean,
                                  in_plain(given, np.ones(6), SecureSum(), [0, 1, 3, 4, 5]))


@pytest.mark.parametrize(("task", "change", "complaint"), [
    ("shares", lambda own: {"keys": [public_of(fresh_key()) * 2, *own["keys"][1:]]}, "not signed by it"),
    ("shares", lambda own: {"keys": [own["keys"][1], *own["keys"][1:]]}, "not signed by it"),
    ("shares", lambda own: {"neighbours": [2, *own["neighbours"][1:]]}, "names this party"),
    ("shares", lambda own: {"neighbours": [own["neighbours"][1], *own["neighbours"][1:]]}, "twice"),
    ("masked", lambda own: {"boxes": first_flipped(own["boxes"])}, "forged, replayed or altered"),
    ("masked", lambda own: {"boxes": own["boxes"][::-1]}, "forged, replayed or altered"),
    ("masked", lambda own: {"senders": own["senders"][:1], "boxes": own["boxes"][:1]}, "too few"),
    ("masked", lambda own: {"senders": [9, *own["senders"][1:]]}, "no neighbours"),
    ("masked", lambda own: {"share": 7.0}, "not between 0 and 1"),
    ("unmask", lambda own: {"gone": own["alive"]}, "both secrets"),
    ("unmask", lambda own: {"alive": own["alive"][:1], "gone": own["alive"][1:]}, "too few to unmask"),
])
def test_a_coordinator_that_cheats_gets_no_answer(task: str, change: Any, complaint: str) -> None:
    here = federation(vectors(6), rules=STRICT)
    here.engine.on_order = on_order(task, 2, change)
    with pytest.raises(PartyError, match=rf"party '2' .*{complaint}"):
        total(here, SecureSum())


def test_a_message_of_another_sum_is_not_answered() -> None:
    def replayed(order: Order) -> Order:
        return replace(order, payload={**order.payload, "session": b"another session!"}) \
            if order.task == "secure-sum.masked" else order

    here = federation(vectors(6), rules=STRICT)
    here.engine.on_order = replayed
    with pytest.raises(PartyError, match="takes no part in this sum"):
        total(here, SecureSum())


def test_keys_of_an_earlier_sum_are_not_taken_again() -> None:
    given, remembered = vectors(6), {}

    def replayed(name: str, reply: Reply) -> Reply:
        if name == "secure-sum.keys" and reply.party == 2:
            return replace(reply, payload=remembered.setdefault("keys", reply.payload))
        return reply

    here = federation(given, rules=STRICT)
    here.engine.on_reply = replayed
    total(here, SecureSum())
    states = here.engine.states()
    here.engine.restore({party: {**states[party], **federation(given).engine.states()[party]} for party in states})
    with pytest.raises(PartyError, match="has not signed for this sum"):
        total(here, SecureSum())


def test_another_identity_than_before_is_noticed() -> None:
    given = vectors(6)
    here = federation(given, rules=STRICT)
    total(here, SecureSum())
    states = {party: {**state, **federation(given).engine.states()[party]}
              for party, state in here.engine.states().items()}
    del states[2][IDENTITY]
    here.engine.restore(states)
    with pytest.raises(PartyError, match="party 2 has another identity than before"):
        total(here, SecureSum())


def test_a_forged_share_is_told_by_its_commitment_and_does_not_matter() -> None:
    given = vectors(8)
    here = federation(given)
    told: list[str] = []
    here.record = lambda kind, facts: told.append(f"{facts['party']}: {facts['cause']}") if kind == "failure" else None
    here.engine.lost = {"masked": {0}}
    here.engine.on_reply = on_reply("unmask", 1, lambda said: {"masks": [b"\1" * SHARE_BYTES] * len(said["masks"]),
                                                              "keys": [b"no share"] * len(said["keys"])})
    np.testing.assert_array_equal(total(here, SecureSum()).mean, in_plain(given, np.ones(8), SecureSum(), range(1, 8)))
    assert len(told) == 7
    assert all(text.startswith("1: it showed a forged share") for text in told)


def test_too_many_forged_shares_stop_the_sum() -> None:
    here = federation(vectors(6))

    def forged(name: str, reply: Reply) -> Reply:
        for party in (0, 1, 2):
            reply = on_reply("unmask", party, lambda said: {"masks": [bytes(SHARE_BYTES)] * len(said["masks"])})(
                name, reply)
        return reply

    here.engine.on_reply = forged
    with pytest.raises(QuorumError, match=r"neighbours of party . showed true shares"):
        total(here, SecureSum())


def test_a_dealer_that_shares_another_secret_is_named() -> None:
    here = federation(vectors(6))
    here.engine.on_reply = on_reply("shares", 3, lambda said: {"own_mask": b"sixteen bytes...."[:16]})
    with pytest.raises(PayloadError, match="party 3 shared another secret"):
        total(here, SecureSum())


def test_the_coordinator_never_carries_a_secret_in_the_open() -> None:
    here = federation(vectors(5))
    secrets_met: set[bytes] = set()
    watched: Hostile = here.engine
    collect = watched.collect

    def spying() -> Any:
        outcome = collect()
        for state in watched.states().values():
            mine = state.get(state_name(Secrets), {})
            secrets_met.update(mine[name] for name in ("sealing", "masking", "own_mask") if name in mine)
            secrets_met.update({state[IDENTITY]["seed"]} if IDENTITY in state else ())
        return outcome

    watched.collect = spying  # type: ignore[method-assign]
    total(here, SecureSum())
    assert len(secrets_met) == 4 * 5
    crossed = b"".join(repr(reply.payload).encode() for _, reply in watched.seen)
    assert not any(repr(secret).encode()[2:-1] in crossed for secret in secrets_met)
