"""FedRF: a forest of trees from the parties' forests.

Hauschild, Lemanczyk, Matschinske, Frisch, Zolotareva, Holzinger, Baumbach, Heider: Federated Random Forests can improve
local performance of predictive models for various healthcare applications, Bioinformatics 38, 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
from annotated_types import Ge

from tequio.algorithms.trees.fitting import AgreedSettings, TreeAlgorithm, agreed, agreed_rows
from tequio.errors import ConfigError, PayloadError
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import finish_round, select
from tequio.federation.payload import Payload
from tequio.federation.task import Reveals, record, task
from tequio.learners.trees.forest import Forest, RandomForest, joined
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party


@register("algorithm", "fedrf", paper="Hauschild et al., 2022",
          example='[algorithm]\nname = "fedrf"\ntrees = 10\n\n[learner]\nname = "random-forest"\ndepth = 5\n')
@dataclass(frozen=True, kw_only=True)
class FedRF(TreeAlgorithm):
    """Trees drawn at random from each party's random forest make up one forest; all in one round.

    The trees of a random forest are independent of each other given the rows, so some of them drawn at random are a
    smaller random forest: a party grows only the trees that are drawn from it. The whole trees leave the parties, with
    their thresholds and with the counts of rows in their leaves. Further rounds change nothing.

    Parameters:
        trees: how many trees of each party's forest, whose size is that of the learner
        pooled: draw as many from all parties' forests thrown together, so that parties give by chance more or fewer
    """

    learner: RandomForest = part()
    trees: Annotated[int, Ge(1)] = 10
    pooled: bool = False

    def start(self, federation: Federation) -> State:
        """No forest yet."""
        if self.learner.trees < self.trees:
            raise ConfigError(f"'fedrf' cannot draw {self.trees} trees from forests of {self.learner.trees}",
                              remedy="raise learner.trees, or lower algorithm.trees")
        return State({})

    def round(self, federation: Federation, state: State) -> State:
        """Collect the trees."""
        if state.model:
            return state
        chosen = select(self, federation, state)
        draws = self._draws(len(chosen.parties), federation.rng("fedrf"))
        each = {int(party): {"trees": int(trees)} for party, trees in zip(chosen.parties, draws, strict=True)}
        opened = partial(_forest, federation.schema, draws)
        replies = federation.ask(chosen.parties[draws > 0], grow_trees, each=each, stages=self.poisoning, check=opened,
                                 settings=ForestSettings(learner=self.learner, agreed=agreed(federation)))
        if not replies:
            return finish_round(self, federation, state, chosen, replies)
        forest = joined([opened(reply) for reply in replies.payloads], self.learner.voting)
        return finish_round(self, federation, state, chosen, replies, forest.to_payload())

    def _draws(self, parties: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many trees are drawn from each party."""
        if not self.pooled:
            return np.full(parties, self.trees)
        # The method "count" would need memory for every single tree.
        forests = np.full(parties, self.learner.trees)
        return rng.multivariate_hypergeometric(forests, self.trees * parties, method="marginals")


@record
class ForestSettings(AgreedSettings):
    """The forest that a party's trees are drawn from."""

    learner: RandomForest


class WantedTrees(TypedDict):
    """How many trees a party is asked for."""

    trees: int


class ForestReply(TypedDict):
    """A party's trees."""

    model: Payload


@task("fedrf: grow trees", settings=ForestSettings, reply=ForestReply, reveals=Reveals.STRUCTURE)
def grow_trees(party: Party, payload: WantedTrees, settings: ForestSettings) -> ForestReply:
    """That many trees of a random forest on the party's rows."""
    learner = replace(settings.learner, trees=payload["trees"])
    return {"model": learner.fit(agreed_rows(party, settings), party.rng("fit")).to_payload()}


def _forest(schema: Schema, draws: NDArray[np.int64], reply: ForestReply, whose: str = "a party") -> Forest:
    """The forest in a reply, if it is sound and of a size that was asked for."""
    forest = Forest.from_payload(reply["model"], features=len(schema.features), classes=schema.target.size,
                                 whose=whose)
    first = forest.trees[0]
    if len(forest) not in draws or first.kind == "multiway":
        raise PayloadError(f"{whose} sent {len(forest)} {first.kind} trees, which was not asked for")
    if (first.value is not None) != (schema.target.kind == "number"):
        raise PayloadError(f"{whose} sent trees that do not predict what was asked for")
    return forest
