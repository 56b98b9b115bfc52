"""The baseline of multi-label federations: every party trains a network of its own for its own labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

from tequio.algorithms.multilabel.heads import fresh_core, widest_head
from tequio.algorithms.multilabel.scoring import ThroughHeads
from tequio.algorithms.multilabel.tasks import train_own_network
from tequio.algorithms.training import training_settings
from tequio.federation.algorithm import State
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.federation import Federation

PATIENCE = "patience"


@register("algorithm", "mlfedavg-alone", paper="Delgado, 2024")
@dataclass(frozen=True, kw_only=True)
class MLFedAvgAlone(ThroughHeads):
    """Each party trains a network for its own labels and shares nothing: what MLFedAvg is compared with.

    Networks are of the same shape as in MLFedAvg and begin at the parties. A party goes on until its validation loss
    has not improved for `patience` rounds. The thesis's text takes the stop round of the federated run as patience and
    allows 1,000 epochs; its code trains for exactly that many epochs: there, set rounds to it and patience to 0. The
    run's result is the core of a network that nobody has trained, as there is no common one.

    Parameters:
        patience: rounds without a better validation loss after which a party stops (0: never)
        restore: judge the network with the best validation rows instead of the last one
        chosen_by: what patience and the best network go by: validation loss, or F1 over the party's labels
        balance: weigh positive rows of a label by (negatives / positives) to this power; 0 leaves the loss as it is
        calibrate: choose each label's decision border on validation rows instead of one half
    """

    patience: Annotated[int, Ge(0)] = 0
    restore: bool = False
    chosen_by: Literal["loss", "f1"] = "loss"
    balance: Annotated[float, Ge(0)] = 0.0
    calibrate: bool = False

    def start(self, federation: Federation) -> State:
        """Nobody has trained or finished yet."""
        return State(fresh_core(self.learner, federation), {"done": np.empty(0, dtype=np.int64), "finished": ""})

    def round(self, federation: Federation, state: State) -> State:
        """Every chosen party that has not finished trains its network on."""
        chosen = self.select(federation, state, observed=False)
        active = np.setdiff1d(chosen.parties, state.memory["done"])
        replies = federation.ask(active, train_own_network, settings=training_settings(
            self, width=widest_head(federation), balance=self.balance,
            patience=self.patience, chosen_by=self.chosen_by, calibrate=self.calibrate))
        stopped = [reply.party for reply in replies if reply.payload["finished"]]
        done = np.union1d(state.memory["done"], np.array(stopped, dtype=np.int64))
        everyone = len(np.setdiff1d(federation.eligible(), done)) == 0
        return state.next(done=done, selector=chosen.memory, finished=PATIENCE if everyone else "")

    def finished(self, state: State) -> str:
        """Whether every party has stopped."""
        return str(state.memory["finished"])

    def judging(self, federation: Federation) -> dict[str, Any]:
        """Which network of a party is judged, and how."""
        return {"learner": self.learner, "width": widest_head(federation), "calibrate": self.calibrate,
                "evaluated": "best" if self.restore else "local"}
