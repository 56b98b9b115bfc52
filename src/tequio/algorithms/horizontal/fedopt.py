"""Optimizers at the coordinator: the mean change of a cohort is used as a gradient (with the opposite sign).

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive federated optimization, ICLR 2021 (FedAdagrad,
FedYogi and FedAdam: algorithm 2, with v starting at tau^2). The paper has no bias correction. FedAdam can have it, with
v starting at 0 as in Kingma and Ba, Adam, ICLR 2015: some frameworks put that Adam behind their average.

Hsu, Qi, Brown: Measuring the effects of non-identical data distribution for federated visual classification, 2019
(FedAvgM).

Moments are about weights only: buffers follow the parties' mean.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Gt, Interval

from tequio.algorithms.training import train
from tequio.federation.aggregation import shifted
from tequio.federation.averaging import Averaging, Weights, averaging_round, split_buffers
from tequio.federation.task import TrainSettings
from tequio.learners.learner import buffers_of
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import Disclosure, State
    from tequio.federation.averaging import Averaged
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays

Positive = Annotated[float, Gt(0)]
Beta = Annotated[float, Interval(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class Optimised(Averaging):
    """Federated averaging in which an optimizer turns the mean change and its moments into the change made."""

    weights: Weights = "size"

    @abstractmethod
    def moments(self, weights: Arrays) -> Payload:
        """What the optimizer remembers before the first round."""

    @abstractmethod
    def moved(self, update: Arrays, moments: Payload) -> tuple[Arrays, Payload]:
        """The change to make, and the moments after it."""

    def start(self, federation: Federation) -> State:
        """A fresh model and fresh moments."""
        state = super().start(federation)
        weights, _ = split_buffers(state.model, buffers_of(self.learner, federation.schema))
        return state.next(moments=self.moments(weights))

    def disclosure(self, schema: Schema) -> Disclosure:
        """The change of the model, as a mean."""
        return self.discloses(schema, by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Train, average, step."""
        settings = TrainSettings(learner=self.learner, local=self.local)
        return averaging_round(self, federation, state, train, settings, weights=self.weights, step=self.step)

    def step(self, averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
        """Move the weights as the optimizer says."""
        change, moments = self.moved(averaged.mean, averaged.state.memory["moments"])
        return shifted(averaged.model, change), {"moments": moments}


def by_name(function: Callable[..., NDArray[np.float64]], *models: Arrays) -> Arrays:
    """A function of arrays, applied to the arrays of the same name in double precision."""
    return {name: function(*(model[name].astype(np.float64) for model in models)) for name in models[0]}


def constant(model: Arrays, value: float) -> Arrays:
    """Arrays of the model's shapes filled with one value, in double precision."""
    return {name: np.full(values.shape, value, dtype=np.float64) for name, values in model.items()}


@register("algorithm", "fedavgm", paper="Hsu et al., 2019")
@dataclass(frozen=True, kw_only=True)
class FedAvgM(Optimised):
    """Federated averaging with momentum at the coordinator.

    Parameters:
        coordinator_rate: step size at the coordinator
        momentum: how much of the last step's velocity stays
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    coordinator_rate: Positive = 1.0
    momentum: Beta = 0.9

    def moments(self, weights: Arrays) -> Payload:
        """At rest."""
        return {"velocity": constant(weights, 0.0)}

    def moved(self, update: Arrays, moments: Payload) -> tuple[Arrays, Payload]:
        """Velocity v = beta v + delta; the model moves by rate * v."""
        velocity = by_name(lambda v, delta: self.momentum * v + delta, moments["velocity"], update)
        return by_name(lambda v: self.coordinator_rate * v, velocity), {"velocity": velocity}


@dataclass(frozen=True, kw_only=True)
class Adaptive(Optimised):
    """m = beta1 m + (1 - beta1) delta; the model moves by rate * m / (sqrt(v) + tau). Each has its own v."""

    coordinator_rate: Positive = 0.01
    beta1: Beta = 0.9
    tau: Positive = 1e-3

    @abstractmethod
    def second(self, v: NDArray[np.float64], delta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The next second moment."""

    def first_second(self) -> float:
        """The second moment before the first round."""
        return self.tau**2

    def bias(self, steps: int) -> tuple[float, float]:
        """What first and second moment are divided by after so many steps."""
        return 1.0, 1.0

    def moments(self, weights: Arrays) -> Payload:
        """A first moment of 0."""
        return {"first": constant(weights, 0.0), "second": constant(weights, self.first_second()), "steps": 0}

    def moved(self, update: Arrays, moments: Payload) -> tuple[Arrays, Payload]:
        """One step."""
        second = by_name(self.second, moments["second"], update)
        first = by_name(lambda m, delta: self.beta1 * m + (1 - self.beta1) * delta, moments["first"], update)
        steps = moments["steps"] + 1
        bias = self.bias(steps)
        change = by_name(lambda m, v: self.coordinator_rate * (m / bias[0]) / (np.sqrt(v / bias[1]) + self.tau),
                         first, second)
        return change, {"first": first, "second": second, "steps": steps}


@register("algorithm", "fedadagrad", paper="Reddi et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedAdagrad(Adaptive):
    """Federated averaging with Adagrad at the coordinator.

    Parameters:
        coordinator_rate: step size at the coordinator
        beta1: momentum of the mean change
        tau: adaptivity; the smaller, the more the steps of all weights are alike
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    coordinator_rate: Positive = 0.1
    beta1: Beta = 0.0

    def second(self, v: NDArray[np.float64], delta: NDArray[np.float64]) -> NDArray[np.float64]:
        """v + delta^2."""
        return v + delta**2


@register("algorithm", "fedyogi", paper="Reddi et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedYogi(Adaptive):
    """Federated averaging with Yogi at the coordinator.

    Parameters:
        coordinator_rate: step size at the coordinator
        beta1: momentum of the mean change
        beta2: how slowly the second moment follows
        tau: adaptivity; the smaller, the more the steps of all weights are alike
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    beta2: Beta = 0.99

    def second(self, v: NDArray[np.float64], delta: NDArray[np.float64]) -> NDArray[np.float64]:
        """v - (1 - beta2) delta^2 sign(v - delta^2)."""
        return v - (1 - self.beta2) * delta**2 * np.sign(v - delta**2)


@register("algorithm", "fedadam", paper="Reddi et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedAdam(Adaptive):
    """Federated averaging with Adam at the coordinator.

    Parameters:
        coordinator_rate: step size at the coordinator
        beta1: momentum of the mean change
        beta2: how slowly the second moment follows
        tau: adaptivity; the smaller, the more the steps of all weights are alike (epsilon of Adam)
        bias_correction: start both moments at 0 and correct their bias, as Adam does and the paper does not
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    beta2: Beta = 0.99
    bias_correction: bool = False

    def first_second(self) -> float:
        """0 where the bias is corrected."""
        return 0.0 if self.bias_correction else super().first_second()

    def second(self, v: NDArray[np.float64], delta: NDArray[np.float64]) -> NDArray[np.float64]:
        """beta2 v + (1 - beta2) delta^2."""
        return self.beta2 * v + (1 - self.beta2) * delta**2

    def bias(self, steps: int) -> tuple[float, float]:
        """One minus the betas to the power of the steps."""
        return (1 - self.beta1**steps, 1 - self.beta2**steps) if self.bias_correction else (1.0, 1.0)
