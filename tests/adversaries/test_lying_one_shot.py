"""A coordinator that lies in a one-shot sum, alone and with the members of the committee that may be corrupt.

It plays the protocol honestly up to a point and then asks the real tasks for something else. Every attempt is refused
by a named check, and nothing that it has opens more than the sum that a quorum agreed on.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from privacy.aggregation.summed import HELD, federation, vectors
from tequio.errors import PayloadError, PermissionDenied
from tequio.federation.population import LEAST_COHORT, Party, Roster, state_name
from tequio.privacy.aggregation import ring_lwe
from tequio.privacy.aggregation.encodings import as_bitmap
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING
from tequio.privacy.aggregation.identities import signed_by
from tequio.privacy.aggregation.joint_randomness import JointSettings, learn_seed
from tequio.privacy.aggregation.one_shot_sum import OneShotSum, _points, _Sum
from tequio.privacy.aggregation.one_shot_tasks import (
    Seat,
    agree_on_survivors,
    check_shares,
    offer_key,
    open_sum,
    send_encrypted,
)

if TYPE_CHECKING:
    from tequio.federation.federation import Federation
    from tequio.federation.task import Task

PARTIES, SIZE = 10, 20
EVERYBODY = list(range(PARTIES))


class Lying:
    """A coordinator that has got as far as all messages (Q1), or further, and now does as it likes."""

    def __init__(self, *, send: bool = True, wants: int = 0) -> None:
        self.given = vectors(PARTIES, SIZE)
        self.federation: Federation = federation(self.given)
        if wants:
            self.federation.population.overrides[4] = {LEAST_COHORT: wants}
        self.sum = _Sum(OneShotSum(), self.federation, "update", self.federation.everyone(), None, "uniform")
        self.here, self.settings = self.sum._here, self.sum._settings
        self.keys, self.signatures = self.sum._committee()
        self.sent = self.sum._sent(self.keys, self.signatures, SIZE + 1) if send else {}

    def bitmap(self, parties: list[int]) -> bytes:
        return as_bitmap(self.here.cohort.numbers, parties)

    def ask(self, party: int, task: Task[Any, Any], **payload: Any) -> Any:
        """The answer of one party; or why it refused."""
        settings = payload.pop("settings", self.settings)
        here = replace(self.federation, rules=replace(self.federation.rules, on_failure="continue", quorum=0.0))
        replies = here.ask([party], task, {"name": "update", **payload}, settings=settings)
        return replies[0].payload if len(replies) else replies.failures[0].cause

    def shares_of(self, member: int, parties: list[int]) -> dict[str, Any]:
        """What a member is sent of some parties' messages."""
        sent, width = [self.sent[party].payload for party in parties], self.here.box_bytes
        place = list(self.keys).index(member)
        return {"members": self.bitmap(parties), "publics": b"".join(one["public"] for one in sent),
                "hashes": b"".join(sha256(one["boxes"]).digest() for one in sent),
                "signatures": b"".join(one["signature"] for one in sent),
                "boxes": b"".join(one["boxes"][place * width:(place + 1) * width] for one in sent)}

    def checked(self, parties: list[int] = EVERYBODY) -> None:
        for member in self.keys:
            assert not isinstance(self.ask(member, check_shares, **self.shares_of(member, parties)), str)

    def signed(self, members: list[int], parties: list[int]) -> dict[str, Any]:
        """What these members sign, ready to be shown to others."""
        found = {member: self.ask(member, agree_on_survivors, members=self.bitmap(parties)) for member in members}
        assert not [said for said in found.values() if isinstance(said, str)]
        return {"members": self.bitmap(parties), "witnesses": list(found),
                "statements": b"".join(said["signature"] for said in found.values())}


def test_the_honest_game_ends_with_the_sum() -> None:
    lying = Lying()
    lying.checked()
    quorum = lying.signed(EVERYBODY[:6], EVERYBODY)
    shares = [lying.ask(member, open_sum, **quorum)["shares"].astype(np.int64) for member in EVERYBODY[4:]]
    keys = lying.here.packing.recovered(_points(lying.here, EVERYBODY[4:]), np.stack(shares), ring_lwe.DEGREE)
    total = sum(reply.payload["ciphertext"] for reply in lying.sent.values())
    opened = ring_lwe.open_sum(lying.here.ring, keys, total, PARTIES).view(np.int32)
    np.testing.assert_allclose(opened[:SIZE] / 2.0 ** 24, np.mean(lying.given, axis=0), atol=1e-5)


def test_two_sets_of_survivors_never_both_get_a_quorum() -> None:
    """Half of the members are told that party 9 is left, half that it is not: its update would be the difference."""
    lying = Lying()
    lying.checked()
    first, second = lying.signed(EVERYBODY[:5], EVERYBODY), lying.signed(EVERYBODY[5:], EVERYBODY[:9])
    for member in EVERYBODY:
        for told in (first, second):
            refusal = lying.ask(member, open_sum, **told)
            assert "6 are a quorum" in refusal or "has agreed to the sum of other parties" in refusal
        assert "has left the state 'checked'" in lying.ask(member, agree_on_survivors, members=first["members"])


def test_a_coalition_of_all_that_may_be_corrupt_signs_both_and_still_gets_one() -> None:
    """One of ten may be corrupt: with its two signatures neither half of the honest ones makes a quorum."""
    lying = Lying()
    lying.checked()
    def with_the_corrupt(told: dict[str, Any]) -> dict[str, Any]:
        part = lying.here.agreed_part(told["members"])
        forged = signed_by(SimpleNamespace(roster=lying.here.roster, index=9), part)
        return {**told, "witnesses": [*told["witnesses"], 9], "statements": told["statements"] + forged}

    first = with_the_corrupt(lying.signed(EVERYBODY[:5], EVERYBODY))
    second = with_the_corrupt(lying.signed(EVERYBODY[5:9], EVERYBODY[:8]))
    assert "shares" in lying.ask(0, open_sum, **first)
    for member in EVERYBODY[:9]:
        assert isinstance(lying.ask(member, open_sum, **second), str)
    doubled = {**second, "witnesses": second["witnesses"] * 2, "statements": second["statements"] * 2}
    assert "5 members have agreed" in lying.ask(5, open_sum, **doubled)


@pytest.mark.parametrize("few", [1, 2, 5])
def test_the_sum_of_one_update_or_of_few_is_not_opened(few: int) -> None:
    lying = Lying()
    refusal = lying.ask(0, check_shares, **lying.shares_of(0, EVERYBODY[:few]))
    assert f"only {few} of 10 parties have shares that open and are signed for this sum, and 6 are the" in refusal
    lying.checked()
    assert f"only {few} of 10 parties are to be summed" in lying.ask(
        0, agree_on_survivors, members=lying.bitmap(EVERYBODY[:few]))
    assert f"only {few} of 10 parties are to be summed" in lying.ask(
        0, open_sum, members=lying.bitmap(EVERYBODY[:few]), witnesses=[], statements=b"")


def test_each_message_is_answered_once() -> None:
    lying = Lying()
    assert "has been summed at party '3'" in lying.ask(3, send_encrypted, **_committee(lying))
    lying.checked()
    assert "shares are checked once" in lying.ask(3, check_shares, **lying.shares_of(3, EVERYBODY[:9]))
    quorum = lying.signed(EVERYBODY[:6], EVERYBODY)
    assert "shares" in lying.ask(3, open_sum, **quorum)
    for task in (open_sum, agree_on_survivors):
        assert "holds no shares of this sum" in lying.ask(3, task, **quorum) or "has left the state" in lying.ask(
            3, task, **quorum)
    secrets = lying.federation.engine.states()[3][state_name(Seat)]["secrets"]
    assert set(secrets) == {"key"}


def _committee(lying: Lying) -> dict[str, bytes]:
    return {"keys": b"".join(lying.keys.values()), "signatures": b"".join(lying.signatures.values())}


def test_shares_of_another_than_the_party_dealt_are_refused() -> None:
    """Boxes are signed all together: neither their key, their hash nor their sender can be another's."""
    for part, width in (("publics", 32), ("hashes", 32), ("signatures", 64)):
        lying = Lying()
        true = lying.shares_of(0, EVERYBODY)
        swapped = true[part][width:2 * width] + true[part][:width] + true[part][2 * width:]
        assert lying.ask(0, check_shares, **{**true, part: swapped})["bad"] == [0, 1]
        assert "whose shares this member does not hold" in lying.ask(
            0, agree_on_survivors, members=lying.bitmap(EVERYBODY))
    lying = Lying()
    true = lying.shares_of(0, EVERYBODY)
    assert "not well formed" in lying.ask(0, check_shares, **{**true, "boxes": true["boxes"][lying.here.box_bytes:]})
    boxes = bytearray(true["boxes"][:-1])
    boxes[3] ^= 1
    assert lying.ask(0, check_shares, **{**true, "boxes": bytes(boxes)})["bad"] == [0, 9]


def test_a_message_of_another_sum_is_worth_nothing_in_this_one() -> None:
    """Other terms (a smaller room, a larger weight) make another sum: what parties signed does not fit it."""
    lying = Lying()
    for terms in ({"room": 11}, {"by_rows": True}, {"fewest": 7}):
        other = replace(lying.settings, **terms)
        assert "only 0 of 10 parties have shares that open and are signed for this sum" in lying.ask(
            1, check_shares, **lying.shares_of(1, EVERYBODY), settings=other)
    lying.checked()
    assert "its terms have changed" in lying.ask(1, agree_on_survivors, members=lying.bitmap(EVERYBODY),
                                                 settings=replace(lying.settings, room=11))


def test_a_member_cannot_be_made_up_and_none_seated_who_was_not_drawn() -> None:
    lying = Lying(send=False)
    true = _committee(lying)
    made_up = {**true, "keys": Lying(send=False).keys[0] + true["keys"][32:]}
    assert "the keys of party 0 are not signed" in lying.ask(4, send_encrypted, **made_up)
    alone = {**true, "keys": true["keys"][:32] + bytes(32 * 9)}
    assert "1 members have offered keys of their own, and 6 are needed" in lying.ask(4, send_encrypted, **alone)
    large = federation(vectors(60))
    drawn = _Sum(OneShotSum(), large, "update", large.everyone(), None, "uniform")
    outside = next(party for party in range(60) if party not in drawn._here.committee)
    replies = replace(large, rules=replace(large.rules, quorum=0.0)).ask(
        [outside], offer_key, {"name": "update"}, settings=drawn._settings)
    assert "does not sit on the committee" in replies.failures[0].cause


def test_one_share_too_few_opens_nothing() -> None:
    """Five of ten members, where six are needed, put no sum of keys together, so that no sum opens."""
    lying = Lying()
    lying.checked()
    quorum = lying.signed(EVERYBODY[:6], EVERYBODY)
    shares = np.stack([lying.ask(member, open_sum, **quorum)["shares"].astype(np.int64) for member in EVERYBODY[:5]])
    packing = lying.here.packing
    total = sum(reply.payload["ciphertext"] for reply in lying.sent.values())
    for guess in (0, 1):  # with a share made up for the sixth
        found = packing.recovered(_points(lying.here, EVERYBODY[:6]), np.vstack([shares, shares[:1] * guess]),
                                  ring_lwe.DEGREE)
        with pytest.raises(PayloadError, match="no sum of 10 keys"):
            ring_lwe.open_sum(lying.here.ring, found, total, PARTIES)


def test_ciphertexts_of_others_than_agreed_on_do_not_open() -> None:
    """With the sum of keys of nine parties, neither ten ciphertexts open, nor eight, nor one, nor nine others."""
    lying = Lying()
    lying.checked()
    quorum = lying.signed(EVERYBODY[:6], EVERYBODY[:9])
    shares = np.stack([lying.ask(member, open_sum, **quorum)["shares"].astype(np.int64) for member in EVERYBODY[:6]])
    keys = lying.here.packing.recovered(_points(lying.here, EVERYBODY[:6]), shares, ring_lwe.DEGREE)
    sent = [lying.sent[party].payload["ciphertext"] for party in EVERYBODY]
    for others in (EVERYBODY, EVERYBODY[:8], [0], EVERYBODY[1:], [*EVERYBODY[:8], 0]):
        with pytest.raises(PayloadError, match="larger errors than their keys allow"):
            ring_lwe.open_sum(lying.here.ring, keys, sum(sent[party] for party in others) % ring_lwe.MODULUS, 9)
    ring_lwe.open_sum(lying.here.ring, keys, sum(sent[:9]) % ring_lwe.MODULUS, 9)


def test_a_party_whose_owner_wants_more_sends_nothing_to_a_sum_of_fewer() -> None:
    """Members go by the terms of the sum, so the party that sends looks at these."""
    lying = Lying(send=False, wants=8)
    assert "would be opened for 6 parties, and party '4' wants at least 8" in lying.ask(
        4, send_encrypted, **_committee(lying))
    assert "ciphertext" in lying.ask(3, send_encrypted, **_committee(lying))


def test_a_party_whose_state_is_put_back_remembers_what_it_sent(tmp_path: Any) -> None:
    """Its journal is not among the states that a coordinator can ask to go back to: the same request gets the same
    bytes, and no second message is ever made of the update."""
    lying = Lying()
    pinned = Roster(lying.here.roster.agreed, PARTIES, folder=str(tmp_path))
    population = replace(lying.federation.population, pinned=pinned)

    def asked(task: Any, payload: Any, settings: Any = lying.settings) -> Any:
        before = {HELD: {"round": 1, "vectors": {"update": lying.given[5]}}}
        return task(Party(5, 1, before, population), payload, settings)

    asked(learn_seed, lying.federation.agreed["openings"], JointSettings(stage=OneShotSum(), local=NO_TRAINING))
    message = {"name": "update", **_committee(lying)}
    first, again = asked(send_encrypted, message), asked(send_encrypted, message)
    assert first["ciphertext"].tobytes() == again["ciphertext"].tobytes()
    assert first["boxes"] == again["boxes"]
    without = {**message, "keys": message["keys"][:-32] + bytes(32)}
    with pytest.raises(PermissionDenied, match="an update is sent once"):
        asked(send_encrypted, without)
    assert [line for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()
            if "an update is sent once" in line]
