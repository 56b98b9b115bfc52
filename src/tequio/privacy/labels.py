"""Private labels: randomised response on the labels themselves, and noise on gradients that would reveal them.

Randomised response: a party tells the truth about a category only with some chance, once and for all. Warner:
Randomized response, JASA 1965. Ghazi, Golowich, Kumar, Manurangsi, Zhang: Deep learning with label differential
privacy, NeurIPS 2021.

In a split network the gradient that a row's activations get differs between classes in length and in direction. Li,
Sun, Yang et al.: Label leakage and protection in two-party split learning, ICLR 2022. `max-norm` hides the length:
every row's gradient is stretched at random along itself until its expected square is that of the longest. `marvell`
hides both: it draws noise of two covariances, one per class, that make the two classes' gradients as hard to tell apart
as any noise of that power can (the sum of their two KL divergences is least, gradients taken as Gaussian).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypedDict

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from tequio.data.dataset import Dataset, Source
from tequio.errors import ConfigError
from tequio.federation.population import PartyData
from tequio.federation.stages import StageSpec
from tequio.noise.coins import Coins
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.ledger import Context, Entry, Ledger
from tequio.privacy.mechanism import Mechanism
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from tequio.federation.population import Party

    Matrix = NDArray[np.float64]



class _Answers(TypedDict, total=False):
    """What a party says its labels are, drawn once and for all."""

    labels: NDArray[np.integer]


@register("stage", "randomised-response", paper="Warner, 1965; Ghazi et al., 2021")
@dataclass(frozen=True)
class RandomisedResponse(Mechanism):
    """Parties train on labels of which each is true with a chance of e^epsilon / (e^epsilon + classes - 1).

    Hides labels, not rows. The answer to a label is drawn once and kept, so that rounds tell nothing new. Works with
    algorithms that send updates; validation and test rows keep their labels.

    Parameters:
        epsilon: what an answer may tell about a label
        secret: seed the answers from the operating system rather than from the run's seed; runs then differ
    """

    epsilon: Annotated[float, Gt(0)] = 1.0
    secret: bool = False

    unit: ClassVar[Literal["party", "row", "label"]] = "label"
    by_party: ClassVar[bool] = False

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec()

    def enter(self, party: Party) -> None:
        """Before the task: swap the training labels for the answers, which the party keeps."""
        own = party.data
        answers = party.recall(_Answers).get("labels")
        if answers is None or len(answers) != len(own.train):
            coins = Coins.from_system() if self.secret else party.coins("randomised labels", lasting=True)
            answers = randomised(own.train, self.epsilon, coins)
            party.keep(_Answers, {"labels": answers})
        columns = None if own.train.columns is None else np.arange(len(own.train.columns))
        source = Source(own.train.features, answers, missing=own.train.source.missing)
        told = Dataset(own.train.schema, source, columns=columns, name=own.train.name)
        party.pretend(PartyData(told, own.validation, own.test))

    @property
    def noise(self) -> float:
        """That of one Laplace release of the same epsilon."""
        return 1 / self.epsilon

    def opened(self, noise: float, context: Context, ledger: Ledger | None = None) -> Self:
        """With the ledger only: an answer depends on nothing but its label."""
        return replace(self, ledger=ledger)

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """Each label once, however many the rounds: as much as one Laplace release of that epsilon."""
        return [{Release(self.noise, "laplace"): 1}] if entries else []

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """One answer for all rounds."""
        return [Entry(1, noise, 1)]

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Parties train on labels that are randomised once, each for an epsilon of {self.epsilon:g}. "
                "Neighbours: two data sets of a party that differ in one label; all else about rows is not hidden.")


def truth_chance(epsilon: float, classes: int) -> float:
    """The chance of a true answer."""
    return 1 / (1 + (classes - 1) * exp(-epsilon))


def randomised(rows: Dataset, epsilon: float, coins: Coins) -> NDArray[np.integer]:
    """The true label with its chance, else one of the others, all alike."""
    if rows.schema.target.kind != "classes":
        raise ConfigError(f"randomised response is for classes, and the target of '{rows.name}' is of kind "
                          f"'{rows.schema.target.kind}'", remedy="use 'local-dp' or local training 'dp-sgd'")
    classes, target = len(rows.schema.target.names), np.asarray(rows.target)
    others = (target + coins.below(max(classes - 1, 1), len(target)) + 1) % classes
    # A little below the chance, so that no rounding of it tells more than epsilon.
    is_true = coins.heads(truth_chance(epsilon, classes) * (1 - 2.0 ** -50), len(target))
    return np.where(is_true, target, others).astype(target.dtype)


def debiased(shares: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """What shares of classes among true labels are to be expected behind shares among answers."""
    classes = len(shares)
    true = truth_chance(epsilon, classes)
    other = (1 - true) / (classes - 1)
    found: NDArray[np.float64] = (shares - other) / (true - other)
    return found


Protection = Literal["none", "isotropic", "max-norm", "marvell"]


def protected(gradients: NDArray[np.floating], positive: NDArray[np.bool_], how: Protection, strength: float,
              rng: np.random.Generator) -> NDArray[np.floating]:
    """The gradients of a batch's rows with noise on them.

    `strength` is the power of the noise: of isotropic noise in squares of the longest gradient, of Marvell's in squares
    of the distance between the classes' mean gradients. Max-norm needs none.
    """
    given = gradients.astype(np.float64)
    if how == "isotropic":
        longest = np.square(given).sum(axis=1).max(initial=0.0)
        noise = np.sqrt(strength * longest / max(given.shape[1], 1)) * rng.standard_normal(given.shape)
    elif how == "max-norm":
        noise = _stretch(given, rng)
    elif how == "marvell":
        noise = _marvell(given, positive, strength, rng)
    else:
        return gradients
    return np.asarray(given + noise, gradients.dtype)


def _stretch(gradients: Matrix, rng: np.random.Generator) -> Matrix:
    squares = np.square(gradients).sum(axis=1)
    deviation = np.sqrt(np.maximum(squares.max(initial=0.0) / np.maximum(squares, 1e-300) - 1.0, 0.0))
    # A row whose gradient is nought has no direction to be stretched in.
    deviation = np.where(squares > 0, deviation, 0.0)
    return gradients * (deviation * rng.standard_normal(len(gradients)))[:, None]


def _marvell(gradients: Matrix, positive: NDArray[np.bool_], strength: float, rng: np.random.Generator) -> Matrix:
    draw = rng.standard_normal(gradients.shape)
    along = rng.standard_normal(len(gradients))
    if positive.all() or not positive.any():
        return np.zeros_like(gradients)
    gap = gradients[positive].mean(axis=0) - gradients[~positive].mean(axis=0)
    distance = float(gap @ gap)
    if distance <= 0:
        return np.zeros_like(gradients)
    spread = [float(gradients[which].var(axis=0).mean()) for which in (~positive, positive)]
    powers = marvell_powers(distance, spread[0], spread[1], float(positive.mean()), gradients.shape[1],
                            strength * distance)
    along_gap, across = powers[:2][positive.astype(int)], powers[2:][positive.astype(int)]
    unit = gap / np.sqrt(distance)
    sideways = draw - np.outer(draw @ unit, unit)
    noise: Matrix = np.sqrt(across)[:, None] * sideways + np.outer(np.sqrt(along_gap) * along, unit)
    return noise


def marvell_powers(distance: float, spread0: float, spread1: float, share1: float, width: int,
                   power: float) -> NDArray[np.float64]:
    """Noise variances that make two Gaussian classes hardest to tell: along their gap (class 0, 1), then across it.

    The classes have isotropic variances `spread0` and `spread1`, means at a squared `distance`; of the rows a share is
    of class 1, and the noise may have that much power a row on average.
    """
    from scipy.optimize import minimize

    unit = max(distance, spread0, spread1)
    gap, spreads = distance / unit, np.array([spread0, spread1]) / unit + 1e-9
    shares, budget = np.array([1 - share1, share1]), power / unit

    def divergence(values: NDArray[np.float64]) -> float:
        (a0, a1), (c0, c1) = values[:2] + spreads, values[2:] + spreads
        return float((width - 1) * (c0 / c1 + c1 / c0) + (a0 + gap) / a1 + (a1 + gap) / a0)

    def left(values: NDArray[np.float64]) -> float:
        return float(budget - shares @ (values[:2] + (width - 1) * values[2:]))

    start = np.array([budget, budget, 0.0, 0.0]) * 0.99
    found = minimize(divergence, start, method="SLSQP", bounds=[(0, None)] * 4,
                     constraints=[{"type": "ineq", "fun": left}])
    best = found.x if divergence(np.maximum(found.x, 0)) <= divergence(start) else start
    return unit * np.maximum(best, 0.0)
