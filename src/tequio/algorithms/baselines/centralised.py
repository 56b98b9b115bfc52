"""The baseline with all rows in one place: what a federation would give up nothing against."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.training import fresh_state, optimizer_memory, train, training_settings
from tequio.algorithms.trees.fitting import agreed, fit, fits_trees, usable_by
from tequio.errors import ConfigError
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.federation.federation import Federation


_KEPT = "optimizer memory"


@register("algorithm", "centralised")
@dataclass(frozen=True, kw_only=True)
class Centralised(Algorithm):
    """All training rows in one place: those of the partition 'pooled', or those of all simulated parties.

    With one party the same numbers as federated averaging: a round is one local training. With several parties a
    simulation trains on all their training rows, and each party judges the model by its own rows, so that alone,
    federated and centralised are compared party by party on the same rows. Trees are fitted in the first round, and
    further rounds change nothing. Selector, stages and aggregator do not apply.
    """

    def start(self, federation: Federation) -> State:
        """A fresh model, if models have one to start from."""
        partition = federation.population.partition
        if len(federation) > 1 and (partition.columns is not None or partition.labels is not None):
            raise ConfigError(f"'centralised' cannot put together rows of which {len(federation)} parties hold "
                              "different columns or labels", remedy="set data.partition.name = 'pooled'")
        return State({}) if fits_trees(self) else fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Train on, or fit a tree once."""
        if fits_trees(self) and state.model:
            return state
        if len(federation) > 1:
            return self._learnt(federation, state)
        if fits_trees(self):
            return self._fitted(federation, state)
        replies = federation.ask(federation.everyone(), train, {"model": state.model}, settings=training_settings(self))
        return state.next(shifted(state.model, replies[0].payload["update"])) if replies else state

    def _learnt(self, federation: Federation, state: State) -> State:
        """What the learner makes of all parties' training rows."""
        rows, rng, local = training_rows(federation), federation.rng("centralised"), self.parts.local
        if fits_trees(self):
            return state.next(dict(self.parts.learner.fit(rows, rng).to_payload()))  # type: ignore[union-attr]
        trained = self.learner.train(state.model, rows, local, rng, learning_rate=local.rate(federation.round),
                                     **optimizer_memory(self.learner, local, state.memory, _KEPT))
        return state.next(dict(trained.model), **({_KEPT: trained.memory} if trained.memory else {}))

    def _fitted(self, federation: Federation, state: State) -> State:
        replies = federation.ask(federation.everyone(), fit, check=usable_by(self.learner, federation.schema),
                                 settings={"learner": self.learner, **agreed(federation)})
        return state.next(replies[0].payload["model"]) if replies else state


def training_rows(federation: Federation) -> Dataset:
    """The training rows of all parties, one party after the other; real parties' rows cannot be had."""
    parts = [federation.population.view(int(party)).train for party in federation.everyone()]
    whole = federation.population.dataset
    rows = [np.arange(len(whole)) if part.rows is None else part.rows for part in parts]
    return replace(whole, rows=np.concatenate(rows))
