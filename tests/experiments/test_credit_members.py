"""German credit: our attacks tell members as well as the papers' definitions do, on shadow models of their own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import tequio
from published_attacks import lira_of_the_paper, rmia_of_the_paper
from tequio.attacks.privacy.membership import Shadows
from tequio.data.dataset import Dataset
from tequio.experiments.running.scenario import make_scenario
from tequio.probing.probe import probe

pytestmark = pytest.mark.data

SHADOWS = 32
CONFIG = {"rounds": 20, "engine": {"workers": 1}, "learner": {"name": "mlp", "hidden": [128]},
          "algorithm": {"name": "fedavg", "weights": "uniform"},
          "local": {"name": "minibatch", "learning_rate": 0.1, "batch": 8, "epochs": 10},
          "evaluation": {"at": ["coordinator"], "every": 20}}
DATA = {"one_class": "allow", "prepare": ["one-hot", "standardise"], "partition": {"name": "iid", "parties": 4},
        "split": {"validation": 0.0, "test": 0.0}}


def all_rows(result):
    """The raw rows of the parties and of the coordinator, in that order, and how many are the parties'."""
    seen = []
    make_scenario(result.config, dealt=lambda population, test: seen.append((population.dataset, test)) or population)
    mine, others = seen[0]
    features = np.concatenate([mine.features, others.features])
    return Dataset.of(mine.schema, features, np.concatenate([mine.target, others.target])), len(mine)


def log_odds_of(result, rows):
    chances = np.maximum(result.predict_proba(rows).astype(float), 1e-38)
    place = np.arange(len(rows))
    return np.log(chances[place, rows.target]) - np.log(chances[place, 1 - rows.target])


def test_areas_are_those_of_an_attack_written_from_the_papers(tmp_path):
    """The other attack deals its own halves of all rows, without regard to classes, and runs them as runs of their own:
    nothing is shared but the target."""
    folder = {"folder": str(tmp_path)}
    target = tequio.run(CONFIG | {"data": DATA | {"name": "german-credit", "test": 0.5}}, output=folder)
    rows, members = all_rows(target)
    draw, inside, answers = np.random.default_rng(5), [], []
    for _ in range(SHADOWS // 2):
        order = draw.permutation(len(rows))
        for half in (order[:members], order[members:]):
            shadow = tequio.run(CONFIG | {"data": DATA | {"test": 0.0}, "seed": int(draw.integers(2**31))},
                                data=rows.take(half), output=folder)
            inside.append(np.isin(np.arange(len(rows)), half))
            answers.append(log_odds_of(shadow, rows))
    theirs = Shadows(log_odds_of(target, rows), np.array(answers), np.array(inside))
    is_member = np.arange(len(rows)) < members
    for attack, scores in (("lira", lira_of_the_paper(theirs, online=True, per_row=False)),
                           ("rmia", rmia_of_the_paper(theirs, 1.0))):
        found = probe(target, attack, shadows=SHADOWS)
        assert found["success"] == pytest.approx(roc_auc_score(is_member, scores), abs=0.02)
        assert found["low"] > 0.7
