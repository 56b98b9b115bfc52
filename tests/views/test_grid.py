"""A sweep over two keys as a grid."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from tequio.experiments.running.table import Table
from tequio.views.heatmap import grid_of, grid_table, save_grid


def swept(*rows: tuple[str, str, float], key: str = "aggregator") -> Any:
    table = Table()
    for attack, defence, accuracy in rows:
        table.add({"attack": attack, key: defence, "seeds": 2, "test.accuracy": accuracy, "test.accuracy sd": 0.0})
    return SimpleNamespace(table=table, results=[SimpleNamespace(summary={"metrics": {"test.accuracy": 0.5}})])


NINE = (("", "mean", 0.9), ("", "median", 0.85), ("", "krum", 0.7), ("mean", "mean", 0.1), ("mean", "median", 0.8),
        ("mean", "krum", 0.6), ("alie", "mean", 0.5), ("alie", "median", 0.4), ("alie", "krum", 0.3))


def test_the_grid_has_a_row_a_value_of_the_first_key() -> None:
    grid = grid_of(swept(*NINE))
    assert grid is not None
    assert (grid.rows, grid.columns) == (("none", "mean", "alie"), ("mean", "median", "krum"))
    assert grid.keys == ("attack", "aggregator")
    assert grid.values["mean", "median"] == 0.8
    assert grid.reach == (0.1, 0.9)
    assert "2 seeds" in grid.title


def test_it_is_shown_and_drawn(tmp_path: Any) -> None:
    grid = grid_of(swept(*NINE))
    assert grid is not None
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(grid_table(grid))
    shown = console.export_text()
    assert [line.split() for line in shown.splitlines()[-3:-1]] == [["none", "0.90", "0.85", "0.70"],
                                                                    ["mean", "0.10", "0.80", "0.60"]]
    save_grid(grid, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").read_bytes()[1:4] == b"PNG"


def test_columns_with_long_names_are_numbered() -> None:
    grid = grid_of(swept(*((row, f"{column} with a very long name", value) for row, column, value in NINE)))
    assert grid is not None
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(grid_table(grid))
    shown = console.export_text()
    assert ["attack", "1", "2", "3"] in [line.split() for line in shown.splitlines()]
    assert "aggregator: 1 mean with a very long name, 2 median with a very long name" in " ".join(shown.split())


def test_other_sweeps_have_no_grid() -> None:
    assert grid_of(swept(("", "mean", 0.9), ("mean", "mean", 0.1))) is None
    assert grid_of(swept(*NINE[:2], *NINE[3:5])) is None  # its table says more
