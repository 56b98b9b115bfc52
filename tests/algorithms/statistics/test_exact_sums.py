"""Sums in whole numbers: exact, the same bits on every carrier, and sound against parties that lie."""

from __future__ import annotations

from fractions import Fraction
from math import fsum
from typing import Any, TypedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pooled import ONE_SHOT, SECURE, Backwards, dealt

from tequio.algorithms.statistics import exact_sums
from tequio.algorithms.statistics.exact_sums import (
    ROWS,
    WHOLE,
    Block,
    counts,
    sum_rows,
    symmetric,
    triangle,
    upper,
    whole_reply,
)
from tequio.errors import ConfigError, EncryptionError, PartyError, QuorumError
from tequio.federation.federation import Rules
from tequio.federation.fixed_point import digits_of, number_of_digits, numbers_of_digits
from tequio.federation.sums import SumsReply
from tequio.federation.task import NoSettings, Sums, task
from tequio.registry import build

LAYOUT = (*counts("n"), Block("Sx", (2,), each=True), Block("S2"))


class AskPayload(TypedDict):
    exponents: NDArray[np.int64]
    factor: float


@task("test: exact", settings=NoSettings, reply=SumsReply, reveals=Sums(guarded=True))
def add(party: Any, payload: AskPayload, settings: NoSettings) -> SumsReply:
    with np.errstate(all="ignore"):
        x = party.data.train.features * payload["factor"]
        sums = {"n": len(x), "Sx": x.sum(axis=0), "S2": (x * x).sum()}
    return whole_reply(party, LAYOUT, payload, sums)


def table(rows=40, seed=0):
    draw = np.random.default_rng(seed)
    return {"a": draw.standard_normal(rows) * 1e3, "b": draw.standard_normal(rows) * 1e-3}


def ask(sums, factor=1.0):
    return sums.ask(add, LAYOUT, {"factor": factor}, NoSettings())


def expected(data, parties, scale):
    """Each party's own sums in double precision, added as fractions."""
    values = np.column_stack([*data.values()]) * scale
    return float(sum(Fraction(float(np.square(values[place::parties]).sum())) for place in range(parties)))


def test_totals_are_the_rounded_sums_of_what_parties_have():
    data = table()
    found = ask(dealt(data, 4))
    assert found["n"] == 40
    np.testing.assert_allclose(found["Sx"], [fsum(data["a"]), fsum(data["b"])], rtol=1e-14)
    assert found["S2"] == pytest.approx(expected(data, 4, 1.0), rel=1e-15)


@pytest.mark.parametrize("stages", [SECURE, (build("stage", "secure-sum", {"bits": 64}),), ONE_SHOT],
                         ids=["32 bits", "64 bits", "one-shot"])
def test_hidden_and_reversed_totals_have_the_same_bits(stages):
    plain = ask(dealt(table(), 5))
    for other in (ask(dealt(table(), 5, stages)), ask(dealt(table(), 5, engine=Backwards()))):
        assert all(np.array_equal(plain[name], other[name]) for name in ("n", "Sx", "S2"))


def test_a_party_without_rows_changes_nothing_but_the_room():
    held = [np.arange(0, 40, 2), [], np.arange(1, 40, 2)]
    assert ask(dealt(table(), held))["n"] == 40
    np.testing.assert_allclose(ask(dealt(table(), held))["Sx"], ask(dealt(table(), 2))["Sx"], rtol=1e-14)


def test_what_outgrows_its_range_is_asked_for_again():
    plain, secure = dealt(table(), 4), dealt(table(), 4, SECURE)
    found = [(ask(sums), ask(sums, 1e4))[1] for sums in (plain, secure)]
    assert plain.asks == 2 + 4  # the squares grow by 2^26.6: three raises by 2^8, beside a margin of at most 2^8
    assert found[0]["S2"] == pytest.approx(expected(table(), 4, 1e4), rel=1e-13)
    assert all(np.array_equal(found[0][name], found[1][name]) for name in ("n", "Sx", "S2"))
    with pytest.raises(EncryptionError, match="block 'Sx' of 'glm' outgrows its range"):
        ask(plain, 1e40)


def test_a_range_that_begins_at_nothing_is_no_dead_end():
    sums = dealt({"a": np.zeros(6), "b": np.zeros(6)}, 3)
    assert ask(sums)["S2"] == 0


def test_values_that_are_not_finite_do_not_leave():
    with pytest.raises(PartyError, match="the block 'Sx' has no finite sums here"):
        ask(dealt(table(), 3), 1e308)


def test_a_hidden_sum_of_two_parties_is_refused():
    with pytest.raises(ConfigError, match="a hidden sum of 2 parties would reveal single ones"):
        dealt(table(), 2, SECURE)


def test_noise_is_refused_before_anything_is_asked():
    with pytest.raises(ConfigError, match="'glm' asks several times and cannot be paid from a budget") as refusal:
        dealt(table(), 3, (build("stage", "dp-sums", {"noise": 1.0}),))
    assert refusal.value.remedy == "use 'ask', or leave out privacy.epsilon"


def lying(change, party=1):
    """The task as a hostile party would answer it."""
    honest = add.run

    def lie(own: Any, payload: Any, settings: Any) -> Any:
        reply = honest(own, payload, settings)
        return change(reply["sums"][WHOLE]) if own.index == party and len(payload["exponents"]) else reply

    return lie


def altered(place, value):
    """The reply with another number at a place."""

    def alter(whole: Any) -> Any:
        changed = whole.copy()
        changed[place] = value
        return {"sums": {WHOLE: changed}}

    return alter


@pytest.mark.parametrize(("change", "match"), [
    (lambda whole: {"sums": {WHOLE: whole[:-1]}}, "of shape"),
    (lambda whole: {"sums": {WHOLE: whole.view(np.int64)}}, "no whole numbers modulo"),
    (lambda whole: {"sums": {WHOLE: whole.astype(np.float64)}}, "no whole numbers modulo"),
    (lambda whole: {"sums": {"other": whole}}, "other sums than"),
    (altered(0, 10**6), "sent 'n' of which"), (altered(0, 2**64 - 1), "sent 'n' of which"),
    (altered(1, 2**62), "sent 'Sx' of which"), (altered(-1, 7), "marks that are neither")])
def test_a_hostile_reply_fails_its_party_by_name(change, match, monkeypatch):
    sums = dealt(table(), 3)
    object.__setattr__(add, "run", lying(change))
    try:
        with pytest.raises(PartyError, match=match) as failure:
            ask(sums)
    finally:
        object.__setattr__(add, "run", _HONEST)
    assert "party '1'" in str(failure.value)


_HONEST = add.run


def failing(after):
    asked: list[int] = []

    def fail(party: Any, payload: Any, settings: Any) -> Any:
        asked.append(party.index)
        if party.index == 1 and asked.count(1) > after:
            raise OSError("the line is dead")
        return _HONEST(party, payload, settings)

    return fail


def test_a_party_lost_in_the_open_is_left_out_and_said_so():
    sums = dealt(table(), 4, rules=Rules(on_failure="continue"))
    object.__setattr__(add, "run", failing(2))
    try:
        found = sums.settle(lambda: (ask(sums), ask(sums, 2.0))[1])
    finally:
        object.__setattr__(add, "run", _HONEST)
    assert (int(found["n"]), sums.parties.tolist()) == (30, [0, 2, 3])
    assert sums.notes == ["lost in ask 3, and left out from then on: 1"]


def test_a_party_lost_from_a_hidden_sum_stops_it():
    sums = dealt(table(), 4, SECURE, rules=Rules(on_failure="continue"))
    object.__setattr__(add, "run", failing(1))
    try:
        with pytest.raises(QuorumError, match="1 of 4 parties were lost in round 1, and a hidden sum without them"):
            ask(sums)
    finally:
        object.__setattr__(add, "run", _HONEST)


def test_the_result_says_what_crossed():
    sums = dealt(table(), 3)
    ask(sums)
    assert sums.revealed == {"n": "1 (count)", "Sx": "2 (real)", "S2": "1 (real)"}


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_triangles_hold_symmetric_matrices(size, seed):
    half = np.random.default_rng(seed).standard_normal((size, size))
    matrix = half + half.T
    assert triangle("H", size).size == len(upper(matrix))
    np.testing.assert_array_equal(symmetric(upper(matrix)), matrix)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9), st.integers(1, 2000))
def test_numbers_of_a_ring_survive_their_digits(values, parties):
    ring = np.array(values, dtype=np.uint64)
    digits = digits_of(ring, parties)
    assert len(digits) == number_of_digits(ring.dtype, len(ring), parties)
    assert int(digits.max()) * parties < 2**30
    total = numbers_of_digits(digits * parties, ring.dtype, parties)
    assert total.tolist() == [value * parties % 2**64 for value in values]


def test_rows_are_added_up_in_blocks_by_exact_sums(monkeypatch):
    values = np.random.default_rng(3).standard_normal(3 * ROWS + 5)
    blocks = [values[start:start + ROWS].sum() for start in range(0, len(values), ROWS)]
    assert sum_rows(len(values), lambda some: {"s": values[some].sum()})["s"] == fsum(blocks)
    monkeypatch.setattr(exact_sums, "ROWS", 1)
    assert sum_rows(len(values), lambda some: {"s": values[some].sum()})["s"] == fsum(values)
    assert sum_rows(0, lambda some: {"n": len(values[some]), "s": values[some].sum()}) == {"n": 0, "s": 0.0}
