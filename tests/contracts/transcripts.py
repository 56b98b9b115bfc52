"""An engine that keeps all that crosses, and what must never be found there."""

from __future__ import annotations

from typing import Any

import numpy as np

from tequio.algorithms.vertical.rows import CommonRows
from tequio.engines.inline import InlineEngine
from tequio.federation.population import state_name


class Transcript(InlineEngine):
    """The engine of this process, which keeps every message: (task, sender, receiver, payload)."""

    def __init__(self):
        super().__init__()
        self.messages: list[tuple[str, Any, Any, dict[str, Any]]] = []
        self._orders = []

    def submit(self, order):
        self._orders.append(order)
        super().submit(order)

    def collect(self):
        order, outcome = self._orders.pop(0), super().collect()
        own = order.each or ({},) * len(order.parties)
        for party, extra in zip(order.parties, own, strict=True):
            self.messages.append((order.task, "coordinator", party, {**order.payload, **extra}))
        for reply in outcome.replies:
            self.messages.append((order.task, reply.party, "coordinator", reply.payload))
        return outcome


def kept(state, kind):
    """What a party's private state holds under a typed record."""
    return state.get(state_name(kind), {})


def keeping(state, kind, values):
    """The state with other values under a typed record."""
    return {**state, state_name(kind): {**kept(state, kind), **values}}


def values_in(payload):
    """Every array, text and number of a payload."""
    if isinstance(payload, dict):
        for value in payload.values():
            yield from values_in(value)
    elif isinstance(payload, list | tuple):
        for value in payload:
            yield from values_in(value)
    else:
        yield payload


def said(engine, *, skip=()):
    """(task, sender, receiver, value) of everything that crossed, but for some tasks."""
    return [(name, sender, receiver, value) for name, sender, receiver, payload in engine.messages if name not in skip
            for value in values_in(payload)]


def assert_no_ids(engine, population):
    """No id crosses in clear, as a number, as a text, or as raw bytes."""
    ids = {int(value) for value in population.dataset.ids}
    for name, _, _, value in said(engine):
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
            assert not ids & {int(entry) for entry in value.ravel()[np.isfinite(value.ravel())]}, name
        elif isinstance(value, str | bytes):
            text = value.encode() if isinstance(value, str) else value
            assert not any(str(identity).encode() in text or identity.to_bytes(8, "little") in text
                           for identity in ids), name
        elif not isinstance(value, np.ndarray):
            assert value not in ids, name


def assert_no_rows(engine, population, *, skip=()):
    """No column of any party crosses, whole or standardised: no message has one of its values at so many places."""
    features = np.asarray(population.dataset.features, dtype=np.float64)
    standard = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1)
    known = np.sort(np.unique(np.concatenate([features.ravel(), features.astype(np.float32).ravel(),
                                              standard.ravel()])))
    known = known[(known != np.rint(known))]
    for name, _, _, value in said(engine, skip=skip):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            found = np.isin(value.astype(np.float64).ravel(), known).sum()
            assert found <= 1 + value.size // 200, name  # single precision has few enough numbers to meet by chance


def assert_no_labels(engine, population, state_of_label_holder, *, skip=()):
    """No message has the labels of the common rows, in the agreed order or in any order of its own but sorted."""
    rows = population.whole(list(population.partition.holds_target).index(True)).take(
        kept(state_of_label_holder, CommonRows)["rows"])
    labels = rows.target.astype(np.float64)
    shapes = [labels, 2 * labels - 1, 1 - labels]
    for name, sender, receiver, value in said(engine, skip=skip):
        flat = np.asarray(value, dtype=np.float64).ravel() if isinstance(value, np.ndarray) else np.empty(0)
        if len(flat) == len(labels):
            assert not any(np.allclose(flat, shape) for shape in shapes), (name, sender, receiver)
