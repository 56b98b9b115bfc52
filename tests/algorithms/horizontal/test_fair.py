"""q-FedAvg and agnostic federated learning: worked steps, and that they serve the worst party better."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from parts import Parts
from tequio.algorithms.horizontal.fair import on_simplex
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining
from tequio.registry import build

LOCAL = LocalTraining(epochs=1, batch=0, learning_rate=0.1)
LONGER = LocalTraining(epochs=2, batch=0, learning_rate=0.3)


class Play:
    """Three parties, the last of which has few rows and a rule of its own."""

    def __init__(self, algorithm, parameters=None, *, local=LOCAL, categories=None):
        draw = np.random.default_rng(0)
        features = draw.normal(size=(90, 2)).astype(np.float32)
        truth = np.where(np.arange(90) < 80, features[:, 0] > 0, features[:, 1] > 0.2)
        data = Dataset.of(Schema.of_numbers("ab", Target("classes", ("no", "yes"))), features, truth.astype(int))
        dealt = Partition.of([np.arange(50), np.arange(50, 80), np.arange(80, 90)], categories=categories)
        people, engine = Population(data, dealt, Split(0.0, 0.0)), InlineEngine()
        engine.open(people)
        self.federation = Federation(people, engine)
        parts = Parts(build("learner", "mlp", {"hidden": []}), local)
        self.algorithm = build("algorithm", algorithm, parameters, parts=parts)
        self.state = self.algorithm.start(self.federation)

    def rounds(self, count):
        for _ in range(count):
            self.federation.round += 1
            self.state = self.algorithm.round(self.federation, self.state)
        return self

    def losses(self, model=None):
        evaluate, people = self.algorithm.learner.evaluate, self.federation.population
        tallies = [evaluate(model or self.state.model, people.view(party).train) for party in range(3)]
        return np.array([tally["loss_sum"] / tally["rows"] for tally in tallies])


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_q_of_nought_is_federated_averaging(weights):
    local = LocalTraining(epochs=2, batch=8, learning_rate=0.2)
    fair = Play("q-fedavg", {"q": 0.0, "weights": weights}, local=local).rounds(3)
    plain = Play("fedavg", {"weights": weights}, local=local).rounds(3)
    for name, values in plain.state.model.items():
        assert fair.state.model[name] == pytest.approx(values, rel=1e-6)


def test_a_step_of_q_fedavg_is_that_of_the_paper():
    play = Play("q-fedavg", {"q": 2.0, "weights": "uniform"})
    before, losses, step = play.state.model, play.losses(), 10.0
    changes = []
    for party in range(3):
        trained = play.algorithm.learner.train(before, play.federation.population.view(party).train, LOCAL,
                                               np.random.default_rng(0)).model
        changes.append(np.concatenate([(before[name] - trained[name]).reshape(-1) for name in before]).astype(float))
    gradients = [step * change for change in changes]
    deltas = [loss ** 2 * gradient for loss, gradient in zip(losses, gradients, strict=True)]
    bends = [2 * loss * gradient @ gradient + step * loss ** 2
             for loss, gradient in zip(losses, gradients, strict=True)]
    expected = np.concatenate([values.reshape(-1) for values in before.values()]) - sum(deltas) / sum(bends)
    after = np.concatenate([values.reshape(-1) for values in play.rounds(1).state.model.values()])
    assert after == pytest.approx(expected, abs=1e-6)


def test_agnostic_moves_the_mixture_along_the_losses():
    play = Play("agnostic", {"mixture_rate": 0.2})
    losses = play.losses()
    assert play.state.memory["mixture"] == pytest.approx([50 / 90, 30 / 90, 10 / 90])
    expected = on_simplex(np.array([50, 30, 10]) / 90 + 0.2 * losses)
    assert play.rounds(1).state.memory["mixture"] == pytest.approx(expected)


def test_a_domain_may_be_a_category():
    play = Play("agnostic", {"domains": "category"}, local=LONGER, categories=("town", "town", "village")).rounds(60)
    town, village = play.state.memory["mixture"]
    assert village > 10 / 90
    assert town + village == pytest.approx(1.0)


def test_within_a_category_parties_weigh_by_their_rows():
    play = Play("agnostic", {"domains": "category", "mixture_rate": 0.2}, categories=("town", "town", "village"))
    plain = Play("fedavg").rounds(1)
    town = play.losses()[:2] @ [50 / 80, 30 / 80]
    expected = on_simplex(np.array([80, 10]) / 90 + 0.2 * np.array([town, play.losses()[2]]))
    # The first mixture is that of the rows: 80/90 times 50/80 and 30/80, and 10/90, as in federated averaging.
    for name, values in play.rounds(1).state.model.items():
        assert values == pytest.approx(plain.state.model[name], rel=1e-6)
    assert play.state.memory["mixture"] == pytest.approx(expected)


@pytest.mark.parametrize(("name", "parameters"), [("q-fedavg", {"q": 3.0, "lipschitz": 1.0}),
                                                  ("agnostic", {"mixture_rate": 0.1})])
def test_the_worst_served_party_is_served_better(name, parameters):
    plain = Play("fedavg", local=LONGER).rounds(60).losses()
    fair = Play(name, parameters, local=LONGER).rounds(60).losses()
    assert fair.max() < plain.max()
    assert fair.std() < plain.std()


def test_where_nothing_is_shared_out_nobody_gets_any():
    assert on_simplex(np.array([2.0, -1.0]), 0.0).tolist() == [0.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(values=arrays(float, st.integers(1, 8), elements=st.floats(-5, 5)), total=st.floats(0.01, 3))
def test_the_nearest_point_of_a_simplex(values, total):
    nearest = on_simplex(values, total)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(total)
    # No other point of the simplex is nearer: the directions to its corners do not lead closer.
    for corner in np.eye(len(values)) * total:
        assert (values - nearest) @ (corner - nearest) <= 1e-9
