"""Every stage: is what its spec says, undoes at the coordinator what it did at the party, fails a party by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tequio import registry
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, PartyError, QuorumError
from tequio.federation import payload as payloads
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import Averaging, aggregate
from tequio.federation.composition import why_not
from tequio.federation.exchange import Replies
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Party
from tequio.federation.stages import BUFFERS, Stage, StageSpec, SummingStage, vectors_in
from tequio.federation.task import Reveals, record, task
from tequio.privacy.ledger import Context, Ledger, Terms
from tequio.privacy.verification.transcript import Transcript
from tequio.registry import name_of, parameters_of, to_plain

from .subjects import every, make, population

if TYPE_CHECKING:
    from tequio.privacy.mechanism import Mechanism

PARTIES, CLIP = 5, 1e3
MOVES = {"weight": 1.0, "bias": 1.0}

QUIET: dict[str, dict[str, Any]] = {
    "central-dp": {"noise": 0.0, "clip": CLIP}, "dp-ftrl": {"noise": 0.0, "clip": CLIP},
    "dp-mf": {"noise": 0.0, "clip": CLIP},
    "distributed-dp": {"noise": 0.0, "clip": CLIP}, "local-dp": {"noise": 0.0, "clip": CLIP},
    "dp-sums": {"noise": 0.0}, "silent-training": {"noise": 0.0}, "randomised-response": {"epsilon": 60.0},
    "secure-sum": {"largest": 2 * CLIP, "bits": 64}, "one-shot-sum": {"largest": 8.0}}
"""Stages whose defaults change numbers, so that they change them as little as they can."""

ERROR = {"top-k": 0.95, "random-k": 4.0, "quantise": 0.02, "low-rank": 1.0, "one-shot-sum": 1e-5,
         "distributed-dp": 2e-3}
"""How far an update may come out from what went in, as a share of its length; all other stages lose nothing."""

EXPECTING = ("central-dp", "dp-ftrl", "dp-mf")
ALONE = {"attack", "silent-training", "randomised-response", "attested", "verified", "local-dp", "central-dp",
         "dp-ftrl", "dp-mf", "dp-sums", "top-k", "random-k", "quantise", "low-rank", "delta-zstd"}
"""Stages for which one party is enough; the others hide it among several."""

every_stage = every("stage")
MECHANISMS = [name for name in registry.names("stage") if make("stage", name).mechanism is not None]
NOISED = {*MECHANISMS} - {"silent-training", "randomised-response"}
"""Stages that add noise to updates themselves."""

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


@record
class SendSettings:
    """What parties send: everything, or sums over rows alone; with buffers; and what is wrong with one of them."""

    bare: bool = False
    buffers: bool = False
    fault: str = ""


@task("contracts: send", settings=SendSettings, reply=dict, reveals=Reveals.UPDATE)
def send(party: Party, payload: Any, settings: SendSettings) -> Any:
    sent = update(party.index + 10 * party.round)
    if settings.fault and party.index == 2:
        sent["bias"] = {"NaN": np.full(30, np.nan, np.float32), "shape": np.zeros(7, np.float32)}[settings.fault]
    if settings.bare:
        return {"update": sent}
    more = {BUFFERS: {"mean": buffer(party.index)}} if settings.buffers else {}
    return {"update": sent, **more, "rows": 1, "steps": 3, "loss": 0.25}


def update(seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {"weight": (0.1 * draw.standard_normal((40, 30))).astype(np.float32),
            "bias": (0.1 * draw.standard_normal(30)).astype(np.float32)}


def buffer(party: int) -> Any:
    return np.linspace(0, 1 + party, 6, dtype=np.float32)


LIKE = {name: np.zeros_like(values) for name, values in update(0).items()}


@dataclass(frozen=True, kw_only=True)
class Asking(Averaging):
    """Asks parties to send something and averages what comes."""

    learner: Any = part(None)
    sending: SendSettings = part(factory=SendSettings)

    def round(self, federation: Federation, state: State) -> State:
        parties = state.memory.get("parties", federation.everyone())
        replies = federation.ask(parties, send, {}, settings=self.sending, stages=self.way)
        if not replies:
            return state.next(replies=replies)
        model = aggregate(self, federation, state, replies, LIKE).update
        if self.sending.buffers:
            like = {"mean": np.zeros(6, np.float32)}
            model = {**model, **aggregate(self, federation, state, replies, like, name=BUFFERS).update}
        return state.next(model, replies=replies)


def made(name: str, *, arrays: tuple[str, ...] = ("update",)) -> Stage:
    """A stage that is as quiet as it can be, and ready for a run."""
    stage = make("stage", name, **QUIET.get(name, {}))
    return opened(stage, arrays) if stage.mechanism is not None else stage


def opened(stage: Mechanism, arrays: tuple[str, ...] = ("update",)) -> Mechanism:
    context = Context(PARTIES, float(PARTIES), arrays=arrays, moves=MOVES, hidden="secure-sum", scale=2.0**40,
                      largest=2 * CLIP, buffers=frozenset({"mean"} if BUFFERS in arrays else ()))
    ledger = Ledger(Terms(), stage, context)
    ledger.template = {**LIKE, **({"mean": np.zeros(6, np.float32)} if BUFFERS in arrays else {})}
    ledger.mechanism = stage.opened(stage.noise or 0.0, context, ledger)
    return ledger.mechanism


def way(name: str, **settings: Any) -> tuple[Stage, ...]:
    """The stage, with what it cannot do without."""
    stage = made(name, **settings)
    needs_sum = stage.mechanism is not None and stage.mechanism.place == "sum"
    return (stage, made("secure-sum")) if needs_sum else (stage,)


def federation(parties: int = PARTIES, **settings: Any) -> Federation:
    engine, people = InlineEngine(), population(parties)
    engine.open(people)
    return Federation(people, engine, round=1, notary=Transcript(), **settings)


def played(*stages: Stage, here: Federation | None = None, parties: Any = None, **sending: Any) -> State:
    bare = any(stage.mechanism is not None and stage.mechanism.protects == "sums" for stage in stages)
    attack, stages = (stages[0], stages[1:]) if stages and stages[0].spec.first else (None, stages)
    algorithm = Asking(stages=stages, attack=attack, sending=SendSettings(bare=bare, **sending))
    memory = {} if parties is None else {"parties": parties}
    return algorithm.round(here or federation(), State(LIKE, memory))


def mean(parties: Any = range(PARTIES), round: int = 1) -> dict[str, Any]:
    given = [update(index + 10 * round) for index in parties]
    return {name: np.mean([one[name] for one in given], axis=0) for name in LIKE}


def distance(one: Any, other: Any) -> float:
    return float(sum(np.square(one[name].astype(float) - other[name]).sum() for name in LIKE) ** 0.5)


def length(one: Any) -> float:
    return distance(one, LIKE)


def near(found: Any, expected: Any, name: str) -> bool:
    return distance(found, expected) <= (ERROR.get(name, 0.0) + 1e-6) * length(expected)


def sent_by(stage: Stage, index: int, **sending: Any) -> tuple[Party, Any]:
    """What leaves a party through one stage alone, as bytes that really cross."""
    party = Party(index, 1, {}, population(PARTIES))
    bare = stage.mechanism is not None and stage.mechanism.protects == "sums"
    stage.enter(party)
    if name_of(type(stage)) == "attested":
        return party, send.run(party, {}, SendSettings(bare=bare, **sending))
    content = stage.send(party, send.run(party, {}, SendSettings(bare=bare, **sending)))
    return party, payloads.decode(payloads.encode(content))


@every_stage
def test_it_is_a_stage_that_declares_what_it_does(name):
    stage = made(name)
    assert isinstance(stage, Stage)
    assert isinstance(stage.spec, StageSpec)
    assert not stage.spec.alone
    assert stage.spec.hides == isinstance(stage, SummingStage)
    assert stage.spec.hides == (stage.spec.gives == "hidden")


@every_stage
def test_it_leaves_the_form_that_it_declares(name):
    stage = made(name)
    sent = [sent_by(stage, index)[1]["update"] for index in range(2)]
    arrays = [{key: value for key, value in one.items() if isinstance(value, np.ndarray)} for one in sent]
    form = stage.spec.gives or "model"
    if form == "model":
        assert all(one.keys() == LIKE.keys() for one in arrays)
        assert all(one[key].shape == LIKE[key].shape and one[key].dtype.kind == "f" for one in arrays for key in LIKE)
    elif form in ("common", "own"):
        assert all(any(array.dtype.kind == "f" for array in one.values()) for one in arrays)
        assert sum(array.nbytes for array in arrays[0].values()) < sum(array.nbytes for array in LIKE.values())
    elif form == "code":
        assert all(any(array.dtype.kind == "u" for array in one.values()) for one in arrays)
    else:
        assert form in ("bytes", "hidden")
        assert not any(arrays)
        assert any(isinstance(value, bytes) for value in sent[0].values()) == (form == "bytes")


@every_stage
def test_the_mean_of_what_crosses_is_the_mean_of_updates_where_it_says_so(name):
    stage = made(name)
    if stage.spec.gives != "common":
        assert stage.spec.gives in ("", "hidden") or not stage.spec.adds_up
        return
    replies = played(stage).memory["replies"]
    sent = [sent_by(stage, index)[1]["update"] for index in range(PARTIES)]
    together = {**sent[0], "values": np.mean([one["values"] for one in sent], axis=0)}
    read = stage.receive(Replies((replace(replies[0], payload={"update": together}),)), 1, 0)[0].payload["update"]
    expected = {key: np.mean([reply.payload["update"][key] for reply in replies], axis=0) for key in LIKE}
    assert distance(read, expected) <= 1e-6 * length(expected)


@every_stage
def test_a_round_trip_keeps_an_update_within_the_declared_error(name):
    if name != "attack":
        assert near(played(*way(name)).model, mean(), name)


@every_stage
def test_it_is_the_same_again(name):
    first, again = played(*way(name)).model, played(*way(name)).model
    for key in LIKE:
        np.testing.assert_array_equal(first[key], again[key])


@every_stage
def test_the_order_in_which_parties_are_asked_does_not_matter(name):
    straight, shuffled = (played(*way(name), parties=parties).model for parties in (range(PARTIES), [3, 1, 4, 0, 2]))
    for key in LIKE:
        np.testing.assert_array_equal(straight[key], shuffled[key])


@every_stage
def test_a_run_that_is_saved_and_resumed_goes_on_as_if_nothing_had_happened(name):
    straight, stages = federation(), way(name)
    played(*stages, here=straight)
    saved = payloads.decode(payloads.encode({str(party): state for party, state in straight.engine.states().items()}))
    ledgers = [stage.mechanism.ledger for stage in stages if stage.mechanism is not None]
    kept = [ledger.to_plain() for ledger in ledgers if ledger is not None]
    straight.round = 2
    expected = played(*stages, here=straight).model

    resumed, again = federation(), way(name)
    resumed.engine.restore({int(party): state for party, state in saved.items()})
    resumed.notary = Transcript(straight.notary._seed, straight.notary.lines[:3]) if name == "verified" else None
    for stage in again:
        if stage.mechanism is not None and stage.mechanism.ledger is not None:
            stage.mechanism.ledger.restore(kept[0])
    resumed.round = 2
    found = played(*again, here=resumed).model
    for key in LIKE:
        np.testing.assert_array_equal(found[key], expected[key])


@every_stage
def test_one_party_is_enough_or_the_stage_says_how_many_are_needed(name):
    if name in ALONE:
        assert near(played(*way(name), here=federation(1)).model, mean([0]), name) or name in EXPECTING
    elif name == "group-sum":
        assert near(played(*way(name), here=federation(1)).model, mean([0]), name)
    else:
        with pytest.raises(QuorumError, match=r"(are left|are needed)"):
            played(*way(name), here=federation(1))


@every_stage
def test_a_round_that_nobody_answers_is_no_error(name):
    stages = way(name)
    state = played(*stages, parties=[])
    mechanism = stages[0].mechanism
    if mechanism is not None and mechanism.place == "coordinator":
        assert state.memory["replies"].of_nobody  # noise is released in every round, or who came would show
    else:
        assert len(state.memory["replies"]) == 0
    assert all(not values.any() for values in state.model.values())


@every_stage
@pytest.mark.parametrize("fault", ["NaN", "shape"])
def test_an_update_that_cannot_be_used_fails_its_party_by_name(name, fault):
    if fault == "NaN" and name == "attack":
        pytest.skip("hostile parties may send anything")
    if fault == "NaN" and name in NOISED:
        pytest.skip("its party contributes zeros, and no one else learns of it: see the next test")
    with pytest.raises(PartyError, match="party '2'"):
        played(*way(name), fault=fault)
    here = federation(rules=Rules(on_failure="continue"))
    found = played(*way(name), here=here, fault=fault).model
    assert all(np.isfinite(values).all() for values in found.values())
    if name in EXPECTING:  # they divide by the cohort that was expected
        found = {key: values * PARTIES / (PARTIES - 1) for key, values in found.items()}
    if name != "attack":
        assert near(found, mean([0, 1, 3, 4]), name)


@pytest.mark.parametrize("name", sorted(NOISED))
def test_noise_does_not_show_which_party_sent_no_numbers(name):
    """Neither by a failure, which would reveal something of its rows, nor by its effect on the others."""
    found = played(*way(name), fault="NaN")
    assert len(found.memory["replies"]) == PARTIES
    assert all(np.isfinite(values).all() for values in found.model.values())


@every_stage
def test_entries_that_are_no_updates_are_left_alone(name):
    stages = way(name)
    for reply in played(*stages).memory["replies"]:
        own = any(isinstance(stage, SummingStage) and stage.weighed_by_parties for stage in stages)
        expected = {} if name == "dp-sums" else {"rows": 1, "steps": 1 if own else 3, "loss": 0.25}
        withheld = [key for stage in stages for key in stage.spec.withholds]
        assert {key: value for key, value in reply.payload.items() if key in ("rows", "steps", "loss")} == \
            {key: value for key, value in expected.items() if key not in withheld}


@every_stage
def test_buffers_are_protected_with_the_update_and_never_compressed(name):
    mechanism = made(name).mechanism
    if mechanism is not None and mechanism.protects == "updates" and mechanism.unit == "party":
        with pytest.raises(PartyError, match="'buffers', which nothing would clip or noise"):
            played(*way(name), buffers=True)
    elif name == "dp-sums":
        return
    state = played(*way(name, **({"arrays": ("update", BUFFERS)} if mechanism is not None else {})), buffers=True)
    exact = 2e-3 if name in ERROR and name not in ("top-k", "random-k", "quantise", "low-rank") else 1e-6
    if name != "attack":
        np.testing.assert_allclose(state.model["mean"], np.mean([buffer(index) for index in range(PARTIES)], axis=0),
                                   atol=exact)
    hidden = any(stage.spec.hides for stage in way(name))
    assert all(bool(vectors_in({BUFFERS: reply.payload[BUFFERS]})) != hidden for reply in state.memory["replies"])


@every_mechanism
def test_a_clip_bounds_the_update_and_its_buffers_together(name):
    stage = make("stage", name)
    if "clip" not in [parameter.name for parameter in parameters_of(type(stage))]:
        return
    short = opened(make("stage", name, clip=0.5, noise=0.0), ("update", BUFFERS))
    _, sent = sent_by(short, 3, buffers=True)
    whole = np.concatenate([values.ravel() for array in ("update", BUFFERS) for values in sent[array].values()])
    assert np.linalg.norm(whole.astype(float)) == pytest.approx(0.5, rel=1e-3)
    np.testing.assert_allclose(sent[BUFFERS]["mean"] / sent["update"]["bias"][0],
                               buffer(3) / update(13)["bias"][0], rtol=2e-2)


@every_mechanism
def test_a_mechanism_says_all_that_the_accounting_reads(name):
    stage = made(name)
    mechanism = stage.mechanism
    assert mechanism is stage
    assert mechanism.unit in ("party", "row", "label")
    assert mechanism.place in ("coordinator", "party", "sum")
    assert mechanism.protects in ("updates", "training", "sums")
    context = Context(PARTIES, float(PARTIES), rounds=3, hidden="secure-sum", scale=2.0**40,
                      descent=lambda party: (0.1, 4), everybody=tuple(range(PARTIES)))
    loud, louder = (mechanism.spent(mechanism.planned(noise, context), context) for noise in (1.0, 2.0))
    assert loud
    for bill, other in zip(loud, louder, strict=True):
        assert all(count > 0 and release.noise > 0 for release, count in bill.items())
        assert name == "randomised-response" or all(
            most.noise > least.noise for least, most in zip(bill, other, strict=True))
    assert "Neighbours:" in mechanism.words(context)


@every_mechanism
def test_a_mechanism_charges_the_ledger_once_a_round(name):
    stages = way(name)
    played(*stages)
    ledger = stages[0].mechanism.ledger
    assert [(entry.round, entry.chosen) for entry in ledger.entries] == [(1, PARTIES)]
    assert not ledger.owed
    assert ledger.to_plain() == payloads.decode(payloads.encode(ledger.to_plain()))


@every_stage
def test_it_goes_with_every_other_stage_or_is_refused_with_the_reason(name):
    for other in registry.names("stage"):
        first, second = way(name), way(other)
        stages = (*first, *(stage for stage in second if name_of(type(stage)) not in map(_name, first)))
        if len(stages) < 2 or len({*map(_name, stages)}) != len(stages):
            continue
        reason = why_not(stages)
        if reason:
            assert sum(f"'{stage}'" in reason for stage in map(_name, stages)) >= 1
            continue
        model = played(*stages).model
        assert all(np.isfinite(values).all() and values.any() for values in model.values())


def _name(stage: Stage) -> str:
    return name_of(type(stage))


@every_stage
def test_a_stage_travels_as_plain_data_without_its_ledger(name):
    assert "ledger" not in to_plain(made(name))["parameters"]


def test_a_stage_that_declares_nothing_is_used_alone():
    @dataclass(frozen=True)
    class Odd(Stage):
        pass

    assert why_not([Odd()]) == ""
    assert "used alone" in why_not([Odd(), made("top-k")])
    with pytest.raises(ConfigError):
        make("stage", "no-such-stage")
