"""Evaluation domain by domain: how the parties of each domain fare on rows of their own and on rows of all domains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.learners.metrics import summarise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.scenario import Scenario
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation

    Metrics = dict[str, float]


REPORTED = ("accuracy", "balanced_accuracy")


def by_domain(scenario: Scenario, federation: Federation, state: State, *, routes: bool = True) -> Metrics:
    """`local.D.accuracy` and `global.D.accuracy` for each domain D that has parties, and their means over parties; the
    same of the balanced accuracy.

    For an algorithm that routes rows, also `route.D.E`, which share of domain E's rows the models of D's parties
    answer, and `novelty.D.E.mean` and `.sd`, how novel E's rows are to D's parties.
    """
    found: Metrics = {}
    test, groups = _test_rows(scenario)
    domains = _domains_of(scenario, federation)
    counts = {domain: len(parties) for domain, parties in domains.items()}
    for domain, parties in domains.items():
        asking = replace(federation, _eligible=parties)
        for name, rows in (("local", test.take(groups == domain)), ("global", test)):
            tally = scenario.algorithm.score(asking, state, rows) if len(rows) else None
            if tally is not None:
                values = summarise(federation.schema.target, tally)
                found |= {f"{name}.{domain}.{metric}": values[metric] for metric in REPORTED}
        found |= _routes(scenario, asking, state, domain, groups) if routes else {}
    for name in ("local", "global"):
        for metric in REPORTED:
            known = {domain: found[key] for domain in counts if (key := f"{name}.{domain}.{metric}") in found}
            if known:
                found[f"{name}.{metric}"] = float(np.average(list(known.values()),
                                                             weights=[counts[domain] for domain in known]))
    return found


def _test_rows(scenario: Scenario) -> tuple[Dataset, NDArray[np.str_]]:
    test = scenario.test
    if test is None or test.source.groups is None or scenario.population.partition.categories is None:
        raise ConfigError("evaluation.by_domain needs test rows and parties whose domain is known",
                          remedy="use a dataset with domains, such as 'digit_five', and the partition 'domain'")
    return test, test.groups.astype(str)


def _domains_of(scenario: Scenario, federation: Federation) -> dict[str, NDArray[np.int64]]:
    categories = np.array(scenario.population.partition.categories)
    eligible = federation.eligible()
    return {str(domain): eligible[categories[eligible] == domain] for domain in dict.fromkeys(categories[eligible])}


def _routes(scenario: Scenario, federation: Federation, state: State, domain: str,
            groups: NDArray[np.str_]) -> Metrics:
    routing = getattr(scenario.algorithm, "routing", None)
    if routing is None or scenario.test is None:
        return {}
    sent = list(routing(federation, state, scenario.test, federation.eligible()).values())
    found: Metrics = {}
    for other in dict.fromkeys(groups.tolist()):
        found[f"route.{domain}.{other}"] = float(np.mean([reply["own"][groups == other] for reply in sent]))
        novelty = [reply["novelty"][groups == other] for reply in sent if "novelty" in reply]
        if novelty:
            found[f"novelty.{domain}.{other}.mean"] = float(np.mean(novelty))
            found[f"novelty.{domain}.{other}.sd"] = float(np.std(novelty))
    return found
