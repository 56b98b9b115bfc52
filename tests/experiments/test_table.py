import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.errors import ConfigError
from tequio.experiments.running.table import Table, read_csv, shown

CELLS = st.none() | st.integers() | st.floats(allow_nan=False) | st.just("a, \"b\"")


@given(st.lists(st.dictionaries(st.sampled_from(["round", "test.loss", "x"]), CELLS, min_size=1), min_size=1))
def test_a_table_comes_back_from_csv_exactly(tmp_path_factory, rows):
    table = Table()
    for row in rows:
        table.add(row)
    path = tmp_path_factory.mktemp("table") / "t.csv"
    path.write_text(table.to_csv())
    back = read_csv(path)
    assert back.columns == table.columns
    assert back.to_dict() == table.to_dict()


def test_a_last_line_without_its_end_is_left_out(tmp_path):
    (tmp_path / "t.csv").write_text("round,loss\n1,0.5\n2,0.2")
    assert read_csv(tmp_path / "t.csv").rows == [{"round": 1, "loss": 0.5}]
    (tmp_path / "t.csv").write_text("")
    assert read_csv(tmp_path / "t.csv").columns == []


def test_columns_series_and_last_cells():
    table = Table()
    assert table.add({"round": 1, "loss": 3.0})
    assert not table.add({"round": 2})
    assert table.add({"round": 3, "loss": 1.0, "accuracy": 0.5})
    assert table["accuracy"] == [None, None, 0.5]
    assert table.series("loss") == ([1.0, 3.0], [3.0, 1.0])
    assert table.last("loss") == 1.0
    with pytest.raises(ConfigError, match="no column 'los'; did you mean 'loss'"):
        table["los"]


def test_a_table_shows_itself():
    table = Table()
    table.add({"metric": "<loss>", "value": 0.12345, "rows": 12000})
    html = table._repr_html_()
    assert "&lt;loss&gt;" in html
    assert "0.1235" in html or "0.1234" in html
    assert "12,000" in html
    frame = table.to_pandas()
    assert list(frame.columns) == ["metric", "value", "rows"]
    assert math.isclose(frame["value"][0], 0.12345)


@pytest.mark.parametrize(("cell", "text"), [(None, ""), (0.5, "0.5000"), (0.0, "0.0000"), (0.00012345, "0.0001234"),
                                            (1234567, "1,234,567"), ("x", "x"), (float("nan"), "nan")])
def test_cells_as_people_read_them(cell, text):
    assert shown(cell) == text
