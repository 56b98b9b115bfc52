"""Randomised response: a party tells the truth about a category only with some chance, once and for all.

Warner: Randomized response, JASA 1965. Ghazi, Golowich, Kumar, Manurangsi, Zhang: Deep learning with label differential
privacy, NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from tequio.data.dataset import Dataset, Source
from tequio.errors import ConfigError
from tequio.federation.population import PartyData
from tequio.federation.stages import Trait
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.ledger import Context, Entry, Ledger
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies

_KEPT = "randomised labels"


@register("stage", "randomised-response", paper="Warner, 1965; Ghazi et al., 2021")
@dataclass(frozen=True)
class RandomisedResponse:
    """Parties train on labels of which each is true with a chance of e^epsilon / (e^epsilon + classes - 1).

    Hides labels, not rows. The answer to a label is drawn once and kept, so that rounds tell nothing new. Works with
    algorithms that send updates; validation and test rows keep their labels.

    Parameters:
        epsilon: what an answer may tell about a label
        noise: the same as 1 / epsilon (runs fill it in)
        expected: parties that a round expects (runs fill it in)
        arrays: parts of a reply (runs fill it in)
    """

    epsilon: Annotated[float, Gt(0)] = 1.0
    noise: Annotated[float, Ge(0)] | None = 0.0
    expected: Annotated[float, Ge(0)] = 0.0
    arrays: tuple[str, ...] = ("update",)
    ledger: Ledger | None = field(default=None, metadata={"part": True}, repr=False, compare=False)

    unit: ClassVar[str] = "label"
    place: ClassVar[Literal["coordinator", "party", "sum"]] = "party"
    protects: ClassVar[str] = "updates"
    by_party: ClassVar[bool] = False
    trait: ClassVar[Trait] = Trait(noise="party")

    def enter(self, party: Party) -> None:
        """Before the task: swap the training labels for the answers, which the party keeps."""
        own = party.data
        answers = party.state.get(_KEPT)
        if answers is None or len(answers) != len(own.train):
            answers = randomised(own.train, self.epsilon, party.lasting_rng(_KEPT))
            party.state[_KEPT] = answers
        columns = None if own.train.columns is None else np.arange(len(own.train.columns))
        told = Dataset(own.train.schema, Source(own.train.features, answers), columns=columns, name=own.train.name)
        party.pretend(PartyData(told, own.validation, own.test))

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: nothing more."""
        return payload

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: note the release."""
        if self.ledger is not None:
            self.ledger.charge(replies, round, 1 / self.epsilon)
        return replies

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """Each label once, however many the rounds: as much as one Laplace release of that epsilon."""
        return [{Release(1 / self.epsilon, "laplace"): 1}] if entries else []

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """One answer for all rounds."""
        return [Entry(1, noise, 1)]

    def objections(self, context: Context) -> list[str]:
        """None of its own."""
        return []

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Parties train on labels that are randomised once, each for an epsilon of {self.epsilon:g}. "
                "Neighbours: two data sets of a party that differ in one label; all else about rows is not hidden.")


def truth_chance(epsilon: float, classes: int) -> float:
    """The chance of a true answer."""
    return exp(epsilon) / (exp(epsilon) + classes - 1)


def randomised(rows: Dataset, epsilon: float, rng: np.random.Generator) -> NDArray[Any]:
    """The true label with its chance, else one of the others, all alike."""
    if rows.schema.target.kind != "classes":
        raise ConfigError(f"randomised response is for classes, and the target of '{rows.name}' is of kind "
                          f"'{rows.schema.target.kind}'", remedy="use 'local-dp' or local training 'dp-sgd'")
    classes, target = len(rows.schema.target.names), np.asarray(rows.target)
    others = (target + rng.integers(1, max(classes, 2), len(target))) % classes
    return np.where(rng.random(len(target)) < truth_chance(epsilon, classes), target, others).astype(target.dtype)


def debiased(shares: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """What shares of classes among true labels are to be expected behind shares among answers."""
    classes = len(shares)
    true = truth_chance(epsilon, classes)
    other = (1 - true) / (classes - 1)
    found: NDArray[np.float64] = (shares - other) / (true - other)
    return found
