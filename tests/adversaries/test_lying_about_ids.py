"""A lying coordinator, or a party that does not follow the protocol, against the set intersection of others.

The attack of version 0.1: the coordinator alone has a party mask points of its choice, and finds 1,000 of 1,000 ids.
"""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest

from adversaries.hostile import COLUMNS, Coordinator, Refused, refuses, table
from privacy.psi.carrying import Carrier, common_ids, parties_with, talking
from tequio.algorithms.vertical import intersection
from tequio.algorithms.vertical.intersecting import intersect
from tequio.algorithms.vertical.intersection import (
    IntersectSettings,
    MaskSettings,
    OwnSide,
    commit,
    mask,
    offer,
    show,
)
from tequio.data.dataset import Dataset
from tequio.errors import PartyError
from tequio.federation.exchange import Failure, Outcome, Reply
from tequio.federation.population import Party, state_name
from tequio.gate.policy import Intersections, Policy
from tequio.privacy.aggregation.encodings import content
from tequio.privacy.aggregation.identities import public_half, signed_by
from tequio.privacy.psi.curve import as_points, hash_to_curve, rows_of

PHONES = 520_000_000_000 + np.arange(1_000)
OTHERS = 520_000_000_000 + np.arange(500, 1_500)
PRIME = 2**255 - 19


def refused(said, *ids, alter=None, **more):
    """The intersection ends with that error of a party."""
    with pytest.raises(PartyError, match=said) as caught:
        common_ids(*ids, engine=Carrier(alter=alter), **more)
    return caught.value


def at(task, party, change):
    """Change what reaches one party, or all (None), at one task."""
    def alter(name, to, payload):
        if name != f"intersection.{task}" or party not in (None, to):
            return payload
        payload = copy.deepcopy(payload)
        return change(payload) or payload
    return alter


# -- the coordinator alone -------------------------------------------------------------------------------------------

AGREED = {"attempt": "1", "members": (0, 1), "compare": (), "linked": False}


def test_the_attack_of_version_0_1_finds_none_of_1000_ids():
    """It guesses all ids of a party, hashes them to the curve itself, and asks the party to mask them."""
    talk = talking(parties_with(PHONES, OTHERS))
    settings = IntersectSettings(**AGREED)
    guesses = hash_to_curve([str(phone).encode() for phone in PHONES]).tobytes()
    found: set[bytes] = set()
    offers = talk.ask((0, 1), offer, settings=settings).payloads
    for payload in ({"box": guesses}, {"box": guesses, "step": {"before": b"", "after": b"", "signature": b""}}):
        with pytest.raises(PartyError, match="does not do the step 'mask' of this intersection"):
            found |= set(rows_of(talk.ask_one(1, mask, payload, settings=MaskSettings(**AGREED, hop=1))["points"]))
    # It goes on as party 0 would, with a key of its own in the place of that party's.
    forged = {**offers[0], "key": b"k" * 32}
    with pytest.raises(PartyError, match="the bytes of the offer of party 0 are not signed by the key of its"):
        talk.ask_one(1, commit, {"offers": [forged, offers[1]]}, settings=settings)
    assert not found


def test_a_list_of_guesses_in_the_place_of_a_partys_is_not_masked():
    """The coordinator does all as it should, but puts its guesses into the sealed list; it does not know the secret."""
    guesses = hash_to_curve([str(phone).encode() for phone in PHONES]).tobytes()
    refused("what party 0 sealed was forged", PHONES, OTHERS, alter=at("mask", 1, lambda payload: payload.update(
        box=guesses + b"0" * 16)))


def test_what_the_coordinator_sees_of_two_parties_holds_no_point_it_could_guess():
    seen = []
    common_ids(PHONES, OTHERS, engine=Carrier(listen=lambda party, reply: seen.append(reply)))
    boxes = [reply["box"] for reply in seen if "box" in reply]
    points = {point for box in boxes for point in rows_of(as_points(box[:-16], ""))}
    assert len(points) == 4 * 1_200  # each list as it was shown and as it came back
    assert not points & set(rows_of(hash_to_curve([str(phone).encode() for phone in PHONES])))
    # A point of the curve has a square; of sealed bytes half have none, as of any bytes.
    assert 0.4 < np.mean([_on_curve(point) for point in points]) < 0.6


def _on_curve(point):
    u = int.from_bytes(point, "little") % PRIME
    return pow(u**3 + 486662 * u**2 + u, (PRIME - 1) // 2, PRIME) <= 1


def test_an_invented_party_is_no_party():
    """Nor is the intersection of fewer parties than were announced for anyone to see."""
    talk = talking(parties_with(PHONES, OTHERS, PHONES))
    for members in ((0, 1), (1,), (0, 1, 2, 3), (0, 0, 1), (2, 1, 0), (-1, 1)):
        with pytest.raises(PartyError, match="these are not the parties whose ids are intersected"):
            talk.ask_one(1, offer, settings=IntersectSettings(**{**AGREED, "members": members}))


# -- each step once, and only forwards --------------------------------------------------------------------------------

def test_a_list_is_masked_once():
    def alter(task, party, payload):
        if task == "intersection.mask":
            given.append(payload)
        return payload

    given = []
    talk = talking(parties_with(PHONES, OTHERS, PHONES), Carrier(alter=alter))
    real, asked = talk.ask, []

    def ask(parties, task, *args, **more):
        if task is mask and asked:
            real((0,), mask, {"box": given[0]["box"]}, settings=asked[0])  # the list of the first hop once more
        if task is mask:
            asked.append(more["settings"])
        return real(parties, task, *args, **more)

    talk.ask = ask
    with pytest.raises(PartyError, match="party 'p0' has masked the list of party 2 already"):
        intersect(talk, ())


def test_no_step_is_done_twice_or_out_of_its_turn():
    talk = talking(parties_with(PHONES, OTHERS))
    settings = IntersectSettings(**AGREED)
    talk.ask((0, 1), offer, settings=settings)
    with pytest.raises(PartyError, match="party 'p1' has begun this intersection before"):
        talk.ask_one(1, offer, settings=settings)
    with pytest.raises(PartyError, match="'show' of this intersection: it has done the step 'offer'"):
        talk.ask_one(1, show, {"signatures": [b"", b""]}, settings=settings)
    other = IntersectSettings(**{**AGREED, "attempt": "2"})
    with pytest.raises(PartyError, match="'show' of this intersection: it has not begun it"):
        talk.ask_one(1, show, {"signatures": [b"", b""]}, settings=other)


def test_parties_that_were_shown_different_commitments_show_nothing():
    """The coordinator and party 0 together: that party signs two commitments, and each other party is shown one."""
    population = parties_with(PHONES, OTHERS, PHONES)
    shown = []

    def alter(task, party, payload):
        if task == "intersection.agree" and party == 2:
            own = engine._states[0][state_name(OwnSide)]
            second = {"digest": b"d" * 32, "signature": signed_by(
                Party(0, 1, {}, population), content("commitment", own["sid"], 0, own["offered"], b"d" * 32))}
            payload = {**payload, "commitments": [second, *payload["commitments"][1:]]}
        return payload

    engine = Carrier(alter, lambda party, reply: shown.append(party) if reply.keys() == {"box"} else None)
    with pytest.raises(PartyError, match="the bytes of the agreement of party 2 are not signed"):
        intersect(talking(population, engine), ())
    assert 1 not in shown
    assert 2 not in shown


def test_an_agreement_that_is_missing_or_anothers_shows_no_list():
    for change in (lambda payload: payload.update(signatures=payload["signatures"][:1]),
                   lambda payload: payload.update(signatures=payload["signatures"][::-1])):
        refused("agreement", PHONES, OTHERS, alter=at("show", 0, change))


FIELDS = [("harden", 0, ("offers", 1, "key")), ("harden", 0, ("offers", 1, "length")),
          ("harden", 0, ("offers", 1, "brings_secret")), ("harden", 0, ("offers", 1, "signature")),
          ("commit", 1, ("offers", 0, "key")), ("commit", 1, ("box",)), ("commit", 1, ("signature",)),
          ("commit", 1, ("offers", 2, "length")), ("agree", 1, ("commitments", 0, "digest")),
          ("agree", 1, ("commitments", 1, "digest")), ("agree", 1, ("commitments", 2, "signature")),
          ("show", 2, ("signatures", 0)), ("mask", 0, ("box",)), ("mask", 1, ("step", "before")),
          ("mask", 1, ("step", "after")), ("mask", 1, ("step", "signature")), ("settle", 0, ("steps", 0, 0, "before")),
          ("settle", 0, ("steps", 1, 1, "after")), ("settle", 0, ("steps", 2, 0, "signature"))]


@pytest.mark.parametrize(("task", "party", "path"), FIELDS)
def test_one_flipped_bit_in_any_field_is_refused(task, party, path):
    flipped = []

    def change(payload):
        *way, last = path
        place = payload
        for key in way:
            if isinstance(place, dict) and key not in place:
                return  # the first hop comes without a step
            place = place[key]
        value = place[last]
        place[last] = not value if isinstance(value, bool) else value ^ 1 if isinstance(value, int) else \
            value[:-1] + bytes([value[-1] ^ 1])
        flipped.append(True)

    refused(f"party 'p{party}' failed in round 1 at task 'intersection.{task}'", np.arange(40), np.arange(40),
            np.arange(40), alter=at(task, party, change))
    assert flipped


@pytest.mark.parametrize(("change", "said"), [
    (lambda payload: payload["steps"].pop(), "there are not 3 lists, one of each party"),
    (lambda payload: payload["steps"][1].pop(), "the list of party 1 did not go through all parties"),
    (lambda payload: payload["steps"].reverse(), "the list of party 0 was changed on its way"),
    (lambda payload: payload.update(places=np.array([0, 0])), "places that its list does not have"),
    (lambda payload: payload.update(places=np.array([0, 5_000])), "places that its list does not have"),
    (lambda payload: payload.update(places=np.array([-1, 0])), "places that its list does not have"),
    (lambda payload: payload.update(places=np.arange(1_200)), "told that an id is common which it does not have")])
def test_a_false_account_of_the_lists_is_refused(change, said):
    def quietly(payload):
        change(payload)

    refused(said, PHONES, OTHERS, PHONES, alter=at("settle", 0, quietly))


# -- real parties, with keys, journals and policies --------------------------------------------------------------------

class Sites:
    """An engine over the sites of real parties. It never hands a party the state that it left: base is always 0."""

    def __init__(self, parties):
        self.parties, self._done = parties, []

    def open(self, population):
        pass

    def submit(self, order):
        replies, failures = [], []
        for place, party in enumerate(order.parties):
            said = self.parties[party].ask(order.task, {**order.payload, **(order.each[place] if order.each else {})},
                                           **order.settings)
            if isinstance(said, Refused):
                failures.append(Failure(party, said.cause, said.remedy))
            else:
                replies.append(Reply(party, said))
        self._done.append(Outcome(order.ticket, tuple(replies), tuple(failures)))

    def collect(self):
        return self._done.pop(0)


def with_ids(ids):
    rows = table(len(ids))
    return Dataset.of(rows.schema, rows.features, rows.target, ids=ids)


def announced(parties, run="run-1", **changes):
    """Announce a run to all parties, as it should be but for the changes; what the last one says."""
    keys = [public_half(each.site._home.signing_key) for each in parties]
    facts = {"algorithm": "split-nn", "learner": {}, "components": [], "columns": list(COLUMNS),
             "parties": len(parties), "roster": [f"p{place}" for place in range(len(parties))], "keys": keys,
             "holders": list(range(len(parties)))} | changes
    return [each.announce(run, index=place, **{key: value for key, value in facts.items() if value is not None})
            for place, each in enumerate(parties)][-1]


@pytest.fixture
def bank_and_insurer(tmp_path):
    return [Coordinator(tmp_path / name, Policy(), with_ids(ids))
            for name, ids in (("bank", PHONES[:300]), ("insurer", PHONES[100:400]))]


def run_between(parties):
    """An intersection among sites; how many ids they have in common."""
    return intersect(talking(parties_with(*(each.rows.ids for each in parties)), Sites(parties)), ()).common


def test_real_parties_find_what_a_plain_intersection_finds_and_write_it_down(bank_and_insurer):
    assert not isinstance(announced(bank_and_insurer), Refused)
    assert run_between(bank_and_insurer) == 200
    said = [next(entry for entry in party.noted if entry["event"] == "ids intersected") for party in bank_and_insurer]
    for entry in said:
        assert (entry["common"], entry["lengths"]) == (200, [300, 300])
    assert said[0]["steps"] == said[1]["steps"]
    for party in bank_and_insurer:
        assert len((party.folder / "intersections.jsonl").read_text().splitlines()) == 1
        files = [path for path in party.folder.rglob("*") if path.is_file()]
        assert len(files) > 8
        assert not [path.name for path in files if b"factor" in path.read_bytes()]  # erased with all other secrets


def test_the_fourth_intersection_of_a_day_and_the_sixth_of_a_table_are_refused(bank_and_insurer, monkeypatch):
    clock = [1e9]
    monkeypatch.setattr("tequio.privacy.psi.limits.time.time", lambda: clock[0])
    announced(bank_and_insurer)
    for _ in range(3):
        run_between(bank_and_insurer)
    with pytest.raises(PartyError, match="it has taken part in 3 set intersections within 24 hours, and 3 are the most"
                       ) as caught:
        run_between(bank_and_insurer)
    assert "psi.per_day" in caught.value.remedy
    refuses(Refused(caught.value.cause, ""), "3 set intersections within 24 hours", bank_and_insurer[0])
    clock[0] += 86_401
    for party in bank_and_insurer:  # a new start, or another run, counts no less
        party.__post_init__()
    announced(bank_and_insurer, "run-2")
    for party in bank_and_insurer:
        party.ask = partial(party.ask, run="run-2")
    for _ in range(2):
        run_between(bank_and_insurer)
    with pytest.raises(PartyError, match="taken part in 5 set intersections with these rows, and 5 are the most"):
        run_between(bank_and_insurer)


def test_a_policy_says_how_many_intersections_there_are(tmp_path):
    none = Policy(psi=Intersections(per_dataset=0))
    parties = [Coordinator(tmp_path / name, none, with_ids(PHONES[:200])) for name in ("bank", "insurer")]
    announced(parties)
    with pytest.raises(PartyError, match="0 set intersections with these rows, and 0 are the most"):
        run_between(parties)


@pytest.mark.parametrize(("changes", "said"), [
    ({"keys": [b"a" * 33, b"b" * 33]}, "the run names another key for this party than it signs by, or none"),
    ({"keys": [b"a" * 33]}, "its roster does not have one key of each party")])
def test_a_run_with_other_keys_is_declined(bank_and_insurer, changes, said):
    refuses(announced(bank_and_insurer, **changes), said, bank_and_insurer[-1])


@pytest.mark.parametrize("columns", [None, list(COLUMNS)])
def test_without_the_keys_of_its_parties_a_run_gets_no_signature(bank_and_insurer, columns):
    """Anyone could sign for parties that were simulated."""
    announced(bank_and_insurer, keys=None, columns=columns)
    with pytest.raises(PartyError, match="announced without the keys of its parties"):
        run_between(bank_and_insurer)


def test_a_coordinator_that_rewinds_a_party_or_waits_until_it_restarts_gets_no_second_answer(bank_and_insurer):
    bank, insurer = bank_and_insurer
    announced(bank_and_insurer)
    asked = []
    real = insurer.ask

    def ask(task, payload=None, **more):
        if task == "intersection.mask":
            asked.append((payload, more))
            first = real(task, payload, **more)
            assert real(task, payload, **more)["box"] == first["box"]  # the same request, and the same bytes
            for folder in (None, insurer.folder):
                if folder:  # the party restarts
                    insurer.__post_init__()
                    announced([bank, insurer])
                refuses(real(task, {"box": first["box"]}, **more), "has masked the list of party 0 already", insurer)
            return first
        return real(task, payload, **more)

    insurer.ask = ask
    assert run_between(bank_and_insurer) == 200
    (payload, more), = asked
    refuses(real("intersection.mask", payload, **more), "does not do the step 'mask'", insurer)


# -- a party that does not follow the protocol -------------------------------------------------------------------------

def test_a_list_that_was_altered_after_it_was_committed_to_is_not_masked():
    """Party 0 commits to one list, and then shows another that is as well formed."""
    engine = Carrier()
    talk = talking(parties_with(PHONES, OTHERS), engine)
    real = talk.ask

    def ask(parties, task, *args, **more):
        if task is show:
            state = engine._states[0][state_name(OwnSide)]
            state["secrets"]["points"] = hash_to_curve([b"%d" % number for number in range(1_200)]).tobytes()
        return real(parties, task, *args, **more)

    talk.ask = ask
    with pytest.raises(PartyError, match=r"party 'p1' .* the list of party 0 is not the one that was signed"):
        intersect(talk, ())


def small(u):
    return u.to_bytes(32, "little")


TWISTED = next(u for u in range(2, 99) if pow(u**3 + 486662 * u**2 + u, (PRIME - 1) // 2, PRIME) > 1)


@pytest.mark.parametrize(("points", "said"), [
    ([small(0)], "has a point of small order"),
    ([small(1)], "has a point of small order"),
    ([small(PRIME)], "has 1 numbers of 2\\^255 - 19 or more"),
    ([small(PRIME + 9)], "has 1 numbers of 2\\^255 - 19 or more"),
    ([b"\xff" * 32], "has 1 numbers of 2\\^255 - 19 or more"),
    ([small(TWISTED)], "has 1 points on the twist of the curve"),
    ([small(9), small(9)], "has 1 repeated points"),
    ([small(9), small(pow(9, -1, PRIME))], "has points that differ by one of small order only")])
def test_each_kind_of_bad_point_is_refused_for_what_it_is(points, said, monkeypatch):
    """Party 0 commits to a list that holds them, in the place of some of the points that pad it."""
    real, calls = intersection.random_points, []

    def random_points(count):
        calls.append(count)
        made = real(count)
        if len(calls) == 1:  # of party 0
            made = np.concatenate([as_points(b"".join(points), ""), made[len(points):]])
        return made

    monkeypatch.setattr(intersection, "random_points", random_points)
    refused(f"party 'p1' .* the list of masked ids of party 0 {said}", np.arange(40), np.arange(40))


def test_a_list_of_guesses_is_no_longer_than_its_bounds():
    """What is left: a party may guess, but no more than four times as many ids as the other party has, rounded up."""
    error = refused("intersects its 200 ids with lists of 800 at most, and that of party 1 has 900", np.arange(200),
                    np.arange(850))
    assert "psi.times_own" in error.remedy
    assert len(common_ids(np.arange(200), np.arange(700))[0]) == 200


def test_a_party_that_masks_with_two_factors_spoils_the_run_and_learns_nothing(monkeypatch):
    """The lists then have nothing in common, which is all that anyone is told."""
    real, calls = intersection.multiply, []

    def multiply(factor, points, whose):
        calls.append(whose)
        return real(bytes(32 - 1) + b"\x41" if len(calls) == 3 else factor, points, whose)

    monkeypatch.setattr(intersection, "multiply", multiply)
    refused("no ids in common, or fewer than the 10", PHONES[:100], PHONES[:100])
