"""SecureBoost and its twins on small federations."""

from __future__ import annotations

import numpy as np
from joint import federation_of, kept, play

from parts import Parts
from tequio.algorithms.vertical.rows import CommonRows
from tequio.algorithms.vertical.trees.skeleton import OwnSplits, OwnTrees
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split
from tequio.data.partitions.columns import Columns
from tequio.federation.population import Population
from tequio.registry import build

PAILLIER = {"name": "paillier", "bits": 1024}
SHAPE = ("sizes", "owner", "record", "children")


def classes(rows=160, count=3, columns=6, seed=0):
    """A learnable table with several classes."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((rows, columns))
    scores = features @ draw.standard_normal((columns, count)) + 0.3 * draw.standard_normal((rows, count))
    ids = draw.choice(10**9, rows, replace=False) + 10**12
    target = Target("classes", tuple(f"class {number}" for number in range(count)))
    names = [f"c{place}" for place in range(columns)]
    return Dataset.of(Schema.of_numbers(names, target), features, scores.argmax(axis=1), ids=ids)


def same_rows(dataset, parties=2, *, test=0.25, seed=0):
    """All parties hold all rows in one order."""
    partition = Columns(parties=parties).deal(dataset, np.random.default_rng(seed))
    return Population(dataset, partition, Split(validation=0.0, test=test), seed=seed)


def boosting(encryption="plain", learner=None, **parameters):
    made = build("learner", "boosted-trees", {"depth": 3, "bins": 8, "learning_rate": 0.3, **(learner or {})})
    return build("algorithm", "secureboost", {"encryption": encryption, **parameters},
                 parts=Parts(learner=made))


def forest(encryption="plain", learner=None, **parameters):
    made = build("learner", "random-forest", {"trees": 4, "depth": 3, **(learner or {})})
    return build("algorithm", "vertical-forest", {"encryption": encryption, "bins": 8, "together": 2, **parameters},
                 parts=Parts(learner=made))


def grown(algorithm, population, rounds=2, **more):
    """The federation and the state after some rounds."""
    federation = federation_of(population, **more)
    return federation, play(algorithm, federation, rounds)


def assert_same_model(first, second):
    """Split for split and leaf for leaf: shapes, owners, columns, thresholds and what the leaves say."""
    (one, one_state), (other, other_state) = first, second
    for name in SHAPE:
        np.testing.assert_array_equal(one_state.model[name], other_state.model[name], err_msg=name)
    mine, theirs = one.engine.states(), other.engine.states()
    for party in mine:
        for name in ("column", "threshold"):
            first, second = (kept(states[party], OwnSplits)["records"] for states in (mine, theirs))
            np.testing.assert_array_equal(first[name], second[name])
    holder = next(party for party in mine if "trees" in kept(mine[party], OwnTrees))
    for name, values in kept(mine[holder], OwnTrees)["trees"].items():
        np.testing.assert_array_equal(values, kept(theirs[holder], OwnTrees)["trees"][name], err_msg=name)


def train_rows(federation, population, party=0):
    """A party's common training rows in the agreed order."""
    common = kept(federation.engine.states()[party], CommonRows)
    view = population.partition.view(population.dataset, party)
    return view.take(common["rows"][common["part"] == 0])
