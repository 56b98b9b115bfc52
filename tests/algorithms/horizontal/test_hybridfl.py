"""HybridFL: balanced plans by hand, rows that only consenting parties give, and the coordinator as one participant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import toy

from tequio.algorithms.horizontal.hybridfl import HybridFL, hand_over_rows, plan_rows
from tequio.errors import PartyError
from tequio.federation.clock import Clock
from tequio.federation.devices import Mobile
from tequio.federation.selection import Choice, SelectionContext, Selector


@dataclass(frozen=True)
class Offering(Selector):
    """Chooses some parties, and says what the others offer."""

    parties: tuple[int, ...]
    offers: Any

    def choose(self, context: SelectionContext) -> Choice:
        return Choice(np.array(self.parties, dtype=np.int64), {"offers": self.offers})


def test_rows_are_taken_class_by_class_from_the_fastest_that_has_one() -> None:
    # 1,000 bytes a row: 1 s from party 0, 2 s from 1. In turn: a of 0, b of 1 (0 has none), a of 0, b of 1, a of 1.
    classes, throughput = np.array([[2, 0], [5, 2]]), np.array([8000.0, 4000.0])
    size = np.array([1000, 1000])
    for window, expected in ((0.5, [[0, 0], [0, 0]]), (1.0, [[1, 0], [0, 0]]), (5.9, [[2, 0], [0, 1]]),
                             (6.0, [[2, 0], [0, 2]]), (8.0, [[2, 0], [1, 2]]), (1e9, [[2, 0], [5, 2]])):
        assert plan_rows(classes, throughput, size, window).tolist() == expected


def test_the_plan_is_balanced_while_every_class_is_there() -> None:
    classes = np.random.default_rng(0).integers(20, 40, (3, 10))
    wanted = plan_rows(classes, np.array([1e6, 2e6, 3e6]), np.array([800] * 3), 0.3).sum(axis=0)
    assert wanted.sum() > 20
    assert wanted.max() - wanted.min() <= 1


def test_a_link_that_lets_nothing_through_gives_nothing() -> None:
    assert not plan_rows(np.array([[3, 3]]), np.array([0.0]), np.array([8]), 1e9).any()


def on_the_clock(rows: Any, **given: Any) -> Any:
    federation = toy.federation(rows, **given)
    federation.clock = Clock(Mobile(price=1.0), federation.sizes.astype(float))
    return federation


def offers(window: float = 1e9) -> dict[str, Any]:
    return {"parties": np.array([2]), "classes": [np.array([2])], "row_bytes": np.array([16]),
            "throughput": np.array([1e6]), "window": window}


def labelled(values: list[float]) -> Any:
    """Rows whose target doubles as their class: 0."""
    return np.ones(len(values)), np.array(values)


@pytest.mark.parametrize(("weights", "expected"), [("uniform", (1.0 + 2.0 + 0.0) / 3),
                                                   ("size", (1.0 + 2.0 * 3 + 0.0) / 6)])
def test_the_coordinator_is_one_more_participant(weights: Any, expected: float) -> None:
    # From 0 with rate 0.5: party 0 (target 2) goes to 1, party 1 (three rows of 4) to 2, the coordinator stays at 0
    # with the two rows of party 2, whose target is 0.
    rows = [labelled([2.0]), labelled([4.0] * 3), labelled([0.0, 0.0])]
    federation = on_the_clock(rows, overrides={2: {"share_rows": True}})
    told: list[Any] = []
    federation.record = lambda kind, facts: told.append(facts) if kind == "rows handed over" else None
    algorithm = HybridFL(weights=weights, **toy.parts(selector=Offering((0, 1), offers())))
    state = toy.run(algorithm, federation)
    assert float(toy.weights(state)[0]) == pytest.approx(expected)
    assert told == [{"round": 1, "parties": [2], "rows": 2}]
    assert federation.clock.metrics()["clock.rows_shared"] == 2


def test_without_rows_it_is_federated_averaging() -> None:
    rows = [labelled([2.0]), labelled([4.0]), labelled([0.0, 0.0])]
    for given in (offers(window=0.0), {}):
        federation = on_the_clock(rows, overrides={2: {"share_rows": True}})
        state = toy.run(HybridFL(**toy.parts(selector=Offering((0, 1), given))), federation)
        assert float(toy.weights(state)[0]) == pytest.approx(1.5)


def test_a_party_that_did_not_consent_refuses_itself() -> None:
    federation = on_the_clock([labelled([2.0]), labelled([4.0]), labelled([0.0, 0.0])])
    with pytest.raises(PartyError, match="party '2' was asked to hand over rows, and its settings do not allow that"):
        toy.run(HybridFL(**toy.parts(selector=Offering((0, 1), offers()))), federation)
    with pytest.raises(PartyError, match="hand over rows"):
        federation.off_the_clock().ask([0], hand_over_rows, {"wanted": np.array([1])})


def test_the_coordinator_trains_alone_when_nobody_was_chosen() -> None:
    federation = on_the_clock([labelled([2.0]), labelled([4.0]), labelled([0.0, 0.0])],
                              overrides={2: {"share_rows": True}})
    algorithm = HybridFL(**toy.parts(selector=Offering((), offers())))
    state = toy.one_more(algorithm, federation, algorithm.start(federation).next({"w": np.array([6.0])}))
    assert float(toy.weights(state)[0]) == pytest.approx(3.0)
    assert federation.clock.now == 0.0


def test_a_party_that_gives_fewer_rows_than_it_offered_is_no_trouble() -> None:
    rows = [labelled([2.0]), labelled([4.0]), labelled([7.0])]  # no row of class 0, whatever was said
    federation = on_the_clock(rows, overrides={2: {"share_rows": True}})
    state = toy.run(HybridFL(**toy.parts(selector=Offering((0, 1), offers()))), federation)
    assert float(toy.weights(state)[0]) == pytest.approx(1.5)
