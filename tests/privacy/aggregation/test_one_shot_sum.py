"""One-shot sums: exact whoever drops out, and who does not keep to the protocol is found and named."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import combinations
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tequio.errors import ConfigError, PayloadError, QuorumError
from tequio.privacy.aggregation import one_shot_tasks
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.aggregation.identities import signed_by
from tequio.privacy.aggregation.one_shot_sum import OneShotSum, _Sum
from tequio.privacy.aggregation.packed_shares import PRIME, Packing
from tequio.privacy.aggregation.secure_sum import SecureSum
from tequio.registry import build

from .summed import HELD, federation, vectors

if TYPE_CHECKING:
    from tequio.federation.exchange import Reply
    from tequio.federation.federation import Federation

PHASES = ("commit", "offer", "send", "check", "agree", "open")


def summed(here: Federation, stage: Any = None, size: int = 50) -> Any:
    stage = stage or OneShotSum()
    return stage.total(here, here.everyone(), "update", np.ones(len(here)), size, by="uniform")


def in_whole_numbers(given: list[np.ndarray], left: Any, stage: Any = None) -> np.ndarray:
    """The mean of the same whole numbers, in the open."""
    ring = Ring.of(*(stage or OneShotSum()).ring, len(given))
    total = sum(np.rint(given[party].astype(np.float64) * (ring.scale / len(given))) for party in left)
    return total * (len(given) / (ring.scale * len(left)))


def noted(given: list[np.ndarray]) -> tuple[Federation, list[str]]:
    """A federation, and what it notes of parties at fault."""
    here, notes = federation(given), []
    here.record = lambda kind, facts: notes.append(f"{facts['party']}: {facts['cause']}") if kind == "failure" else None
    return here, notes


@pytest.mark.parametrize("parties", [3, 10, 51])
def test_a_sum_is_exact_and_that_of_masked_updates(parties: int) -> None:
    given = vectors(parties)
    found = summed(federation(given))
    np.testing.assert_array_equal(found.mean, in_whole_numbers(given, range(parties)))
    np.testing.assert_array_equal(found.mean, summed(federation(given), SecureSum()).mean)
    assert found.parties.tolist() == list(range(parties))


def test_keys_come_from_the_system_and_change_nothing() -> None:
    given = vectors(10)
    here, other = federation(given), federation(given)
    assert summed(here).mean.tobytes() == summed(other).mean.tobytes()
    sent = [reply.payload["ciphertext"] for task, reply in (*here.engine.seen, *other.engine.seen)
            if task == "one-shot-sum.send"]
    assert len({ciphertext.tobytes() for ciphertext in sent}) == 20


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("gone", [{0}, {9}, {2, 5}, {1, 4, 8}])
def test_it_is_exact_whoever_drops_out_or_lost(phase: str, gone: set[int]) -> None:
    """Of ten parties six must be left, and six open the sum."""
    given, here = vectors(10), federation(vectors(10))
    here.engine.lost = {phase: gone}
    left = [party for party in range(10) if phase not in ("commit", "send") or party not in gone]
    found = summed(here)
    np.testing.assert_array_equal(found.mean, in_whole_numbers(given, found.parties.tolist()))
    assert found.parties.tolist() == (left if phase == "send" else list(range(10)))


@pytest.mark.parametrize("phase", PHASES[1:])
def test_where_too_many_drop_out_the_round_is_lost(phase: str) -> None:
    here = federation(vectors(10))
    here.engine.lost = {phase: {0, 1, 2, 3, 4}}
    with pytest.raises(QuorumError, match=r"ask more parties per round|only"):
        summed(here)


def test_any_three_of_seven_may_drop_out_and_others_open_the_same() -> None:
    """The committee of seven opens with four, whoever they are."""
    given, means = vectors(7), set()
    for gone in combinations(range(7), 3):
        here = federation(given)
        here.engine.lost = {"open": set(gone)}
        means.add(summed(here).mean.tobytes())
    assert len(means) == 1


def test_each_party_weighs_itself_and_none_sixteen_times_another() -> None:
    given = vectors(10)
    here = federation(given)
    rows = np.array([len(here.population.view(party).train) for party in range(10)])
    stage = OneShotSum(cap=int(rows.max()))
    weights = np.clip(rows / rows.max(), 1 / 16, 1)
    found = stage.total(here, here.everyone(), "update", np.ones(10), 50)
    np.testing.assert_allclose(found.mean, np.average(given, axis=0, weights=weights), atol=1e-4)
    assert found.weight == pytest.approx(weights.sum(), abs=1e-3)


def test_a_committee_keeps_its_keys_for_the_next_sum() -> None:
    given = vectors(10)
    here = federation(given)
    summed(here)
    here.engine.restore({party: {**state, HELD: {"round": 2, "vectors": {"update": given[party]}}}
                         for party, state in here.engine.states().items()})
    here.round = 2
    np.testing.assert_array_equal(summed(here).mean, in_whole_numbers(given, range(10)))
    asked = [task for task, _ in here.engine.seen]
    assert [asked.count(f"{task}") for task in ("one-shot-sum.offer", "joint.commit", "one-shot-sum.send")] == [
        10, 10, 20]


def test_a_party_that_deals_no_polynomial_of_the_right_degree_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = one_shot_tasks._encrypted

    def too_high(here: Any, party: Any, keys: Any, numbers: Any) -> Any:
        packing = here.packing
        if party.index == 3:  # one degree more, and one random value more, so that all else fits
            here = replace(here, packing=_Higher(packing.holders, packing.needed + 1, packing.corrupt + 1))
        return plain(here, party, keys, numbers)

    monkeypatch.setattr(one_shot_tasks, "_encrypted", too_high)
    given = vectors(10)
    here, notes = noted(given)
    found = summed(here)
    assert notes == ["3: its shares do not fit together, or a member says that its box does not open or is not signed"]
    np.testing.assert_array_equal(found.mean, in_whole_numbers(given, [0, 1, 2, 4, 5, 6, 7, 8, 9]))


class _Higher(Packing):
    """Shares of one degree more."""


def spoilt_box(member: int, name: str, reply: Reply) -> Reply:
    """What the coordinator gets of a party that seals noise for one member, and signs it."""
    if name != "one-shot-sum.send" or reply.party != 2:
        return reply
    here = _here.pop()
    boxes = bytearray(reply.payload["boxes"])
    boxes[member * here.box_bytes + 5] ^= 1
    said = {**reply.payload, "boxes": bytes(boxes)}
    part = here.sent_part(2, said["public"], sha256(said["boxes"]).digest())
    return replace(reply, payload={**said, "signature": sign(here, 2, part)})


_here: list[Any] = []


def sign(here: Any, party: int, content: bytes) -> bytes:
    return signed_by(SimpleNamespace(roster=here.roster, index=party), content)


def test_a_party_whose_box_does_not_open_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    given = vectors(10)
    here, notes = noted(given)
    plain = _Sum._sent
    monkeypatch.setattr(_Sum, "_sent", lambda self, *given: (_here.append(self._here), plain(self, *given))[1])
    here.engine.on_reply = partial(spoilt_box, 4)
    found = summed(here)
    assert [note[0] for note in notes] == ["2"]
    np.testing.assert_array_equal(found.mean, in_whole_numbers(given, [0, 1, *range(3, 10)]))


@pytest.mark.parametrize("lies", ["about all", "says all boxes are bad"])
def test_a_member_that_lies_about_all_shares_is_found_and_nobody_left_out(
        lies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = one_shot_tasks._opened_shares

    def lying(here: Any, party: Any, *rest: Any) -> Any:
        shares, sums, bad = plain(here, party, *rest)
        if party.index != 6:
            return shares, sums, bad
        return (shares, (sums + 1) % PRIME, bad) if lies == "about all" else (shares[4:], sums, [0, 1, 2, 3])

    monkeypatch.setattr(one_shot_tasks, "_opened_shares", lying)
    given = vectors(10)
    here, notes = noted(given)
    found = summed(here)
    assert notes == ["6: it disagrees with other members about the shares of more parties than may be at fault"]
    np.testing.assert_array_equal(found.mean, in_whole_numbers(given, range(10)))
    assert found.notes["one_shot_sum"]["opened_by"] == 9


def wrong_sum(liars: set[int], name: str, reply: Reply) -> Reply:
    if name != "one-shot-sum.open" or reply.party not in liars:
        return reply
    shares = ((reply.payload["shares"].astype(np.int64) + 1 + reply.party) % PRIME).astype(np.uint32)
    part = _here[0].opened_part(reply.party, shares)
    return replace(reply, payload={"shares": shares, "signature": sign(_here[0], reply.party, part)})


@pytest.mark.parametrize("liars", [{0}, {3, 7}, {1, 2, 3}])
def test_members_that_open_wrong_sums_are_found_or_the_round_is_lost(
        liars: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten answers where six are needed two may be wrong; of more it is known that they do not fit together."""
    given = vectors(10)
    here, notes = noted(given)
    plain = _Sum._opened
    monkeypatch.setattr(_Sum, "_opened", lambda self, *given: (_here.append(self._here), plain(self, *given))[1])
    _here.clear()
    here.engine.on_reply = partial(wrong_sum, liars)
    if len(liars) > 2:
        with pytest.raises(PayloadError, match="opened sums that do not fit together"):
            summed(here)
        return
    np.testing.assert_array_equal(summed(here).mean, in_whole_numbers(given, range(10)))
    assert notes == [f"{party}: it opened a wrong sum of shares" for party in sorted(liars)]


@pytest.mark.parametrize(("task", "change", "complaint"), [
    ("offer", {"key": bytes(32)}, "key that it has not signed"),
    ("send", {"ciphertext": np.zeros(5, np.uint64)}, "did not send 51 numbers"),
    ("send", {"boxes": b""}, "one sealed box for each member"),
    ("send", {"public": b""}, "one sealed box for each member"),
    ("send", {"ciphertext": np.full(51, 1 << 52, np.uint64)}, "did not send 51 numbers"),
    ("send", {"public": bytes(32)}, "a member says that its box does not open"),
    ("send", {"signature": bytes(64)}, "or is not signed"),
    ("check", {"sums": np.zeros((10, 2), np.uint32)}, "three sums"), ("check", {"bad": [77]}, "three sums"),
    ("check", {"signature": b""}, "has not signed what it shows"),
    ("agree", {"signature": bytes(64)}, "has not signed whose updates are summed"),
    ("open", {"shares": np.zeros(3, np.uint32)}, "one sum of shares for each polynomial"),
    ("open", {"signature": bytes(64)}, "has not signed what it opens"),
])
def test_a_malformed_message_is_the_failure_of_its_party(task: str, change: dict[str, Any], complaint: str) -> None:
    def changed(name: str, reply: Reply) -> Reply:
        return replace(reply, payload={**reply.payload, **change}) \
            if name == f"one-shot-sum.{task}" and reply.party == 2 else reply

    given = vectors(10)
    here, notes = noted(given)
    here.engine.on_reply = changed
    found = summed(here)
    assert [note for note in notes if complaint in note and note.startswith("2:")]
    assert found.parties.tolist() == [party for party in range(10) if task != "send" or party != 2]


def test_two_updates_are_never_summed() -> None:
    with pytest.raises(QuorumError, match="3 are needed"):
        summed(federation(vectors(2)))


def test_the_name_that_it_replaces_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"'encrypted-sum' is gone: every party held its key.*'one-shot-sum'"):
        build("stage", "encrypted-sum")
