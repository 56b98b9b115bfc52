"""Small tables that the tests of trees share."""

from __future__ import annotations

import numpy as np

from tequio.data.dataset import Dataset, Feature, Schema, Target

WALK = Schema((Feature("weather", ("sun", "rain", "snow")), Feature("wind", ("weak", "strong")),
               Feature("day", ("free", "work"))), Target("classes", ("stay", "walk"), "plan"))


def walks():
    """Eight days on which somebody stayed in or went for a walk. It never snowed."""
    rows = ["sun weak free walk", "sun weak work walk", "sun strong free stay", "sun strong work stay",
            "rain weak free walk", "rain weak work stay", "rain strong free stay", "rain strong work stay"]
    words = [row.split() for row in rows]
    codes = [[feature.domain.index(word) for feature, word in zip(WALK.features, row, strict=False)] for row in words]
    return Dataset.of(WALK, np.array(codes, dtype=float), [WALK.target.names.index(row[3]) for row in words])


def categories(codes, labels, sizes, classes):
    """Codes and labels as a dataset with columns a, b, ... of so many categories each."""
    features = tuple(Feature(chr(97 + column), tuple(f"v{value}" for value in range(size)))
                     for column, size in enumerate(sizes))
    return Dataset.of(Schema(features, Target("classes", tuple(f"c{label}" for label in range(classes)))),
                      np.asarray(codes, dtype=float), np.asarray(labels))


def numbers(rows=200, columns=4, classes=3, seed=0, digits=None):
    """Random numbers whose class follows from the first columns, with some noise; `digits` makes them decimals."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(rows, columns))
    if digits is not None:
        features = features.round(digits)
    score = features[:, 0] - features[:, 1] ** 2 + 0.3 * draw.normal(size=rows)
    labels = np.searchsorted(np.quantile(score, np.arange(1, classes) / classes), score)
    names = tuple(f"c{label}" for label in range(classes))
    return Dataset.of(Schema.of_numbers([f"x{column}" for column in range(columns)], Target("classes", names)),
                      features, labels)


MIXED = Schema((Feature("age"), Feature("job", tuple("abcdef")), Feature("size", ("s", "m", "l"), "ordered"),
                Feature("day", kind="date")), Target("classes", ("no", "yes")))


def mixed(rows=600, seed=0, gaps=0.1, target=MIXED.target):
    """Numbers, categories, ordered ones and days, of which a share is missing; two columns and a pair decide."""
    draw = np.random.default_rng(seed)
    features = np.stack([draw.normal(size=rows), draw.integers(0, 6, rows), draw.integers(0, 3, rows),
                         draw.integers(0, 9000, rows)], axis=1).astype(float)
    yes = np.where(features[:, 0] > 0, np.isin(features[:, 1], [0, 3]), features[:, 2] == 1)
    yes ^= draw.random(rows) < 0.05
    labels = {"classes": (yes + (features[:, 3] > 7000) * (target.size > 2)).astype(int),
              "number": 1000 + 5.0 * yes + draw.normal(size=rows)}[target.kind]
    features[draw.random(features.shape) < gaps] = np.nan
    return Dataset.of(Schema(MIXED.features, target), features, labels, missing="keep" if gaps else "")
