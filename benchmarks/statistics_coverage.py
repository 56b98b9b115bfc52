"""How often 95 % intervals of `glm`, `cox` and `effect` hold the truth, and how often tests reject what is true.

python benchmarks/statistics_coverage.py [--draws 500] [--tests 2000] [--seconds 240] [--out coverage.jsonl]

Each draw is a federation of 4 parties whose rows differ from party to party. A line is kept per draw, so that a run
that was stopped goes on where it was; without `--seconds` it runs to its end. COVERAGE.md is written anew each time.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.statistics.cox import Cox
from tequio.algorithms.statistics.effect import Effect
from tequio.algorithms.statistics.glm import Glm
from tequio.algorithms.statistics.kaplan_meier import LogRank
from tequio.algorithms.statistics.testing import HypothesisTests
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tequio.federation.algorithm import Algorithm

PARTIES, ROWS = 4, 300
ODDS, HAZARDS, EFFECT = (0.6, -0.4), (0.5, -0.3), 1.0
SHARES = (0.3, 0.3, 0.2, 0.2)
BINS = dict.fromkeys(("x", "y"), (-4.0, 4.0, 0.25))
TESTS = {"t": "t(x by two)", "welch": "welch(spread by rare)", "anova": "anova(x by three)",
         "welch-anova": "welch-anova(spread by three)", "chi2": "chi2(two, three)", "g": "g(two, three)",
         "fisher": "fisher(two, rare)", "mann-whitney": "mann-whitney(x by two)", "kruskal": "kruskal(x by three)",
         "pearson": "pearson(x, y)", "spearman": "spearman(x, y)", "kendall": "kendall(x, y)"}
Numbers = dict[str, float]


def found(algorithm: Algorithm, columns: Mapping[str, Sequence[Any]], site: np.ndarray) -> dict[str, Any]:
    """What an algorithm finds over the parties that hold these rows."""
    levels = {name: tuple(sorted(set(values))) for name, values in columns.items() if isinstance(values[0], str)}
    numbers = [[levels[name].index(one) for one in values] if name in levels else values
               for name, values in columns.items()]
    schema = Schema(tuple(Feature(name, levels.get(name)) for name in columns), Target("none"))
    rows = Dataset.of(schema, np.column_stack(numbers).astype(np.float64))
    held = [np.flatnonzero(site == party) for party in range(PARTIES)]
    population = Population(rows, Partition.of(held), Split(0.0, 0.0), seed=0)
    engine = InlineEngine()
    engine.open(population)
    federation = Federation(population, engine, 0)
    federation.round = 1
    model: dict[str, Any] = algorithm.round(federation, algorithm.start(federation)).model
    return model


def federation_of(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The party of each row, and two columns that are shifted from party to party."""
    site = np.sort(draw.choice(PARTIES, ROWS, p=SHARES))
    return site, draw.standard_normal((ROWS, 2)) + 0.5 * draw.standard_normal((PARTIES, 2))[site]


def glm(draw: np.random.Generator) -> Numbers:
    """A logistic regression: how far the coefficients are from the truth, in half widths of their intervals."""
    site, x = federation_of(draw)
    y = draw.random(ROWS) < 1 / (1 + np.exp(0.3 - x @ ODDS))
    model = found(Glm(formula="y ~ a + b", family="binomial"), {"y": y, "a": x[:, 0], "b": x[:, 1]}, site)
    return _off("glm", model, ("a", "b"), ODDS)


def cox(draw: np.random.Generator) -> Numbers:
    """Hazard ratios with a baseline of each party; about a third of the rows are censored."""
    site, x = federation_of(draw)
    months, event = _watched(draw, x @ HAZARDS + 0.5 * draw.standard_normal(PARTIES)[site])
    model = found(Cox(formula="Surv(time, event) ~ a + b"),
                  {"time": months, "event": event, "a": x[:, 0], "b": x[:, 1]}, site)
    return _off("cox", model, ("a", "b"), HAZARDS)


def aipw(draw: np.random.Generator) -> Numbers:
    """A treatment that the same columns lead to and that its outcome depends on: doubly robust, without folds and with
    two of them."""
    site, x = federation_of(draw)
    treated = draw.random(ROWS) < 1 / (1 + np.exp(-x @ (0.5, -0.5)))
    y = x @ (1.0, 0.5) + EFFECT * treated + draw.standard_normal(ROWS)
    columns = {"y": y, "t": treated, "a": x[:, 0], "b": x[:, 1]}
    numbers: Numbers = {}
    for name, more in (("aipw", {}), ("aipw, 2 folds", {"folds": 2})):
        model = found(Effect(formula="y ~ a + b", treatment="t", method="aipw", **more), columns, site)
        row = next(row for row in model["tables"]["effect"] if row["term"] == "difference")
        numbers[name] = (row["estimate"] - EFFECT) / ((row["high"] - row["low"]) / 2)
    return numbers


def tests(draw: np.random.Generator) -> Numbers:
    """P-values where nothing is to be found; variances differ between groups where a test allows that."""
    site = np.sort(draw.choice(PARTIES, ROWS, p=SHARES))
    two, three = draw.choice(["a", "b"], ROWS), draw.choice(["a", "b", "c"], ROWS, p=[0.5, 0.3, 0.2])
    rare = draw.choice(["a", "b"], ROWS, p=[0.8, 0.2])
    spread = draw.standard_normal(ROWS) * np.where(rare == "b", 2.0, 1.0) * np.where(three == "c", 1.5, 1.0)
    x, y = draw.standard_normal((2, ROWS)).clip(-3.99, 3.99)
    columns = {"x": x, "y": y, "spread": spread, "two": two.tolist(), "three": three.tolist(), "rare": rare.tolist()}
    model = found(HypothesisTests(tests=tuple(TESTS.values()), scales=BINS), columns, site)
    numbers = dict(zip(TESTS, model["p_values"].tolist(), strict=True))
    months, event = _watched(draw, 0.5 * draw.standard_normal(PARTIES)[site])
    columns = {"time": months, "event": event, "two": two.tolist()}
    grid = {"step": 0.2, "horizon": 2.0, "minimum_count": 1}
    for name, more in (("log-rank", grid), ("log-rank, stratified", {"stratify": True}),
                       ("wilcoxon", {"weights": "wilcoxon", **grid}),
                       ("fleming-harrington (0, 1)", {"weights": "fleming-harrington", "gamma": 1.0, **grid})):
        model = found(LogRank(formula="Surv(time, event) ~ two", **more), columns, site)
        numbers[name] = model["tables"]["test"][0]["p"]
    return numbers


PARTS: Mapping[str, Callable[[np.random.Generator], Numbers]] = {"glm": glm, "cox": cox, "aipw": aipw, "tests": tests}


def drawn(part: str, seed: int) -> Numbers:
    """One draw of a part: deviations in half widths (the interval holds the truth below 1), or p-values."""
    return PARTS[part](np.random.default_rng([seed, *part.encode()]))


def main() -> None:
    """Draw what is missing, as long as there is time, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--tests", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=Path("coverage.jsonl"))
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {part: [line["found"] for line in lines if line["part"] == part] for part in PARTS}
    until = time.monotonic() + given.seconds
    with given.out.open("a") as file:
        for part in PARTS:
            for seed in range(len(done[part]), given.tests if part == "tests" else given.draws):
                if time.monotonic() > until:
                    break
                done[part].append(drawn(part, seed))
                file.write(json.dumps({"part": part, "seed": seed, "found": done[part][-1]}) + "\n")
                file.flush()
    Path(__file__).with_name("COVERAGE.md").write_text(page(done))


def page(done: Mapping[str, list[Numbers]]) -> str:
    """What came of it, with what chance alone would do."""
    held = {name: [abs(one[name]) <= 1 for one in done[part]] for part in ("glm", "cox", "aipw") if done[part]
            for name in done[part][0]}
    rejected = {name: [one[name] < 0.05 for one in done["tests"]] for name in (done["tests"] or [{}])[0]}
    return "\n".join([
        "# How often intervals hold the truth, and tests reject what is true", "",
        f"Written by `python benchmarks/statistics_coverage.py`: federations of {ROWS} rows at {PARTIES} parties of "
        "unequal size, seeds from 0 on.", "",
        "'By chance' is where a share that is right lies in 95 % of repetitions with as many draws.", "",
        "## 95 % intervals", "", "| estimate | draws | hold the truth | by chance |", "|---|---|---|---|",
        *(_line(name, flags, 0.95) for name, flags in held.items()), "",
        "## Tests at 5 %", "", "| test | draws | reject | by chance |", "|---|---|---|---|",
        *(_line(name, flags, 0.05) for name, flags in rejected.items()), "",
        "Fisher's test is exact and its p-values are steps: it rejects in 5 % of the draws at most, and here in fewer.",
        ""])


def _line(name: str, flags: Sequence[bool], expected: float) -> str:
    far = 1.96 * math.sqrt(expected * (1 - expected) / len(flags))
    return (f"| {name} | {len(flags):,} | {100 * np.mean(flags):.1f} % | "
            f"{100 * max(expected - far, 0):.1f} to {100 * min(expected + far, 1):.1f} % |")


def _off(name: str, model: Mapping[str, Any], terms: Sequence[str], truth: Sequence[float]) -> Numbers:
    rows = {row["term"]: row for row in model["tables"]["coefficients"]}
    return {f"{name}, {term}": (rows[term]["estimate"] - true) / ((rows[term]["high"] - rows[term]["low"]) / 2)
            for term, true in zip(terms, truth, strict=True)}


def _watched(draw: np.random.Generator, risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When rows left, and whether an event ended that."""
    due, until = draw.exponential(np.exp(-risk)), draw.uniform(0.3, 3.0, len(risk))
    return np.minimum(due, until), due <= until


if __name__ == "__main__":
    main()
