import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tequio.data.dataset import Dataset, Feature, Target
from tequio.data.inputs import read
from tequio.data.sharing import save_schema, shareable
from tequio.errors import DataError, MissingExtra

COLUMNS = {"age": [39, 50, 38], "work": ["state", "self", "state"], "gain": [2.5, 0.0, 0.25], "zip": [7, 12, 7],
           "who": ["ann", "bob", "cid"], "risk": ["low", "high", "low"]}
OPTIONS: dict[str, Any] = {"target": "risk", "group": "who", "categorical": ["zip"]}


def same(first: Dataset, second: Dataset) -> bool:
    return (first.schema == second.schema and np.array_equal(first.features, second.features)
            and np.array_equal(first.target, second.target))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_the_same_from_every_source(tmp_path: Path) -> None:
    frame = pd.DataFrame(COLUMNS)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "b.csv", index=False, sep=";")
    frame.to_csv(tmp_path / "c.tsv.gz", index=False, sep="\t")
    frame.to_parquet(tmp_path / "d.parquet")
    expected = read(frame, **OPTIONS)
    assert expected.features.tolist() == [[39, 1, 2.5, 0], [50, 0, 0, 1], [38, 1, 0.25, 0]]
    assert expected.target.tolist() == [1, 0, 1]
    assert expected.groups.tolist() == ["ann", "bob", "cid"]
    assert expected.schema.features == (Feature("age"), Feature("work", ("self", "state")), Feature("gain"),
                                        Feature("zip", ("7", "12")))
    assert expected.schema.target == Target("classes", ("high", "low"), "risk")
    others = [COLUMNS, pl.DataFrame(COLUMNS), pa.table(COLUMNS), frame.astype({"work": "category"}),
              *sorted(tmp_path.iterdir()), str(tmp_path / "a.csv")]
    for source in others:
        found = read(source, **OPTIONS)
        assert same(found, expected)
        assert found.groups.tolist() == expected.groups.tolist()


def test_missing_values_are_the_same_from_every_source(tmp_path: Path) -> None:
    columns = {"a": [1, None, 3, 9], "b": ["x", "y", None, "y"], "y": [0, 1, 1, 0]}
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (frame, frame.convert_dtypes(), pl.DataFrame(columns), pa.table(columns), columns,
                   tmp_path / "a.csv", tmp_path / "a.parquet"):
        with pytest.raises(DataError, match=r"column 'a' has 1 missing value \(row 1;"):
            read(source, target="y")
        assert read(source, target="y", missing="drop").features.tolist() == [[1, 0], [9, 1]]
        for missing in ("keep", "median"):
            found = read(source, target="y", missing=missing)
            assert found.source.missing == missing
            np.testing.assert_array_equal(found.features, [[1, 0], [np.nan, 1], [3, np.nan], [9, 1]])


def test_markers_stand_for_missing_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,y\n1,x,p\n ?,x,q\nNA,,q\n4,z,p\n")
    with pytest.raises(DataError, match=r"column 'a' has 2 missing values \(rows 1, 2;") as caught:
        read(path, target="y")
    assert "missing = 'median'" in caught.value.remedy
    with pytest.raises(DataError, match="only text can have a category"):
        read(path, target="y", missing="category")


def test_missing_as_a_category(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.csv", "b,y\nx,p\n?,q\nz,q\n"), target="y", missing="category")
    assert found.schema.features[0].domain == ("?", "x", "z")
    assert found.features[:, 0].tolist() == [1, 0, 2]


def test_a_missing_target_is_never_filled_in(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,y\n1,p\n2,\n3,q\n")
    with pytest.raises(DataError, match="column 'y' has 1 missing value"):
        read(path, target="y", missing="median")
    assert read(path, target="y", missing="drop").features.tolist() == [[1], [3]]


def test_a_column_without_values_is_left_out(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.csv", "a,b,y\n1,,0\n2,,1\n"), target="y")
    assert found.schema.names == ("a",)
    assert found.source.notes == ("column 'b' holds no values and is left out",)
    with pytest.raises(DataError, match="no row is left"):
        read(write(tmp_path / "b.csv", "a,b,y\n1,,0\n,2,1\n"), target="y", missing="drop")


@pytest.mark.parametrize(("values", "kind", "names"), [
    (["b", "a"], "classes", ("a", "b")),
    ([10, 2], "classes", ("2", "10")),
    ([True, False], "classes", ("False", "True")),
    ([1.5, 2.0], "number", ()),
    ([1.0, 2.0], "number", ()),
    (list(range(20)), "classes", tuple(str(value) for value in range(20))),
    (list(range(21)), "number", ()),
])
def test_the_kind_of_target_follows_from_its_values(tmp_path: Path, values: list[Any], kind: str, names: tuple[str, ...]
                                                    ) -> None:
    frame = pd.DataFrame({"x": np.arange(len(values)), "y": values})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for source in (frame, pl.DataFrame(frame.to_dict("list")), tmp_path / "a.csv"):
        target = read(source, target="y").schema.target
        assert (target.kind, target.names, target.name) == (kind, names, "y")
    assert read((frame[["x"]].to_numpy(), np.array(values))).schema.target.kind == kind


def test_several_targets_are_labels() -> None:
    found = read({"x": [1, 2], "u": [0, 1], "v": ["yes", "no"]}, target=["u", "v"])
    assert found.schema.target == Target("multilabel", ("u", "v"), "labels")
    assert found.target.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(DataError, match="label column 'u' has to hold 0 or 1, but row 1 is '2'"):
        read({"x": [1, 2], "u": [0, 2], "v": [1, 1]}, target=["u", "v"])


def schema_of_training(tmp_path: Path) -> Path:
    train = read({"age": [30, 40], "work": ["state", "self"], "risk": ["low", "high"]}, target="risk")
    save_schema(shareable(train, 1), tmp_path / "schema.json")
    return tmp_path / "schema.json"


def test_a_given_schema_decides_the_codes_and_the_order_of_columns(tmp_path: Path) -> None:
    found = read({"risk": ["low"], "work": ["state"], "age": [55]}, schema=schema_of_training(tmp_path))
    assert (found.features.tolist(), found.target.tolist()) == ([[55, 1]], [1])


@pytest.mark.parametrize(("change", "message", "remedy"), [
    ({"work": ["stte"]}, r"column 'work' has the category 'stte' \(row 0\)", "did you mean 'state'"),
    ({"risk": ["lo"]}, r"column 'risk' has the label 'lo' \(row 0\)", "did you mean 'low'"),
    ({"age": ["old"]}, "column 'age' has to hold numbers: .*'old'", "correct"),
    ({"wrk": ["self"], "work": None}, "column 'work' of the schema is missing", "did you mean 'wrk'"),
    ({"ages": [1]}, "column 'ages' is not in the schema", "did you mean 'age'"),
    ({"risk": None}, "column 'risk' of the schema is missing", ""),
])
def test_a_given_schema_is_enforced(tmp_path: Path, change: dict[str, Any], message: str, remedy: str) -> None:
    columns = {"age": [1], "work": ["self"], "risk": ["low"], **change}
    with pytest.raises(DataError, match=message) as caught:
        read({name: values for name, values in columns.items() if values}, schema=schema_of_training(tmp_path))
    assert remedy in caught.value.remedy


def test_a_party_without_labels_reads_with_the_same_schema(tmp_path: Path) -> None:
    found = read({"work": ["self"], "age": [1]}, schema=schema_of_training(tmp_path), target_kind="none")
    assert found.schema.target.kind == "none"
    assert found.features.tolist() == [[1, 0]]


@pytest.mark.parametrize(("option", "says"), [
    ({"target": "rsk"}, "no column 'rsk'"), ({"target": "risk", "id": "nme"}, "no column 'nme'"),
    ({"target": "risk", "categorical": ["agee"]}, "no column 'agee'")])
def test_columns_that_are_not_there_are_named(option: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        read({"name": [1, 2], "age": [2, 3], "risk": [0, 1]}, **option)
    assert "did you mean" in caught.value.remedy


@pytest.mark.parametrize(("text", "says"), [
    ("a,b\n1,2\n3\n", "line 3 of .* has 1 values, the header names 2"),
    ("", "is empty"),
    ("a,a\n1,2\n", "2 columns called 'a'"),
])
def test_broken_csv_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(write(tmp_path / "a.csv", text))


def test_bytes_that_are_no_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n\xff\xfe,2\n")
    (tmp_path / "b.parquet").write_bytes(b"not parquet")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 100)[:-20])
    (tmp_path / "d.xyz").write_text("a")
    for name in ("a.csv", "b.parquet", "c.csv.gz", "d.xyz"):
        with pytest.raises(DataError, match=name):
            read(tmp_path / name)
    with pytest.raises(DataError, match=r"no file .*a\.cvs") as caught:
        read(tmp_path / "a.cvs")
    assert "did you mean 'a.csv'" in caught.value.remedy


def test_csv_details(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.csv", '\ufeffcode;"a;b";y\n007;1e3;x\n012;-2;z\n\n'), target="y")
    assert found.schema.names == ("code", "a;b")
    assert found.schema.features[0].domain == ("007", "012")
    assert found.features.tolist() == [[0, 1000], [1, -2]]
    assert found.name == "a"


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"tequio\[frames\]"):
        read(tmp_path / "a.parquet")


def test_what_is_neither_numbers_nor_text_is_refused() -> None:
    with pytest.raises(DataError, match="column 'when' is of type list") as caught:
        read(pd.DataFrame({"when": [[1, 2]], "x": [1]}))
    assert 'data.ignore = ["when"]' in caught.value.remedy


def test_numpy_arrays_and_sparse_matrices() -> None:
    values = np.array([[1.0, 0], [0, 2], [3, 0]], dtype=np.float32)
    labels = np.array(["b", "a", "b"])
    dense, thin = read((values, labels)), read((sparse.coo_matrix(values), labels))
    assert dense.features.dtype == np.float32
    assert dense.schema == thin.schema
    assert thin.is_sparse
    assert thin.features.toarray().tolist() == values.tolist()
    assert dense.target.tolist() == thin.target.tolist() == [1, 0, 1]
    assert read(values).schema.target.kind == "none"
    assert read(values, target="x1").target.tolist() == [0, 2, 0]
    assert read((values, np.array([[1, 0], [0, 1], [1, 1]]))).schema.target.kind == "multilabel"


def test_missing_values_in_arrays() -> None:
    values, labels = np.array([[1.0, 5], [np.nan, 6], [3, 7], [8, 9]]), np.array([0, 1, 1, 0])
    with pytest.raises(DataError, match="column 'x0' of 'data' has 1 missing"):
        read((values, labels))
    assert read((values, labels), missing="drop").target.tolist() == [0, 1, 0]
    kept = read((values, labels), missing="median")
    assert kept.has_missing
    np.testing.assert_array_equal(kept.features[:, 0], [1, np.nan, 3, 8])
    with pytest.raises(DataError, match="the target has 1 missing values"):
        read((np.ones((2, 1)), np.array([1.0, np.nan])))
    with pytest.raises(DataError, match="4 rows of features but the target has shape"):
        read((values, labels[:2]))


def test_structured_arrays_are_tables() -> None:
    rows = np.array([(1, "p"), (2, "q")], dtype=[("a", "i4"), ("b", "U1")])
    assert read(rows, target="b").target.tolist() == [0, 1]


def test_torch_datasets() -> None:
    torch = pytest.importorskip("torch")
    images, labels = torch.arange(24.0).reshape(2, 3, 2, 2), torch.tensor([1, 0])
    whole = torch.utils.data.TensorDataset(images, labels)
    found = read(whole)
    assert found.schema.shape == (3, 2, 2)
    assert np.array_equal(found.features, images.numpy())
    mapped = read(torch.utils.data.Subset(whole, [1]))
    assert np.array_equal(mapped.features[0], images[1].numpy())


def test_map_style_datasets_of_pictures_know_their_classes() -> None:
    image = pytest.importorskip("PIL.Image")

    class Pets:
        classes = ("cat", "dog", "eel")

        def __len__(self) -> int:
            return 2

        def __getitem__(self, row: int) -> tuple[Any, int]:
            return image.new("RGB", (4, 2), (255, 0, 51)), row + 1

    found = read(Pets())
    assert found.schema.shape == (3, 2, 4)
    assert found.features[:, :, 0, 0].tolist() == [[1, 0, np.float32(0.2)]] * 2
    assert (found.schema.target.names, found.target.tolist()) == (("cat", "dog", "eel"), [1, 2])


def test_hugging_face_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["neg", "pos"])
    table = datasets.Dataset.from_dict({"x": [1.5, 2.5], "kind": ["b", "a"], "label": [1, 0]})
    found = read(table.cast_column("label", label), target="label")
    assert found.features.tolist() == [[1.5, 1], [2.5, 0]]
    assert [found.schema.target.names[code] for code in found.target] == ["pos", "neg"]
    vectors = datasets.Dataset.from_dict({"x": [[1.0, 2], [3, 4]], "label": [1, 0]}).cast_column("label", label)
    found = read(vectors, target="label")
    assert found.features.tolist() == [[1, 2], [3, 4]]
    assert (found.schema.target.names, found.target.tolist()) == (("neg", "pos"), [1, 0])


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(DataError, match="cannot be made from a int"):
        read(3)
    with pytest.raises(DataError, match="'group' cannot be found"):
        read((np.ones((2, 2)), np.ones(2)), group="x0")


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False, width=32),
                          st.sampled_from(["red", "green", "blue"]), st.integers(-5, 5)), min_size=1, max_size=30))
def test_any_table_survives_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, str, int]]) -> None:
    frame = pd.DataFrame(rows, columns=["number", "colour", "y"])
    path = tmp_path_factory.mktemp("round") / "a.csv"
    frame.to_csv(path, index=False)
    assert same(read(path, target="y"), read(frame, target="y"))
