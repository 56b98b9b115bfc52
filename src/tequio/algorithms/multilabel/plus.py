"""MLFedAvg-plus: what a federation of parties with different labels gains when rare labels and own rows count.

MLFedAvg loses F1 to parties that train alone, because rare labels are never predicted and because its model is judged
where averaging has just pulled it away from the party's own rows. Four changes, each with a switch:

- the loss of a label's positive rows is weighed by how rare they are at the party;
- the federation's core is the start of a personal phase, in which every party trains core and head on its own rows;
- of the networks it meets there, from the federated one on, a party keeps the best on its validation rows;
- each label is decided at a border that the party chooses on its validation rows.

Nothing more crosses than in MLFedAvg: heads, borders and weights stay with the party.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

from tequio.algorithms.multilabel.heads import fresh_core, widest_head
from tequio.algorithms.multilabel.mlfedavg import Aggregation, aggregation_weights
from tequio.algorithms.multilabel.scoring import ThroughHeads
from tequio.algorithms.multilabel.tasks import adopt_core, train_own_network, train_shared
from tequio.algorithms.multilabel.validation import Accuracy, EarlyStopping, Reading
from tequio.algorithms.training import training_settings
from tequio.federation.algorithm import State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.federation import Federation

DONE = "personal phase done"


@register("algorithm", "mlfedavg-plus")
@dataclass(frozen=True, kw_only=True)
class MLFedAvgPlus(ThroughHeads):
    """MLFedAvg with weighed rare labels, a personal phase and chosen decision borders.

    Parameters:
        aggregation: weigh parties alike (0), by training rows (1), or by training rows times labels (2)
        stopping: stop rule that ends the federated phase: by means of each round (rounds), over all rounds so far
            (cumulative), or never (off)
        stopping_accuracy: what counts as accuracy there: subset_accuracy or argmax_agreement
        minimum_rounds: earliest round to end the federated phase after
        federated_rounds: longest federated phase
        personal_rounds: longest personal phase (0: none)
        patience: rounds without a better network after which a party's personal phase ends (0: never)
        chosen_by: what the best network goes by on validation rows: loss, or F1 over the party's labels
        balance: weigh positive rows of a label by (negatives / positives) to this power; 0 leaves the loss as it is
        calibrate: choose each label's decision border on validation rows instead of one half
    """

    aggregation: Aggregation = 0
    stopping: Reading = "rounds"
    stopping_accuracy: Accuracy = "subset_accuracy"
    minimum_rounds: Annotated[int, Ge(3)] = 10
    federated_rounds: Annotated[int, Ge(1)] = 100
    personal_rounds: Annotated[int, Ge(0)] = 100
    patience: Annotated[int, Ge(0)] = 40
    chosen_by: Literal["loss", "f1"] = "f1"
    balance: Annotated[float, Ge(0)] = 0.5
    calibrate: bool = True

    def start(self, federation: Federation) -> State:
        """A fresh core. Heads begin at the parties, when each trains for the first time."""
        return State(fresh_core(self.learner, federation),
                     {"history": {}, "personal": 0, "done": np.empty(0, dtype=np.int64), "finished": ""})

    def round(self, federation: Federation, state: State) -> State:
        """A federated round until the stop rule ends that phase, then personal ones."""
        if not state.memory["personal"]:
            return self._federated(federation, state)
        return self._personal(federation, state)

    def finished(self, state: State) -> str:
        """Whether every party has come to the end of its personal phase."""
        return str(state.memory["finished"])

    def _federated(self, federation: Federation, state: State) -> State:
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train_shared, {"model": state.model},
                                 settings=training_settings(self, **self._settings(federation)),
                                 stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        mean = self.aggregate(federation, state, replies, weights=aggregation_weights(replies, self.aggregation))
        core = shifted(state.model, mean.update)
        rule = EarlyStopping(self.stopping, self.minimum_rounds)
        history = rule.remembered(state.memory["history"], replies)
        ends = bool(rule.reason(history)) or federation.round >= self.federated_rounds
        if ends:
            federation.ask(federation.eligible(), adopt_core, {"model": core},
                           settings={"learner": self.learner, **self._settings(federation)})
        return self.conclude(federation, state, chosen, replies, core, mean, history=history,
                             personal=federation.round if ends else 0,
                             finished=DONE if ends and not self.personal_rounds else "")

    def _personal(self, federation: Federation, state: State) -> State:
        active = np.setdiff1d(federation.eligible(), state.memory["done"])
        replies = federation.ask(active, train_own_network,
                                 settings=training_settings(self, **self._settings(federation)))
        stopped = np.array([reply.party for reply in replies if reply.payload["finished"]], dtype=np.int64)
        done = np.union1d(state.memory["done"], stopped)
        is_last = federation.round - state.memory["personal"] >= self.personal_rounds or len(done) == len(
            federation.eligible())
        return state.next(done=done, finished=DONE if is_last else "")

    def _settings(self, federation: Federation) -> dict[str, Any]:
        return {"width": widest_head(federation), "evaluated": "aggregated", "balance": self.balance,
                "accuracy": self.stopping_accuracy, "patience": self.patience, "chosen_by": self.chosen_by,
                "calibrate": self.calibrate}

    def judging(self, federation: Federation) -> dict[str, Any]:
        """Which network of a party is judged, and how."""
        return {"learner": self.learner, "width": widest_head(federation), "calibrate": self.calibrate,
                "evaluated": "best"}
