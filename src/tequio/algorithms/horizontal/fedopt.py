"""Optimizers at the coordinator: the mean change of a cohort is used as a gradient (with the opposite sign).

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive federated optimization, ICLR 2021 (FedAdagrad,
FedYogi and FedAdam: algorithm 2, with v starting at tau^2). The paper has no bias correction. FedAdam can have it, with
v starting at 0 as in Kingma and Ba, Adam, ICLR 2015: some frameworks put that Adam behind their average.

Hsu, Qi, Brown: Measuring the effects of non-identical data distribution for federated visual classification, 2019
(FedAvgM).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

import numpy as np
from annotated_types import Gt, Interval

from tequio.algorithms.training import Weights, fresh_state, party_weights, train, training_settings
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays

    Step = Callable[[Arrays, Payload], tuple[Arrays, Payload]]

Positive = Annotated[float, Gt(0)]
Beta = Annotated[float, Interval(ge=0, lt=1)]


def optimised_round(algorithm: Algorithm, federation: Federation, state: State, weights: Weights, step: Step) -> State:
    """A round of federated averaging in which `step` turns the mean change and its moments into the change made."""
    chosen = algorithm.select(federation, state)
    replies = federation.ask(chosen.parties, train, {"model": state.model}, settings=training_settings(algorithm),
                             stages=algorithm.parts.stages)
    if not replies:
        return algorithm.conclude(federation, state, chosen, replies)
    mean = algorithm.aggregate(federation, state, replies, weights=party_weights(replies, weights))
    change, moments = step(mean.update, state.memory["moments"])
    return algorithm.conclude(federation, state, chosen, replies, shifted(state.model, change), mean, moments=moments)


def by_name(function: Callable[..., NDArray[np.float64]], *models: Arrays) -> Arrays:
    """A function of arrays, applied to the arrays of the same name in double precision."""
    return {name: function(*(model[name].astype(np.float64) for model in models)) for name in models[0]}


def constant(model: Arrays, value: float) -> Arrays:
    """Arrays of the model's shapes filled with one value, in double precision."""
    return {name: np.full(values.shape, value, dtype=np.float64) for name, values in model.items()}


@register("algorithm", "fedavgm", paper="Hsu et al., 2019")
@dataclass(frozen=True, kw_only=True)
class FedAvgM(Algorithm):
    """Federated averaging with momentum at the coordinator.

    Parameters:
        coordinator_rate: step size at the coordinator
        momentum: how much of the last step's velocity stays
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    coordinator_rate: Positive = 1.0
    momentum: Beta = 0.9
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model, at rest."""
        state = fresh_state(self, federation)
        return state.next(moments={"velocity": constant(state.model, 0.0)})

    def crossing(self, schema: Schema) -> Crossing:
        """The change of the model, as a mean."""
        return Crossing(by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Train, average, step."""
        return optimised_round(self, federation, state, self.weights, self.step)

    def step(self, update: Arrays, moments: Payload) -> tuple[Arrays, Payload]:
        """Velocity v = beta v + delta; the model moves by rate * v."""
        velocity = by_name(lambda v, delta: self.momentum * v + delta, moments["velocity"], update)
        return by_name(lambda v: self.coordinator_rate * v, velocity), {"velocity": velocity}


@register("algorithm", "fedadagrad", paper="Reddi et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedAdagrad(Algorithm):
    """Federated averaging with Adagrad at the coordinator.

    Parameters:
        coordinator_rate: step size at the coordinator
        beta1: momentum of the mean change
        tau: adaptivity; the smaller, the more the steps of all weights are alike
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    coordinator_rate: Positive = 0.1
    beta1: Beta = 0.0
    tau: Positive = 1e-3
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model and moments."""
        return adaptive_start(self, federation, self.tau**2)

    def crossing(self, schema: Schema) -> Crossing:
        """The change of the model, as a mean."""
        return Crossing(by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Train, average, step."""
        return optimised_round(self, federation, state, self.weights, self.step)

    def step(self, update: Arrays, moments: Payload) -> tuple[Arrays, Payload]:
        """v = v + delta^2."""
        second = by_name(lambda v, delta: v + delta**2, moments["second"], update)
        return adaptive_step(self, update, moments, second)


@register("algorithm", "fedyogi", paper="Reddi et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedYogi(Algorithm):
    """Federated averaging with Yogi at the coordinator.

    Parameters:
        coordinator_rate: step size at the coordinator
        beta1: momentum of the mean change
        beta2: how slowly the second moment follows
        tau: adaptivity; the smaller, the more the steps of all weights are alike
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    coordinator_rate: Positive = 0.01
    beta1: Beta = 0.9
    beta2: Beta = 0.99
    tau: Positive = 1e-3
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model and moments."""
        return adaptive_start(self, federation, self.tau**2)

    def crossing(self, schema: Schema) -> Crossing:
        """The change of the model, as a mean."""
        return Crossing(by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Train, average, step."""
        return optimised_round(self, federation, state, self.weights, self.step)

    def step(self, update: Arrays, moments: Payload) -> tuple[Arrays, Payload]:
        """v = v - (1 - beta2) delta^2 sign(v - delta^2)."""
        second = by_name(lambda v, delta: v - (1 - self.beta2) * delta**2 * np.sign(v - delta**2),
                         moments["second"], update)
        return adaptive_step(self, update, moments, second)


@register("algorithm", "fedadam", paper="Reddi et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedAdam(Algorithm):
    """Federated averaging with Adam at the coordinator.

    Parameters:
        coordinator_rate: step size at the coordinator
        beta1: momentum of the mean change
        beta2: how slowly the second moment follows
        tau: adaptivity; the smaller, the more the steps of all weights are alike (epsilon of Adam)
        bias_correction: start both moments at 0 and correct their bias, as Adam does and the paper does not
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    coordinator_rate: Positive = 0.01
    beta1: Beta = 0.9
    beta2: Beta = 0.99
    tau: Positive = 1e-3
    bias_correction: bool = False
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model and moments."""
        return adaptive_start(self, federation, 0.0 if self.bias_correction else self.tau**2)

    def crossing(self, schema: Schema) -> Crossing:
        """The change of the model, as a mean."""
        return Crossing(by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Train, average, step."""
        return optimised_round(self, federation, state, self.weights, self.step)

    def step(self, update: Arrays, moments: Payload) -> tuple[Arrays, Payload]:
        """v = beta2 v + (1 - beta2) delta^2."""
        second = by_name(lambda v, delta: self.beta2 * v + (1 - self.beta2) * delta**2, moments["second"], update)
        steps = moments["steps"] + 1
        bias = (1 - self.beta1**steps, 1 - self.beta2**steps) if self.bias_correction else (1.0, 1.0)
        return adaptive_step(self, update, moments, second, bias)


class _Adaptive(Protocol):
    """What the adaptive members have in common."""

    @property
    def coordinator_rate(self) -> float: ...
    @property
    def beta1(self) -> float: ...
    @property
    def tau(self) -> float: ...


def adaptive_start(algorithm: Algorithm, federation: Federation, second: float) -> State:
    """A fresh model, a first moment of 0, and a second moment of `second`."""
    state = fresh_state(algorithm, federation)
    moments = {"first": constant(state.model, 0.0), "second": constant(state.model, second), "steps": 0}
    return state.next(moments=moments)


def adaptive_step(optimizer: _Adaptive, update: Arrays, moments: Payload, second: Arrays,
                  bias: tuple[float, float] = (1.0, 1.0)) -> tuple[Arrays, Payload]:
    """m = beta1 m + (1 - beta1) delta; the model moves by rate * m / (sqrt(v) + tau)."""
    beta1, rate, tau = optimizer.beta1, optimizer.coordinator_rate, optimizer.tau
    first = by_name(lambda m, delta: beta1 * m + (1 - beta1) * delta, moments["first"], update)
    change = by_name(lambda m, v: rate * (m / bias[0]) / (np.sqrt(v / bias[1]) + tau), first, second)
    return change, {"first": first, "second": second, "steps": moments["steps"] + 1}
