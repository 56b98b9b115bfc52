"""Every registered algorithm forgets a party exactly, or refuses with the reason.

The oracle knows nothing of `data.without`: it is a run on a table from which the party's rows were deleted by hand.
"""

from __future__ import annotations

import csv

import numpy as np
import pytest

import tequio
from tequio.errors import ConfigError
from tequio.experiments.api import gather
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario

from .runs import LEARNERS, ON_COLUMNS, ON_LABELS, config_of, labelled_rows, rows
from .subjects import every

SITES = np.repeat(list("abcdef"), [40, 25, 25, 22, 20, 18])
UNMOVED = {"timing", "icdta4fl", "xgboost-cyclic"}
"""In these runs the party's rows change nothing: there is no model, its trees are outvoted, its turn never came."""


@every("algorithm")
def test_a_forgotten_party_leaves_the_model_of_a_run_that_never_had_it(name, tmp_path):
    if LEARNERS.get(name) == "xgboost":
        pytest.importorskip("xgboost")
    config = {**config_of(name), "output": {"folder": str(tmp_path)}}
    if name in ON_COLUMNS:
        with pytest.raises(ConfigError, match="hold columns of rows that others hold too"):
            tequio.run(**{**config, "data": {**config["data"], "without": ["0"]}})
    elif name in ON_LABELS:
        whole, forgotten = with_and_without(config, "3")
        config["data"] = {**config["data"], "name": scrambled(config, 3)}
        assert with_and_without(config, "3")[1] == forgotten != whole
    else:
        config["data"] = {**config["data"], "name": "csv", "group": "site", "partition": "natural", "test": 0.0}
        whole = run(config, name, tmp_path, SITES == SITES)
        forgotten = model_of(tequio.forget(whole.folder, party="f"))
        assert forgotten == model_of(run(config, name, tmp_path, SITES != "f"))
        assert (forgotten == model_of(whole)) == (name in UNMOVED)


def with_and_without(config, party):
    whole = tequio.run(**config)
    return model_of(whole), model_of(tequio.forget(whole.folder, party=party, data=config["data"]))


def model_of(result):
    return result.summary["model_sha256"]


def scrambled(config, party):
    """The table with other features in the rows of one party."""
    given, dataset = gather(None, config)
    table, own = labelled_rows(), make_scenario(complete(given), dataset).population.whole(party).ids
    for column in "abcd":
        table[column][own] = np.random.default_rng(2).standard_normal(len(own))
    return table


def run(config, name, folder, kept):
    """The run on a file with some of the rows."""
    columns = {**rows(categories=name == "federated-id3"), "site": SITES}
    path = folder / f"{kept.sum()}.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(columns)
        lines.writerows(np.stack([np.asarray(values)[kept].astype(str) for values in columns.values()], axis=1))
    return tequio.run(**{**config, "data": {**config["data"], "path": str(path)}})
