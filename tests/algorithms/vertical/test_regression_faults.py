"""Faults in the middle of a step are named, end it cleanly, and the run goes on from its checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from encrypted import holders, regression, trained, weights_of
from joint import Transcript, federation_of, kept, play

from tequio.algorithms.vertical import regression_tasks as tasks
from tequio.algorithms.vertical.conversation import PartyMissing
from tequio.errors import PartyError
from tequio.federation.exchange import Failure, Reply
from tequio.federation.population import Party
from tequio.learners.learner import LocalTraining
from tequio.privacy.aggregation.identities import signed_by
from tequio.privacy.encryption.numbers import seeded

pytest.importorskip("gmpy2")
PAILLIER = {"name": "paillier", "bits": 1024}
LOCAL = LocalTraining(batch=16, learning_rate=0.5)


class Meddling(Transcript):
    """Changes the answers of one task from its nth time on, for so many times."""

    def __init__(self, task, change, after=0, times=1):
        super().__init__()
        self.task, self.change, self.after, self.times = task, change, after, times

    def collect(self):
        order = self._orders[0]
        outcome = super().collect()
        if order.task != self.task:
            return outcome
        self.after -= 1
        if self.after >= 0 or self.times == 0:
            return outcome
        self.times -= 1
        changed = [self.change(reply) for reply in outcome.replies]
        return replace(outcome, columns=None, replies=tuple(one for one in changed if isinstance(one, Reply)),
                       failures=tuple(one for one in changed if isinstance(one, Failure)))


def vanish(party):
    return lambda reply: Failure(party, "the line is dead") if reply.party == party else reply


def with_payload(party, change):
    return lambda reply: replace(reply, payload=change(reply.payload)) if reply.party == party else reply


def flipped(name):
    def change(payload):
        given = payload[name]
        content = given["content"].copy()
        content[0, 3] ^= 4
        return {**payload, name: {**given, "content": content}}
    return change


@pytest.mark.parametrize(("task", "party", "role"), [
    ("regression.residual", 1, "feature party"), ("regression.gradient", 0, "label holder"),
    ("regression.open", 2, "key holder")])
def test_a_party_that_vanishes_mid_step_is_named(task, party, role):
    who = holders(40)
    with pytest.raises(PartyError, match=rf"party '{who.name(party)}'.*the line is dead"):
        play(regression(PAILLIER, local=LOCAL), federation_of(who, engine=Meddling(task, vanish(party), after=1)))
    talked = []
    federation = federation_of(who, engine=Meddling(task, vanish(party), after=1), on_failure="continue",
                               record=lambda kind, facts: talked.append((kind, facts)))
    play(regression(PAILLIER, local=LOCAL), federation, 2)
    paused = [facts["cause"] for kind, facts in talked if kind == "paused"]
    assert len(paused) == 1
    assert f"({role}; the line is dead)" in paused[0]


def test_a_run_goes_on_from_its_checkpoint_after_a_fault():
    who = holders(40)
    straight = trained(PAILLIER, who, 2, local=LOCAL)[1]
    engine = Meddling("regression.gradient", vanish(1), after=3)
    federation = federation_of(who, engine=engine)
    algorithm = regression(PAILLIER, local=LOCAL)
    state = play(algorithm, federation, 1)
    saved = {party: dict(kept) for party, kept in engine.states().items()}
    federation.round = 2
    with pytest.raises(PartyError):
        algorithm.round(federation, state)
    engine.restore(saved)
    algorithm.round(federation, state)
    assert weights_of(federation).tobytes() == weights_of(straight).tobytes()


@pytest.mark.parametrize("task", ["regression.residual", "regression.loss part", "regression.part of scores"])
def test_a_ciphertext_damaged_on_the_way_to_the_coordinator_is_refused(task):
    name = {"regression.residual": "residual", "regression.loss part": "loss"}.get(task, "scores")
    federation = federation_of(holders(40), engine=Meddling(task, with_payload(1, flipped(name))))
    algorithm = regression(PAILLIER, local=LOCAL, patience=3)
    with pytest.raises(PartyError, match=r"party '1'.*changed on the way"):
        algorithm.score(federation, play(algorithm, federation), federation.population.dataset)


def test_a_damaged_gradient_is_refused_by_the_key_holder():
    engine = Meddling("regression.gradient", with_payload(1, lambda payload: {
        "gradient": flipped("values")(payload["gradient"])}))
    federation = federation_of(holders(40), engine=engine)
    with pytest.raises(PartyError, match=r"key holder.*ciphertexts of party '1' are refused.*changed on the way"):
        play(regression(PAILLIER, local=LOCAL), federation)


def test_ciphertexts_under_another_key_are_refused():
    other = regression(PAILLIER).scheme().generate(seeded(np.random.default_rng(9))).public

    def under_another_key(payload):
        draw = seeded(np.random.default_rng(0))
        return {"residual": other.send(other.encrypt(np.zeros(16), draw), draw)}

    engine = Meddling("regression.residual", with_payload(1, under_another_key))
    with pytest.raises(PartyError, match=r"party '1'.*they are of the key"):
        play(regression(PAILLIER, local=LOCAL), federation_of(holders(40), engine=engine))


def test_a_key_of_the_wrong_size_is_refused_with_the_name_of_its_maker():
    small = regression(PAILLIER).scheme().generate(seeded(np.random.default_rng(9))).public.to_payload()
    engine = Meddling("regression.make key", with_payload(2, lambda payload: {"key": small}))
    with pytest.raises(PartyError, match=r"party 'key holder' .*of 1024 bits was received where one of 2048 was"):
        play(regression({"name": "paillier", "bits": 2048}, local=LOCAL),
             federation_of(holders(40), engine=engine))


class Overhearing(Meddling):
    """Knows the public key, as everybody may."""

    def collect(self):
        task, outcome = self._orders[0].task, super().collect()
        if task == "regression.make key":
            self.public = regression(PAILLIER).scheme().public_key(outcome.replies[0].payload["key"])
        return outcome


def test_too_few_residuals_are_named():
    def fewer(payload):
        draw = seeded(np.random.default_rng(0))
        return {"residual": engine.public.send(engine.public.encrypt(np.zeros(5), draw), draw)}

    engine = Overhearing("regression.residual", with_payload(1, fewer))
    with pytest.raises(PartyError, match=r"party '1'.*different layouts"):
        play(regression(PAILLIER, local=LOCAL), federation_of(holders(40), engine=engine))


def test_a_forged_ciphertext_of_a_huge_number_is_found_when_opened():
    """A party that knows the key, makes proper digests and signs, but encrypts more than it declares."""
    who = holders(40)

    def too_large(payload):
        draw = seeded(np.random.default_rng(0))
        given = engine.public.receive(payload["gradient"]["values"], "itself")
        huge = engine.public.group.encrypt(1 << 1000, draw)
        values = engine.public.send(replace(given, content=(huge,) * len(given.content)), draw)
        itself = Party(1, 1, {}, who)
        return {"gradient": {"values": values, "party": 1,
                             "signature": signed_by(itself, tasks.pad_part(itself, 1, values))}}

    engine = Overhearing("regression.gradient", with_payload(1, too_large))
    with pytest.raises(PartyError, match=r"key holder.*beyond the range that was declared"):
        play(regression(PAILLIER, local=LOCAL), federation_of(who, engine=engine))


def answered(federation, task):
    """The payloads that parties answered a task with, in their order."""
    return [payload for name, sender, _, payload in federation.engine.messages
            if name == task and sender != "coordinator"]


@pytest.mark.parametrize("lie", ["a party's residuals", "the signature of other values", "another party's name"])
def test_the_key_holder_opens_for_no_coordinator_what_no_party_has_put_its_pad_on(lie):
    """Residuals are half the label, at first: whoever had them opened would read each row's class."""
    algorithm, federation, _ = trained(PAILLIER, holders(40), 1, local=LOCAL)
    signed = answered(federation, "regression.gradient")[0]["gradient"]
    residuals = answered(federation, "regression.residual")[0]["residual"]
    asked = {"a party's residuals": {"values": residuals, "party": 0, "signature": bytes(64)},
             "the signature of other values": {**signed, "values": residuals},
             "another party's name": {**signed, "party": 1 - signed["party"]}}[lie]
    settings = tasks.KeySettings(scheme=algorithm.scheme(), kind="logistic")
    with pytest.raises(PartyError, match=r"values to be opened of party \d are not signed by the key"):
        federation.ask([2], tasks.open_hidden, {"hidden": {"x": asked}}, settings=settings)
    federation.ask([2], tasks.open_hidden, {"hidden": {"x": signed}}, settings=settings)  # under a pad, as before


def test_a_learning_rate_that_blows_up_is_found_before_it_overflows():
    with pytest.raises(PartyError, match=r"values to encrypt overflow the fixed-point range.*lower the learning rate"):
        trained(PAILLIER, holders(40), 12, local=LocalTraining(batch=0, learning_rate=40.0))


def test_a_key_holder_that_opens_something_else_is_named():
    engine = Meddling("regression.open", lambda reply: replace(reply, payload={"opened": {}}))
    with pytest.raises(PartyError, match=r"party 'key holder'.*did not open what it was asked to open"):
        play(regression(PAILLIER, local=LOCAL), federation_of(holders(40), engine=engine))


def test_an_opened_gradient_that_nobody_asked_for_is_refused():
    algorithm, federation, _ = trained(PAILLIER, holders(40), 1, local=LOCAL)
    with pytest.raises(PartyError, match="never asked for"):
        federation.ask([1], tasks.residual, {"opened": {}, "rows": 3}, settings=tasks.ResidualSettings(
            scheme=algorithm.scheme(), kind="logistic", purpose="end", curve=0.0, pull=0.0, local=LOCAL))


def test_a_dropped_out_party_pauses_the_round():
    with pytest.raises(PartyMissing, match="cannot go on without party"):
        play(regression(PAILLIER, local=LOCAL), federation_of(holders(40), dropout=1.0))


def test_a_key_that_has_opened_enough_gives_way_to_another():
    """With 20 openings a key lasts for eight batches of two gradients; training goes on as if nothing had happened."""
    pytest.importorskip("tenseal")
    local = LocalTraining(batch=10, learning_rate=0.5)
    _, plain, _ = trained("plain", holders(40), 4, local=local)
    algorithm, federation, state = trained({"name": "ckks", "openings": 20}, holders(40), 4, local=local)
    assert weights_of(federation) == pytest.approx(weights_of(plain), abs=1e-3)
    sent = [task for task, sender, _, _ in federation.engine.messages if sender == "coordinator"]
    assert sent.count("regression.change key") == 2
    held = kept(federation.engine.states()[2], tasks.KeptSecret)
    assert held["opened"] == 16
    made = algorithm.scheme().secret_key(held["secret"]).public
    assert made.fingerprint == algorithm.scheme().public_key(state.memory["key"]).fingerprint


def test_a_coordinator_that_asks_for_more_openings_than_a_key_may_do_is_refused():
    """However often it asks, without having a new key made: the count is the key holder's."""
    pytest.importorskip("tenseal")
    algorithm, federation, _ = trained({"name": "ckks", "openings": 20}, holders(40), 1)
    settings = tasks.KeySettings(scheme=algorithm.scheme(), kind="logistic")
    asked = {"hidden": {"0": answered(federation, "regression.gradient")[0]["gradient"]}}
    already = kept(federation.engine.states()[2], tasks.KeptSecret)["opened"]
    for _ in range(20 - already):
        federation.ask([2], tasks.open_hidden, asked, settings=settings)
    with pytest.raises(PartyError, match="may open 20 ciphertexts has opened 20, and was asked to open 1 more"):
        federation.ask([2], tasks.open_hidden, asked, settings=settings)
