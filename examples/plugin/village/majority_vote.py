"""Majority vote: every party votes up or down for every weight.

Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD: compressed optimisation for
non-convex problems, ICML 2018.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Gt

from tequio import Algorithm, State, register, task
from tequio.algorithms.training import fresh_state, require_gradients


@task("majority vote: vote")
def vote(party, payload, settings):
    """The sign of the gradient on the party's rows: one byte a weight."""
    gradient, loss = settings["learner"].gradient(payload["model"], party.data.train)
    votes = {name: np.sign(values).astype(np.int8) for name, values in gradient.items()}
    return {"votes": votes, "loss": loss, "rows": len(party.data.train)}


@register("algorithm", "majority_vote", paper="Bernstein et al., 2018")
@dataclass(frozen=True, kw_only=True)
class MajorityVote(Algorithm):
    """Parties vote up or down for every weight; the coordinator steps where most point.

    Parameters:
        step: how far each weight moves in a round
    """

    step: Annotated[float, Gt(0)] = 0.01

    def start(self, federation):
        """A fresh model of the learner."""
        require_gradients(self, "majority_vote")
        return fresh_state(self, federation)

    def round(self, federation, state: State) -> State:
        """Ask the chosen parties for their votes, count them, take the step."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, vote, {"model": state.model},
                                 settings={"learner": self.learner})
        model = {}
        for name, weights in state.model.items():
            votes = [payload["votes"][name].astype(np.int64) for payload in replies.payloads]
            model[name] = (weights - self.step * np.sign(sum(votes))).astype(weights.dtype)
        return state.next(model, selector=chosen.memory)
