"""Ids are written alike where they mean the same, never merged by guessing, and never named in an error."""

from __future__ import annotations

import unicodedata
from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.data.inputs import read
from tequio.errors import DataError
from tequio.privacy.psi.ids import require_ids


def written(ids, *compare):
    return require_ids(np.array(ids), compare, "the bank")


def test_whole_numbers_are_written_alike_whatever_their_type():
    for ids in (np.array([7, 12]), np.array([7.0, 12.0]), np.array(["7", " 12 "])):
        assert require_ids(ids, (), "the bank") == [b"7", b"12"]


@pytest.mark.parametrize(("one", "other"), [
    ("José  García", "JOSE GARCIA"), ("Straße", "STRASSE"), ("Zo\u0065\u0308", "zoë"), ("\ufb01n\u00a0de", "Fin de"),
    ("\u0401\u043b\u043a\u0438\u043d", "\u0451\u043b\u043a\u0438\u043d"), ("\uff2a\uff4f", "jo"), ("İzmir", "izmir"),
    ("\tAna\n", "ana")])
def test_text_is_compared_without_case_accents_and_amounts_of_white_space(one, other):
    assert written([one], "text") == written([other], "text")
    assert written([one], "exact") != written([other], "exact")


@pytest.mark.parametrize(("one", "other"), [
    ("Søren", "Soren"), ("O'Neil", "ONeil"), ("Ann Lee", "AnnLee"), ("か", "が"), ("कि", "क"), ("Anne", "Ann")])
def test_text_that_only_looks_alike_stays_apart(one, other):
    assert written([one], "text") != written([other], "text")


@given(st.text(min_size=1).filter(lambda text: text.strip()))
def test_text_that_was_compared_is_written_the_same_again(text):
    try:
        (once,) = written([text], "text")
    except DataError:  # nothing but marks, or a null that numpy cuts off
        return
    assert written([once.decode()], "text") == [once]


def test_composed_and_decomposed_letters_are_exactly_the_same():
    assert written([unicodedata.normalize("NFD", "é")]) == written(["é"])


def test_digits_are_those_of_all_scripts():
    assert written(["+52 (951) 555-01-02", "٠١٢"], "digits") == [b"529515550102", b"012"]


@pytest.mark.parametrize(("text", "compare", "day"), [
    ("2001-02-03", "date", "2001-02-03"), ("2001/2/3", "date", "2001-02-03"), ("3.2.2001", "date", "2001-02-03"),
    ("2001-02-03 00:00:00", "date", "2001-02-03"), ("2001-02-03T00:00", "month-first", "2001-02-03"),
    ("3/2/2001", "day-first", "2001-02-03"), ("3/2/2001", "month-first", "2001-03-02"),
    ("03-02-2001", "day-first", "2001-02-03"), ("3.2.2001", "month-first", "2001-02-03"),
    ("29.2.2000", "date", "2000-02-29")])
def test_dates_are_compared_by_day(text, compare, day):
    assert written([text], compare) == [day.encode()]


@pytest.mark.parametrize("text", ["3/2/2001", "3.2.01", "2001-02-30", "29.2.1900", "2001-02/03", "yesterday",
                                  "2001-02-03 12:00"])
def test_what_is_no_date_or_can_be_read_in_two_ways_is_refused(text):
    with pytest.raises(DataError, match="1 of the 2 ids of the bank are not what") as caught:
        written(["1999-01-01", text], "date")
    assert text not in str(caught.value)
    assert "'day-first' or 'month-first'" in caught.value.remedy


def test_several_columns_make_up_an_id():
    bank = read({"name": ["Ana  Ruiz", "BO"], "born": ["3.2.1980", "1.1.1999"], "x": [1.0, 2.0], "y": ["a", "b"]},
                target="y", id="name + born")
    insurer = read({"born": [date(1999, 1, 1), datetime(1980, 2, 3)], "name": ["Bo", "ana ruiz"], "z": [1.0, 2.0],
                    "y": ["a", "b"]}, target="y", id="name + born")
    assert bank.ids.tolist() == ["Ana  Ruiz + 3.2.1980", "BO + 1.1.1999"]
    assert bank.schema.names == ("x",)
    compare = ("text", "date")
    assert require_ids(bank.ids, compare, "") == require_ids(insurer.ids, compare, "")[::-1]


def test_parts_of_an_id_do_not_run_into_each_other():
    first, second = (require_ids(np.array([text]), ("text", "text"), "") for text in ("ab + c", "a + bc"))
    assert first != second
    with pytest.raises(DataError, match="column 'name' has 1 values with ' \\+ '"):
        read({"name": ["a + b", "c"], "born": ["1", "2"], "x": [1.0, 2.0], "y": ["a", "b"]}, target="y",
             id="name + born")
    with pytest.raises(DataError, match="has no column 'birth'"):
        read({"name": ["a", "c"], "x": [1.0, 2.0], "y": ["a", "b"]}, target="y", id="name + birth")


def test_a_column_whose_name_has_a_plus_is_one_column():
    assert read({"a + b": [1, 2], "x": [1.0, 2.0], "y": ["a", "b"]}, target="y", id="a + b").ids.tolist() == [1, 2]


def test_each_id_column_has_its_way_to_be_compared():
    with pytest.raises(DataError, match=r"2 of the 2 ids of the bank are not what algorithm.compare = \['text', 'd"):
        written(["ana + 3.2.1980 + oaxaca", "bo"], "text", "date")


@pytest.mark.parametrize(("ids", "said"), [
    (np.array([4711, 4711, 3, 3, 3]), "3 of the 5 ids of the bank are repeated"),
    (np.array([4711.0, np.nan, np.nan]), "2 of the 3 rows of the bank have no id"),
    (np.array(["4711", ""]), "1 of the 2 rows of the bank have no id"),
    (np.array([4711, None], dtype=object), "1 of the 2 rows of the bank have no id"),
    (np.array([4711, 2**53]), "1 of the 2 ids of the bank are numbers of 16 digits or more")])
def test_bad_ids_are_counted_and_not_named(ids, said):
    with pytest.raises(DataError, match=said) as caught:
        require_ids(ids, (), "the bank")
    assert "4711" not in str(caught.value)


def test_ids_that_differ_in_case_only_are_repeated_as_text():
    assert len(written(["aB3", "Ab3"])) == 2
    with pytest.raises(DataError, match="1 of the 2 ids of the bank are repeated"):
        written(["aB3", "Ab3"], "text")
