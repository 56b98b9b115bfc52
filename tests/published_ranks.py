"""Rows that have the rank sums and wins which a source prints of its 179 rows, as its own rows are not ours to keep."""

from __future__ import annotations

import csv
from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

METHODS = ("aggregation 0", "aggregation 1", "aggregation 2", "no federation")
SEEDS = {"Corel5k": 31, "20NG": 8, "yeast": 30, "reutersK500": 5, "mediamill": 30, "YahooEducation": 5, "slashdot": 5,
         "HumanPseAAC": 5, "scene": 30, "tmc2007_500": 30}
"""How many seeds the thesis (Delgado, 2024) has of each data set."""

F1 = ((324.5, 385.5, 364.0), 148)
AGREEMENT = ((325.0, 381.0, 368.0), 74)
"""Of F1-macro and of argmax agreement on common rows: 179 times the printed mean ranks of the three aggregations, and
in how many rows no federation beats aggregation 2."""

F1_MEANS = ((0.0163, 0.0123, 0.0146, 0.0546), (0.7768, 0.7530, 0.7398, 0.7567), (0.4355, 0.4377, 0.4362, 0.4771),
            (0.0441, 0.0295, 0.0594, 0.1113), (0.1063, 0.1038, 0.1081, 0.1502), (0.3061, 0.2934, 0.3116, 0.2796),
            (0.2631, 0.2850, 0.2007, 0.3657), (0.1930, 0.2042, 0.2041, 0.3695), (0.7520, 0.7504, 0.7524, 0.7389),
            (0.6476, 0.6125, 0.6213, 0.6614))
"""The printed means of tables 5.5 and 5.10, a row a data set in the order of `SEEDS`."""


def write_rows(path: Path, printed: tuple[tuple[float, ...], int]) -> Path:
    """A table of 179 rows with these rank sums and wins."""
    sums, wins = printed
    names = [(problem, seed) for problem, count in SEEDS.items() for seed in range(count)]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["problem", "seed", *METHODS])
        for number, ((problem, seed), ranks) in enumerate(zip(names, _rows_of_ranks(sums, len(names)), strict=True)):
            alone = 0.9 if number < wins else 0.1
            table.writerow([problem, seed, *(round(0.8 - 0.1 * rank, 4) for rank in ranks), alone])
    return path


def _rows_of_ranks(sums: tuple[float, ...], rows: int) -> list[tuple[float, ...]]:
    """Ranks of three methods in every row; a half in the sums is made by one row in which the first two tie."""
    ties = [(1.5, 1.5, 3.0)] if sums[0] % 1 else []
    left = [total - sum(row[place] for row in ties) for place, total in enumerate(sums)]
    free = rows - len(ties)
    orders = [tuple(float(rank) for rank in order) for order in permutations((1, 2, 3))]
    made = [orders[number % 6] for number in range(free)]
    for number in range(free):
        made[number] = min(orders, key=lambda order: _distance(made, number, order, left))
        if _distance(made, number, made[number], left) == 0:
            break
    return ties + made


def _distance(made: list[tuple[float, ...]], number: int, order: tuple[float, ...], left: list[float]) -> float:
    """How far the rank sums would be from what they should be with another order in one row."""
    return sum(abs(sum(row[place] for row in made) - made[number][place] + order[place] - left[place])
               for place in range(3))
