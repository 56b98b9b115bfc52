"""How far an aggregator trusted each party, round by round: read from a run's events."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tequio.experiments.results import Result


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
