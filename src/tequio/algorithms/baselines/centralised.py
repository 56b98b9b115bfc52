"""The baseline with all rows in one place: what a federation would give up nothing against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.algorithms.training import fresh_state, train, training_settings
from tequio.algorithms.trees.fitting import agreed, fit, fits_trees, usable_by
from tequio.errors import ConfigError
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.federation import Federation


@register("algorithm", "centralised")
@dataclass(frozen=True, kw_only=True)
class Centralised(Algorithm):
    """All rows pooled in one place and trained there; needs the partition 'pooled'.

    The same numbers as federated averaging with a single party: a round is one local training, and the optimizer's
    memory starts afresh every round. Trees are fitted in the first round, and further rounds change nothing. Selector,
    stages and aggregator do not apply.
    """

    def start(self, federation: Federation) -> State:
        """A fresh model, if models have one to start from."""
        if len(federation) > 1:
            raise ConfigError(f"'centralised' trains on rows pooled in one place, not at {len(federation)} parties",
                              remedy="set data.partition.name = 'pooled'")
        return State({}) if fits_trees(self) else fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Train on, or fit a tree once."""
        if fits_trees(self):
            return state if state.model else self._fitted(federation, state)
        replies = federation.ask(federation.everyone(), train, {"model": state.model}, settings=training_settings(self))
        return state.next(shifted(state.model, replies[0].payload["update"])) if replies else state

    def _fitted(self, federation: Federation, state: State) -> State:
        replies = federation.ask(federation.everyone(), fit, check=usable_by(self.learner, federation.schema),
                                 settings={"learner": self.learner, **agreed(federation)})
        return state.next(replies[0].payload["model"]) if replies else state
