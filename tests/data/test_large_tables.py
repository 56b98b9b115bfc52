"""Tables read in blocks, from memory and from the stored form, beside the same table read as a whole."""

import csv
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tequio import registry
from tequio.data import mapped, scratch
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.inputs import read, reading, store
from tequio.data.inputs.column import Column, Columns, columns_of
from tequio.data.inputs.reading import opened_csv
from tequio.data.inputs.tables import columns_from_arrow, columns_from_file
from tequio.data.partition import Partition
from tequio.data.preprocessing import fit_and_prepare, preparations
from tequio.engines.sharing import build_population, lay_out
from tequio.errors import DataError
from tequio.experiments.api import fingerprint
from tequio.federation.population import Population

NEVER = 1 << 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEQUIO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tables"


def small_blocks(*, arrow: bool, stored: bool) -> ExitStack:
    """Files are read a few rows at a time, by pyarrow or the csv module, to memory or to the store."""
    stack = ExitStack()
    for where, name, value in ((reading, "ARROW_BYTES", 0 if arrow else NEVER), (reading, "_BLOCK_CELLS", 7),
                               (reading, "_BLOCK_BYTES", 80), (reading, "_PARQUET_ROWS", 3),
                               (store, "STORED_BYTES", 0 if stored else NEVER)):
        stack.enter_context(patch.object(where, name, value))
    return stack


def whole(path: Path) -> Columns:
    """What the columns of a text table are: all lines at once, each column as one array of texts."""
    with opened_csv(path) as (header, lines):
        rows = list(lines)
    texts = [np.array(column, dtype=object) for column in zip(*rows, strict=True)] or [np.empty(0, dtype=object)
                                                                                      for _ in header]
    return columns_of(dict(zip(header, texts, strict=True)), parse=True)


def found(read_columns: Callable[[], Columns]) -> dict[str, Any] | str:
    """Columns in a form that can be compared, or what the error says."""
    try:
        columns = read_columns()
    except DataError as error:
        return str(error)
    return {name: facts(column) for name, column in columns.items()}


def facts(column: Column) -> tuple[Any, ...]:
    values = ["missing" if lost else value for value, lost in zip(column.values.tolist(), column.missing, strict=True)]
    return (column.is_text, column.dtype, values, column.whole and not column.is_text, column.dated, column.name)


CELLS = st.one_of(
    st.sampled_from(["", " ", "?", "NA", "nan", "NAN", "-nan", "null", "007", "7", "-7", "+7", "1.50", " 2 ", "1e3",
                     "1_0", "inf", "0", "-0", "0.5", "0x1", "+-1", ".", "e", "1e", "a", " a ", "a b", '"so"', "a,b",
                     "x;y", "1\n2", "\ufeff", "é", "\uff11\uff12", "1e400", "0.123456789012345"]),
    st.integers(-1000, 1000).map(str), st.floats(allow_nan=False).map(repr), st.text(max_size=6))
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.one_of(*(st.lists(cells, min_size=width, max_size=width) for cells in (
        CELLS, st.integers(0, 20).map(str), st.floats(-1, 1).map(repr)))), max_size=12).map(
            lambda rows: (["a", "b", "c", "d"][:width], rows)))


@given(TABLES, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.sampled_from(["\n", "\r\n", "\r"]))
@example((["a"], [["7"], ["8"], ["9"], ["10"], ["11"], ["12"], ["13"], ["007"]]), csv.QUOTE_MINIMAL, "\n")
@settings(max_examples=150, deadline=None)
def test_all_ways_to_read_a_text_table_give_the_same_cells(tmp_path_factory: pytest.TempPathFactory, table: Any,
                                                           quoting: Any, end: str) -> None:
    folder = tmp_path_factory.mktemp("table")
    text = io.StringIO(newline="")
    csv.writer(text, quoting=quoting, lineterminator=end).writerows([table[0], *table[1]])
    same_everywhere(folder / "a.csv", text.getvalue())


@given(st.lists(st.lists(st.sampled_from(["a", "1", '"', '""', ",", ",", " ", "\n", "\n", "\r\n", "é"]), max_size=12),
                max_size=8))
@settings(max_examples=150, deadline=None)
def test_all_ways_to_read_odd_quotes_and_ragged_lines_agree(tmp_path_factory: pytest.TempPathFactory,
                                                            lines: list[list[str]]) -> None:
    folder = tmp_path_factory.mktemp("table")
    same_everywhere(folder / "a.csv", "\n".join(["x,y", *map("".join, lines)]))


def same_everywhere(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")
    expected = found(lambda: whole(path))
    for arrow in (False, True):
        for stored in (False, True):
            with small_blocks(arrow=arrow, stored=stored):
                assert found(lambda: columns_from_file(path)) == expected, (arrow, stored)


def run_hash(path: Path, folder: Path, *, workers: int = 1, **settings: Any) -> str:
    import tequio

    data = {"name": "csv", "path": str(path), "target": "y", "columns": {"z": "category"},
            "prepare": ["one-hot", "standardise"], "partition": {"name": "iid", "parties": 3}}
    result = tequio.run(rounds=2, learner="logistic", data=data, engine={"name": "local", "workers": workers},
                        output={"folder": str(folder)}, **settings)
    return str(result.summary["model_sha256"])


def test_a_mapped_table_trains_the_same_model_as_one_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    rng = np.random.default_rng(3)
    lines = [f"{a:.3f},{b},{'uvw'[c]},{['no', 'yes'][int(a + c > 1)]}"
             for a, b, c in zip(rng.normal(size=300), *rng.integers([[50], [3]], size=(2, 300)), strict=True)]
    path.write_text("\n".join(["a,b,z,y", *lines]), encoding="utf-8")
    expected = run_hash(path, tmp_path / "memory")
    for name, value in (("_BLOCK_VALUES", 64), ("RESIDENT_BYTES", 0)):
        monkeypatch.setattr(mapped, name, value)
    with small_blocks(arrow=False, stored=True):
        assert isinstance(read(path, target="y").source.features, mapped.Mapped)
        assert run_hash(path, tmp_path / "inline") == expected
        assert run_hash(path, tmp_path / "workers", workers=2) == expected


def test_a_resumed_run_and_an_object_train_the_same_model_when_mapped(tmp_path: Path) -> None:
    import tequio

    frame = {"x": np.arange(90, dtype=np.float32) % 7, "y": np.arange(90) % 7 > 3}
    parquet.write_table(pa.table(frame), tmp_path / "a.parquet")
    keys: dict[str, Any] = {"learner": "logistic", "engine": {"workers": 1}, "output": {"folder": str(tmp_path)},
                            "data": {"name": "parquet", "path": str(tmp_path / "a.parquet"), "target": "y",
                                     "partition": {"name": "iid", "parties": 2}}}
    expected = tequio.run(rounds=3, **keys).summary["model_sha256"]
    with small_blocks(arrow=True, stored=True):
        short = tequio.run(rounds=1, **keys)
        assert tequio.run(resume=short.folder, rounds=3).summary["model_sha256"] == expected
        mapped_rows = read(tmp_path / "a.parquet", target="y")
    assert fingerprint(mapped_rows) == fingerprint(read(tmp_path / "a.parquet", target="y"))


PARQUET = {"i": pa.array([1, 2, None, 4, 5, 6, 7]), "f": pa.array([1.0, 2, 3, 4, 5, 6, None]),
           "g": pa.array([1.0] * 7), "h": pa.array([0.5, None, 1, 2, 3, 4, 5], pa.float32()),
           "t": pa.array(["a", " b", None, "?", "7", "a", "b "]), "b": pa.array([True, False, None] * 2 + [True]),
           "d": pa.array([None, None, None, 10_000, 2, 3, 4], pa.date32()), "n": pa.nulls(7),
           "k": pa.array(["x", "y", "x", None, "z", "z", "z"]).dictionary_encode(),
           "m": pa.array([None] * 6 + ["only"])}


@pytest.mark.parametrize("stored", [False, True])
def test_parquet_columns_are_those_of_the_whole_table(tmp_path: Path, stored: bool) -> None:
    parquet.write_table(pa.table(PARQUET), tmp_path / "a.parquet")
    expected = {name: facts(column) for name, column in columns_from_arrow(pa.table(PARQUET)).items()}
    assert [name for name in expected if expected[name][3]] == ["i", "f"]
    assert expected["h"][1] == np.float32
    with small_blocks(arrow=True, stored=stored):
        columns = columns_from_file(tmp_path / "a.parquet")
        assert {name: facts(column) for name, column in columns.items()} == expected
        keep = np.array([1, 0, 1, 1, 0, 1, 1], bool)
        once = {name: facts(column.take(keep).take(np.arange(5) > 0)) for name, column in columns.items()}
    whole_table = columns_from_arrow(pa.table(PARQUET))
    assert once == {name: facts(column.take(keep).take(np.arange(5) > 0)) for name, column in whole_table.items()}


def options(missing: str, dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
    table = {"x": np.arange(20, dtype=dtype), "c": [None, "u", "v", "u"] * 5, "y": ["p", "q"] * 10}
    return table, {"target": "y", "missing": missing, "columns": {"c": "category"}}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("missing", ["drop", "keep", "category"])
def test_datasets_are_the_same_mapped_and_in_memory(tmp_path: Path, missing: str, dtype: str) -> None:
    table, asked = options(missing, dtype)
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    expected = read(tmp_path / "a.parquet", **asked)
    with small_blocks(arrow=True, stored=True):
        mapped_rows = read(tmp_path / "a.parquet", **asked)
    assert isinstance(mapped_rows.source.features, mapped.Mapped)
    assert mapped_rows.schema == expected.schema
    assert mapped_rows.features.dtype == expected.features.dtype == dtype
    assert np.array_equal(mapped_rows.features, expected.features, equal_nan=True)
    assert np.array_equal(mapped_rows.target, expected.target)


def test_what_is_wrong_is_said_with_its_row_in_the_whole_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,c,y\n" + "1,u,p\n2,v,q\n" * 10 + "3,w,p\n", encoding="utf-8")
    schema = read({"x": [1, 2], "c": ["u", "v"], "y": ["p", "q"]}, target="y").schema
    with pytest.raises(DataError) as whole_error:
        read(path, schema=schema)
    with small_blocks(arrow=False, stored=True), pytest.raises(DataError) as error:
        read(path, schema=schema)
    assert str(error.value) == str(whole_error.value)
    assert "row 20" in str(error.value)


def test_rows_of_a_large_matrix_are_read_as_numpy_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "RESIDENT_BYTES", 0)
    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    rows = mapped.write_rows(iter([values[:20], values[20:]]), values.dtype, (3,))
    order = np.array([3, 49, -1, 3, 0])
    assert np.array_equal(rows[order], values[order])
    assert np.array_equal(rows[5:9], values[5:9])
    assert np.array_equal(rows[values[:, 0] > 0], values[values[:, 0] > 0])
    assert np.array_equal(rows.take(order[:2], 0, np.empty((2, 3), np.float32)), values[order[:2]])
    assert type(rows * 2) is np.ndarray
    for wrong in (50, -51):
        with pytest.raises((IndexError, OSError)):
            rows[np.array([wrong])]


def test_the_file_of_a_matrix_goes_with_it(cache: Path) -> None:
    rows: Any = mapped.write_rows(iter([np.ones((4, 2))]), np.dtype(float), (2,))
    assert len(list(cache.iterdir())) == 1
    del rows
    assert list(cache.iterdir()) == []


LINES = "x,y\n" + "".join(f"{row},{'ab'[row % 2]}\n" for row in range(40))


def stored_form(path: Path) -> Columns:
    with small_blocks(arrow=False, stored=True):
        return columns_from_file(path)


def test_a_table_is_converted_once_and_again_when_its_content_changes(tmp_path: Path, cache: Path) -> None:
    path, copy = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text(LINES, encoding="utf-8")
    copy.write_text(LINES, encoding="utf-8")
    stored_form(path)
    with patch.object(reading, "_csv_blocks", side_effect=AssertionError("read again")):
        stored_form(path)
        stored_form(copy)  # the name of a stored table is its content's hash
    path.write_text(LINES.replace("39,b", "39,c"), encoding="utf-8")
    assert stored_form(path)["y"].values[-1] == "c"
    assert stored_form(copy)["y"].values[-1] == "b"


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LINES, encoding="utf-8")
    blocks = reading._csv_blocks

    def changing(*asked: Any) -> Any:
        for pieces in blocks(*asked):
            yield pieces
            with path.open("a", encoding="utf-8") as stream:
                stream.write("1,a\n")

    with patch.object(reading, "_csv_blocks", changing), pytest.raises(DataError, match="changed while it was read"):
        stored_form(path)
    assert [place.name for place in cache.iterdir() if place.is_dir()] == []


def test_a_damaged_table_is_made_again(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LINES, encoding="utf-8")
    expected = facts(stored_form(path)["x"])
    place = next(place for place in cache.iterdir() if place.is_dir())
    for damage in ("data", "columns.json"):
        (place / damage).write_bytes((place / damage).read_bytes()[:-9])
        assert facts(stored_form(path)["x"]) == expected


def test_what_a_killed_process_left_is_never_read_and_swept_later(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LINES, encoding="utf-8")
    code = ("import os, sys\nfrom pathlib import Path\nfrom tequio.data.inputs import reading, store, tables\n"
            "store.STORED_BYTES, reading._BLOCK_CELLS, whole = 0, 7, store.Writer.finish\n"
            "store.Writer.finish = lambda *_: os.kill(os.getpid(), 9)\ntables.columns_from_file(Path(sys.argv[1]))\n")
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -signal.SIGKILL
    left, = (place for place in cache.iterdir() if place.is_dir())
    assert left.name.startswith(".table-")
    assert len(stored_form(path)["x"].values) == 40
    assert left.exists()  # too young to be sure that nobody writes to it
    os.utime(left, (0, 0))
    scratch.sweep(cache)
    assert not left.exists()


def test_what_a_living_process_writes_is_not_swept(cache: Path) -> None:
    rows = mapped.write_rows(iter([np.ones((4, 2))]), np.dtype(float), (2,))
    os.utime(rows.path, (0, 0))
    scratch.sweep(cache)
    assert rows.path.exists()


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LINES, encoding="utf-8")
    with patch.object(store.Writer, "_append", side_effect=OSError(28, "No space left on device")), \
            pytest.raises(DataError, match="No space left") as caught:
        stored_form(path)
    assert "TEQUIO_CACHE" in caught.value.remedy
    assert list(cache.iterdir()) == []


def test_another_process_that_was_faster_is_no_trouble(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LINES, encoding="utf-8")
    rename = os.rename

    def beaten(temporary: Path, place: Path) -> None:
        place.mkdir()
        (place / "data").write_bytes(b"")
        rename(temporary, place)

    with patch.object(os, "rename", beaten):
        assert len(stored_form(path)["x"].values) == 40
    assert len(stored_form(path)["x"].values) == 40


def test_tables_that_were_not_used_for_longest_make_room(tmp_path: Path, cache: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {}
    for name, age in (("a", 300), ("b", 100), ("c", 200)):
        (tmp_path / f"{name}.csv").write_text(LINES + f"7,{name}\n", encoding="utf-8")
        columns[name] = stored_form(tmp_path / f"{name}.csv")
        newest = max((place for place in cache.iterdir() if place.is_dir()), key=lambda place: place.stat().st_mtime)
        os.utime(newest, (1_000_000 - age, 1_000_000 - age))
    monkeypatch.setattr(scratch, "KEPT_BYTES", int(2.5 * scratch.stored_bytes(newest)))
    scratch.sweep(cache)
    assert sorted(1_000_000 - place.stat().st_mtime for place in cache.iterdir() if place.is_dir()) == [100, 200]
    assert columns["a"]["y"].values[-1] == "a"  # whoever has it open can go on reading


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_the_folder_is_private(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scratch.tables_folder().stat().st_mode & 0o777 == 0o700
    cache.chmod(0o755)
    assert scratch.tables_folder().stat().st_mode & 0o777 == 0o700
    cache.parent.chmod(0o777)
    with pytest.raises(DataError, match="others can write beside it"):
        scratch.tables_folder()
    monkeypatch.delenv("TEQUIO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "tequio").mkdir()
    (tmp_path / "tequio").chmod(0o775)  # what many systems make by default
    scratch.tables_folder()
    assert (tmp_path / "tequio").stat().st_mode & 0o022 == 0
    (tmp_path / "tequio" / "tables").rmdir()
    (tmp_path / "tequio" / "tables").symlink_to(tmp_path)
    with pytest.raises(DataError, match="belongs to another user"):
        scratch.tables_folder()


PEAK = """
import sys, tequio, torch, sklearn.linear_model, pyarrow.parquet, pyarrow.csv
from pathlib import Path
from tequio.data import mapped
from tequio.data.inputs import read, reading, store

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

store.STORED_BYTES, mapped.RESIDENT_BYTES, reading.ARROW_BYTES = 0, 8 << 20, int(sys.argv[2])
data = {"name": Path(sys.argv[1]).suffix[1:], "path": sys.argv[1], "target": "y", "prepare": ["standardise"],
        "partition": {"name": "iid", "parties": 10}}
before = peak()
read(sys.argv[1], target="y") if sys.argv[2] != "0" else tequio.run(
    rounds=1, learner="logistic", data=data, engine={"workers": 1}, output={"folder": sys.argv[1] + "-run"})
print("over", peak() - before)
"""


def peak_over_start(path: Path, arrow_bytes: int) -> int:
    done = subprocess.run([sys.executable, "-c", PEAK, str(path), str(arrow_bytes)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("over")[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_whole_run_takes_less_than_one_and_a_half_times_its_table(tmp_path: Path) -> None:
    rows, columns = 500_000, 40
    with parquet.ParquetWriter(tmp_path / "a.parquet", pa.schema(
            [*((f"x{column}", pa.float32()) for column in range(columns)), ("y", pa.int8())])) as file:
        for start in range(0, rows, 50_000):
            block = np.random.default_rng(start).standard_normal((columns, 50_000), np.float32)
            file.write(pa.table([*block, (block[0] > 0).astype(np.int8)], schema=file.schema))
    assert peak_over_start(tmp_path / "a.parquet", 0) < 1.5 * 4 * rows * columns + (128 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_text_table_is_never_in_memory_as_texts(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=(40_000, 50)).round(9)
    lines = (",".join(map(str, [*row, int(row[0] > 0)])) for row in numbers.tolist())
    path = tmp_path / "a.csv"
    path.write_text("\n".join([",".join([*(f"x{column}" for column in range(50)), "y"]), *lines]), encoding="utf-8")
    assert path.stat().st_size > 20_000_000
    assert peak_over_start(path, NEVER) < 1.5 * path.stat().st_size + (64 << 20)


def test_workers_here_map_the_same_file_and_others_get_the_rows() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    rows = mapped.write_rows(iter([values]), values.dtype, (3,))
    dataset = Dataset.of(Schema.of_numbers("abc", Target("classes", ("no", "yes"))), rows, np.array([0, 1, 1, 0]))
    population = Population(dataset, Partition.of([np.array([2, 0]), np.array([3])]))
    blueprint, arrays = lay_out(population)
    assert "features" not in arrays
    there = build_population(blueprint, arrays)
    assert there.dataset.source.features.path == rows.path
    assert np.array_equal(there.view(0).train.features, population.view(0).train.features)
    elsewhere, all_arrays = lay_out(population, here=False)
    assert type(all_arrays["features"]) is np.ndarray
    assert np.array_equal(build_population(elsewhere, all_arrays).dataset.features, values)


@pytest.mark.parametrize("name", sorted({*registry.names("preparation")} - {"auto"}))
def test_steps_are_fitted_and_applied_to_mapped_rows_as_to_rows_in_memory(name: str, monkeypatch: pytest.MonkeyPatch
                                                                          ) -> None:
    monkeypatch.setattr(mapped, "_BLOCK_VALUES", 40)
    rng = np.random.default_rng(1)
    a = np.where((np.arange(60) % 9 > 0) | (name != "impute"), rng.random(60), np.nan)
    columns = {"a": a, "b": rng.integers(0, 9, 60),
               "c": np.array(["u", "v", "w"])[rng.integers(3, size=60)],
               "y": np.array(["no", "yes"])[rng.integers(2, size=60)]}
    there = read(columns, target="y", missing="keep")
    rows = mapped.write_rows(iter([there.features]), there.features.dtype, (3,))
    here = replace(there, source=replace(there.source, features=rows))
    step, part = preparations([name])[0], np.arange(5, 55)
    expected = fit_and_prepare([step], [there.take(part)], [there])
    fitted, (prepared,) = fit_and_prepare([step], [here.take(part)], [here])
    assert prepared.schema == expected[1][0].schema
    assert np.array_equal(prepared.features, expected[1][0].features, equal_nan=True)
    assert fitted.statistics[0].keys() == expected[0].statistics[0].keys()
