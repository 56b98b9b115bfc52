"""MLFedAvg: federated averaging where every party learns other labels.

D. Delgado Bejarano: Aprendizaje multi-etiqueta en entornos federados, master's thesis, University of Seville, 2024.

Parties share the core of a network and keep a head for their own labels. The printed formula of aggregation 0 lacks its
1/K, and with a fraction of the parties the weights are those of the parties that answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

from tequio.algorithms.multilabel.heads import fresh_core, widest_head
from tequio.algorithms.multilabel.scoring import ThroughHeads
from tequio.algorithms.multilabel.tasks import train_shared
from tequio.algorithms.multilabel.validation import Accuracy, EarlyStopping, Reading
from tequio.algorithms.training import training_settings
from tequio.federation.algorithm import State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.replies import Replies

Aggregation = Literal[0, 1, 2]
"""Weigh parties alike, by their training rows, or by rows times labels."""


@register("algorithm", "mlfedavg", paper="Delgado, 2024")
@dataclass(frozen=True, kw_only=True)
class MLFedAvg(ThroughHeads):
    """Average the core of a network; every party keeps a head for the labels that only it knows.

    Parameters:
        aggregation: weigh parties alike (0), by training rows (1), or by training rows times labels (2)
        stopping: stop when validation loss and accuracy both get worse twice in a row: by means of each round (rounds,
            as printed), by means over all rounds so far (cumulative, as the author's numbers imply), or never (off)
        stopping_accuracy: what counts as accuracy there: subset_accuracy, or argmax_agreement as the author measured
        minimum_rounds: earliest round to stop after
        evaluated: judge the aggregated core with each party's head, or the network that the party trained last (local)
    """

    aggregation: Aggregation = 0
    stopping: Reading = "rounds"
    stopping_accuracy: Accuracy = "subset_accuracy"
    minimum_rounds: Annotated[int, Ge(3)] = 10
    evaluated: Literal["aggregated", "local"] = "aggregated"

    def start(self, federation: Federation) -> State:
        """A fresh core. Heads begin at the parties, when each trains for the first time."""
        return State(fresh_core(self.learner, federation), {"history": {}, "finished": ""})

    def round(self, federation: Federation, state: State) -> State:
        """Select, train cores with heads, average the cores, look at the validation rows."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train_shared, {"model": state.model},
                                 settings=training_settings(self, **self._settings(federation)),
                                 stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        mean = self.aggregate(federation, state, replies, weights=aggregation_weights(replies, self.aggregation))
        rule = EarlyStopping(self.stopping, self.minimum_rounds)
        history = rule.remembered(state.memory["history"], replies)
        return self.conclude(federation, state, chosen, replies, shifted(state.model, mean.update), mean,
                             history=history, finished=rule.reason(history))

    def finished(self, state: State) -> str:
        """Whether the parties' validation rows say enough."""
        return str(state.memory["finished"])

    def _settings(self, federation: Federation) -> dict[str, Any]:
        return {"width": widest_head(federation), "evaluated": self.evaluated, "balance": 0.0,
                "accuracy": self.stopping_accuracy}

    def judging(self, federation: Federation) -> dict[str, Any]:
        """Which network of a party is judged, and how."""
        return {"learner": self.learner, "width": widest_head(federation), "evaluated": self.evaluated,
                "calibrate": False}


def aggregation_weights(replies: Replies, rule: Aggregation) -> NDArray[np.float64]:
    """How much each party's core weighs, before the weights are made to sum to one."""
    rows, labels = replies.values("rows").astype(np.float64), replies.values("labels").astype(np.float64)
    return {0: np.ones(len(replies)), 1: rows, 2: rows * labels}[rule]
