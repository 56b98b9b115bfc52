"""Regressions under encryption to play with, and the same regression in one place, in clear."""

from __future__ import annotations

import numpy as np
from joint import dealt, federation_of, kept, people, play

from parts import Parts
from tequio.algorithms.vertical.quadratic import QUADRATICS
from tequio.algorithms.vertical.regression_tasks import KeptByLabels, OwnWeights
from tequio.algorithms.vertical.rows import CommonRows
from tequio.data.partition import Split
from tequio.learners.learner import LocalTraining
from tequio.registry import build

SCHEMES = {"plain": {"name": "plain"}, "paillier": {"name": "paillier", "bits": 1024}, "ckks": {"name": "ckks"}}
PACKAGES = {"paillier": "gmpy2", "ckks": "tenseal"}


def regression(encryption="plain", *, kind="logistic", local=None, **how):
    parts = Parts(local=local or LocalTraining(batch=0, learning_rate=0.5))
    table = SCHEMES[encryption] if isinstance(encryption, str) else encryption
    return build("algorithm", f"vertical-{kind}", {"encryption": table, "patience": 0, **how}, parts=parts)


def holders(rows=60, *, target="classes", parties=2, overlap=1.0, split=None, seed=0, columns=4):
    dataset = people(rows, columns=columns, target=target, seed=seed)
    return dealt(dataset, overlap=overlap, split=split or Split(0.0, 0.0), parties=parties, key_holder=True, seed=seed)


def trained(encryption, population, rounds=3, engine=None, **how):
    federation = federation_of(population, engine=engine)
    algorithm = regression(encryption, **how)
    state = play(algorithm, federation, rounds)
    return algorithm, federation, state


def weights_of(federation):
    """All weights: the intercept, then the columns, party by party."""
    states = federation.engine.states()
    own = [kept(states[party], OwnWeights) for party in sorted(states)]
    return np.concatenate([weights["weights"] for weights in own if weights])


def weights_of_class(federation, label):
    """The same for one of several classes."""
    states = federation.engine.states()
    own = [kept(states[party], OwnWeights) for party in sorted(states)]
    return np.concatenate([weights["weights"][str(label)] for weights in own if weights])


def rows_in_clear(federation, part=0):
    """The standardised training rows with ones in front, and the targets, in the agreed order."""
    population, states = federation.population, federation.engine.states()
    blocks, target = [], None
    for party in sorted(party for party in states if kept(states[party], OwnWeights)):
        common = kept(states[party], CommonRows)
        rows = population.whole(party).take(common["rows"][common["part"] == part])
        scale = common["scale"]
        blocks.append((np.asarray(rows.features, float) - scale["mean"]) / scale["deviation"])
        if rows.schema.target.kind != "none":
            target, scale_of_target = rows.target, kept(states[party], KeptByLabels)["target"]
    known = 2.0 * target - 1 if scale_of_target["deviation"] == 1.0 and target.dtype.kind == "i" else (
        target - scale_of_target["mean"]) / scale_of_target["deviation"]
    return np.insert(np.concatenate(blocks, axis=1), 0, 1.0, axis=1), known


def central(rows, targets, rounds, *, kind="logistic", rate=0.5, decay=0.0, batches=None, mask=None):
    """Descent in one place and in clear."""
    form, weights = QUADRATICS[kind], np.zeros(rows.shape[1])
    for turn in range(rounds):
        for batch in batches(turn) if batches else [np.arange(len(rows))]:
            flags = 1.0 if mask is None else mask[batch]
            residual = flags * (form.curve * (rows[batch] @ weights) - form.pull * targets[batch])
            weights = weights - rate * (rows[batch].T @ residual / len(batch) + decay * weights)
    return weights
