"""A coordinator that lies in a secure sum, alone and with a coalition, against the real tasks of 12 parties.

Each attack is one of docs/explanation/secure-aggregation.md. The parties are those of a deployment: pinned keys, and
journals of their own on the disk. What an attack is stopped by is named by the error and by the journal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest

from privacy.aggregation.summed import HELD, Hostile, by_themselves, federation, vectors
from privacy.ways import population
from tequio.errors import QuorumError, TequioError
from tequio.federation.exchange import Order, Outcome, Reply, execute
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Party, Roster
from tequio.privacy.aggregation.encodings import as_bitmap
from tequio.privacy.aggregation.identities import public_half, signed_by
from tequio.privacy.aggregation.keys import fresh_key, public_of
from tequio.privacy.aggregation.one_way import memory_of
from tequio.privacy.aggregation.secure_sum import SecureSum
from tequio.privacy.aggregation.secure_sum_tasks import SumMemory, hash_of_numbers, survivors_part

COUNT, SIZE = 12, 6
KEYS = [sha256(b"key of %d" % party).digest() for party in range(COUNT)]
STAGE = SecureSum(corrupt=0.33)  # 3 of 12 may be corrupt


@dataclass
class Deployed(Hostile):
    """Parties that each have a population, a private key and a folder of their own."""

    folder: object = None
    rows: int = 12
    lost: dict = field(default_factory=dict)

    def __post_init__(self):
        super().__init__()
        self.homes = {}
        for party in range(COUNT):
            roster = Roster(sha256(b"announced").digest(), COUNT, tuple(map(public_half, KEYS)), KEYS[party],
                            str(self.folder / str(party)))
            self.homes[party] = replace(population(COUNT), pinned=roster)
        self.roster = replace(self.homes[0].pinned, own=b"", folder="")
        self.announce = self.finish = lambda *_: None
        self.asked, self.failures = [], []

    def collect(self):
        order = self._waiting.popleft()
        self.asked.append(order)
        replies, failures, columns = [], [], None
        for place, party in enumerate(order.parties):
            one = replace(order, parties=(party,), each=None if order.each is None else (order.each[place],))
            outcome = execute(one, self.homes[party], self._states)
            replies += [self.on_reply(order.task, reply) for reply in outcome.replies]
            failures += outcome.failures
        self.failures += failures
        self.seen += [(order.task, reply) for reply in replies]
        return Outcome(order.ticket, tuple(replies), tuple(failures), columns)

    def ask(self, party, order, **changes):
        """One party's answer to an order of the past, with changes, or what it refuses with."""
        place = order.parties.index(party)
        own = {} if order.each is None else order.each[place]
        one = replace(order, parties=(party,), each=None, payload={**order.payload, **own, **changes})
        outcome = execute(one, self.homes[party], self._states)
        return outcome.replies[0].payload if outcome.replies else outcome.failures[0].cause

    def order(self, phase, party=0):
        """The last order of a phase to a party."""
        return next(order for order in reversed(self.asked)
                    if order.task == f"secure-sum.{phase}" and party in order.parties)

    def journal(self, party):
        """The lines of a party's journal of sums."""
        path = self.folder / str(party) / "secure_sum_tasks.SumMemory.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def refused(self, party):
        """Why a party refused, by its journal."""
        return [line["refused"] for line in self.journal(party) if "refused" in line]

    def memory(self, party):
        """What a party remembers now."""
        return memory_of(Party(party, 1, dict(self._states[party]), self.homes[party]), SumMemory)


@pytest.fixture
def here(tmp_path):
    """A federation of 12 deployed parties that hold updates."""
    return deployed(tmp_path)


def deployed(folder, given=None, rules=None):
    engine = Deployed(folder=folder)
    engine.open(population(COUNT))
    given = vectors(COUNT, SIZE) if given is None else given
    engine.restore({party: {HELD: {"round": 1, "vectors": {"update": given[party]}}} for party in range(COUNT)})
    made = Federation(population(COUNT), engine, rules=rules or Rules(on_failure="continue"))
    made.round = 1
    return made


def total(here, stage=STAGE):
    return stage.total(here, here.everyone(), "update", np.ones(COUNT), SIZE, by="uniform")


def stopped_at(here, phase):
    """Let the sum run until a phase, and stop there, as a coordinator may."""
    here.engine.lost = {phase: set(range(COUNT))}
    with pytest.raises(QuorumError):
        total(here)
    here.engine.lost = {}
    return here.engine


def bitmap(members):
    return as_bitmap(np.arange(COUNT), list(members))


def test_honest_parties_sum_and_forget(here):
    summed = total(here)
    np.testing.assert_allclose(summed.mean, np.mean(vectors(COUNT, SIZE), axis=0), atol=1e-6)
    assert all(here.engine.memory(party)["secrets"] == {} for party in range(COUNT))
    assert [line["step"] for line in here.engine.journal(3)] == ["keys", "shares", "boxes", "masked", "witness", "open"]


def test_1_shares_are_no_weights_any_more(tmp_path):
    """The coordinator of 0.1 gave one party the share 1 and the others 0. A party now weighs itself, and so much more
    rows as it has make it weigh 16 times as much at most."""
    here = deployed(tmp_path)
    engine = stopped_at(here, "masked")
    order = Order(99, "secure-sum.masked", tuple(range(COUNT)), 1, {"name": "update", "attempt": 1, "share": 1.0,
                                                                    "members": bitmap(range(COUNT))},
                  next(order.settings for order in engine.asked if order.task == "secure-sum.keys"))
    engine.ask(0, order)  # a share is not even read
    sent = engine.ask(1, order, share=0.0)["masked"]
    assert len(sent) == SIZE + 1
    assert not engine.refused(1)
    changed = replace(order, settings={**order.settings, "cap": 1e-9, "by_rows": True})
    assert "terms of the sum have changed" in engine.ask(2, changed)
    assert "terms of the sum have changed" in engine.refused(2)[0]


@pytest.mark.parametrize("phase", ["keys", "shares", "boxes", "masked"])
def test_2_nobody_answers_twice(here, phase):
    """Another request in a state that was left is refused; the same one gets the same bytes."""
    after = {"keys": "shares", "shares": "boxes", "boxes": "masked", "masked": "witness"}
    engine, others = stopped_at(here, after[phase]), [party for party in range(COUNT) if party != 5]
    order = engine.order(phase)
    first = next(reply.payload for task, reply in engine.seen if task == order.task and reply.party == 0)
    again = engine.ask(0, order)
    assert all(np.array_equal(again[key], first[key]) for key in first)
    changes = {"keys": {"attempt": 0}, "shares": {"members": bitmap(others)}, "boxes": {"members": bitmap(others)},
               "masked": {"members": bitmap(others)}}[phase]
    before = len(engine.journal(0))
    cause = engine.ask(0, order, **changes)
    assert "does not go back" in cause or "attempts" in cause or "attempt 0 at a sum" in cause
    assert engine.refused(0)
    assert len(engine.journal(0)) == before + 1


@pytest.mark.parametrize("corrupt", [0, 3])
def test_3_two_sets_of_survivors_never_find_two_quorums(here, corrupt):
    """Some are told that party 11 is gone, others that it is there. Witnesses sign one set each, so that one set at
    most has a quorum, even if the corrupt ones sign both."""
    engine = stopped_at(here, "witness")
    order = replace(engine.order("masked"), task="secure-sum.witness", each=None, parties=tuple(range(COUNT)))
    views = [bitmap(range(COUNT)), bitmap(range(COUNT - 1))]
    signed = {view: [] for view in views}
    for party in range(COUNT):
        for view in views if party < corrupt else [views[party % 2]]:
            if party < corrupt and view == views[1]:  # a corrupt party signs what it likes, by its own key
                signed[view].append((party, forged_statement(engine, party, view)))
                continue
            answer = engine.ask(party, order, members=view)
            signed[view].append((party, answer["signature"]))
            if party >= corrupt:
                other = engine.ask(party, order, members=views[1 - views.index(view)])
                assert "does not go back" in other
    quorum = (COUNT + 3) // 2 + 1
    assert sum(len(found) >= quorum for found in signed.values()) <= 1
    opened = {view: [party for party in range(3, COUNT - 1) if isinstance(engine.ask(party, opening(
        engine, view, signed[view])), dict)] for view in views}
    assert sum(bool(found) for found in opened.values()) <= 1  # nobody opens, or all for the same
    assert any("are a quorum" in cause for cause in engine.refused(4))
    assert all("are a quorum" in cause or "witnessed another set" in cause or "does not go back" in cause
               for party in range(3, COUNT - 1) for cause in engine.refused(party))


def forged_statement(engine, party, view):
    memory = engine.memory(party)
    one = Party(party, 1, {}, engine.homes[party])
    return signed_by(one, survivors_part(memory["sid"], memory["dealers"], view))


def opening(engine, view, signed):
    """A request to open shares of a set, with these statements of witnesses."""
    sent = {reply.party: reply.payload for task, reply in engine.seen if task == "secure-sum.masked"}
    left = [party for party in range(COUNT) if view[party >> 3] >> (party & 7) & 1]
    each = tuple({"members": view, "witnesses": [party for party, _ in signed],
                  "statements": b"".join(signature for _, signature in signed),
                  "hashes": b"".join(hash_of_numbers(sent[other]["masked"]) for other in left if other != party),
                  "signatures": b"".join(sent[other]["signature"] for other in left if other != party)}
                 for party in range(COUNT))
    return replace(engine.order("masked"), task="secure-sum.open", parties=tuple(range(COUNT)), each=each,
                   payload={"name": "update", "attempt": 1})


def test_3_what_was_masked_with_others_lacks_a_signature(here):
    """A party that was told of other dealers signs that, and its neighbours open nothing for it."""
    engine = stopped_at(here, "masked")
    order = Order(9, "secure-sum.masked", tuple(range(COUNT)), 1, {"name": "update", "attempt": 1},
                  engine.order("keys").settings)
    everybody, fewer = bitmap(range(COUNT)), bitmap(range(COUNT - 1))
    for party in range(COUNT):
        answer = engine.ask(party, order, members=fewer if party == 2 else everybody)
        engine.seen.append((order.task, Reply(party, answer)))
    engine.asked.append(order)
    witness = replace(order, task="secure-sum.witness")
    signed = [(party, engine.ask(party, witness, members=everybody)["signature"]) for party in range(COUNT)
              if party != 2]
    cause = engine.ask(5, opening(engine, everybody, signed))
    assert "the masked numbers of party 2 are not signed" in cause
    assert cause in engine.refused(5)[0]
    assert engine.memory(5)["state"] == "witnessed"


def test_4_one_neighbour_or_few_parties_are_no_cohort(here):
    """Of 12 parties, 3 of whom may be corrupt, a set has 8 members at least; the graph is never received."""
    engine = stopped_at(here, "shares")
    keys = {reply.party: reply.payload for task, reply in engine.seen if task == "secure-sum.keys"}
    settings = engine.order("keys").settings
    for members, why in (((0, 1), "only 2 of 12 parties sent keys, and 8 are the fewest"),
                         (range(7), "only 7 of 12"), (range(1, COUNT), "is not among those")):
        others = [party for party in members if party != 0]
        order = Order(9, "secure-sum.shares", (0,), 1, {
            "name": "update", "attempt": 1, "members": bitmap(members),
            "keys": b"".join(keys[other]["keys"] for other in others),
            "signatures": b"".join(keys[other]["signature"] for other in others)}, settings)
        assert why in engine.ask(0, order)
    assert len(engine.refused(0)) == 3
    assert "own_mask" not in engine.memory(0)["secrets"]


def test_4_a_cohort_that_could_be_corrupt_but_for_one_is_refused(here):
    with pytest.raises(QuorumError, match=r"4 parties are too few for a sum: 3 of all may be corrupt"):
        STAGE.total(here, np.arange(4), "update", np.ones(4), SIZE)


def test_5_a_state_that_is_gone_back_to_changes_nothing(here):
    """The coordinator lets parties start from the state in which they held their updates, and asks again."""
    earlier = {party: dict(state) for party, state in here.engine._states.items()}
    first = total(here).mean
    here.engine.restore(earlier)
    with pytest.raises(QuorumError):
        total(here)
    assert all("an update is sent once" in here.engine.refused(party)[0] for party in range(COUNT))
    assert np.isfinite(first).all()
    here.round = 0
    assert "only go forward" in here.engine.ask(0, replace(here.engine.order("keys"), round=0))


def test_6_invented_parties_have_no_key_in_the_roster(here):
    """The coordinator answers in the name of parties: with keys that it made, or with those of an earlier sum."""
    engine = stopped_at(here, "shares")
    keys = {reply.party: dict(reply.payload) for task, reply in engine.seen if task == "secure-sum.keys"}
    keys[7]["keys"] = public_of(fresh_key()) + public_of(fresh_key())
    others = range(1, COUNT)
    order = Order(9, "secure-sum.shares", (0,), 1, {
        "name": "update", "attempt": 1, "members": bitmap(range(COUNT)),
        "keys": b"".join(keys[other]["keys"] for other in others),
        "signatures": b"".join(keys[other]["signature"] for other in others)}, engine.order("keys").settings)
    assert "the keys of party 7 are not signed by the key of its certificate" in engine.ask(0, order)
    assert "the keys of party 7" in engine.refused(0)[0]


def flips(value):
    """The same with one bit flipped somewhere, for every kind of field."""
    if isinstance(value, bytes) and value:
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, list) and value:
        return [flips(value[0]), *value[1:]]
    return value + 1 if isinstance(value, int) else value


@pytest.mark.parametrize("phase", ["shares", "boxes", "masked", "witness", "open"])
def test_one_flipped_bit_of_the_coordinators_is_refused(tmp_path, phase):
    fields = {"shares": ("members", "keys", "signatures", "attempt"), "masked": ("members",),
              "boxes": ("members", "dealt", "paths", "signatures"), "witness": ("members",),
              "open": ("members", "hashes", "signatures")}[phase]
    for which, name in enumerate(fields):
        here = deployed(tmp_path / str(which))

        def altered(order, name=name):
            if order.task != f"secure-sum.{phase}" or 4 not in order.parties:
                return order
            each = [{**order.payload, **({} if order.each is None else order.each[place])}
                    for place in range(len(order.parties))]
            place = order.parties.index(4)
            each[place] = {**each[place], name: flips(each[place][name])}
            return replace(order, payload={}, each=tuple(each))

        here.engine.on_order = altered
        try:
            summed = total(here)
        except TequioError:
            summed = None
        # Another sound set of dealers is as good for party 4, which signs it; the coordinator cannot use that.
        assert here.engine.refused(4) or (phase == "masked" and 4 not in summed.parties), (phase, name)
        if summed is not None:
            left = summed.parties.tolist()
            np.testing.assert_array_equal(summed.mean, by_themselves(vectors(COUNT, SIZE), np.ones(COUNT), STAGE, left))


@pytest.mark.parametrize(("phase", "name"), [
    ("keys", "keys"), ("keys", "signature"), ("shares", "dealt"), ("shares", "own"), ("shares", "signature"),
    ("boxes", "signature"), ("masked", "masked"), ("masked", "signature"), ("witness", "signature"),
    ("open", "shares"), ("open", "signature")])
def test_one_flipped_bit_of_a_party_is_its_own_failure(tmp_path, phase, name):
    here, told = deployed(tmp_path), []
    here.record = lambda kind, facts: told.append((facts["party"], facts["cause"])) if kind == "failure" else None

    def altered(task, reply):
        if task != f"secure-sum.{phase}" or reply.party != 4:
            return reply
        value = reply.payload[name]
        changed = value ^ np.array([1] + [0] * (len(value) - 1), value.dtype) if name == "masked" else flips(value)
        return replace(reply, payload={**reply.payload, name: changed})

    here.engine.on_reply = altered
    summed = total(here)
    left = summed.parties.tolist()
    assert {party for party, _ in told} == {here.name(4)}
    np.testing.assert_array_equal(summed.mean, by_themselves(vectors(COUNT, SIZE), np.ones(COUNT), STAGE, left))


PHASES = ("commit", "reveal", "learn", "keys", "shares", "boxes", "masked", "witness", "open")


@pytest.mark.parametrize("phase", PHASES)
def test_whoever_drops_out_the_sum_is_exact_or_lost(phase, tmp_path):
    """All subsets of up to 2 of 6 parties, and some of 3, at each phase: the integer sum, or a clear stop."""
    given, stage, lost = vectors(6, SIZE), SecureSum(absent=0.2), 0
    for gone in [*(subset for count in range(3) for subset in combinations(range(6), count)), (0, 2, 5), (1, 3, 4)]:
        here = federation(given)
        here.engine.lost = {phase: set(gone)}
        try:
            summed = stage.total(here, here.everyone(), "update", np.ones(6), SIZE, by="uniform")
        except QuorumError:
            lost += 1
            continue
        left = summed.parties.tolist()
        np.testing.assert_array_equal(summed.mean, by_themselves(given, np.ones(6), stage, left))
        assert set(range(6)) - set(gone) <= set(left)
    assert lost < 12
