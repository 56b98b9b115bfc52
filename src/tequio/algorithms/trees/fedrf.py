"""FedRF: a forest of trees from the parties' forests.

Hauschild, Lemanczyk, Matschinske, Frisch, Zolotareva, Holzinger, Baumbach, Heider: Federated Random Forests can improve
local performance of predictive models for various healthcare applications, Bioinformatics 38, 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from tequio.algorithms.trees.fitting import agreed, agreed_rows, needed_learner
from tequio.errors import ConfigError, PayloadError
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.task import task
from tequio.learners.flat import check_numeric
from tequio.learners.trees.forest import Forest, RandomForest, joined
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


@register("algorithm", "fedrf", paper="Hauschild et al., 2022",
          example='[algorithm]\nname = "fedrf"\ntrees = 10\n\n[learner]\nname = "random_forest"\ndepth = 5\n')
@dataclass(frozen=True, kw_only=True)
class FedRF(Algorithm):
    """Trees drawn at random from each party's random forest make up one forest; all in one round.

    The trees of a random forest are independent of each other given the rows, so some of them drawn at random are a
    smaller random forest: a party grows only the trees that are drawn from it. The whole trees leave the parties, with
    their thresholds and with the counts of rows in their leaves. Further rounds change nothing.

    Parameters:
        trees: how many trees of each party's forest, whose size is that of the learner
        pooled: draw as many from all parties' forests thrown together, so that parties give by chance more or fewer
    """

    trees: Annotated[int, Ge(1)] = 10
    pooled: bool = False

    def start(self, federation: Federation) -> State:
        """No forest yet."""
        learner = needed_learner(self, RandomForest)
        check_numeric(federation.schema, "fedrf")
        if learner.trees < self.trees:
            raise ConfigError(f"'fedrf' cannot draw {self.trees} trees from forests of {learner.trees}",
                              remedy="raise learner.trees, or lower algorithm.trees")
        return State({})

    def round(self, federation: Federation, state: State) -> State:
        """Collect the trees."""
        if state.model:
            return state
        chosen, learner = self.select(federation, state), needed_learner(self, RandomForest)
        draws = self._draws(len(chosen.parties), learner.trees, federation.rng("fedrf"))
        each = {int(party): {"trees": int(trees)} for party, trees in zip(chosen.parties, draws, strict=True)}
        replies = federation.ask(chosen.parties[draws > 0], grow_trees, each=each,
                                 settings={"learner": learner, **agreed(federation)},
                                 check=partial(_forest, federation.schema, draws))
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        forests = [_forest(federation.schema, draws, payload) for payload in replies.payloads]
        return self.conclude(federation, state, chosen, replies, joined(forests, learner.voting).to_payload())

    def _draws(self, parties: int, forest: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many trees are drawn from each party."""
        if not self.pooled:
            return np.full(parties, self.trees)
        # The method "count" would need memory for every single tree.
        return rng.multivariate_hypergeometric(np.full(parties, forest), self.trees * parties, method="marginals")


@task("fedrf: grow trees")
def grow_trees(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """That many trees of a random forest on the party's rows."""
    learner = replace(settings["learner"], trees=payload["trees"])
    return {"model": learner.fit(agreed_rows(party, settings), party.rng("fit")).to_payload()}


def _forest(schema: Schema, draws: NDArray[np.int64], payload: Payload, whose: str = "a party") -> Forest:
    """The forest in a reply, if it is sound and of a size that was asked for."""
    forest = Forest.from_payload(payload.get("model", {}), features=len(schema.features), classes=schema.target.size,
                                 whose=whose)
    if len(forest) not in draws or forest.trees[0].kind != "binary":
        raise PayloadError(f"{whose} sent {len(forest)} {forest.trees[0].kind} trees, which was not asked for")
    return forest
