"""Randomness that nobody chooses, by keys that the roster pins, and memory that never goes back."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from privacy.ways import population
from tequio.engines.sharing import build_population, lay_out
from tequio.errors import PermissionDenied, QuorumError, RunError
from tequio.federation.exchange import Order
from tequio.federation.population import LEAST_COHORT, Party, Roster
from tequio.privacy.aggregation.encodings import as_bitmap, content
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING, Phases
from tequio.privacy.aggregation.identities import is_signed_by, pinned_key, public_half, signed_by
from tequio.privacy.aggregation.joint_randomness import (
    Agreement,
    Cohort,
    JointSettings,
    agree,
    commit,
    joint_seed,
    learn_seed,
    open_commitment,
)
from tequio.privacy.aggregation.one_way import answer_once, erase_secrets, memory_of
from tequio.privacy.aggregation.secure_sum import SecureSum

from .summed import federation, vectors

STAGE = SecureSum()
SETTINGS = JointSettings(stage=STAGE, local=NO_TRAINING)
COUNT = 6
KEYS = [bytes([number + 1]) * 32 for number in range(COUNT)]


@pytest.fixture
def parties(tmp_path):
    """Six parties with keys and folders of their own, in round 1."""
    return [party(tmp_path, number) for number in range(COUNT)]


def party(folder, number, round=1, state=None, **settings):
    keys = tuple(map(public_half, KEYS))
    roster = Roster(sha256(b"announced").digest(), COUNT, keys, KEYS[number], str(folder / str(number)))
    home = replace(population(COUNT), pinned=roster, overrides={number: settings})
    return Party(number, round, {} if state is None else state, home)


def attempt(number=1, epoch=1, members=range(COUNT)):
    return {"epoch": epoch, "attempt": number, "members": as_bitmap(np.arange(COUNT), list(members))}


def listed(parties, tried):
    entries = [(one.index, commit(one, tried, SETTINGS)) for one in parties]
    return {**tried, "list": b"".join(number.to_bytes(4, "little") + said["commitment"] + said["signature"]
                                      for number, said in entries)}


def opened(parties, offer):
    said = [open_commitment(one, offer, SETTINGS) for one in parties]
    return {**offer, "openings": b"".join(one["nonce"] + one["signature"] for one in said)}


def test_all_learn_one_seed_and_who_was_away_learns_it_too(parties):
    *here, away = parties
    said = opened(here, listed(here, attempt()))
    assert len({learn_seed(one, said, SETTINGS)["seed"] for one in parties}) == 1
    seeds = {joint_seed(one, STAGE)[0] for one in parties}
    assert len(seeds) == 1
    assert joint_seed(away, STAGE)[1] == Cohort(tuple(range(6)), 0, 0, 4)
    assert len(seeds | {joint_seed(one, STAGE)[0] for one in again(parties, here)}) == 2


def again(parties, here):
    said = opened(here, listed(here, attempt(2)))
    for one in parties:
        learn_seed(one, said, SETTINGS)
    return parties


def flipped(value, place):
    return value[:place] + bytes([value[place] ^ 1]) + value[place + 1:]


def test_one_flipped_bit_anywhere_is_refused(parties):
    offer = listed(parties, attempt())
    for place in (0, 10, 60, 150, len(offer["list"]) - 1):
        with pytest.raises(PermissionDenied):
            open_commitment(parties[0], {**offer, "list": flipped(offer["list"], place)}, SETTINGS)
    said = opened(parties, offer)
    for place in (0, 40, 96, len(said["openings"]) - 1):
        with pytest.raises(PermissionDenied):
            learn_seed(parties[1], {**said, "openings": flipped(said["openings"], place)}, SETTINGS)
    with pytest.raises(PermissionDenied, match="not every party"):
        learn_seed(parties[1], {**said, "openings": said["openings"][:-96]}, SETTINGS)
    for other in ({"attempt": 2}, {"members": attempt(members=range(5))["members"]}):
        with pytest.raises(PermissionDenied, match=r"not signed by the key|not of the cohort"):
            learn_seed(parties[1], {**said, **other}, SETTINGS)


def test_nobody_opens_for_two_lists_or_for_one_without_itself_or_with_few(parties):
    offer = listed(parties, attempt())
    entry = len(offer["list"]) // COUNT
    with pytest.raises(PermissionDenied, match="only 3 of 6 parties committed"):
        open_commitment(parties[0], {**offer, "list": offer["list"][:3 * entry]}, SETTINGS)
    with pytest.raises(PermissionDenied, match="does not have this party's own"):
        open_commitment(parties[0], {**offer, "list": offer["list"][entry:]}, SETTINGS)
    with pytest.raises(PermissionDenied, match="order of the parties"):
        open_commitment(parties[0], {**offer, "list": offer["list"][entry:] + offer["list"][:entry]}, SETTINGS)
    first = open_commitment(parties[0], offer, SETTINGS)
    with pytest.raises(PermissionDenied, match="another list"):
        open_commitment(parties[0], {**offer, "list": offer["list"][:-entry]}, SETTINGS)
    assert open_commitment(parties[0], offer, SETTINGS) == first  # the same request, the same bytes
    assert open_commitment(parties[1], offer, SETTINGS)["nonce"] != first["nonce"]


def test_attempts_only_go_forward_and_there_are_eight(parties):
    commit(parties[0], attempt(3), SETTINGS)
    for number in (2, 1, 0, 9):
        with pytest.raises(PermissionDenied, match=r"attempt \d of round 1, and was in attempt 3 of round 1"):
            commit(parties[0], attempt(number), SETTINGS)
    with pytest.raises(PermissionDenied, match="of round 2"):
        commit(parties[0], attempt(4, epoch=2), SETTINGS)


def test_a_party_wants_as_many_others_as_its_owner_and_no_sum_of_others(tmp_path):
    with pytest.raises(PermissionDenied, match="at least 7"):
        commit(party(tmp_path, 0, **{LEAST_COHORT: 7}), attempt(), SETTINGS)
    with pytest.raises(PermissionDenied, match="sum of others"):
        commit(party(tmp_path, 0), attempt(members=range(1, 6)), SETTINGS)
    with pytest.raises(QuorumError, match="too few for a sum"):
        commit(party(tmp_path, 0), attempt(members=[0, 1]), SETTINGS)
    with pytest.raises(PermissionDenied, match="not well formed"):
        commit(party(tmp_path, 0), {**attempt(), "members": 7}, SETTINGS)


def test_the_journal_is_written_first_and_names_what_was_refused(parties, tmp_path):
    commit(parties[0], attempt(), SETTINGS)
    with pytest.raises(PermissionDenied):
        commit(parties[0], attempt(0), SETTINGS)
    written = (tmp_path / "0" / "joint_randomness.Agreement.jsonl").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert [line["step"] for line in lines] == ["commit", "commit"]
    assert "was in attempt 1" in lines[1]["refused"]


class Memory(dict):
    """What the crash tests remember."""


def count_up(one, asked, kind=Memory):
    return answer_once(one, kind, "count", {"asked": asked}, lambda memory: (
        {"count": memory.get("count", 0) + 1, "secrets": {"key": b"s"}}, {"count": memory.get("count", 0) + 1}))


@pytest.mark.parametrize("fell", ["before the line", "half a line", "before the rename"])
def test_after_a_crash_the_journal_decides(tmp_path, fell):
    home = tmp_path / "0"
    count_up(party(tmp_path, 0), "first")
    journal, now, coming = (home / f"test_joint_randomness.Memory.{end}" for end in ("jsonl", "now", "next"))
    lines, kept = journal.read_bytes(), now.read_bytes()
    count_up(party(tmp_path, 0), "second")
    coming.write_bytes(now.read_bytes())
    now.write_bytes(kept)
    if fell == "before the line":
        journal.write_bytes(lines)
    elif fell == "half a line":
        journal.write_bytes(journal.read_bytes()[:-9])
    done = fell == "before the rename"
    assert memory_of(party(tmp_path, 0), Memory)["count"] == 1 + done
    assert count_up(party(tmp_path, 0), "second") == {"count": 2}
    assert count_up(party(tmp_path, 0), "second") == {"count": 2}
    assert count_up(party(tmp_path, 0), "third") == {"count": 3}


def test_no_older_journal_is_gone_on_with(tmp_path):
    one = party(tmp_path, 0)
    count_up(one, "first")
    journal = tmp_path / "0" / "test_joint_randomness.Memory.jsonl"
    older = journal.read_bytes()
    count_up(one, "second")
    journal.write_bytes(older)
    with pytest.raises(RunError, match="1 lines, and the party has written 2"):
        count_up(one, "third")
    journal.unlink()
    with pytest.raises(RunError, match="0 lines"):
        count_up(one, "third")
    journal.write_bytes(older)
    with pytest.raises(RunError, match="is not there"):
        count_up(party(tmp_path, 0), "third")


def test_states_that_a_coordinator_goes_back_to_change_nothing(tmp_path):
    one = party(tmp_path, 0)
    earlier = dict(one.state)
    assert count_up(one, "first") == {"count": 1}
    assert count_up(party(tmp_path, 0, state=earlier), "second") == {"count": 2}


def test_secrets_do_not_outlive_the_run_or_a_day(tmp_path, monkeypatch):
    count_up(party(tmp_path, 0), "first")
    assert "secrets" in memory_of(party(tmp_path, 0), Memory)
    monkeypatch.setattr("tequio.privacy.aggregation.one_way._LASTS", -1.0)
    assert memory_of(party(tmp_path, 0), Memory) == {"count": 1}
    monkeypatch.undo()
    erase_secrets(tmp_path / "0")
    assert memory_of(party(tmp_path, 0), Memory) == {"count": 1}
    assert b"key" not in (tmp_path / "0" / "test_joint_randomness.Memory.now").read_bytes()


def test_only_the_pinned_key_counts(parties):
    signature = signed_by(parties[2], content("x"))
    roster = parties[0].roster
    assert is_signed_by(roster, 2, signature, content("x"))
    wrong = ((1, signature, "x"), (2, signature, "y"), (6, signature, "x"), (2, signature[:-1], "x"), (2, 7, "x"),
             (2, bytes(64), "x"))
    for party_, given, about in wrong:
        assert not is_signed_by(roster, party_, given, content(about))
    simulated = population(COUNT).roster
    assert len({pinned_key(simulated, number) for number in range(COUNT)}) == COUNT
    alone = Party(4, 1, {}, population(COUNT))
    assert is_signed_by(simulated, 4, signed_by(alone, content("x")), content("x"))


def test_a_roster_reaches_worker_processes(parties):
    home = replace(population(COUNT), pinned=parties[3].roster)
    assert build_population(*lay_out(home)).roster == parties[3].roster


def phases(here):
    return Phases("secure sum", here, here.everyone(), 3)


def test_a_cohort_keeps_its_seed_while_nearly_all_are_there():
    here = federation(vectors(20))
    here.engine.lost = {"reveal": {3}, "learn": {4}}
    seed, cohort = agree(phases(here), here, np.arange(19), STAGE, SETTINGS)
    assert cohort.members == tuple(range(20))
    assert here.agreed["learnt"] == [*range(4), *range(5, 19)]
    here.engine.lost, here.round = {}, 2
    assert agree(phases(here), here, np.arange(1, 20), STAGE, SETTINGS)[0] == seed
    assert here.agreed["learnt"] == list(range(20))
    assert len({state["joint_randomness.Agreement"]["seed"] for state in here.engine.states().values()}) == 1
    few = np.arange(12)
    other, cohort = agree(phases(here), here, few, STAGE, SETTINGS)
    assert (cohort.members, other == seed) == (tuple(range(12)), False)
    assert memory_of(Party(0, 2, here.engine.states()[0], here.population), Agreement)["attempt"] == 1


def test_a_second_cohort_of_a_round_takes_the_next_attempt():
    here = federation(vectors(20))
    first, _ = agree(phases(here), here, np.arange(19), STAGE, SETTINGS)
    second, _ = agree(phases(here), here, np.arange(12), STAGE, SETTINGS)
    assert first != second
    assert here.agreed["openings"]["attempt"] == 2


def test_too_many_drop_outs_end_all_attempts():
    here = federation(vectors(20))
    here.engine.lost = {"commit": set(range(9, 20))}
    with pytest.raises(QuorumError, match="no joint randomness in 8 attempts of round 1"):
        agree(phases(here), here, np.arange(20), STAGE, SETTINGS)


def test_the_tasks_are_asked_under_their_names():
    assert Order(1, commit.name, (0,), 1, {}).task == "joint.commit"
