"""Questions: what parses, what fits a schema, what a party answers, and what nobody can compute from its answers."""

import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.algorithms.statistics.asking.cells import answer_at_party
from tequio.algorithms.statistics.asking.grammar import Both, Compare, Key, Not, parse
from tequio.algorithms.statistics.asking.planning import columns_of, planned
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import ConfigError, RunError
from tequio.privacy.atoms import AtomLedger, Refusal, refined, singles_out

SCALES = {"age": [0, 100, 5], "bmi": [10, 50, 0.1]}
SCHEMA = Schema((Feature("age"), Feature("bmi"), Feature("sex", ("F", "M")), Feature("city", ("A", "B", "C d"))),
                Target("classes", ("no", "yes"), "ill"))


def patients(rows, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    features = np.column_stack([rng.integers(18, 95, rows), rng.integers(150, 450, rows) / 10, rng.integers(0, 2, rows),
                                rng.integers(0, 3, rows)]).astype(float)
    features[rng.random(rows) < missing, 1] = np.nan
    return Dataset.of(SCHEMA, features, rng.integers(0, 2, rows), missing="keep")


def frame(dataset):
    found = pd.DataFrame(dataset.features, columns=["age", "bmi", "sex", "city"])
    found["sex"], found["city"] = found.sex.map({0: "F", 1: "M"}), found.city.map({0: "A", 1: "B", 2: "C d"})
    return found.assign(ill=np.where(dataset.target == 1, "yes", "no"))


def plan(text, scales=SCALES, parties=()):
    return planned(parse(text), columns_of(SCHEMA, scales), parties)


def answer(text, dataset, floor=1):
    return answer_at_party(plan(text), dataset, floor, 0)


def test_both_spellings_are_one_question():
    one = parse("mean(age), count by city, bin(age, 40, 60) where sex = 'F' and not (age < 40 or city in ('A', B))")
    other = parse("MEAN(age) , count(*) WHERE sex='F' and NOT (age<40 or city in ('A','B')) "
                  'GROUP BY "city", bin(age,40,60)')
    assert (one.keys, one.where) == (other.keys, other.where)
    assert one.keys == (Key("city"), Key("age", (40.0, 60.0)))
    assert one.where == Both("and", (Compare("sex", "=", ("F",)), Not(Both("or", (
        Compare("age", "<", (40.0,)), Compare("city", "=", ("A", "B")))))))
    other = parse("avg(age), count(*) where a <> 'it''s' group by city")
    assert [measure.kind for measure in other.measures] == ["mean", "count"]
    assert other.where == Compare("a", "!=", ("it's",))


REFUSED = {
    "": "expected a measure",
    "mean age": "expected '[(]'",
    "median()": "the name of a column",
    "count, drop": "expected count, sum, mean",
    "count by": "the name of a column",
    "count where": "the name of a column",
    "count by city by sex": "each of the last two once",
    "count where sex = ": "a number, or a text",
    "count where age < 37": "declared in steps of 5 from 0 to 100, and 37 is none of them; use 35 or 40",
    "count where age < 105": "and 105 is none of them; use 100",
    "count where sex = 'X'": "'X' is no value of column 'sex'",
    "count where sex < 'M'": "have no order to compare by",
    "count where age = 'old'": "and 'old' is none",
    "count by sex, city, ill, bin(age, 40)": "4 keys, and 3 are the most",
    "count by sex, sex": "'sex' is a key twice",
    "count by bin(age, 60, 40)": "have to rise",
    "count by bin(sex, 1)": "has categories",
    "count by agee": "no column",
    "count where " + " or ".join(["age < 40"] * 9): "9 comparisons, and 8 are the most",
    "count where " + "(" * 40 + "age < 40" + ")" * 40: "more than 16 times",
    "mean(sex)": "share[(]sex = 'F'[)]",
    "quantile(age, 2)": "between 0 and 1",
    "count; drop table": "cannot be read from character 6",
    "x" * 3000: "3000 char",
    "count by bmi, city, age": "cells are the most",
    "count by bin(party, 3)": "parties are no numbers",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_does_not_fit_is_refused(text):
    with pytest.raises(ConfigError, match=REFUSED[text]):
        plan(text)


def test_undeclared_steps_and_wrong_scales_are_refused():
    with pytest.raises(ConfigError, match="'age' has no declared steps"):
        plan("count where age < 40", {})
    with pytest.raises(ConfigError, match="counts rows on declared edges"):
        plan("median(age)", {})
    assert plan("mean(age) by sex", {}).blocks()["sum_0"] == ((2,), False)
    for scales, cause in (({"agee": [0, 1, 1]}, "no such column"), ({"sex": [0, 1, 1]}, "categories"),
                          ({"age": [0, 100]}, "a step that goes"), ({"age": [0, 100, 7]}, "a step that goes"),
                          ({"age": [5, 0, 1]}, "a step that goes"), ({"age": [0, 1e9, 1e-9]}, "a step that goes")):
        with pytest.raises(ConfigError, match=cause):
            plan("count", scales)


PIECES = ["count", "mean", "sum", "sd", "median", "share", "quantile", "(", ")", ",", "by", "group", "where", "and",
          "or", "not", "in", "age", "sex", "city", "bmi", "ill", "party", "bin", "'F'", "'A'", "40", "60", "0.5", "-1",
          "1e400", "=", "<", ">=", "!=", "<>", "*", '"city"', "''", "'", ";", "é", "\x00", "count by sex", "mean(age)",
          "sex = 'F'", "age < 40", "bin(age, 40, 60)"]


def test_ten_thousand_random_questions_are_answered_or_refused():
    luck, rows, answered = random.Random(7), patients(60), 0
    for _ in range(10_000):
        text = luck.choice(["", "count ", "mean(age) by "]) + luck.choice(["", " "]).join(
            luck.choice(PIECES) for _ in range(luck.randint(0, 9)))
        try:
            found = answer_at_party(plan(text, parties=("a", "b")), rows, 10, 0)
        except ConfigError as refusal:
            assert str(refusal)
            continue
        answered += 1
        for name, block in found.blocks.items():
            counts = block if name.startswith(("n", "of", "true", "bins")) else np.zeros(1)
            assert not ((counts > 0) & (counts < 10)).any(), text
    assert answered > 300


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sex", "city", "sex, city", "bin(age, 40, 60), ill"]),
       st.sampled_from(["age >= 40", "sex = 'F' or not city in ('A', 'C d')", "ill = 'yes' and age < 60"]))
def test_pandas_gives_the_same(seed, keys, where):
    rows = patients(200, seed, missing=0.2)
    text = f"count, sum(bmi), mean(age), sd(bmi), share(ill = 'yes') by {keys} where {where}"
    found, table = answer(text, rows), frame(rows)
    table = table[{"age >= 40": table.age >= 40, "ill = 'yes' and age < 60": (table.ill == "yes") & (table.age < 60),
                   "sex = 'F' or not city in ('A', 'C d')": (table.sex == "F") | ~table.city.isin(["A", "C d"])}[where]]
    table = table.assign(band=pd.cut(table.age, [-1, 39, 59, 200], labels=["< 40", "40 to < 60", ">= 60"]))
    names = ["band", "ill"] if "bin" in keys else keys.split(", ")
    cells = list(np.ndindex(*plan(text).shape))
    labels = plan(text).labels
    for index, cell in enumerate(cells):
        mine = table
        for name, values, place in zip(names, labels, cell, strict=True):
            mine = mine[mine[name] == values[place]]
        blocks = found.blocks
        assert blocks["n"][index] == len(mine)
        assert blocks["of_1"][index] == mine.bmi.notna().sum()
        assert blocks["sum_1"][index] == pytest.approx((mine.bmi - 30).sum(), abs=1e-9)
        assert blocks["sum_2"][index] == pytest.approx((mine.age - 50).sum(), abs=1e-9)
        assert blocks["squares_3"][index] == pytest.approx(((mine.bmi - 30) ** 2).sum(), abs=1e-9)
        assert blocks["true_4"][index] == (mine.ill == "yes").sum()


def test_what_is_small_is_left_out_with_what_would_show_it():
    features = np.zeros((100, 4))
    features[:, 0], features[:, 2] = 40, np.repeat([0, 1], [97, 3])
    rows = Dataset.of(SCHEMA, features, np.zeros(100, dtype=int))
    found = answer("count by sex", rows, 10)  # 97 and 3: the rest of 97 is 3
    assert found.is_empty
    assert found.blocks["left_out"].tolist() == [1]
    features[:12, 3] = 1
    found = answer("count by city, sex", rows, 10)  # 85, 12 and 3: with 3 left out, 12 is as well
    assert sorted(found.blocks["n"].tolist()) == [0, 0, 0, 0, 0, 85]
    features[0, 0] = 99_999
    for scales in (SCALES, {}):  # one row dominates the sum
        assert answer_at_party(plan("sum(age)", scales), rows, 10, 0).blocks["of_0"].tolist() == [0]
    clipped = answer_at_party(plan("sum(age)"), rows, 10, 0, clip=True)
    assert clipped.blocks["sum_0"].tolist() == [99 * (40 - 50) + 100 - 50]


def test_sums_under_two_scales_do_not_show_who_is_beyond_the_smaller_one():
    rows = patients(200, 6)
    sums = [answer_at_party(plan("sum(age)", {"age": scale}), rows, 10, 0).blocks["sum_0"][0] + 200 * (scale[1] / 2)
            for scale in ([0, 100, 5], [0, 90, 5], [0, 1, 1])]
    assert sums == pytest.approx([rows.features[:, 0].sum()] * 3)


def test_small_atoms_of_a_lower_floor_do_not_block_questions_that_leave_them_alone():
    before = refined(np.zeros(30, dtype=np.int64), [np.repeat([0, 1], [6, 24])])
    assert not singles_out(np.zeros(30, dtype=np.int64), before, 5)
    assert not singles_out(before, refined(before, [np.repeat([0, 1], [18, 12])]), 10)
    assert singles_out(before, refined(before, [np.repeat([0, 1], [3, 27])]), 10)


def test_a_tracker_gets_nowhere(tmp_path):
    """Sliding a threshold, a complement, an intersection: each fine alone, and together one row."""
    rows = patients(400, 3)
    ledger = AtomLedger(tmp_path, "rows", 400)

    def ask(text, by="eve", floor=10):
        found = answer(text, rows, floor)
        return ledger.answer(text, by, found.sets, found.blocks, floor, empty=found.is_empty)

    first = ask("count where age < 60")
    for _ in range(6):  # the same refusal tells nothing new
        assert ask("count where age < 60 or (age < 65 and sex = 'F' and city = 'B' and ill = 'yes')") is Refusal.REFUSED
    assert ask("count where age < 60")["n"].tolist() == first["n"].tolist()
    for number in range(4):
        assert ask(f"count where age < 60 or (age < 65 and bmi < {20 + number})") is Refusal.REFUSED
    assert ask("count by sex") is ask("count") is Refusal.LOCKED
    assert ask("count where age < 60")["n"].tolist() == first["n"].tolist()  # a stored reply
    assert ask("count", by="adam")["n"].tolist() == [400]
    again = AtomLedger(tmp_path, "rows", 400)  # another process
    assert again.answer("count by sex", "eve", [], {}, 10) is Refusal.LOCKED
    assert (again.atoms() == ledger.atoms()).all()
    with open(again.path, "ab") as file:
        file.write(b'{"refused": "torn')  # killed while it wrote
    assert ask("count", by="adam")["n"].tolist() == [400]
    with pytest.raises(RunError, match="is damaged"):
        AtomLedger(tmp_path, "rows", 399).atoms()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_combination_of_answers_is_about_fewer_rows_than_the_floor(data):
    """By brute force: no set of fewer than `floor` rows lies in the span of the sets that were answered for."""
    size, floor = 14, 3
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    features = np.column_stack([rng.integers(4, 12, size) * 5, rng.integers(3, 9, size) * 5, rng.integers(0, 2, size),
                                rng.integers(0, 3, size)]).astype(float)
    rows = Dataset.of(SCHEMA, features, rng.integers(0, 2, size))
    condition = st.one_of(st.sampled_from(["sex = 'F'", "ill = 'yes'", "city in ('A', 'B')"]),
                          st.integers(4, 12).map(lambda step: f"age < {5 * step}"))
    measure = st.one_of(st.sampled_from(["count", "mean(age)", "sd(bmi)", "median(age)"]),
                        condition.map(lambda one: f"share({one})"))
    questions = st.lists(st.tuples(measure, st.sampled_from(["", " by sex", " by city", " by ill, sex"]),
                                   st.tuples(condition, st.sampled_from([" and ", " or "]), condition).map("".join)),
                         min_size=1, max_size=12)
    atoms, spanned = np.zeros(size, dtype=np.int64), [np.ones(size)]
    for what, by, where in data.draw(questions):
        found = answer(f"{what}{by} where {where}", rows, floor)
        after = refined(atoms, found.sets)
        if found.is_empty or singles_out(atoms, after, floor):
            continue
        atoms = after
        for labels in found.sets:
            spanned += [labels == one for one in np.unique(labels[labels >= 0])]
    matrix = np.array(spanned, dtype=float)
    rank = np.linalg.matrix_rank(matrix)
    for first in range(size):
        for second in range(first, size):
            few = np.zeros(size)
            few[[first, second]] = 1
            assert np.linalg.matrix_rank(np.vstack([matrix, few])) > rank
