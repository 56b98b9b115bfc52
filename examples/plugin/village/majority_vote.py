"""Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD: compressed optimisation for non-convex problems, ICML 2018."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Gt

import tequio as tq
from tequio.algorithms.training import ModelPayload, UpdateReply, train


@tq.task("majority-vote: vote", settings=tq.TrainSettings, reply=UpdateReply, reveals=tq.Reveals.UPDATE)
def vote(party: tq.Party, payload: ModelPayload, settings: tq.TrainSettings) -> UpdateReply:
    """Train the received model, and reply with the sign of every weight's change."""
    reply = train(party, payload, settings)
    return {**reply, "update": {name: np.sign(change) for name, change in reply["update"].items()}}


@tq.register("algorithm", "majority-vote", paper="Bernstein et al., 2018")
@dataclass(frozen=True, kw_only=True)
class MajorityVote(tq.Averaging):
    """Parties vote up or down for every weight; the coordinator steps where most point.

    Parameters:
        length: how far each weight moves in a round
    """

    length: Annotated[float, Gt(0)] = 0.01

    def round(self, federation: tq.Federation, state: tq.State) -> tq.State:
        """Select, train, count the votes, step."""
        settings = tq.TrainSettings(learner=self.learner, local=self.local)
        return tq.averaging_round(self, federation, state, vote, settings, weights="uniform", step=self.step)

    def step(self, averaged: tq.Averaged) -> tuple[tq.Arrays, tq.Payload]:
        """The next weights, and what to remember: nothing."""
        votes = {name: np.sign(mean) for name, mean in averaged.mean.items()}
        return {name: averaged.model[name] + self.length * votes[name] for name in votes}, {}
