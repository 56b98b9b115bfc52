"""`cox` beside statsmodels and lifelines on the pooled rows, in seconds of CPU, in turn.

python benchmarks/cox_speed.py [--rows 100000] [--columns 10] [--parties 10] [--repeats 3] [--lifelines PYTHON]

Times are whole days up to 1,000, with one baseline and with one of each party, Efron's ties everywhere. lifelines wants
an older pandas, so it runs in an environment of its own: `--lifelines envs/lifelines/bin/python`. Each contestant fits
with its own stopping rule, on one thread (set OMP_NUM_THREADS=1), and what is timed is the fit from arrays in memory.
The mark is ten times lifelines' time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.statistics.cox import Cox
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population

if TYPE_CHECKING:
    from collections.abc import Callable

HORIZON = 1000
Found = tuple[float, np.ndarray]
LIFELINES = """
import sys, time
import numpy as np, pandas as pd
from lifelines import CoxPHFitter
table, by_site = np.load(sys.argv[1]), sys.argv[2] == "by-site"
names = [f"x{place}" for place in range(table.shape[1] - 3)]
rows = pd.DataFrame(table, columns=["time", "event", "site", *names])
rows = rows if by_site else rows.drop(columns="site")
started = time.process_time()
model = CoxPHFitter().fit(rows, "time", "event", strata=["site"] if by_site else None)
print(time.process_time() - started, *model.params_[names])
"""


def main() -> None:
    """Print the best of several turns, ratios, and how far the coefficients are apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 100_000), ("columns", 10), ("parties", 10), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lifelines", type=Path)
    given = parser.parse_args()
    table = drawn(given.rows, given.columns, given.parties)
    for baseline in ("by-site", "common"):
        contestants: dict[str, Callable[[], Found]] = {
            "tequio": lambda baseline=baseline: ours(table, baseline),
            "statsmodels": lambda baseline=baseline: statsmodels(table, baseline)}
        if given.lifelines:
            contestants["lifelines"] = lambda baseline=baseline: lifelines(given.lifelines, table, baseline)
        best = dict.fromkeys(contestants, np.inf)
        coefficients: dict[str, np.ndarray] = {}
        for _ in range(given.repeats):
            for name, fit in contestants.items():
                seconds, coefficients[name] = fit()
                best[name] = min(best[name], seconds)
        print(json.dumps({
            "baseline": baseline, "rows": given.rows, "columns": given.columns, "parties": given.parties,
            **{f"{name} seconds": round(seconds, 2) for name, seconds in best.items()},
            **{f"tequio / {name}": round(best["tequio"] / best[name], 2) for name in best if name != "tequio"},
            **{f"apart from {name}": float(f"{np.abs(coefficients['tequio'] - found).max():.1e}")
               for name, found in coefficients.items() if name != "tequio"}}), flush=True)


def drawn(rows: int, columns: int, parties: int) -> np.ndarray:
    """Time, event, site and covariates; about half of the rows are censored."""
    draw = np.random.default_rng(0)
    x, site = draw.standard_normal((rows, columns)), draw.integers(parties, size=rows)
    risk = x @ (draw.standard_normal(columns) / columns) + 0.3 * draw.standard_normal(parties)[site]
    due, watched = draw.exponential(500 * np.exp(-risk)), draw.uniform(50, HORIZON, rows)
    return np.column_stack([np.ceil(np.minimum(due, watched)), due <= watched, site, x])


def ours(table: np.ndarray, baseline: str) -> Found:
    """Seconds of CPU and coefficients over the parties, in one process."""
    names = [f"x{place}" for place in range(table.shape[1] - 3)]
    schema = Schema.of_numbers(("time", "event", *names), Target("none"))
    data = Dataset.of(schema, np.delete(table, 2, axis=1))
    held = [np.flatnonzero(table[:, 2] == party) for party in range(int(table[:, 2].max()) + 1)]
    population = Population(data, Partition.of(held), Split(0.0, 0.0), seed=0)
    engine = InlineEngine()
    engine.open(population)
    federation = Federation(population, engine, 0)
    federation.round = 1
    one = {"step": 1, "horizon": HORIZON, "minimum_count": 1, "reveal": "risk sets"} if baseline == "common" else {}
    algorithm = Cox(formula="Surv(time, event) ~ " + " + ".join(names), baseline=baseline, **one)
    started = time.process_time()
    model = algorithm.round(federation, algorithm.start(federation)).model
    return time.process_time() - started, model["coefficients"]


def statsmodels(table: np.ndarray, baseline: str) -> Found:
    """The same by statsmodels on the pooled rows."""
    from statsmodels.duration.hazard_regression import PHReg

    started = time.process_time()
    strata = table[:, 2].astype(int) if baseline == "by-site" else None
    model = PHReg(table[:, 0], table[:, 3:], table[:, 1], strata=strata, ties="efron").fit(disp=0)
    return time.process_time() - started, model.params


def lifelines(python: Path, table: np.ndarray, baseline: str) -> Found:
    """The same by lifelines in its own environment."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file.name, table)
        answer = subprocess.run([python, "-c", LIFELINES, file.name, baseline], check=True, capture_output=True,
                                text=True).stdout.split()
    return float(answer[0]), np.array([float(value) for value in answer[1:]])


if __name__ == "__main__":
    main()
