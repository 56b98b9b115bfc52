"""A round of federated averaging with another task, and evaluation by personal models: what this family shares."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from tequio.algorithms.training import Weights, fresh_state, party_weights, training_settings
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.algorithms.personal.inference import Inference
    from tequio.data.dataset import Dataset
    from tequio.federation.federation import Federation
    from tequio.federation.replies import Replies
    from tequio.federation.task import Task
    from tequio.learners.learner import Arrays, LocalTraining, Tally

Epochs = Annotated[int, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class Personal(Algorithm):
    """An algorithm whose parties answer with something of their own; each says by which tasks."""

    @property
    @abstractmethod
    def inference(self) -> Inference:
        """The tasks by which parties answer."""

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        return fresh_state(self, federation)

    def asked(self, state: State) -> dict[str, Any]:
        """What parties need to be sent to answer."""
        return {"model": state.model}

    def told(self, part: str = "test") -> dict[str, Any]:
        """Settings of the tasks by which parties answer."""
        return training_settings(self, part=part)

    def evaluate(self, federation: Federation, state: State, part: str, parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of its personal model on its own rows."""
        return self.inference.evaluate(federation, parties, self.asked(state), self.told(part))

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The mean over some parties' personal models; they tally the coordinator's rows themselves."""
        return self.inference.score(federation, rows, self.asked(state), self.told())


def collected(algorithm: Algorithm, federation: Federation, state: State, task: Task,
              **settings: Any) -> tuple[Replies, State]:
    """Select parties and have them do a task on the state's model; the answers, and the state with the choice kept."""
    chosen = algorithm.select(federation, state)
    replies = federation.ask(chosen.parties, task, {"model": state.model},
                             settings=training_settings(algorithm, **settings), stages=algorithm.parts.stages)
    return replies, state.next(selector=chosen.memory)


def averaged(algorithm: Algorithm, federation: Federation, state: State, replies: Replies, weights: Weights,
             rate: float = 1.0) -> State:
    """The state after the mean of the answers' updates, followed at a rate."""
    if not replies:
        return state
    mean = algorithm.aggregate(federation, state, replies, weights=party_weights(replies, weights))
    return state.next(shifted(state.model, mean.update, rate), aggregator=mean.memory)


def with_epochs(local: LocalTraining, epochs: int) -> LocalTraining:
    """The same training for other epochs (0: the same)."""
    return replace(local, epochs=epochs, steps=0) if epochs else local


def only(model: Arrays, names: tuple[str, ...]) -> Arrays:
    """The named part of a model."""
    return {name: values for name, values in model.items() if name in names}
