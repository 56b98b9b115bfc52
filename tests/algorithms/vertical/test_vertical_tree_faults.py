"""Vertical trees when somebody is missing, wrong or dishonest: a clear error, nothing half-kept, and on it goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from boosting import PAILLIER, assert_same_model, boosting, forest, grown, same_rows
from joint import Transcript, dealt, federation_of, keeping, kept, people, play

from tequio.algorithms.vertical.trees.encrypted_sums import EncryptedHiding
from tequio.algorithms.vertical.trees.skeleton import OwnSplits, OwnTrees, Skeleton
from tequio.algorithms.vertical.trees.sums import Form
from tequio.errors import EncryptionError, PartyError, PayloadError
from tequio.federation.exchange import Failure
from tequio.privacy.encryption.numbers import seeded
from tequio.privacy.encryption.scheme import unwrap, wrap
from tequio.registry import build


class Meddler(Transcript):
    """Changes or loses the answers to a task, the first time that it is asked after a number of times."""

    def __init__(self, task, change, party=None, after=0):
        super().__init__()
        self.task, self.change, self.party, self.left = task, change, party, after

    def collect(self):
        order, outcome = self._orders[0], super().collect()
        mine = [reply for reply in outcome.replies if self.party in (None, reply.party)]
        if order.task != self.task or not mine:
            return outcome
        self.left -= 1
        if self.left != -1:
            return outcome
        if self.change is None:
            lost = tuple(Failure(reply.party, "the line is dead") for reply in mine)
            return replace(outcome, replies=tuple(reply for reply in outcome.replies if reply not in mine),
                           failures=lost)
        changed = [replace(reply, payload=self.change(reply.payload)) if reply in mine else reply
                   for reply in outcome.replies]
        return replace(outcome, replies=tuple(changed))


def meddled(algorithm, population, meddler, rounds=2):
    federation = federation_of(population, engine=meddler)
    return federation, play(algorithm, federation, rounds)


TASKS = [("secureboost: derive", 0), ("vertical trees: offer", 1), ("vertical trees: choose", 0),
         ("vertical trees: divide", 1), ("vertical trees: end", 1), ("secureboost: add trees", 0)]


@pytest.mark.parametrize(("task", "party"), TASKS)
def test_a_party_lost_in_the_middle_of_a_tree_stops_the_run_and_the_round_can_be_made_again(task, party):
    population = dealt(people(120, columns=6), parties=3)
    straight = grown(boosting(), population, rounds=3)
    federation = federation_of(population, engine=Meddler(task, None, party, after=1))
    algorithm, state = boosting(), None
    state = algorithm.start(federation)
    for number in (1, 2, 3):
        federation.round = number
        try:
            state = algorithm.round(federation, state)
        except PartyError as error:
            assert f"party '{party}' failed in round" in error.message
            assert task in error.message
            state = algorithm.round(federation, state)
    # A label holder whose answer was lost after it had added trees takes them back.
    assert_same_model(_without_unused(straight), _without_unused((federation, state)))


def _without_unused(run):
    """Records that no split points to, left by a round whose end was lost, do not count."""
    federation, state = run
    states = dict(federation.engine.states())
    model = dict(state.model)
    model["record"] = model["record"].copy()
    for party, own in federation.engine.states().items():
        records = kept(own, OwnSplits)["records"]
        mine = model["owner"] == party
        used = model["record"][mine]
        states[party] = keeping(own, OwnSplits, {"records": {name: values[used] for name, values in records.items()}})
        model["record"][mine] = np.arange(len(used))
    trees = kept(states[0], OwnTrees)["trees"]
    states[0] = keeping(states[0], OwnTrees, {"trees": {**trees, "record": model["record"]}})
    engine = type("Engine", (), {"states": lambda self: states})()
    return type("Federation", (), {"engine": engine})(), replace(state, model=model)


def test_rounds_rest_while_a_party_is_missing_where_that_is_allowed():
    population = dealt(people(120, columns=6))
    events = []
    federation = federation_of(population, engine=Meddler("vertical trees: divide", None, 1, after=1),
                               on_failure="continue", quorum=0.0,
                               record=lambda kind, facts: events.append((kind, facts)))
    state = play(boosting(), federation, rounds=3)
    assert len(state.model["sizes"]) == 2
    paused = [facts for kind, facts in events if kind == "paused"]
    assert len(paused) == 1
    assert "party '1' (feature party; the line is dead)" in paused[0]["cause"]


def _flip(payload):
    block = payload["blocks"][0]["sums"]
    content = block["content"].copy()
    content[0, 5] ^= 1
    return {**payload, "blocks": [{"sums": {**block, "content": content}}]}


def test_ciphertexts_changed_on_the_way_are_refused():
    pytest.importorskip("gmpy2")
    with pytest.raises(PartyError, match=r"party '1' are refused: they were changed on the way"):
        meddled(boosting(PAILLIER), dealt(people(80)), Meddler("vertical trees: offer", _flip))


def _forge(payload):
    """Another ciphertext under the same key, with a digest that fits."""
    sums = payload["blocks"][0]["sums"]
    given, content = unwrap(sums, sums["key"], "nobody")
    forged = content.copy()
    forged[0, :200] ^= 0x5A
    return {**payload, "blocks": [{"sums": wrap(given, sums["key"], forged)}]}


def test_a_forged_ciphertext_opens_to_a_number_that_cannot_be():
    pytest.importorskip("gmpy2")
    with pytest.raises(PartyError, match="beyond the range that was declared"):
        meddled(boosting(PAILLIER), dealt(people(80)), Meddler("vertical trees: offer", _forge))


def _other_count(payload):
    return {**payload, "sizes": payload["sizes"] + 1}


@pytest.mark.parametrize("encryption", ["plain", PAILLIER])
def test_fewer_offers_than_promised_are_refused(encryption):
    pytest.importorskip("gmpy2")
    with pytest.raises(PartyError, match="party '1'"):
        meddled(boosting(encryption), dealt(people(80)), Meddler("vertical trees: offer", _other_count))


def test_other_offers_than_at_the_parent_are_refused():
    def fewer(payload):
        return {"sizes": payload["sizes"] - 1, "blocks": [{"sums": payload["blocks"][0]["sums"][:-1]}]}

    with pytest.raises(PartyError, match="party '1' offers 13 splits for a node, and 14 for its parent"):
        meddled(boosting(), dealt(people(80)), Meddler("vertical trees: offer", fewer, after=1))


def test_a_party_that_divides_the_wrong_rows_is_named():
    def shorter(payload):
        return {**payload, "ways": {**payload["ways"], "sizes": payload["ways"]["sizes"] - 1}}

    with pytest.raises((PayloadError, PartyError), match="rows"):
        meddled(boosting(), dealt(people(81)), Meddler("vertical trees: divide", shorter))


def test_a_key_of_another_size_is_refused():
    pytest.importorskip("gmpy2")
    short = build("encryption", "paillier", {"bits": 1024}).generate(seeded(np.random.default_rng(0))).public

    def swap(payload):
        return {**payload, "hidden": [{**payload["hidden"][0], "key": short.to_payload()}]}

    with pytest.raises(PartyError, match="a Paillier key of 1024 bits was received where one of 2048 was agreed on"):
        meddled(boosting({"name": "paillier", "bits": 2048}), dealt(people(40)), Meddler("secureboost: derive", swap))


def test_ciphertexts_of_another_key_are_refused():
    pytest.importorskip("gmpy2")
    other = build("encryption", "paillier", {"bits": 1024}).generate(seeded(np.random.default_rng(0))).public

    def swap(payload):
        return {**payload, "hidden": [{**payload["hidden"][0], "key": other.to_payload()}]}

    with pytest.raises(PartyError, match="they are of the key"):
        meddled(boosting(PAILLIER), dealt(people(40)), Meddler("secureboost: derive", swap))


def test_values_that_leave_the_fixed_point_range_are_refused():
    pytest.importorskip("gmpy2")
    secret = build("encryption", "paillier", {"bits": 1024}).generate(seeded(np.random.default_rng(0)))
    form = Form.of_sums(8, 1.0)
    hiding = EncryptedHiding(secret, seeded(np.random.default_rng(1)), 2, form)
    edge = np.array([[2 ** form.fraction, -(2 ** form.fraction)]] * 8)
    assert hiding.hide(edge)["rows"]["count"] == 8
    with pytest.raises(EncryptionError, match="overflow"):
        hiding.hide(edge * 4)


def test_a_party_with_the_state_of_another_run_is_told_so():
    population = same_rows(people(60))
    federation, state = grown(boosting(), population, rounds=1)
    states = federation.engine.states()
    none = {"column": np.zeros(0, np.int32), "threshold": np.zeros(0)}
    federation.engine.restore({**states, 1: keeping(states[1], OwnSplits, {"records": none})})
    with pytest.raises(PartyError, match="is asked for split 0 and keeps 0 of them"):
        boosting().evaluate(federation, state, "test", federation.everyone())
    forgotten = {"trees": Skeleton.empty().to_payload(), "before": {}}
    federation.engine.restore({**states, 0: keeping(states[0], OwnTrees, forgotten)})
    federation.round = 2
    with pytest.raises(PartyError, match="keeps 0 trees, and the run has 1"):
        boosting().round(federation, state)


@pytest.mark.parametrize("make", [boosting, forest])
def test_predictions_name_who_is_offline(make):
    population = dealt(people(120, columns=6), parties=3)
    federation, state = grown(make(), population, rounds=2)
    absent = federation_of(population, engine=Meddler("vertical trees: route", None, 2))
    absent.engine.restore(federation.engine.states())
    with pytest.raises(PartyError, match="party '2' failed"):
        make().predict(absent, state)
