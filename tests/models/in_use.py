"""A model in use for tests: two versions, answers as a service would log them, and outcomes of chosen quality."""

from __future__ import annotations

import csv
import itertools

import numpy as np

from tequio.models.answers_log import Answered, AnswersLog
from tequio.models.outcomes import add_outcomes

numbers = itertools.count()


def answer(registry, version, rights, *, groups=None, log=None, time=None):
    """Log answers of one version, of which each is right or not, and write the table of their outcomes."""
    sha256 = registry.version(version).sha256
    classes = registry.version(version).schema.target.names
    path = registry.folder.parent / f"outcomes-{next(numbers)}.csv"
    rng = np.random.default_rng(len(rights))
    with AnswersLog(log or registry.answers) as answers, path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "outcome", *(groups or {})])
        lines = []
        for place, right in enumerate(rights):
            truth, wrong = (classes[0], classes[1]) if rng.random() < 0.5 else (classes[1], classes[0])
            said, id = truth if right else wrong, f"id-{next(numbers)}"
            chances = {name: 0.8 if name == said else 0.2 for name in classes[:2]}
            lines.append(Answered(id, sha256, said, chances, **({"time": time} if time else {})))
            table.writerow([id, truth, *(values[place] for values in (groups or {}).values())])
        answers.write(lines)
    return path


def outcomes(registry, version, count, share, **options):
    """Answers of which exactly a share is right, with their outcomes added."""
    right = round(count * share)
    order = np.random.default_rng(count).permutation(count)
    return add_outcomes(registry, answer(registry, version, (order < right).tolist(), **options))
