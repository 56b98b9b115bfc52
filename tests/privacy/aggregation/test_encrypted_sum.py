from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from tequio.errors import PartyError, PayloadError, QuorumError
from tequio.federation.federation import Rules
from tequio.federation.population import state_name
from tequio.privacy.aggregation.ckks import SLOTS, BlindSum, decrypted, encrypted, new_key, without_secret
from tequio.privacy.aggregation.encrypted_sum import EncryptedSum, Key
from tequio.privacy.aggregation.secure_sum import SecureSum

from .summed import HELD, federation, in_plain, total, vectors

if TYPE_CHECKING:
    from tequio.federation.exchange import Order, Reply

pytest.importorskip("tenseal")

KEY = state_name(Key)


@pytest.fixture(scope="module")
def key() -> bytes:
    return new_key()


@pytest.mark.parametrize("size", [1, SLOTS, SLOTS + 3])
def test_sums_of_whole_numbers_are_exact(key: bytes, size: int) -> None:
    numbers = np.random.default_rng(size).integers(-2 ** 30 // 10, 2 ** 30 // 10, (10, size))
    blind = BlindSum(without_secret(key))
    for row in numbers:
        blind.add(encrypted(key, row), size)
    np.testing.assert_array_equal(decrypted(key, blind.result()), numbers.sum(axis=0))


def test_the_coordinator_holds_no_key(key: bytes) -> None:
    import tenseal

    settings = without_secret(key)
    assert not tenseal.context_from(settings).is_private()
    assert len(settings) < 200
    with pytest.raises(PayloadError):
        decrypted(settings, encrypted(key, np.arange(5)))


def test_ciphertexts_look_random_and_differ_each_time(key: bytes) -> None:
    first, second = (encrypted(key, np.zeros(10, dtype=np.int64))[0] for _ in range(2))
    assert first != second
    # Residues modulo a prime of 60 bits in words of 64: the highest of their bytes are not uniform, all others are.
    body = np.frombuffer(first[200:-200], dtype=np.uint8)
    chances = sorted(stats.chisquare(np.bincount(body[place::8], minlength=256)).pvalue for place in range(8))
    assert chances[1] > 1e-4


@pytest.mark.parametrize("lost", [{}, {"hello": {0, 3}}, {"take": {5}}, {"encrypt": {1, 2, 6}}, {"decrypt": {0, 1}}])
def test_the_sum_is_exact_whoever_drops_out(lost: dict[str, set[int]]) -> None:
    given, weights = vectors(10), np.arange(1, 11)
    here = federation(given)
    here.engine.lost = lost
    gone = set() if "decrypt" in lost else set().union(*lost.values())
    left = [index for index in range(10) if index not in gone]
    summed = total(here, EncryptedSum(), weights)
    np.testing.assert_array_equal(summed.mean, in_plain(given, weights, SecureSum(), left))
    assert summed.parties.tolist() == left


def held_again(here: Any, given: list[np.ndarray], **without: int) -> None:
    states = here.engine.states()
    here.engine.restore({party: {**state, HELD: {"round": 1, "vectors": {"update": given[party]}}}
                         for party, state in states.items()})


def test_the_key_is_made_once_and_given_to_newcomers() -> None:
    given = vectors(5)
    here = federation(given)
    here.engine.lost = {"hello": {4}}
    total(here, EncryptedSum())
    keys = [state.get(KEY, {}).get("key") for state in here.engine.states().values()]
    assert len(set(keys[:4])) == 1
    assert keys[4] is None
    here.engine.lost = {}
    held_again(here, given)
    np.testing.assert_array_equal(total(here, EncryptedSum()).mean, in_plain(given, np.ones(5), SecureSum()))
    assert {state[KEY]["key"] for state in here.engine.states().values()} == {keys[0]}
    assert [task for task, _ in here.engine.seen].count("encrypted-sum.take") == 3 + 1


def test_the_key_never_crosses_in_the_open() -> None:
    here = federation(vectors(4))
    total(here, EncryptedSum())
    key = here.engine.states()[0][KEY]["key"]
    crossed = b"".join(bytes(part) for _, reply in here.engine.seen for value in reply.payload.values()
                       for part in (value if isinstance(value, list) else [value]) if isinstance(part, bytes))
    assert key not in crossed
    assert key[2000:2100] not in crossed


def test_two_updates_are_never_summed() -> None:
    with pytest.raises(QuorumError, match="3 are needed"):
        total(federation(vectors(2)), EncryptedSum())


@pytest.mark.parametrize(("task", "change", "complaint"), [
    ("hello", {"public": bytes(32)}, "has not signed"),
    ("hello", {"identity": 3}, "'identity' of its reply is not bytes"),
    ("encrypt", {"ciphertexts": []}, "does not have 1 parts"), ("encrypt", {"ciphertexts": [b"x"]}, "cannot be read"),
])
def test_a_malformed_message_is_the_failure_of_its_party(task: str, change: dict[str, Any], complaint: str) -> None:
    def changed(name: str, reply: Reply) -> Reply:
        return replace(reply, payload={**reply.payload, **change}) \
            if name == f"encrypted-sum.{task}" and reply.party == 2 else reply

    here = federation(vectors(5), rules=Rules())
    here.engine.on_reply = changed
    with pytest.raises(PartyError, match=rf"party '2' .*{complaint}"):
        total(here, EncryptedSum())


def test_a_forged_box_is_not_taken() -> None:
    def forged(order: Order) -> Order:
        if order.task != "encrypted-sum.take" or order.each is None:
            return order
        return replace(order, each=tuple({"box": bytes(own["box"])[:-1] + b"?"} for own in order.each))

    here = federation(vectors(5), rules=Rules())
    here.engine.on_order = forged
    with pytest.raises(PartyError, match="forged, replayed or altered"):
        total(here, EncryptedSum())


def test_a_party_that_lies_about_the_sum_is_noticed() -> None:
    def lying(name: str, reply: Reply) -> Reply:
        return replace(reply, payload={"numbers": reply.payload["numbers"] + 1}) \
            if name == "encrypted-sum.decrypt" and reply.party == 0 else reply

    here = federation(vectors(5))
    here.engine.on_reply = lying
    with pytest.raises(PayloadError, match="decrypted the same sum differently"):
        total(here, EncryptedSum())
