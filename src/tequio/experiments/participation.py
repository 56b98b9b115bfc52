"""Who took part in a run, how evenly, and what each added: read from its events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.experiments.fairness import jain_index
from tequio.experiments.store import EVENTS
from tequio.experiments.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation

_READ = ("selection", "contribution")


@dataclass(frozen=True)
class Participation:
    """How often each party was chosen, how many were chosen in each round, and the sums of scores by method."""

    chosen: NDArray[np.int64]
    rounds: list[int]
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict)


def participation(folder: Path, parties: int) -> Participation:
    """What the events of a run say."""
    found = Participation(np.zeros(parties, dtype=np.int64), [])
    for event in _events(folder):
        if event["event"] == "selection":
            found.chosen[event["parties"]] += 1
            found.rounds.append(len(event["parties"]))
        else:
            total = found.scores.setdefault(event["method"], np.zeros(parties))
            total[event["parties"]] += event["scores"]
    return found


def coverage_by_round(folder: Path, parties: int) -> list[float]:
    """After each round, the share of the parties that were chosen at least once so far."""
    seen = np.zeros(parties, dtype=bool)
    shares = []
    for event in _events(folder):
        if event["event"] == "selection":
            seen[event["parties"]] = True
            shares.append(float(seen.mean()))
    return shares


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    marks = tuple(f'{{"event": "{kind}"' for kind in _READ)
    with (folder / EVENTS).open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(marks):
                yield json.loads(line)


def selection_metrics(federation: Federation, found: Participation) -> dict[str, float]:
    """How evenly parties were chosen and whom that favoured; nothing where everybody took part in every round.

    `coverage`: share of the eligible parties that were chosen at all. `jain`: evenness of how often, 1 where all alike.
    `uniform_p`: chance of counts at least as uneven if all parties had the same chance in every round. `size_bias`:
    rows of a chosen party over those of any party, in the mean. `group_bias.G`: how often parties of category G were
    chosen, relative to all.
    """
    eligible = federation.eligible()
    counts = found.chosen[eligible].astype(np.float64)
    if not found.rounds or min(found.rounds) >= len(eligible) or not counts.sum():
        return {}
    rows = federation.sizes[eligible]
    metrics = {"coverage": float(np.mean(counts > 0)), "jain": jain_index(counts),
               "uniform_p": uniformity(counts, found),
               "size_bias": float(np.average(rows, weights=counts) / rows.mean())}
    if len(federation.group_names) > 1:
        groups = federation.groups[eligible]
        for code in np.unique(groups):
            mine = float(counts[groups == code].mean() / counts.mean())
            metrics[f"group_bias.{federation.group_names[code]}"] = mine
    return {f"selection.{name}": value for name, value in metrics.items()}


def uniformity(counts: NDArray[np.float64], found: Participation) -> float:
    """P-value of a chi-square test of equal chances, for cohorts drawn without replacement.

    A party is in round t with chance p_t = M_t / K, so its count has mean sum p_t and variance sum p_t (1 - p_t).
    """
    from scipy.stats import chi2

    chances = np.array(found.rounds) / len(counts)
    variance = np.sum(chances * (1 - chances))
    if variance <= 0 or len(counts) < 2:
        return 1.0
    # Counts add up to the same total whoever is drawn, which makes each a little less free.
    statistic = np.sum((counts - chances.sum()) ** 2) / variance * (len(counts) - 1) / len(counts)
    return float(chi2.sf(statistic, len(counts) - 1))


def participation_table(federation: Federation, found: Participation) -> Table:
    """One row a party that was chosen at least once: category, rows, how often, and the sum of its scores."""
    table, named = Table(), len(federation.group_names) > 1
    for party in np.flatnonzero(found.chosen).tolist():
        group = {"group": federation.group_names[federation.groups[party]]} if named else {}
        scores = {f"contribution.{method}": float(total[party]) for method, total in found.scores.items()}
        table.add({"party": federation.name(party), **group, "rows": int(federation.sizes[party]),
                   "chosen": int(found.chosen[party]), **scores})
    return table
