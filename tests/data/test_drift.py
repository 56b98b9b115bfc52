from __future__ import annotations

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.skew import drift
from tequio.errors import DataError

SCHEMA = Schema((Feature("age"), Feature("ward", ("a", "b"))), Target("classes", ("no", "yes"), "ill"))


def rows(ages, wards, ill):
    return Dataset.of(SCHEMA, np.column_stack([ages, wards]).astype(np.float64), np.asarray(ill))


OLD = rows(np.arange(100), np.arange(100) % 2, np.arange(100) % 2)


def test_the_same_rows_have_not_drifted():
    assert drift(OLD, OLD) == {"age": 0.0, "ward": 0.0, "ill": 0.0}


def test_the_index_is_that_of_the_formula():
    new = rows(np.arange(100), np.zeros(100), np.arange(100) % 4 == 0)
    found = drift(OLD, new)
    assert found["age"] == 0.0
    assert found["ward"] == pytest.approx((1.0 - 0.5) * np.log(1.0 / 0.5) + (0.005 - 0.5) * np.log(0.005 / 0.5))
    assert found["ill"] == pytest.approx((0.75 - 0.5) * np.log(0.75 / 0.5) + (0.25 - 0.5) * np.log(0.25 / 0.5))


def test_numbers_are_compared_by_tenths_of_the_old_rows():
    older = drift(OLD, rows(np.arange(100) + 50, np.arange(100) % 2, np.arange(100) % 2))["age"]
    slightly = drift(OLD, rows(np.arange(100) + 2, np.arange(100) % 2, np.arange(100) % 2))["age"]
    assert older > 1 > 0.1 > slightly > 0


def test_rows_that_cannot_be_compared_are_refused():
    with pytest.raises(DataError, match="no rows"):
        drift(OLD, OLD.take([]))
    with pytest.raises(DataError, match="other columns"):
        drift(OLD, OLD.without_target())
