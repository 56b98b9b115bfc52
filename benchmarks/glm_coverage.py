"""How often intervals of `glm` hold the truth: 500 simulated federations per model, nominally 95 %.

python benchmarks/glm_coverage.py [--federations 500] [--out coverage.jsonl]

Each federation has 6 parties of 40 to 120 rows whose columns are shifted from party to party. One line is kept per
federation, so that a run that was stopped goes on where it was. With 500 federations a coverage of 95 % lies between
93 and 97 % with a chance of 96 %. The coefficient of 'c' is 0 in truth: it is rejected where its interval misses 0.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy import stats

from tequio.algorithms.statistics.exact_sums import ExactSums
from tequio.algorithms.statistics.fitting import Fitted, ModelSpec, fit, prepare, with_errors
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population

TRUTH = np.array([-0.3, 0.6, -0.4, 0.0])
NAMES = ("const", "a", "b", "c")
MODELS = {"gaussian": "model", "gaussian, unequal variances": "HC3", "binomial": "model", "poisson": "model",
          "poisson, overdispersed": "HC3", "negative-binomial": "model", "gamma": "model"}


def main() -> None:
    """Simulate what is missing, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--federations", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("coverage.jsonl"))
    given = parser.parse_args()
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    for seed in range(len(done), given.federations):
        done.append({name: held(name, errors, seed) for name, errors in MODELS.items()})
        with given.out.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    for name in MODELS:
        shares = np.mean([one[name] for one in done], axis=0)
        print(f"{name:28s}", *(f"{term} {share:.3f}" for term, share in zip(NAMES, shares, strict=True)))


def held(name: str, errors: str, seed: int) -> list[bool]:
    """Whether the 95 % interval of each coefficient holds the truth, in one federation."""
    draw = np.random.default_rng([seed, *name.encode()])
    sizes = draw.integers(40, 121, 6)
    sites = np.repeat(np.arange(6), sizes)
    x = draw.standard_normal((len(sites), 3)) + draw.standard_normal((6, 3))[sites] * 0.5
    eta = np.column_stack([np.ones(len(sites)), x]) @ TRUTH
    family = name.partition(",")[0]
    model = fitted(np.column_stack([outcome(name, eta, draw), x]), sizes, family, errors)
    law = stats.norm if model.degrees is None else stats.t(model.degrees)
    return [bool(one) for one in np.abs(model.coefficients - TRUTH) <= law.ppf(0.975) * model.errors]


def outcome(name: str, eta: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Outcomes around a linear predictor."""
    if name.startswith("gaussian"):
        return eta + draw.standard_normal(len(eta)) * (np.exp(eta / 2) if "unequal" in name else 1.0)
    if name == "binomial":
        return (draw.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    if name == "gamma":
        return draw.gamma(2.0, np.exp(eta) / 2.0)
    mean = np.exp(eta) * (1.0 if name == "poisson" else draw.gamma(2.0, 0.5, len(eta)))
    return draw.poisson(mean).astype(float)


def fitted(table: np.ndarray, sizes: np.ndarray, family: str, errors: str) -> Fitted:
    """The model over the parties."""
    schema = Schema.of_numbers(("y", "a", "b", "c"), Target("none"))
    rows = np.split(np.arange(len(table)), np.cumsum(sizes)[:-1])
    population = Population(Dataset.of(schema, table), Partition.of(rows), Split(0.0, 0.0), seed=0)
    engine = InlineEngine()
    engine.open(population)
    federation = Federation(population, engine, 0)
    federation.round = 1
    sums = ExactSums("glm", federation, federation.everyone())
    spec = ModelSpec(formula="y ~ a + b + c", family=family, link="log" if family == "gamma" else "")
    return with_errors(sums, fit(sums, prepare(sums, schema, spec)), errors)


if __name__ == "__main__":
    main()
