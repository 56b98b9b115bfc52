"""Federated averaging in which the coordinator trains too, on rows that consenting parties hand over.

Yoshida, Nishio, Morikura, Yamamoto, Yonetani: Hybrid-FL for wireless networks: cooperative learning mechanism using
non-IID data, ICC 2020.

This is the one method in which rows leave a party, and only one whose own settings say `share_rows`: the party itself
refuses otherwise. Who offers rows is known from the selectors `hybridfl` and `dyn-hybridfl`; with others nobody does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.training import train
from tequio.data.dataset import Dataset
from tequio.federation.aggregation import difference, shifted, weighted_mean
from tequio.federation.averaging import (
    Averaging,
    Weights,
    aggregate,
    averaged_buffers,
    finish_round,
    select,
    split_buffers,
    weights_by,
    with_sound_buffers,
)
from tequio.federation.task import NoSettings, Reveals, TrainSettings, task
from tequio.learners.learner import Arrays, buffers_of
from tequio.registry import register

if TYPE_CHECKING:

    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party


@register("algorithm", "hybridfl", paper="Yoshida et al., 2020")
@dataclass(frozen=True, kw_only=True)
class HybridFL(Averaging):
    """Federated averaging with the coordinator as one more participant, training on rows handed over by consent.

    Rows are asked for while the chosen parties train, class by class in turn, from the fastest party that has one.

    Parameters:
        weights: weigh each participant by its number of training rows (size), or all alike (uniform)
    """

    sums_only: ClassVar[bool] = False

    weights: Weights = "uniform"

    def round(self, federation: Federation, state: State) -> State:
        """Select, gather rows, train here and there, average."""
        chosen = select(self, federation, state)
        rows = gathered_rows(federation, chosen.memory.get("offers", {}))
        replies = federation.ask(chosen.parties, train, {"model": state.model}, stages=self.way,
                                 settings=TrainSettings(learner=self.learner, local=self.local))
        trained, buffers = split_buffers(state.model, buffers_of(self.learner, federation.schema))
        replies = with_sound_buffers(federation, replies, buffers)
        own = self._own_update(federation, state, rows)
        if not replies:
            return finish_round(self, federation, state, chosen, replies, own and shifted(state.model, own))
        weights = weights_by(self.weights, replies)
        mean = aggregate(self, federation, state, replies, trained, weights)
        after = shifted(trained, mean.update)
        if buffers:
            after |= averaged_buffers(self, federation, state, replies, buffers, weights, mean, self.weights)
        if own is not None and rows is not None:
            theirs = {**mean.update, **difference({name: after[name] for name in buffers}, buffers)}
            mine = 1.0 if self.weights == "uniform" else float(len(rows))
            after = shifted(state.model, weighted_mean([theirs, own], [float(weights.sum()), mine]))
        return finish_round(self, federation, state, chosen, replies, {name: after[name] for name in state.model}, mean)

    def _own_update(self, federation: Federation, state: State, rows: Dataset | None) -> Arrays | None:
        """How the coordinator's own training changes the model."""
        if rows is None:
            return None
        local = self.local
        trained = self.learner.train(state.model, rows, local, federation.rng("train on gathered rows"),
                                     learning_rate=local.rate(federation.round))
        return difference(trained.model, state.model)


def gathered_rows(federation: Federation, offers: Payload) -> Dataset | None:
    """Rows that fit into the window of the offers, balanced by class; nothing where there are none."""
    if not offers or not len(offers["parties"]) or federation.clock is None:
        return None
    wanted = plan_rows(np.array(offers["classes"]), offers["throughput"], offers["row_bytes"], offers["window"])
    givers = offers["parties"][wanted.any(axis=1)]
    if not len(givers):
        return None
    places = np.searchsorted(offers["parties"], givers)
    replies = federation.off_the_clock().ask(givers, hand_over_rows, each={
        int(party): {"wanted": wanted[place]} for party, place in zip(givers, places, strict=True)})
    if not sum(len(payload["target"]) for payload in replies.payloads):
        return None
    rows = Dataset.of(federation.schema, np.concatenate([payload["features"] for payload in replies.payloads]),
                      np.concatenate([payload["target"] for payload in replies.payloads]), name="rows handed over")
    federation.clock.charge(replies.parties, federation.round,
                            np.array([reply.bytes_up for reply in replies], dtype=np.float64))
    federation.clock.totals.rows_shared += len(rows)
    federation.record("rows handed over", {"round": federation.round, "parties": replies.parties.tolist(),
                                           "rows": len(rows)})
    return rows


def plan_rows(classes: NDArray[Any], throughput: NDArray[Any], row_bytes: NDArray[Any],
              window: float) -> NDArray[np.int64]:
    """How many rows of each class to ask of each party: class after class in turn, from the fastest that has one left.

    It ends when the next row would not arrive within the window of seconds, or nobody has any left.
    """
    left, wanted, used = classes.copy(), np.zeros_like(classes), 0.0
    by_speed = np.argsort(-throughput, kind="stable")
    by_speed = by_speed[throughput[by_speed] > 0]
    while left[by_speed].any():
        for label in range(classes.shape[1]):
            holders = by_speed[left[by_speed, label] > 0]
            if not len(holders):
                continue
            fastest = holders[0]
            used += 8.0 * float(row_bytes[fastest]) / float(throughput[fastest])
            if used > window:
                return wanted
            left[fastest, label] -= 1
            wanted[fastest, label] += 1
    return wanted


class WantedRows(TypedDict):
    """How many rows of each class are asked for."""

    wanted: NDArray[np.int64]


class HandedRows(TypedDict):
    """Rows, as the party holds them."""

    features: NDArray[Any]
    target: NDArray[Any]


@task("hand over rows", settings=NoSettings, reply=HandedRows, reveals=Reveals.ROWS)
def hand_over_rows(party: Party, payload: WantedRows, settings: NoSettings) -> HandedRows:
    """The first so many training rows of each class."""
    rows = party.data.train
    target = rows.target
    places = np.sort(np.concatenate([np.flatnonzero(target == label)[:count]
                                     for label, count in enumerate(payload["wanted"])]))
    given = rows.take(places)
    features = given.features.toarray() if given.is_sparse else given.features
    return {"features": features, "target": given.target}
