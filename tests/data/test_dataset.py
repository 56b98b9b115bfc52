import numpy as np
import pytest
from scipy import sparse

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import DataError

CLASSES = Target("classes", ("no", "yes"))
TABLE = Schema((Feature("size"), Feature("colour", ("red", "green"))), CLASSES)


def small() -> Dataset:
    values = np.array([[1.0, 0], [2, 1], [3, 0], [4, 1]])
    return Dataset.of(TABLE, values, [0, 1, 1, 0], ids=["a", "b", "c", "d"], groups=[7, 7, 8, 8])


def test_views_of_views_choose_the_rows_of_the_source() -> None:
    view = small().take([3, 1, 0]).take(np.array([True, False, True]))
    assert view.features.tolist() == [[4, 1], [1, 0]]
    assert (view.target.tolist(), view.ids.tolist(), view.groups.tolist()) == ([0, 0], ["d", "a"], [8, 7])


def test_selected_columns_keep_their_schema_and_may_leave_the_target_behind() -> None:
    view = small().take([2]).select([1], with_target=False)
    assert (view.schema.names, view.features.tolist()) == (("colour",), [[0]])
    with pytest.raises(DataError, match="holds no target"):
        view.target  # noqa: B018


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_read_fills_a_buffer_of_any_float_type(dtype: type, is_sparse: bool) -> None:
    values = np.arange(12, dtype=np.float64).reshape(4, 3)
    schema = Schema.of_numbers("abc", Target("none"))
    dataset = Dataset.of(schema, sparse.csr_matrix(values) if is_sparse else values).take([2, 0, 3])
    out = np.empty((2, 3), dtype=dtype)
    dataset.read(np.array([2, 0]), out)
    assert out.tolist() == [[9, 10, 11], [6, 7, 8]]


@pytest.mark.parametrize(("values", "target", "says"), [
    ([[1, 0], [np.nan, 1], [np.nan, 0]], [0, 1, 1], r"column 'size' of 'data' has 2 missing .*\(rows 1, 2\)"),
    ([[1, 0], [2, 2]], [0, 1], "column 'colour' of 'data' has a category outside its domain at row 1"),
    ([[1, 0], [2, 1]], [0, 2], "label that is not in the schema .row 1: 2"),
    ([[1, 0], [2, 1]], [0], "2 rows but 1 target"),
    ([[1], [2]], [0, 1], r"rows of shape \(1,\)"),
    ([[1, 0], [2, 1]], None, "target values are absent"),
])
def test_arrays_that_break_the_schema_are_refused(values: list[list[float]], target: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Dataset.of(TABLE, np.array(values, dtype=float), target)  # type: ignore[arg-type]


def test_a_multilabel_target_needs_one_column_a_label() -> None:
    schema = Schema.of_numbers("a", Target("multilabel", ("x", "y")))
    with pytest.raises(DataError, match=r"shape \(rows, 2\)"):
        Dataset.of(schema, np.ones((3, 1)), np.ones((3, 3)))
