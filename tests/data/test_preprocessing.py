import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.datasets import load_wine
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder, StandardScaler

from tequio import registry
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.preprocessing import fit_together, preparations, prepare
from tequio.data.preprocessing.categories import Discretise, OneHot, Ordinal
from tequio.data.preprocessing.scaling import Log1p, MinMax, Standardise
from tequio.errors import ConfigError, DataError
from tequio.federation.payload import decode, encode

STEPS = [entry.name for entry in registry.entries("preparation") if entry.name != "auto"]


def numbers(values: object, **options: object) -> Dataset:
    table = values if sparse.issparse(values) else np.asarray(values)
    schema = Schema.of_numbers((f"x{column}" for column in range(table.shape[1])), Target("none"))
    return Dataset.of(schema, table, **options)  # type: ignore[arg-type]


def mixed() -> Dataset:
    schema = Schema((Feature("size"), Feature("colour", ("red", "green", "blue")), Feature("cost")),
                    Target("classes", ("no", "yes")))
    return Dataset.of(schema, [[1.0, 0, 10], [2, 2, 20], [3, 2, 60]], [0, 1, 1], ids=["a", "b", "c"], groups=[1, 1, 2])


tables = arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 3)),
                elements=st.floats(-1e6, 1e6).map(lambda value: value if abs(value) > 1e-9 else 0.0)
                | st.floats(999_999, 1_000_000) | st.sampled_from([1e16, -1e16, 0.1]))


@settings(deadline=None)
@given(tables, st.data())
def test_a_federated_fit_equals_the_pooled_fit_to_the_last_bit(table: np.ndarray, data: st.DataObject) -> None:
    owners = data.draw(arrays(np.int64, len(table), elements=st.integers(0, 3)))
    whole = numbers(table)
    thin = numbers(sparse.csr_matrix(table))
    held = [np.flatnonzero(owners == owner) for owner in range(4)]
    for data_of_all, step in ((whole, Standardise()), (whole, MinMax()), (whole, Discretise("width", bins=4)),
                              (whole, Discretise("quantile", bins=4)),
                              (thin, Standardise()), (thin, MinMax())):
        pooled = step.fit(data_of_all)
        federated = fit_together(step, [data_of_all.take(rows) for rows in held])
        for key in set(pooled) - {"sums", "squares"}:  # what follows from them is what is used
            assert np.array_equal(pooled[key], federated[key]), key
    assert np.array_equal(Standardise().fit(whole)["scale"], Standardise().fit(thin)["scale"])


@settings(deadline=None)
@given(tables)
def test_means_and_deviations_are_those_of_exact_arithmetic(table: np.ndarray) -> None:
    fitted = Standardise().fit(numbers(table))
    for column, values in enumerate(table.T.tolist()):
        assert fitted["mean"][column] == statistics.mean(values)
        deviation = statistics.pstdev(values)
        assert fitted["scale"][column] == pytest.approx(deviation or 1.0, rel=1e-15)


def test_standardise_equals_scikit_learn() -> None:
    table = load_wine().data
    whole = numbers(table)
    prepared = Standardise().apply(whole, Standardise().fit(whole))
    np.testing.assert_allclose(prepared.features, StandardScaler().fit_transform(table), rtol=1e-9, atol=1e-12)


def test_a_variance_from_sums_of_squares_keeps_its_digits() -> None:
    years = np.array([[1e9 + 1], [1e9 + 2], [1e9 + 3]])
    assert Standardise().fit(numbers(years))["scale"][0] == np.sqrt(2 / 3)


def test_a_column_without_spread_becomes_zero() -> None:
    whole = numbers([[4.0, 1], [4, 3]])
    for step in (Standardise(), MinMax()):
        assert step.apply(whole, step.fit(whole)).features[:, 0].tolist() == [0, 0]


def test_minmax_equals_scikit_learn_and_does_not_clip_new_rows() -> None:
    table = load_wine().data
    whole = numbers(table)
    fitted = MinMax().fit(whole)
    np.testing.assert_allclose(MinMax().apply(whole, fitted).features, MinMaxScaler().fit_transform(table), atol=1e-12)
    assert MinMax().apply(numbers(2 * table), fitted).features.max() > 1


@pytest.mark.parametrize(("step", "peer"), [(Standardise(), StandardScaler(with_mean=False)),
                                            (MinMax(), MaxAbsScaler())])
def test_sparse_stays_sparse(step: Standardise | MinMax, peer: object) -> None:
    table = sparse.random(50, 20, density=0.2, random_state=0, format="csr")
    whole = numbers(table)
    prepared = step.apply(whole, step.fit(whole))
    assert prepared.is_sparse
    assert prepared.features.nnz == table.nnz
    expected = peer.fit_transform(table).toarray()  # type: ignore[attr-defined]
    np.testing.assert_allclose(prepared.features.toarray(), expected, rtol=1e-12)


def test_log1p_of_dense_and_sparse_counts() -> None:
    table = np.array([[0.0, 1], [3, 0]])
    for whole in (numbers(table), numbers(sparse.csr_matrix(table))):
        found = Log1p().apply(whole, {})
        dense = found.features.toarray() if found.is_sparse else found.features
        assert np.array_equal(dense, np.log1p(table))
    with pytest.raises(DataError, match="column 'x1' of 'data' goes down to -2"):
        Log1p().apply(numbers([[0.0, -2]]), {})


def test_images_and_float32_keep_shape_and_type() -> None:
    pixels = np.random.default_rng(0).random((5, 2, 3, 3), dtype=np.float32)
    whole = Dataset.of(Schema.of_images((2, 3, 3), ["a", "b"]), pixels, [0, 1, 0, 1, 0])
    prepared = Standardise().apply(whole, Standardise().fit(whole))
    assert (prepared.features.shape, prepared.features.dtype) == (pixels.shape, np.float32)
    np.testing.assert_allclose(prepared.features.std(axis=0), 1, rtol=1e-5)


def test_categories_target_ids_and_groups_are_left_alone() -> None:
    view = mixed().take([2, 0])
    prepared = Standardise().apply(view, Standardise().fit(mixed()))
    assert prepared.features[:, 1].tolist() == [2, 0]
    assert prepared.target.tolist() == [1, 0]
    assert prepared.ids.tolist() == ["c", "a"]
    assert prepared.groups.tolist() == [2, 1]
    assert Log1p().apply(numbers(np.eye(3)).take([2, 1]), {}).ids.tolist() == [2, 1]


def test_onehot_has_a_column_for_every_category_of_the_schema() -> None:
    whole = mixed()
    prepared = OneHot().apply(whole, {})
    assert prepared.schema.names == ("size", "colour=red", "colour=green", "colour=blue", "cost")
    assert prepared.features.tolist() == [[1, 1, 0, 0, 10], [2, 0, 0, 1, 20], [3, 0, 0, 1, 60]]
    encoder = OneHotEncoder(categories=[[0, 1, 2]], sparse_output=False)
    assert np.array_equal(prepared.features[:, 1:4], encoder.fit_transform(whole.features[:, [1]]))


def test_ordinal_turns_codes_into_numbers() -> None:
    prepared = Ordinal().apply(mixed(), {})
    assert not any(feature.categorical for feature in prepared.schema.features)
    assert prepared.features.tolist() == mixed().features.tolist()


def test_discretise_by_width_quantile_and_given_cuts() -> None:
    whole = numbers([[0.0], [1], [2], [3], [10]])
    by_width = Discretise("width", bins=2).apply(whole, Discretise("width", bins=2).fit(whole))
    assert by_width.features[:, 0].tolist() == [0, 0, 0, 0, 1]
    assert by_width.schema.features[0].domain == ("<=5", ">5")
    quantile = Discretise("quantile", bins=2)
    assert quantile.apply(whole, quantile.fit(whole)).features[:, 0].tolist() == [0, 0, 0, 1, 1]
    cuts = Discretise("cuts", cuts={"x0": [3, 1]})
    found = cuts.apply(whole, cuts.fit(whole))
    assert found.schema.features[0].domain == ("<=1", "(1, 3]", ">3")
    assert found.features[:, 0].tolist() == [0, 0, 1, 1, 2]
    with pytest.raises(DataError, match="no column 'x1'"):
        Discretise("cuts", cuts={"x1": [1]}).apply(whole, {})


def test_discretise_and_ordinal_go_to_categories_and_back() -> None:
    steps = preparations([{"name": "discretise", "bins": 3}, "ordinal"])
    (prepared,) = prepare(steps, [numbers([[0.0], [4], [9]])], [numbers([[1.0], [8], [5]])])
    assert prepared.features[:, 0].tolist() == [0, 2, 1]
    assert not prepared.schema.features[0].categorical


def test_test_rows_do_not_change_what_is_fitted() -> None:
    train, test = numbers([[0.0], [2]]), numbers([[100.0]])
    prepared = prepare(preparations(["standardise"]), [train], [train, test])
    assert [part.features.tolist() for part in prepared] == [[[-1], [1]], [[99]]]


@pytest.mark.parametrize("name", sorted(STEPS))
def test_statistics_travel_in_a_payload(name: str) -> None:
    (step,) = preparations([name])
    statistics = step.fit(mixed())
    arrived = decode(encode(statistics))
    assert step.apply(mixed(), arrived).features.tolist() == step.apply(mixed(), statistics).features.tolist()


@pytest.mark.parametrize(("wanted", "says"), [
    (["standardize"], "did you mean 'standardise'"),
    (["onehot"], "its name is 'one-hot'"),
    (["one_hot"], "its name is 'one-hot'"),
    ([{"name": "discretise", "bin": 3}], "did you mean 'bins'"),
    ([{"name": "discretise", "bins": 0}], "bins"),
    ([{"bins": 3}], "no step 'None'"),
])
def test_wrong_steps_in_a_config_are_named(wanted: list[object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        preparations(wanted)  # type: ignore[arg-type]


def test_statistics_of_other_columns_are_refused() -> None:
    narrow, wide = numbers(np.ones((2, 1))), numbers(np.ones((2, 3)))
    with pytest.raises(DataError, match="fitted on 1 numeric columns, the data has 3"):
        Standardise().apply(wide, Standardise().fit(narrow))
    with pytest.raises(DataError, match="cannot be merged"):
        fit_together(Standardise(), [narrow, wide])
    with pytest.raises(DataError, match="needs a flat table"):
        Discretise().fit(numbers(sparse.eye(3)))
