"""Evaluation of a run: at the coordinator, at the parties, by domain, and of what parties do with the final model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.adoption import Adoption, adopt, evaluate_adopted, evaluate_fine_tuned
from tequio.attacks.hostility import honest
from tequio.errors import ConfigError
from tequio.experiments.running.headline import main_metric
from tequio.experiments.running.participation import by_group, jain_index
from tequio.experiments.running.table import Table
from tequio.federation.federation import Traffic
from tequio.federation.rng import stream
from tequio.learners.label_metrics import at_labels, label_scores
from tequio.learners.metrics import higher_is_better, merge, spread, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset, Target
    from tequio.experiments.config.tables import Config, Evaluation
    from tequio.experiments.running.scenario import Scenario
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.learners.learner import Tally

    Metrics = dict[str, float]


BALANCED = ("balanced_accuracy", "auc")
"""Metrics of classes that a model which always gives the most frequent class does badly on."""


@dataclass(frozen=True)
class Measured:
    """Named metrics of one evaluation, one row a party, one a party and label, and what it cost to ask. `constant` is
    the class that every test row was given, if it is the same for all."""

    metrics: Metrics
    parties: Table
    traffic: Traffic
    labels: Table
    constant: str = ""


def measure(scenario: Scenario, how: Evaluation, federation: Federation, state: State) -> Measured:
    """Evaluate a state where the config says. Injected drop-outs are for training: nobody misses an evaluation."""
    asking = among_honest(scenario, federation)
    metrics: Metrics = {}
    table = Table()
    target = federation.schema.target
    by_label: dict[str, dict[int, Tally]] = {}
    constant = ""
    if "coordinator" in how.at:
        found, constant = _at_coordinator(scenario, asking, state)
        metrics |= found
        metrics |= attack_success(scenario, asking, state)
        metrics |= by_domain(scenario, asking, state) | _other_answers(scenario, asking, state) if how.by_domain else {}
        by_label = _common_rows(scenario, asking, state)
        for name, tallies in by_label.items():
            metrics |= _summary(asking, name, tallies, scenario.headline)
    if "parties" in how.at:
        asked = evaluating_parties(asking, how.parties)
        split = scenario.population.split
        if split.validation:
            tallies = scenario.algorithm.evaluate(asking, state, "validation", asked)
            metrics |= named("validation", summarise(target, pooled(asking, tallies))) if tallies else {}
        if split.test:
            tallies = scenario.algorithm.evaluate(asking, state, "test", asked)
            table = party_table(asking, tallies)
            metrics |= _between_parties(asking, tallies, table, scenario.headline) if tallies else {}
            by_label["parties"] = tallies
            constant = constant or (one_answer(target, pooled(asking, tallies)) if tallies and
                                    "coordinator" not in how.at else "")
    return Measured(metrics, table, asking.traffic, label_table(asking, by_label), constant)


def one_answer(target: Target, tally: Tally) -> str:
    """The class that all rows were given although they are of several; empty where there is none."""
    if "confusion" not in tally:
        return ""
    given, actual = (np.flatnonzero(tally["confusion"].sum(axis=axis)) for axis in (0, 1))
    return target.names[given[0]] if len(given) == 1 and len(actual) > 1 else ""


def _common_rows(scenario: Scenario, federation: Federation, state: State) -> dict[str, dict[int, Tally]]:
    """The tallies of parties with models of their own on the coordinator's test rows, by the name to report."""
    rows = scenario.test
    return scenario.algorithm.score_at_parties(federation, state, rows) if rows is not None and len(rows) else {}


def _at_coordinator(scenario: Scenario, federation: Federation, state: State) -> tuple[Metrics, str]:
    """On the coordinator's own rows: test, and validation too where the parties keep none for that; and the class that
    all test rows were given, if there is one."""
    own = {"test": scenario.test, "validation": None if scenario.population.split.validation else scenario.validation}
    target, metrics, constant = federation.schema.target, dict[str, float](), ""
    for name, rows in own.items():
        tally = scenario.algorithm.score(federation, state, rows) if rows is not None and len(rows) else None
        metrics |= named(name, summarise(target, tally)) if tally is not None else {}
        constant = one_answer(target, tally) if tally is not None and name == "test" else constant
    return metrics, constant


def _other_answers(scenario: Scenario, federation: Federation, state: State) -> Metrics:
    """How parties would fare if they answered otherwise than they do, for algorithms that know such ways."""
    found: Metrics = {}
    for name, algorithm in scenario.algorithm.other_answers().items():
        other = replace(scenario, algorithm=algorithm)
        found |= named(name, attack_success(other, federation, state) |
                       by_domain(other, federation, state, routes=False))
    return found


def _between_parties(federation: Federation, tallies: Mapping[int, Tally], table: Table, headline: str) -> Metrics:
    """How the parties differ, and their categories where there are such."""
    found = differences(federation, tallies, table, headline)
    main = dict.fromkeys([next(name.rpartition(".")[0] for name in found), *([headline] if headline in table.columns
                                                                             else [])])
    for metric in filter(higher_is_better, main):
        found[f"{metric}.jain"] = jain_index([value for value in table[metric] if value is not None])
    by_category: Metrics = {}
    for name in dict.fromkeys([*main, *(name for name in BALANCED if name in table.columns)]):
        by_category |= by_group(federation, tallies, name)
    return named("parties", found) | named("groups", by_category)


def among_honest(scenario: Scenario, federation: Federation) -> Federation:
    """The federation as it is evaluated: without drop-outs, without hostile parties, with traffic of its own."""
    return replace(federation.off_the_clock(), traffic=Traffic(),
                   _eligible=honest(federation.eligible(), scenario.hostility))


def attack_success(scenario: Scenario, federation: Federation, state: State) -> Metrics:
    """Share of triggered rows that the model takes for the attacker's class: rows of other classes, and all rows."""
    found: Metrics = {}
    for name, every_class in (("success", False), ("success_on_all", True)):
        rows = scenario.hostility.what.triggered(scenario.test, every_class=every_class) \
            if scenario.hostility is not None and scenario.test is not None else None
        tally = scenario.algorithm.score(federation, state, rows) if rows is not None and len(rows) else None
        if tally is not None:
            found[f"attack.{name}"] = summarise(federation.schema.target, tally)["accuracy"]
    return found


def evaluating_parties(federation: Federation, count: int) -> NDArray[np.int64]:
    """The same parties in every round of a run, so that rounds can be compared; 0 asks all that are eligible."""
    eligible = federation.eligible()
    if not count or count >= len(eligible):
        return eligible
    chosen = stream(federation.seed, "evaluating parties").choice(len(eligible), count, replace=False, shuffle=False)
    return eligible[np.sort(chosen)]


def party_table(federation: Federation, tallies: Mapping[int, Tally]) -> Table:
    """Each party's name, category where there are several, rows and metrics."""
    table, known = Table(), len(federation.group_names) > 1
    for party, tally in tallies.items():
        category = {"category": federation.group_names[federation.groups[party]]} if known else {}
        table.add({"party": federation.name(party), **category, "rows": int(tally["rows"]),
                   **summarise(federation.target(party), tally)})
    return table


def label_table(federation: Federation, tallies_of: Mapping[str, Mapping[int, Tally]]) -> Table:
    """Of a multi-label target: how well each party does each label it knows, on every set of rows."""
    found: dict[tuple[int, str], dict[str, float]] = {}
    for name, tallies in tallies_of.items():
        for party, tally in tallies.items():
            if "label_rows" in tally:
                for score, each in label_scores(tally).items():
                    for label, value in zip(federation.target(party).names, each, strict=True):
                        found.setdefault((party, label), {})[f"{name}.{score}"] = float(value)
    table = Table()
    for (party, label), values in found.items():
        table.add({"party": federation.name(party), "label": label, **values})
    return table


def pooled(federation: Federation, tallies: Mapping[int, Tally]) -> Tally:
    """The tally of all parties' rows together, over all labels where parties know different ones."""
    labels = federation.population.partition.labels
    if labels is None:
        return merge(tallies.values())
    size = federation.schema.target.size
    return merge(at_labels(tally, labels[party], size) for party, tally in tallies.items())


def named(prefix: str, metrics: Metrics) -> Metrics:
    """Metrics with a prefix to their names."""
    return {f"{prefix}.{name}": value for name, value in metrics.items()}


def differences(federation: Federation, tallies: Mapping[int, Tally], table: Table, headline: str = "") -> Metrics:
    """The main metric, the headline, macro-F1 and the loss: of all rows together, and how the parties spread around it.

    Of labels there is no one metric that stands for the rest, and where one class is rare accuracy hides it: the others
    (of classes, those that weigh classes alike) come with their mean over parties.
    """
    target = federation.schema.target
    whole = summarise(target, pooled(federation, tallies))
    main = dict.fromkeys([main_metric(whole), *(name for name in (headline, "f1_macro", "loss") if name in whole)])
    others = whole if target.kind == "multilabel" else [name for name in BALANCED if name in whole]
    found: Metrics = {}
    for metric in [*main, *(name for name in others if name not in main)]:
        values = spread([float(value) for value in table[metric] if value is not None],
                        high_is_good=higher_is_better(metric))
        kept = ("mean", "sd", "min", "max", "worst_decile") if metric in main else ("mean",)
        found |= named(metric, {"pooled": whole[metric], **{name: values[name] for name in kept}})
    return found


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
                          remedy="use a dataset with domains, such as 'digit-five', and the partition 'domain'")
    return test, test.groups.astype(str)


def _domains_of(scenario: Scenario, federation: Federation) -> dict[str, NDArray[np.int64]]:
    categories = np.array(scenario.population.partition.categories)
    eligible = federation.eligible()
    return {str(domain): eligible[categories[eligible] == domain] for domain in dict.fromkeys(categories[eligible])}


def _routes(scenario: Scenario, federation: Federation, state: State, domain: str,
            groups: NDArray[np.str_]) -> Metrics:
    assert scenario.test is not None
    sent = list(scenario.algorithm.routing(federation, state, scenario.test, federation.eligible()).values())
    found: Metrics = {}
    if not sent:
        return found
    for other in dict.fromkeys(groups.tolist()):
        found[f"route.{domain}.{other}"] = float(np.mean([reply["own"][groups == other] for reply in sent]))
        novelty = [reply["novelty"][groups == other] for reply in sent if "novelty" in reply]
        if novelty:
            found[f"novelty.{domain}.{other}.mean"] = float(np.mean(novelty))
            found[f"novelty.{domain}.{other}.sd"] = float(np.std(novelty))
    return found


def hand_over(config: Config, scenario: Scenario, federation: Federation, state: State,
              measured: Measured) -> Measured:
    """The last evaluation, with that of adopted and of fine-tuned models, and of newcomers, beside it."""
    how, algorithm, headline = config.adoption, scenario.algorithm, scenario.headline
    if not how.if_better and not how.fine_tune_epochs and not federation.rules.held_out:
        return measured
    asking = replace(federation.off_the_clock(), traffic=measured.traffic)
    if federation.rules.held_out:
        measured = replace(measured, metrics=measured.metrics | _newcomers(asking, scenario, state))
    parties = evaluating_parties(asking, config.evaluation.parties)
    metrics = dict(measured.metrics)
    if how.fine_tune_epochs:
        tuned = evaluate_fine_tuned(asking, algorithm, state, "test", parties, epochs=how.fine_tune_epochs)
        metrics |= _summary(asking, "fine_tuned", tuned, headline)
    if how.if_better:
        decisions = adopt(asking, algorithm, state, parties, Adoption(how.metric))
        metrics["adopted.share"] = sum(decision["adopted"] for decision in decisions.values()) / len(decisions)
        metrics |= _summary(asking, "adopted", evaluate_adopted(asking, algorithm, "test", parties), headline)
        said = {asking.name(party): str(decision["adopted"]).lower() for party, decision in decisions.items()}
        for row in measured.parties.rows:
            row["adopted"] = said.get(str(row["party"]))
        measured.parties.columns.append("adopted")
    return replace(measured, metrics=metrics, traffic=asking.traffic)


def _newcomers(federation: Federation, scenario: Scenario, state: State) -> dict[str, float]:
    """How parties that never took part fare with what the federation made (`newcomers.*`)."""
    parties = np.array(sorted(federation.index(name) for name in federation.rules.held_out), dtype=np.int64)
    scenario.algorithm.welcome(federation, state, parties)
    tallies = scenario.algorithm.evaluate(federation, state, "test", parties)
    return _summary(federation, "newcomers", tallies, scenario.headline)


def _summary(federation: Federation, prefix: str, tallies: Mapping[int, Tally], headline: str) -> dict[str, float]:
    table = party_table(federation, tallies)
    return named(prefix, differences(federation, tallies, table, headline)) if tallies else {}
