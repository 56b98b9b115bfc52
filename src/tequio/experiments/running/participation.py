"""Who took part in a run and how evenly, how evenly the model serves them, and how far each was trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tequio.experiments.running.store import EVENTS, Plain
from tequio.experiments.running.table import Table
from tequio.learners.metrics import higher_is_better, merge, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from tequio.experiments.running.results import Result
    from tequio.federation.federation import Federation
    from tequio.learners.learner import Tally


_READ = ("selection", "contribution")


@dataclass(frozen=True)
class Participation:
    """How often each party was chosen, how many were chosen in each round, the sums of scores by method, and of each
    scoring whether its values had settled."""

    chosen: NDArray[np.int64]
    rounds: list[int]
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    settled: list[bool] = field(default_factory=list)


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
            found.settled.append(event.get("converged", True))
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


def _events(folder: Path) -> Iterator[Plain]:
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
    chosen, relative to all. `converged`: share of the rounds whose contributions were no estimate cut short.
    """
    eligible = federation.eligible()
    counts = found.chosen[eligible].astype(np.float64)
    if not found.rounds or min(found.rounds) >= len(eligible) or not counts.sum():
        return {}
    rows = federation.sizes[eligible]
    metrics = {"coverage": float(np.mean(counts > 0)), "jain": jain_index(counts),
               "uniform_p": uniformity(counts, found),
               "size_bias": float(np.average(rows, weights=counts) / rows.mean())}
    if found.settled:
        metrics["converged"] = float(np.mean(found.settled))
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


def trust_series(result: Result) -> dict[str, tuple[list[int], list[float]]]:
    """For each party by name the rounds in which it took part and the trust it had; empty where nobody was judged."""
    series: dict[str, tuple[list[int], list[float]]] = {}
    for event in result.events:
        if event["event"] != "aggregation" or "trust" not in event:
            continue
        names = event.get("names") or [str(party) for party in event["parties"]]
        for name, trust in zip(names, event["trust"], strict=True):
            rounds, values = series.setdefault(name, ([], []))
            rounds.append(event["round"])
            values.append(trust)
    return series


def odd_parties(result: Result) -> list[str]:
    """Who stands out in a run: its hostile parties, or those that alone hold rows of their domain."""
    attack = result.config.attack or {}
    if attack.get("parties"):
        return list(attack["parties"])
    domains = result.config.data.model_dump().get("partition", {}).get("parties_per_domain") or {}
    return [domain for domain, parties in domains.items() if parties == 1]
