"""Three ways to take in what arrives: one answer at a time, a full buffer of them, or all that came within a period.

FedAsync. Xie, Koyejo, Gupta: Asynchronous federated optimization, OPT 2020.

FedBuff. Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: Federated learning with buffered asynchronous
aggregation, AISTATS 2022. The paper weighs by 1 / sqrt(1 + staleness), which is the polynomial policy with slope 0.5.

Semi-synchronous. As in Wu, He, Lin, Mao, Maple, Jarvis: SAFA, a semi-asynchronous protocol for fast federated learning
with low overhead, IEEE Transactions on Computers 2021, nobody's work is thrown away for being late: it counts in the
period in which it arrives, for less. Unlike SAFA, parties keep no cache of their own at the coordinator.

Buffers such as batch-norm statistics are no weights: they become the weighted mean of those that arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.algorithms.asynchronous.flights import Asynchronous, Landed, Policy, Staleness, fly
from tequio.federation.aggregation import Aggregator, Mean, Updates, mixed, shifted, zeros
from tequio.federation.aggregators.coordinates import of_buffers
from tequio.federation.algorithm import part
from tequio.federation.averaging import Weights
from tequio.federation.topology import ClientServer, Hierarchical, Topology
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.learners.learner import Arrays


@register("algorithm", "fedasync", paper="Xie et al., 2019")
@dataclass(frozen=True, kw_only=True)
class FedAsync(Asynchronous):
    """A model that arrives is mixed into the global one at once, the less the older the model it was made from.

    A round is one arrival. Idle parties depart at random. Needs [devices].

    Parameters:
        concurrency: how many parties are under way at a time
        mixing: share of an arriving model that is fresh
        staleness: how the share falls with the number of rounds since the party departed
        slope: exponent of the polynomial, or slope of the hinge
        patience: rounds without loss under the hinge
    """

    concurrency: Annotated[int, Ge(1)] = 10
    mixing: Annotated[float, Interval(gt=0, le=1)] = 0.6
    staleness: Policy = "polynomial"
    slope: Annotated[float, Ge(0)] = 0.5
    patience: Annotated[float, Ge(0)] = 4.0

    def round(self, federation: Federation, state: State) -> State:
        """Wait for one arrival and mix it in."""
        landed = fly(self, federation, state, concurrency=self.concurrency, arrivals=1, whole=True)
        shares = self.mixing * Staleness(self.staleness, self.slope, self.patience).weights(landed.staleness)
        model = state.model
        for work, share in zip(landed.work, shares, strict=True):
            model = mixed(model, {**work["weights"], **work["buffers"]}, float(share))
        return state.next(model, flights=landed.memory)


@register("algorithm", "fedbuff", paper="Nguyen et al., 2022")
@dataclass(frozen=True, kw_only=True)
class FedBuff(Asynchronous):
    """Parties train all the time; whenever a few of them have answered, the mean of their changes moves the model.

    A round is one full buffer. Idle parties depart at random. Needs [devices].

    Parameters:
        concurrency: how many parties are under way at a time
        buffer: how many answers change the model
        coordinator_rate: factor on the mean change
        staleness: how an answer's weight falls with the number of rounds since its party departed
        slope: exponent of the polynomial, or slope of the hinge
        patience: rounds without loss under the hinge
    """

    aggregator: Aggregator = part(factory=Mean)
    topologies: ClassVar[tuple[type[Topology], ...]] = (ClientServer, Hierarchical)

    concurrency: Annotated[int, Ge(1)] = 20
    buffer: Annotated[int, Ge(1)] = 10
    coordinator_rate: Annotated[float, Gt(0)] = 1.0
    staleness: Policy = "polynomial"
    slope: Annotated[float, Ge(0)] = 0.5
    patience: Annotated[float, Ge(0)] = 4.0

    def round(self, federation: Federation, state: State) -> State:
        """Fill the buffer and apply it."""
        landed = fly(self, federation, state, concurrency=self.concurrency, arrivals=self.buffer)
        fresh = Staleness(self.staleness, self.slope, self.patience).weights(landed.staleness)
        # The weights shrink the changes; their mean is over the buffer, not over the weights.
        shrunk = [shifted(zeros(work["weights"]), work["weights"], float(weight))
                  for work, weight in zip(landed.work, fresh, strict=True)]
        return _followed(self.aggregator, federation, state, landed, shrunk, np.ones(len(landed)),
                         self.coordinator_rate)


@register("algorithm", "semisync", paper="Wu et al., 2021")
@dataclass(frozen=True, kw_only=True)
class SemiSynchronous(Asynchronous):
    """The model changes once a period by the weighted mean of the changes that arrived in it, fresh or old.

    A round is one period. Idle parties depart at random. Needs [devices].

    Parameters:
        concurrency: how many parties are under way at a time
        period: virtual seconds from one change of the model to the next
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
        staleness: how an answer's weight falls with the number of rounds since its party departed
        slope: exponent of the polynomial, or slope of the hinge
        patience: rounds without loss under the hinge
    """

    aggregator: Aggregator = part(factory=Mean)
    topologies: ClassVar[tuple[type[Topology], ...]] = (ClientServer, Hierarchical)

    concurrency: Annotated[int, Ge(1)] = 20
    period: Annotated[float, Gt(0)] = 60.0
    weights: Weights = "size"
    staleness: Policy = "polynomial"
    slope: Annotated[float, Ge(0)] = 0.5
    patience: Annotated[float, Ge(0)] = 4.0

    def round(self, federation: Federation, state: State) -> State:
        """Let a period pass and average what arrived."""
        landed = fly(self, federation, state, concurrency=self.concurrency, period=self.period)
        fresh = Staleness(self.staleness, self.slope, self.patience).weights(landed.staleness)
        weights = fresh * landed.rows if self.weights == "size" else fresh
        return _followed(self.aggregator, federation, state, landed, [work["weights"] for work in landed.work], weights)


def _followed(aggregator: Aggregator, federation: Federation, state: State, landed: Landed, changes: list[Arrays],
              weights: NDArray[np.float64], rate: float = 1.0) -> State:
    """The state after the aggregate of some changes, followed at a rate; the same model where nothing landed."""
    if not len(landed):
        return state.next(flights=landed.memory)
    mean = federation.topology.combine(Updates(landed.parties, changes, weights), aggregator,
                                       state.memory.get("aggregator", {}))
    if mean.notes:
        federation.record("aggregation", {"round": federation.round, **mean.notes})
    after = shifted({name: state.model[name] for name in mean.update}, mean.update, rate)
    if landed.work[0]["buffers"]:
        buffers = Updates(landed.parties, [work["buffers"] for work in landed.work], weights)
        after |= of_buffers(aggregator).combine(buffers, {}).update
    return state.next({name: after[name] for name in state.model}, flights=landed.memory, aggregator=mean.memory)
