"""Formulas are read by a closed grammar, and columns made of them equal those of patsy."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pooled import dealt

from tequio.algorithms.statistics.design import make_design, names_of, spline
from tequio.algorithms.statistics.formula import Applied, Name, Number, read_formula
from tequio.errors import ConfigError, TequioError
from tequio.federation.population import Party

NOTHING = {"levels": {}, "knots": {}}


def table():
    draw = np.random.default_rng(4)
    return {"y": draw.standard_normal(60), "a": draw.random(60) + 0.5, "b": draw.standard_normal(60),
            "c": draw.choice(["x", "y", "z"], 60), "d": draw.choice(["no", "yes"], 60)}


def design(data, formula, agreed=NOTHING, **more):
    sums = dealt(data, 1)
    party = Party(0, 1, {}, sums.federation.population)
    return names_of(read_formula(formula), sums.federation.schema, agreed), \
        make_design(party, party.data.train, formula, agreed, **more)


@pytest.mark.parametrize(("ours", "patsys"), [
    ("y ~ a", "y ~ a"), ("y ~ a + b - 1", "y ~ a + b - 1"), ("y ~ 0 + a", "y ~ 0 + a"), ("y ~ c", "y ~ c"),
    ("y ~ a * b", "y ~ a * b"), ("y ~ a * c", "y ~ a * c"), ("y ~ c * d", "y ~ c * d"), ("y ~ c:d", "y ~ c:d"),
    ("y ~ c - 1", "y ~ c - 1"), ("y ~ a:c", "y ~ a:c"), ("y ~ (a + b) * d", "y ~ (a + b) * d"),
    ("y ~ a*b*c - a:b:c", "y ~ a*b*c - a:b:c"), ("y ~ a + c + c:d", "y ~ a + c + c:d"),
    ("y ~ I(a**2) + log(a)", "y ~ I(a**2) + np.log(a)"),
    ("y ~ I(a - -b/2) + I(a > 1)", "y ~ I(a + b/2) + I((a > 1)*1)"),
    ('y ~ C(c, ref="y")', 'y ~ C(c, Treatment("y"))'), ('y ~ I(c == "z") + exp(b)', 'y ~ I((c == "z")*1) + np.exp(b)'),
    ("log(a) ~ b", "np.log(a) ~ b"), ("y ~ a + b:a + a:b", "y ~ a + a:b")])
def test_columns_span_those_of_patsy(ours, patsys):
    patsy = pytest.importorskip("patsy")
    data = table()
    outcome, wanted = (np.asarray(part) for part in patsy.dmatrices(patsys, data))
    names, found = design(data, ours)
    assert found.columns.shape == wanted.shape
    assert len(names) == wanted.shape[1] == len(set(names))
    np.testing.assert_allclose(found.outcome, outcome[:, 0], rtol=1e-15)
    # The same columns, be it in another order.
    key = np.random.default_rng(0).standard_normal(60)
    np.testing.assert_allclose(np.sort(key @ found.columns), np.sort(key @ wanted), rtol=1e-12)


def test_columns_are_named_by_their_terms():
    names, _ = design(table(), 'y ~ log(a)*C(c, ref="z") + b:d + offset(log(a))')
    assert names == ["const", "log(a)", "c[x]", "c[y]", "log(a):c[x]", "log(a):c[y]", "b:d[no]", "b:d[yes]"]


def test_levels_of_numbers_are_those_agreed_on():
    data = {**table(), "k": np.tile([1.0, 2.0, 5.0], 20)}
    agreed = {"levels": {"C(k)": np.array([1.0, 2.0, 3.0, 5.0])}, "knots": {}}
    names, found = design(data, "y ~ C(k, ref=2)", agreed)
    assert names == ["const", "k[1]", "k[3]", "k[5]"]
    np.testing.assert_array_equal(found.columns[:3], [[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 1]])
    short = {"levels": {"C(k)": np.array([1.0, 2.0])}, "knots": {}}
    with pytest.raises(TequioError, match="column 'k' has a level that was not agreed on") as refusal:
        design(data, "y ~ C(k)", short)
    assert refusal.value.remedy == "declare the column's domain, or set unknown_levels = \"drop\""
    assert len(design(data, "y ~ C(k)", short, drop_unknown=True)[1]) == 40


def test_rows_without_a_value_are_left_out():
    data = table()
    data["a"][:7] = np.nan
    data["b"][-1] = np.nan
    _, found = design(data, "y ~ a")
    assert (len(found), found.dropped) == (53, 7)
    assert len(design(data, "y ~ c")[1]) == 60
    assert len(design({**table(), "b": -table()["a"]}, "y ~ log(b)")[1]) == 0


def test_a_restricted_spline_is_linear_at_its_ends_and_smooth_within():
    knots = np.array([-1.0, 0.0, 0.5, 2.0])
    x = np.linspace(-4, 5, 9001)
    basis = spline(x, knots)
    assert basis.shape == (9001, 3)
    step = x[1] - x[0]
    bends = np.diff(basis, 2, axis=0) / step**2
    outside = (x[1:-1] < -1 - step) | (x[1:-1] > 2 + step)
    np.testing.assert_allclose(bends[outside], 0, atol=1e-4)
    assert np.abs(np.diff(bends, axis=0)).max() < 0.02  # the second derivative has no jumps
    # Harrell's own formula at one point, by hand: x = 1.
    cubes = np.maximum(1 - knots, 0) ** 3
    by_hand = [(cubes[j] - cubes[2] * (2 - knots[j]) / 1.5 + cubes[3] * (0.5 - knots[j]) / 1.5) / 9 for j in (0, 1)]
    np.testing.assert_allclose(spline(np.array([1.0]), knots)[0], [1.0, *by_hand], rtol=1e-14)


def test_powers_bind_to_the_right_and_tighter_than_signs():
    read = read_formula("y ~ I(-a**2**b)").terms[0][0].of
    assert read == Applied("neg", (Applied("**", (Name("a"), Applied("**", (Number(2.0), Name("b"))))),))


@pytest.mark.parametrize(("text", "match"), [
    ("y", "'~' is expected"), ("y ~", "it ends too early"), ("y ~ a +", "it ends too early"),
    ("y ~ a b", "'b' is not expected here"), ("y ~ __import__('os')", "there is no function '__import__'"),
    ("y ~ I(a.__class__())", "there is no function 'a.__class__'"), ("y ~ open(a)", "there is no function 'open'"),
    ("y ~ a; b", "';' stands for nothing"), ("y ~ C(c, 3)", "'ref = ...' is expected"), ("y ~ 2", "'2' is no term"),
    ("y ~ rcs(a, 2)", "from 3 to 7 knots"), ("y ~ rcs(a, knots=[2, 1, 3])", "knots rise"),
    ("y ~ " + "(" * 60 + "a" + ")" * 60, "at most 40 brackets deep"), ("y ~ I(" + "-" * 60 + "a)", "at most 40"),
    ("y ~ " + "a + " * 2000 + "b", "at most 5000 characters"), ("y ~ -1", "has no terms"),
    ("y ~ I('x')", "a text in a formula stands beside")])
def test_what_is_no_formula_is_refused(text, match):
    with pytest.raises(ConfigError, match=match):
        design(table(), text)


@given(st.text(alphabet="yab01~+-*:()`'\"C,=<>I./ [log]rcs", max_size=60))
def test_no_text_does_anything_but_be_read_or_refused(text):
    with contextlib.suppress(TequioError):
        design(table(), text)
