"""Missing values, dates, weights of evidence, selection, and the steps that `auto` stands for."""

from __future__ import annotations

from math import log

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.feature_selection import mutual_info_classif
from sklearn.metrics import mutual_info_score

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.preprocessing import Preparation, fit_together, preparations, prepare, settled
from tequio.data.preprocessing.filling import DateParts, Impute
from tequio.data.preprocessing.informing import Select, WeightOfEvidence, mutual_information
from tequio.data.preprocessing.sketches import add_sketches, codes_of, quantiles, sketch, value_of
from tequio.errors import ConfigError, DataError

NAN = np.nan
WARDS = Feature("ward", ("a", "b", "c"))


def table(features: tuple[Feature, ...], values: object, target: object = None, missing: str = "keep") -> Dataset:
    kind = Target("none") if target is None else Target("classes", ("no", "yes"))
    return Dataset.of(Schema(features, kind), np.asarray(values, dtype=float), target, missing=missing)


def patients() -> Dataset:
    return table((Feature("age"), WARDS, Feature("pulse")),
                 [[40, 0, 60], [NAN, 1, 70], [50, NAN, 80], [60, 1, 90], [NAN, 1, 200]], [0, 1, 0, 1, 1])


finite = st.floats(-1e30, 1e30, allow_subnormal=False)


@given(arrays(np.float64, st.integers(1, 50), elements=finite))
def test_codes_keep_the_order_and_lose_less_than_one_percent(values: np.ndarray) -> None:
    codes = codes_of(values)
    order = np.argsort(values, kind="stable")
    assert (np.diff(codes[order]) >= 0).all()
    assert (codes >= 0).all()
    assert (codes < 2**16).all()
    back = value_of(codes)
    single = values.astype(np.float32).astype(float)
    assert (np.abs(back) <= np.abs(single)).all()
    assert (np.abs(single - back) <= 2**-7 * np.abs(single) + 1e-37).all()


def test_whole_numbers_up_to_256_keep_their_value() -> None:
    whole = np.arange(-256.0, 257)
    assert value_of(codes_of(whole)).tolist() == whole.tolist()
    assert codes_of(np.array([-0.0])).tolist() == codes_of(np.array([0.0])).tolist()


@settings(deadline=None)
@given(arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 3)),
              elements=st.integers(-200, 200).map(float) | st.just(NAN)), st.data())
def test_quantiles_of_added_counts_are_those_of_the_pooled_rows(values: np.ndarray, data: st.DataObject) -> None:
    owner = data.draw(arrays(np.int64, len(values), elements=st.integers(0, 2)))
    whole, added = sketch(values), add_sketches([sketch(values[owner == own]) for own in range(3)])
    assert all(np.array_equal(whole[key], added[key]) for key in whole)
    found = quantiles(added, values.shape[1], [0.25, 0.5, 1.0])
    for column in range(values.shape[1]):
        known = values[~np.isnan(values[:, column]), column]
        exact = np.quantile(known, [0.25, 0.5, 1.0], method="inverted_cdf") if len(known) else [0, 0, 0]
        assert found[:, column].tolist() == list(exact)


def test_gaps_are_filled_in_with_medians_and_frequent_categories_and_flagged() -> None:
    (found,) = prepare([Impute()], [patients()], [patients()])
    assert found.schema.names == ("age", "ward", "pulse", "age missing")
    assert found.schema.features[3].kind == "flag"
    assert found.features.tolist() == [[40, 0, 60, 0], [50, 1, 70, 1], [50, 1, 80, 0], [60, 1, 90, 0], [50, 1, 200, 1]]
    assert not found.has_missing


def test_only_training_rows_say_what_is_filled_in() -> None:
    train, later = patients().take([0, 3]), patients().take([1, 2])
    found = prepare([Impute()], [train], [train, later])[1]
    # no training row lacks an age, so nothing is flagged; the lower of two middle values is the median
    assert found.schema.names == ("age", "ward", "pulse")
    assert found.features.tolist() == [[40, 1, 70], [50, 0, 80]]


def test_means_zeros_and_a_category_of_its_own() -> None:
    own = Impute(numbers="mean", categories="own", indicators=False)
    (found,) = prepare([own], [patients()], [patients()])
    assert found.features[:, 0].tolist() == [40, 50, 50, 60, 50]
    assert found.schema.features[1].domain == ("a", "b", "c", "(missing)")
    assert found.features[:, 1].tolist() == [0, 1, 3, 1, 1]
    (zeros,) = prepare([Impute(numbers="zero")], [patients()], [patients()])
    assert zeros.features[:, 0].tolist() == [40, 0, 50, 60, 0]


@pytest.mark.parametrize("step", [Impute(), Impute(numbers="mean", categories="own"), WeightOfEvidence(), Select(2)])
@settings(deadline=None)
@given(data=st.data())
def test_parties_together_fit_what_one_with_all_rows_would(step: Impute, data: st.DataObject) -> None:
    whole = patients()
    owner = np.array([0, 1, 2, *data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=2))])
    pooled, together = step.fit(whole), fit_together(step, [whole.take(np.flatnonzero(owner == own))
                                                            for own in range(3)])
    assert all(np.array_equal(pooled[key], together[key]) for key in pooled)


def test_an_empty_party_and_a_column_without_values_do_not_stop_the_others() -> None:
    whole = table((Feature("x"), WARDS), [[NAN, NAN], [NAN, NAN]])
    (found,) = prepare([Impute()], [whole, whole.take([])], [whole])
    assert found.features.tolist() == [[0, 0, 1], [0, 0, 1]]


def test_images_are_filled_in_without_flags() -> None:
    schema = Schema.of_images((1, 1, 2), ("no", "yes"))
    pictures = Dataset.of(schema, np.array([[[[1.0, NAN]]], [[[3.0, 4.0]]]]), [0, 1], missing="median")
    (found,) = prepare([Impute(indicators=False)], [pictures], [pictures])
    assert found.features.tolist() == [[[[1, 4]]], [[[3, 4]]]]
    with pytest.raises(DataError, match="have no room") as caught:
        prepare([Impute()], [pictures], [pictures])
    assert "indicators = false" in caught.value.remedy


@pytest.mark.parametrize("step", ["standardise", "minmax", "discretise"])
def test_steps_that_cannot_do_without_a_value_say_which_step_can(step: str) -> None:
    with pytest.raises(DataError, match=f"'{step}' cannot work with them") as caught:
        prepare(preparations([step]), [patients()], [patients()])
    assert f'data.prepare = ["impute", "{step}"]' in caught.value.remedy


@settings(deadline=None)
@given(st.lists(st.datetimes(min_value=pd.Timestamp("1900-01-01"), max_value=pd.Timestamp("2200-01-01")), min_size=1))
def test_dates_fall_into_the_parts_that_pandas_sees(moments: list[pd.Timestamp]) -> None:
    stamps = pd.Series(moments).astype("datetime64[ns]").dt.floor("s")
    days = (stamps - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    rows = table((Feature("seen", kind="date"), Feature("x")), np.stack([[*days, NAN], np.ones(len(days) + 1)], axis=1))
    found = DateParts(("year", "month", "day", "weekday", "hour")).apply(rows, {})
    assert found.schema.names == ("seen year", "seen month", "seen day", "seen weekday", "seen hour", "x")
    expected = [stamps.dt.year, stamps.dt.month, stamps.dt.day, stamps.dt.day_of_week, stamps.dt.hour]
    assert found.features[:-1, :5].T.tolist() == [part.tolist() for part in expected]
    assert np.isnan(found.features[-1, :5]).all()


def test_weight_of_evidence_by_hand() -> None:
    rows = table((WARDS,), [[0], [0], [1], [1], [1], [NAN]], [1, 0, 0, 0, 1, 1])
    (found,) = prepare([WeightOfEvidence()], [rows], [rows])
    # shares with half a row more in each of four places: of 3 + 2 "yes" and of 3 + 2 "no"
    a, b, gap = log((1.5 / 5) / (1.5 / 5)), log((1.5 / 5) / (2.5 / 5)), log((1.5 / 5) / (0.5 / 5))
    np.testing.assert_allclose(found.features[:, 0], [a, a, b, b, b, gap])
    assert not found.schema.features[0].categorical


def test_weight_of_evidence_needs_two_classes() -> None:
    rows = Dataset.of(Schema((WARDS,), Target("classes", ("a", "b", "c"))), [[0.0]], [0])
    with pytest.raises(DataError, match="about two classes"):
        WeightOfEvidence().fit(rows)
    with pytest.raises(DataError, match="counts classes"):
        Select().fit(table((WARDS,), [[0]]))


def test_the_columns_that_say_most_are_kept() -> None:
    draw = np.random.default_rng(0)
    target = draw.integers(0, 2, 400)
    values = np.stack([draw.normal(size=400), target + draw.normal(size=400) / 3, draw.integers(0, 3, 400),
                       target + draw.normal(size=400) * 2], axis=1)
    rows = table((Feature("noise"), Feature("strong"), WARDS, Feature("weak")), values, target)
    found = Select(2).fit(rows)
    assert [rows.schema.names[column] for column in found["chosen"]] == ["strong", "weak"]
    assert found["information"][2] == pytest.approx(mutual_info_score(values[:, 2], target))
    deciles = np.searchsorted(np.quantile(values[:, 1], np.arange(1, 10) / 10), values[:, 1])
    assert found["information"][1] == pytest.approx(mutual_info_score(deciles, target), rel=0.05)
    assert np.argmax(mutual_info_classif(values, target, random_state=0)) == 1


def test_mutual_information_by_hand() -> None:
    assert mutual_information(np.array([[2, 0], [0, 2]])) == pytest.approx(log(2))
    assert mutual_information(np.array([[1, 1], [1, 1]])) == 0
    assert mutual_information(np.zeros((2, 2))) == 0


EVERYTHING = (Feature("age"), WARDS, Feature("stage", ("I", "II"), "ordered"), Feature("seen", kind="date"),
              Feature("code", ("#0", "#1"), "hashed"), Feature("note[0]", kind="text", source="note"))


def test_auto_gives_a_learner_of_numbers_numbers_and_leaves_trees_their_table() -> None:
    rows = table(EVERYTHING, [[40, 0, 1, 0, 1, 2], [NAN, 1, NAN, 400, 0, 0]], [0, 1])
    steps = settled(["auto"], rows, {"number"})
    assert steps == ["date-parts", {"name": "ordinal", "which": "ordered"}, "impute", "standardise", "one-hot"]
    (found,) = prepare(preparations(steps), [rows], [rows])
    assert found.schema.names == (
        "age", "ward=a", "ward=b", "ward=c", "stage", "seen year", "seen month", "seen day", "seen weekday", "code=#0",
        "code=#1", "note[0]", "age missing", "stage missing")
    assert found.features[:, 11].tolist() == [2, 0]
    assert found.features[:, 12].tolist() == [0, 1]
    assert settled(["auto"], rows, {"number", "category", "missing"}) == []
    assert settled(["auto"], rows, {"number", "category"}) == ["impute"]


def test_medians_come_before_other_steps_and_gaps_are_refused_where_nothing_fills_them_in() -> None:
    median, keep = (table((Feature("x"),), [[1], [NAN]], missing=missing) for missing in ("median", "keep"))
    plain = {"name": "impute", "indicators": False}
    assert settled(["standardise"], median, {"number"}) == [plain, "standardise"]
    assert settled([], median, {"number", "missing"}) == [plain]
    assert settled(["auto"], median, set(), may_widen=False) == [plain]
    assert settled([{"name": "impute", "numbers": "mean"}], keep, {"number"}) == [{"name": "impute", "numbers": "mean"}]
    assert settled([], keep, {"number", "missing"}) == []
    with pytest.raises(ConfigError, match="may be missing") as caught:
        settled(["standardise"], keep, {"number"})
    assert "data.missing = 'median'" in caught.value.remedy
    with pytest.raises(ConfigError, match="may be missing"):
        settled(["auto"], keep, set(), may_widen=False)


def test_a_step_that_does_nothing_with_rows_cannot_be_made():
    class Forgetful(Preparation):
        pass

    with pytest.raises(TypeError, match="apply"):
        Forgetful()
