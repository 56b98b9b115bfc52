"""`glm` beside statsmodels on the pooled rows: a logistic model of many rows, in seconds of CPU, alternating.

python benchmarks/glm_speed.py [--rows 1000000] [--columns 50] [--parties 10] [--repeats 3]

One process and one thread for both (set OMP_NUM_THREADS=1), statsmodels with its own stopping rule. Run it on a quiet
machine. The mark is twice statsmodels' time.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from tequio.algorithms.statistics.exact_sums import ExactSums
from tequio.algorithms.statistics.fitting import ModelSpec, fit, prepare
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population


def main() -> None:
    """Print the best of several alternating runs, their ratio, and how far the coefficients are apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 1_000_000), ("columns", 50), ("parties", 10), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    draw = np.random.default_rng(0)
    x = draw.standard_normal((given.rows, given.columns - 1))
    chance = 1 / (1 + np.exp(-(x @ draw.standard_normal(given.columns - 1) / given.columns ** 0.5 - 1)))
    y = (draw.random(given.rows) < chance).astype(np.float64)
    best = {"tequio": np.inf, "statsmodels": np.inf}
    found: dict[str, np.ndarray] = {}
    for _ in range(given.repeats):
        for name, work in (("tequio", ours), ("statsmodels", theirs)):
            started = time.process_time()
            found[name] = work(x, y, given.parties)
            best[name] = min(best[name], time.process_time() - started)
    apart = np.abs(found["tequio"][0] - found["statsmodels"][0]) / found["tequio"][1]
    print(json.dumps({**vars(given), **{f"{name} seconds": round(seconds, 2) for name, seconds in best.items()},
                      "ratio": round(best["tequio"] / best["statsmodels"], 2),
                      "apart in standard errors": float(f"{apart.max():.1e}")}))


def ours(x: np.ndarray, y: np.ndarray, parties: int) -> np.ndarray:
    """Coefficients and standard errors over parties of equal size, in one process."""
    names = [f"x{place}" for place in range(x.shape[1])]
    data = Dataset.of(Schema.of_numbers(names, Target("number", name="y")), x, y)
    population = Population(data, Partition.of(np.array_split(np.arange(len(y)), parties)), Split(0.0, 0.0), seed=0)
    engine = InlineEngine()
    engine.open(population)
    federation = Federation(population, engine, 0)
    federation.round = 1
    sums = ExactSums("glm", federation, federation.everyone())
    spec = ModelSpec(formula="y ~ " + " + ".join(names), family="binomial")
    model = fit(sums, prepare(sums, federation.schema, spec))
    return np.stack([model.coefficients, model.errors])


def theirs(x: np.ndarray, y: np.ndarray, parties: int) -> np.ndarray:
    """The same by statsmodels on the pooled rows."""
    import statsmodels.api as sm

    model = sm.GLM(y, np.column_stack([np.ones(len(y)), x]), sm.families.Binomial()).fit()
    return np.stack([model.params, model.bse])


if __name__ == "__main__":
    main()
