"""MLFedAvg-plus: what a federation of parties with different labels gains when rare labels and own rows count.

MLFedAvg loses F1 to parties that train alone, because rare labels are never predicted and because its model is judged
where averaging has just pulled it away from the party's own rows. Five changes, each with a switch:

- the loss of a label's positive rows is weighed by how rare they are at the party;
- the federation's core is the start of a personal phase, in which every party trains core and head on its own rows;
- of the networks it meets there, from the federated one on, a party keeps the best on its validation rows;
- beside it every party trains a second network from nothing, and both predict together by their mean: what one learned
  from the others' rows and what the other learned from the party's own labels alone rarely fail on the same rows;
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
from tequio.algorithms.multilabel.tasks import adopt_core, set_network_aside, train_own_network, train_shared
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
        second_rounds: longest phase in which every party trains a second network from nothing; both then predict
            together, by the mean of their probabilities (0: none)
        patience: rounds without a better network after which such a phase of a party ends (0: never)
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
    second_rounds: Annotated[int, Ge(0)] = 100
    patience: Annotated[int, Ge(0)] = 40
    chosen_by: Literal["loss", "f1"] = "f1"
    balance: Annotated[float, Ge(0)] = 0.5
    calibrate: bool = True

    def start(self, federation: Federation) -> State:
        """A fresh core. Heads begin at the parties, when each trains for the first time."""
        return State(fresh_core(self.learner, federation), {"history": {}, **self._begin("federated", 0)})

    def round(self, federation: Federation, state: State) -> State:
        """A federated round until the stop rule ends that phase, then those of the parties' own networks."""
        if state.memory["phase"] == "federated":
            return self._federated(federation, state)
        return self._own(federation, state)

    def finished(self, state: State) -> str:
        """Whether every party has come to the end of its last phase."""
        return DONE if state.memory["phase"] == "done" else ""

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
                             **(self._next_phase("federated", federation.round) if ends else {}))

    def _own(self, federation: Federation, state: State) -> State:
        """A round of the parties' own networks; a phase ends with its last round, or when all have finished."""
        phase, begun = state.memory["phase"], state.memory["begun"]
        if phase == "second" and federation.round == begun + 1:
            federation.ask(federation.eligible(), set_network_aside)
        active = np.setdiff1d(federation.eligible(), state.memory["done"])
        replies = federation.ask(active, train_own_network,
                                 settings=training_settings(self, **self._settings(federation)))
        stopped = np.array([reply.party for reply in replies if reply.payload["finished"]], dtype=np.int64)
        done = np.union1d(state.memory["done"], stopped)
        longest = self.personal_rounds if phase == "personal" else self.second_rounds
        ends = federation.round - begun >= longest or len(done) == len(federation.eligible())
        return state.next(**(self._next_phase(phase, federation.round) if ends else {"done": done}))

    def _next_phase(self, phase: str, round: int) -> dict[str, Any]:
        """The phase after one that has ended: those of no rounds are left out."""
        phases = {"personal": self.personal_rounds, "second": self.second_rounds}
        later = list(phases)[list(phases).index(phase) + 1:] if phase in phases else list(phases)
        return self._begin(next((name for name in later if phases[name]), "done"), round)

    def _begin(self, phase: str, round: int) -> dict[str, Any]:
        return {"phase": phase, "begun": round, "done": np.empty(0, dtype=np.int64)}

    def _settings(self, federation: Federation) -> dict[str, Any]:
        return {"width": widest_head(federation), "evaluated": "aggregated", "balance": self.balance,
                "accuracy": self.stopping_accuracy, "patience": self.patience, "chosen_by": self.chosen_by,
                "calibrate": self.calibrate}

    def judging(self, federation: Federation) -> dict[str, Any]:
        """Which network of a party is judged, and how."""
        return {"learner": self.learner, "width": widest_head(federation), "calibrate": self.calibrate,
                "evaluated": "best"}
