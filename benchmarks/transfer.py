"""What a party without labels gains from few common rows: ``python benchmarks/transfer.py [--seeds 5] [--first 0]``.

Columns are halved between two parties at random, one of which has the labels. Few rows are common to both; each has as
many rows of its own of the rest. Judged are rows that no party has, by the columns of the party without labels alone.

- transfer: the algorithm 'transfer'
- alone, labels of the common rows: what that party would reach if it were given these labels: logistic regression whose
  penalty is chosen by cross-validation on them. More crosses than under 'transfer' says, and nothing of other rows
- alone, labels of all its rows: the same with a label for each of its rows, which nobody has

The settings were chosen among six on seeds 100 to 102, by the mean area over the four tables with 50 common rows.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import roc_auc_score

import tequio
from tequio.algorithms.vertical.rows import as_numbers, fit_scale
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario

TABLES = ("breast-cancer", "german-credit", "ilpd", "credit2")
SETTINGS: dict[str, Any] = {"algorithm": {"name": "transfer", "width": 16, "pull": 0.1}, "rounds": 5,
                            "local": {"epochs": 40, "batch": 0, "learning_rate": 0.2, "weight_decay": 0.1}}


def config_of(table: str, common: int, seed: int, rows: int) -> dict[str, Any]:
    """A run in which that many rows are common."""
    return {**SETTINGS, "seed": seed, "evaluation": {"every": SETTINGS["rounds"]}, "engine": {"workers": 1},
            "policy": {"psi": {"minimum": 10}},  # by default fewer common rows than a tenth are nobody's business
            "data": {"name": table, "test": 0.3, "split": {"validation": 0.0, "test": 0.0},
                     "partition": {"name": "rows-and-columns", "row_overlap": common / rows}}}


def judged(table: str, common: int, seed: int) -> dict[str, float]:
    """The area under the ROC curve on rows that no party has, by method."""
    held = len(make_scenario(complete(config_of(table, 0, seed, 1))).population.dataset)
    config = config_of(table, common, seed, held)
    with tempfile.TemporaryDirectory() as folder:
        found = {"transfer": tequio.run(**config, output={"folder": folder}).summary["metrics"]["test.auc"]}
    scenario = make_scenario(complete(config))
    people, test = scenario.population, scenario.test
    assert test is not None
    columns, dealt = people.partition.columns, people.partition
    assert columns is not None
    both = np.intersect1d(dealt.party_rows(0), dealt.party_rows(1))
    scale = fit_scale(people.dataset.take(dealt.party_rows(1)).select(columns[1]))
    values, asked = (as_numbers(rows.select(columns[1]), scale) for rows in (people.dataset, test))
    truth = people.dataset.target
    for name, labelled in (("common", both), ("all", dealt.party_rows(1))):
        folds = min(5, int(np.bincount(truth[labelled]).min()))
        scores = np.zeros(len(test))
        if folds >= 2:
            model = LogisticRegressionCV(cv=folds, max_iter=2000).fit(values[labelled], truth[labelled])
            scores = model.decision_function(asked)
        found[name] = float(roc_auc_score(test.target, scores))
    return found


def main() -> None:
    """A line a table and number of common rows: mean and standard deviation over seeds, and wins over 'common'."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, default=5)
    asked.add_argument("--first", type=int, default=0)
    asked.add_argument("--common", type=int, nargs="+", default=[20, 50, 100])
    given = asked.parse_args()
    print("| table | common rows | transfer | alone, labels of the common rows | better in | alone, labels of all its "
          "rows |")
    print("|---|---:|---:|---:|---:|---:|")
    for table in TABLES:
        for common in given.common:
            found = [judged(table, common, seed) for seed in range(given.first, given.first + given.seeds)]
            columns = {name: np.array([one[name] for one in found]) for name in found[0]}
            shown = {name: f"{values.mean():.3f} ± {values.std(ddof=1):.3f}" for name, values in columns.items()}
            wins = int((columns["transfer"] > columns["common"]).sum())
            print(f"| {table} | {common} | {shown['transfer']} | {shown['common']} | {wins} of {given.seeds} | "
                  f"{shown['all']} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
