"""The end of a run: what the parties do with the final model, as far as the config asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.adoption import Adoption, adopt, evaluate_adopted, evaluate_fine_tuned
from tequio.experiments.measuring import Measured, differences, evaluating_parties, named, party_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.tables import Config
    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.federation import Federation
    from tequio.learners.learner import Tally


def hand_over(config: Config, algorithm: Algorithm, federation: Federation, state: State,
              measured: Measured) -> Measured:
    """The last evaluation, with that of adopted and of fine-tuned models, and of newcomers, beside it."""
    how = config.adoption
    if not how.if_better and not how.fine_tune_epochs and not federation.rules.held_out:
        return measured
    asking = replace(federation.off_the_clock(), traffic=measured.traffic)
    if federation.rules.held_out:
        measured = replace(measured, metrics=measured.metrics | _newcomers(asking, algorithm, state))
    parties = evaluating_parties(asking, config.evaluation.parties)
    metrics = dict(measured.metrics)
    if how.fine_tune_epochs:
        tuned = evaluate_fine_tuned(asking, algorithm, state, "test", parties, epochs=how.fine_tune_epochs)
        metrics |= _summary(asking, "fine_tuned", tuned)
    if how.if_better:
        decisions = adopt(asking, algorithm, state, parties, Adoption(how.metric))
        metrics["adopted.share"] = sum(decision["adopted"] for decision in decisions.values()) / len(decisions)
        metrics |= _summary(asking, "adopted", evaluate_adopted(asking, algorithm, "test", parties))
        said = {asking.name(party): str(decision["adopted"]).lower() for party, decision in decisions.items()}
        for row in measured.parties.rows:
            row["adopted"] = said.get(str(row["party"]))
        measured.parties.columns.append("adopted")
    return replace(measured, metrics=metrics, traffic=asking.traffic)


def _newcomers(federation: Federation, algorithm: Algorithm, state: State) -> dict[str, float]:
    """How parties that never took part fare with what the federation made (`newcomers.*`)."""
    parties = np.array(sorted(federation.index(name) for name in federation.rules.held_out), dtype=np.int64)
    algorithm.welcome(federation, state, parties)
    return _summary(federation, "newcomers", algorithm.evaluate(federation, state, "test", parties))


def _summary(federation: Federation, prefix: str, tallies: Mapping[int, Tally]) -> dict[str, float]:
    return named(prefix, differences(federation, tallies, party_table(federation, tallies))) if tallies else {}
