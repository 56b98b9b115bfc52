"""FLProtector: a private increment on the global model, a router between the two, and consistency weighting.

Martínez Enríquez, Iglesias Rodríguez, García Polo: Análise de estratexias de aprendizaxe federada robustas a datos
heteroxéneos (Universidade de Santiago de Compostela).

A round is one of federated averaging, with the aggregator `consistency`, and then a local one: each party trains
W + delta from the new W and keeps the new delta. Nothing of the second reaches the first. The paper
leaves open whether the optimizer begins afresh in every training; its authors' program keeps two at every party, as
local.optimizer_memory = "kept" does here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.personal.averaging import Epochs, Personal, averaged, collected, with_epochs
from tequio.algorithms.personal.routing import INFERENCE, personalise, tell, where_rows_go
from tequio.algorithms.training import Weights, fresh_state, train, training_settings
from tequio.components import build
from tequio.federation.aggregation import Mean
from tequio.federation.aggregators.consistency import Consistency, ConsistencyPlus
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.aggregation import Aggregator
    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.routers.router import Router


@register("algorithm", "flprotector", paper="Martínez Enríquez et al., 2025")
@dataclass(frozen=True, kw_only=True)
class FLProtector(Personal):
    """A private increment on a global model that follows consistent parties; each row is answered by one of the two.

    Parameters:
        personalise: whether parties train an increment of their own; without it the global model answers everything
        router: which rows the global model answers: a router's name, or a table with its name and parameters (empty:
            none, the personal model answers everything)
        weighting: whether the aggregator `consistency` takes the place of the mean; an [aggregator] that the config
            names besides the mean is used either way
        personal_epochs: epochs of the increment a round (0: those of `local`)
        adaptive: whether each party chooses, by its validation rows, how much of its increment it uses
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    personalise: bool = True
    router: str | dict[str, Any] = "autoencoder"
    weighting: bool = True
    personal_epochs: Epochs = 0
    adaptive: bool = False
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the personal or by the global model, as the router decides row by row."""
        return INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model, and nothing told about anybody's rows."""
        self.made_router()
        return fresh_state(self, federation, told={})

    def round(self, federation: Federation, state: State) -> State:
        """The federated phase, then the personal one from the new model."""
        protected = replace(self, parts=replace(self.parts, aggregator=self.aggregator()))
        chosen, replies = collected(protected, federation, state, train)
        state = averaged(protected, federation, state, chosen, replies, self.weights)
        return self._personal_phase(federation, state, replies.parties) if self.personalise else state

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains an increment and a router once."""
        if self.personalise:
            self._personal_phase(federation, state, parties)

    def told(self, part: str = "test") -> dict[str, Any]:
        """With the router."""
        router = self.made_router()
        return training_settings(self, part=part, adaptive=self.adaptive, personal=self.personalise,
                                 local=with_epochs(self.parts.local, self.personal_epochs),
                                 **({"router": router} if router else {}))

    def other_answers(self) -> dict[str, Algorithm]:
        """The same training, answered by one kind of model only: what the router and the increments are worth."""
        return {"own": replace(self, router=""), "common": replace(self, personalise=False)} if self.personalise else {}

    def routing(self, federation: Federation, state: State, rows: Dataset,
                parties: NDArray[np.int64]) -> dict[int, Payload]:
        """Of rows that the coordinator holds: would each party's own model answer, and how novel are they to it."""
        replies = federation.ask(parties, where_rows_go, {
            **self.asked(state), "features": np.ascontiguousarray(rows.features)}, settings=self.told())
        return {reply.party: reply.payload for reply in replies}

    def aggregator(self) -> Aggregator:
        """Consistency weighting, unless it is switched off or the config names another aggregator."""
        named = self.parts.aggregator
        return self.consistency() if self.weighting and isinstance(named, Mean) else named

    def consistency(self) -> Aggregator:
        """The aggregator in place of the mean."""
        return Consistency()

    def made_router(self) -> Router | None:
        """The router, if any."""
        table = {"name": self.router} if isinstance(self.router, str) else dict(self.router)
        if not table.get("name"):
            return None
        router: Router = build("router", table.pop("name"), table, where="algorithm.router")
        return router

    def _personal_phase(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> State:
        told = dict(state.memory["told"])
        new = [party for party in parties.tolist() if str(party) not in told]
        if new and hasattr(self.made_router(), "describe"):
            replies = federation.ask(new, tell, settings=self.told())
            told |= {str(reply.party): reply.payload for reply in replies}
        others = {party: {"others": [told[other] for other in sorted(told, key=int) if int(other) != party]}
                  for party in parties.tolist()} if told else None
        federation.ask(parties, personalise, {"model": state.model}, settings=self.told(), each=others)
        return state.next(told=told)


@register("algorithm", "flprotector-plus")
@dataclass(frozen=True, kw_only=True)
class FLProtectorPlus(FLProtector):
    """FLProtector with a router that compares parties' rows, increments that help, and weights for outliers only.

    Where FLProtector fails: its router takes smooth foreign images for its own, its increments lose to the global model
    on hard rows, its weights fall on honest parties that are merely different, and in the first two rounds, when all
    count alike, a backdoor gets in. Needs validation rows.

    Parameters:
        personalise: whether parties train an increment of their own; without it the global model answers everything
        router: which rows the global model answers: a router's name, or a table with its name and parameters (empty:
            none, the personal model answers everything)
        weighting: whether the aggregator `consistency` takes the place of the mean; an [aggregator] that the config
            names besides the mean is used either way
        personal_epochs: epochs of the increment a round (0: those of `local`)
        adaptive: whether each party chooses, by its validation rows, how much of its increment it uses
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    router: str | dict[str, Any] = "likelihood-ratio"
    adaptive: bool = True

    def consistency(self) -> Aggregator:
        """Only parties far from where they are foretold lose weight; before that, long updates are shortened."""
        return ConsistencyPlus()
