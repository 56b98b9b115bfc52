"""How evenly a model serves the parties and their categories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.metrics import higher_is_better, merge, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from tequio.federation.federation import Federation
    from tequio.learners.learner import Tally


def jain_index(values: ArrayLike) -> float:
    """Jain's index of evenness: 1 where all values are alike, 1 / n where one party has everything.

    Jain, Chiu, Hawe: A quantitative measure of fairness and discrimination, 1984. Values that are not finite are left
    out; it is meant for values that are not negative.
    """
    every = np.asarray(values, dtype=np.float64)
    known = every[np.isfinite(every)]
    squares = float(np.sum(known ** 2))
    return float(np.sum(known) ** 2 / (len(known) * squares)) if squares else float("nan")


def by_group(federation: Federation, tallies: Mapping[int, Tally], metric: str) -> dict[str, float]:
    """The metric of each category's rows together, the worst of them, and how far the best is from it.

    Nothing where the partition has no categories.
    """
    if len(federation.group_names) < 2:
        return {}
    members: dict[str, list[Tally]] = {}
    for party, tally in tallies.items():
        members.setdefault(federation.group_names[federation.groups[party]], []).append(tally)
    target = federation.schema.target
    found = {name: summarise(target, merge(members[name]))[metric] for name in sorted(members)}
    known = [value for value in found.values() if value == value]
    if not known:
        return {}
    worst = min(known) if higher_is_better(metric) else max(known)
    return {**{f"{metric}.{name}": value for name, value in found.items()}, f"{metric}.worst": worst,
            f"{metric}.gap": max(known) - min(known)}
