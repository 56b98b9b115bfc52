"""Federated k-means: Lloyd steps of scikit-learn on the pooled rows, hand-worked rates, and what leaves a party."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans as Reference

from parts import Parts
from tequio.algorithms.clustering.kmeans import FederatedKMeans
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, DataError
from tequio.federation import payload as payloads
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population
from tequio.federation.selection import RandomParties
from tequio.federation.topology import ClientServer, Hierarchical
from tequio.learners.kmeans import assign, inertia, jaccard_by_number
from tequio.registry import build

if TYPE_CHECKING:
    from tequio.federation.algorithm import State
    from tequio.federation.exchange import Outcome


class Listening(InlineEngine):
    """Keeps every reply that leaves a party."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def collect(self) -> Outcome:
        outcome = super().collect()
        self.heard.extend(outcome.replies)
        return outcome


def federated(data: Dataset, sizes: list[int], topology: Any = None, split: Split | None = None) -> Federation:
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    population = Population(data, Partition.of(rows), split or Split(0.0, 0.0), seed=4)
    engine = Listening()
    engine.open(population)
    return Federation(population, engine, 4, Rules(), topology or ClientServer())


def blobs(rows: int = 300, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0, 0.0], [4.0, 4.0, 0.0], [0.0, 5.0, 5.0], [6.0, 0.0, 3.0]])
    features = centres[rng.integers(0, 4, rows)] + rng.standard_normal((rows, 3))
    return Dataset.of(Schema.of_numbers("abc", Target("none")), features)


def line(*values: float) -> Dataset:
    return Dataset.of(Schema.of_numbers("a", Target("none")), np.array(values)[:, None])


def run(algorithm: FederatedKMeans, federation: Federation, rounds: int, state: State | None = None) -> State:
    state = algorithm.start(federation) if state is None else state
    for _ in range(rounds):
        federation.round += 1
        state = algorithm.round(federation, state)
    return state


def start_of(data: Dataset, clusters: int = 4) -> tuple[tuple[float, ...], ...]:
    rows = np.random.default_rng(7).choice(len(data), clusters, replace=False)
    return tuple(tuple(row) for row in data.features[rows].tolist())


def lloyd(data: Dataset, start: Any, steps: int) -> np.ndarray:
    reference = Reference(len(start), init=np.array(start), n_init=1, max_iter=steps, tol=0.0, algorithm="lloyd")
    return reference.fit(data.features).cluster_centers_


@pytest.mark.parametrize("rounds", [1, 10])
@pytest.mark.parametrize("sizes", [[300], [100, 150, 50], [7] * 40 + [20]])
def test_rounds_equal_lloyd_steps_of_scikit_learn_on_the_pooled_rows(rounds: int, sizes: list[int]) -> None:
    data = blobs()
    start = start_of(data)
    state = run(FederatedKMeans(clusters=4, centroids=start), federated(data, sizes), rounds)
    np.testing.assert_allclose(state.model["centroids"], lloyd(data, start, rounds), rtol=0, atol=1e-9)


def test_aggregators_in_between_change_nothing() -> None:
    data, sizes = blobs(), [30] * 10
    algorithm = FederatedKMeans(clusters=4, centroids=start_of(data))
    events: list[Any] = []
    tree = federated(data, sizes, Hierarchical(3))
    tree.record = lambda kind, facts: events.append((kind, facts))
    flat, grouped = run(algorithm, federated(data, sizes), 5), run(algorithm, tree, 5)
    np.testing.assert_allclose(grouped.model["centroids"], flat.model["centroids"], rtol=1e-12)
    assert [facts["hierarchy"]["messages"] for kind, facts in events if kind == "aggregation"] == [3] * 5


def test_only_counts_and_sums_leave_a_party() -> None:
    """However many rows there are: one count and one sum a cluster."""
    data = blobs()
    federation = federated(data, [100, 200])
    run(FederatedKMeans(clusters=4, centroids=start_of(data)), federation, 3)
    sizes = set()
    for reply in federation.engine.heard:
        [(name, told)] = reply.payload.items()
        assert name == "sums"
        assert {name: values.shape for name, values in told.items()} == {"counts": (4,), "sums": (4, 3)}
        sizes.add(reply.bytes_up)
    assert sizes == {payloads.size({"sums": {"counts": np.zeros(4, np.int64), "sums": np.zeros((4, 3))}})}
    assert federation.traffic.bytes_down == 6 * payloads.size({"centroids": np.zeros((4, 3))})


def test_hand_worked_rates() -> None:
    """Rows 0, 2 | 4 at two parties, one centroid at 0. Party means 1 and 4, weighed 2 to 1: 2."""
    federation = federated(line(0, 2, 4), [2, 1])
    one = {"clusters": 1, "centroids": ((0.0,),)}
    assert run(FederatedKMeans(**one), federation, 1).model["centroids"].tolist() == [[pytest.approx(2.0)]]
    half = run(FederatedKMeans(**one, coordinator_rate=0.5), federation, 1)
    assert half.model["centroids"].tolist() == [[pytest.approx(1.0)]]
    # A party rate of a half: parties go to 0.5 and 2, weighed 2 to 1: 1.
    half = run(FederatedKMeans(**one, party_rate=0.5), federation, 1)
    assert half.model["centroids"].tolist() == [[pytest.approx(1.0)]]
    # Twice: 0.5 -> 0.75 and 2 -> 3, weighed 2 to 1: 1.5; counts are those of the last epoch, so nothing weighs double.
    twice = run(FederatedKMeans(**one, party_rate=0.5, epochs=2), federation, 1)
    assert twice.model["centroids"].tolist() == [[pytest.approx(1.5)]]


def test_batches_are_dealt_by_the_partys_own_stream() -> None:
    data = blobs()
    algorithm = FederatedKMeans(clusters=4, centroids=start_of(data), batch=16, epochs=2)
    first, again = (run(algorithm, federated(data, [150, 150]), 3) for _ in range(2))
    np.testing.assert_array_equal(first.model["centroids"], again.model["centroids"])
    whole = run(FederatedKMeans(clusters=4, centroids=start_of(data), epochs=2), federated(data, [150, 150]), 3)
    assert not np.allclose(first.model["centroids"], whole.model["centroids"])


def test_an_empty_cluster_stays_where_it_was() -> None:
    state = run(FederatedKMeans(clusters=2, centroids=((1.0,), (500.0,))), federated(line(0, 2, 4), [2, 1]), 3)
    assert state.model["centroids"].tolist() == [[pytest.approx(2.0)], [500.0]]


def test_history_weighs_what_earlier_rounds_saw() -> None:
    """Round 1 sees rows 0 and 2 (mean 1, weight 2); in round 2 only row 4 comes: (2 * 1 + 4) / 3 = 2."""
    federation = federated(line(0, 2, 4), [2, 1])
    algorithm = FederatedKMeans(clusters=1, centroids=((9.0,),), history=True)
    first = run(_only(algorithm, "0"), federation, 1)
    assert first.model["centroids"].tolist() == [[pytest.approx(1.0)]]
    second = run(_only(algorithm, "1"), federation, 1, first)
    assert second.model["centroids"].tolist() == [[pytest.approx(2.0)]]
    assert second.memory["weight"].tolist() == [pytest.approx(3.0)]
    # Without history the second round forgets the first.
    forgetful = FederatedKMeans(clusters=1, centroids=((9.0,),))
    assert run(_only(forgetful, "1"), federation, 1, first).model["centroids"].tolist() == [[pytest.approx(4.0)]]


def _only(algorithm: FederatedKMeans, party: str) -> FederatedKMeans:
    from dataclasses import replace

    from tequio.federation.selection import FixedParties

    return replace(algorithm, **Parts(selector=FixedParties((party,))))


def test_small_clusters_are_not_told() -> None:
    """Party 0 has three rows near 0 and one near 10, party 1 two near 10: with a minimum of 2 that one is hidden."""
    federation = federated(line(0, 1, 2, 13, 10, 11), [4, 2])
    state = run(FederatedKMeans(clusters=2, centroids=((0.0,), (9.0,)), minimum_count=2), federation, 1)
    assert state.model["centroids"].tolist() == [[pytest.approx(1.0)], [pytest.approx(10.5)]]
    told = federation.engine.heard[0].payload["sums"]
    assert told["counts"].tolist() == [3, 0]
    assert told["sums"].tolist() == [[3.0], [0.0]]


def test_rows_are_shortened_to_the_radius() -> None:
    """Rows 3, 4 and 100 become 3, 4 and 5: their sum is 12."""
    federation = federated(line(3, 4, 100), [3])
    run(FederatedKMeans(clusters=1, centroids=((0.0,),), radius=5.0), federation, 1)
    assert federation.engine.heard[0].payload["sums"]["sums"].tolist() == [[pytest.approx(12.0)]]


@pytest.mark.parametrize("initial", ["uniform", "normal"])
def test_the_start_comes_from_federated_statistics_and_the_seed(initial: str) -> None:
    data = blobs(1000)
    algorithm = FederatedKMeans(clusters=2000, initial=initial)
    drawn = algorithm.start(federated(data, [400, 600])).model["centroids"]
    assert drawn.shape == (2000, 3)
    np.testing.assert_allclose(drawn, algorithm.start(federated(data, [1000])).model["centroids"], rtol=1e-9)
    if initial == "uniform":
        assert (drawn >= data.features.min(axis=0)).all()
        assert (drawn <= data.features.max(axis=0)).all()
    else:
        np.testing.assert_allclose(drawn.mean(axis=0), data.features.mean(axis=0), atol=0.3)
        np.testing.assert_allclose(drawn.std(axis=0), data.features.std(axis=0), rtol=0.1)


def test_evaluation_gives_inertia_at_parties_and_at_the_coordinator() -> None:
    data = blobs(100)
    federation = federated(data, [60, 40], split=Split(0.0, 0.25))
    algorithm = FederatedKMeans(clusters=4, centroids=start_of(data))
    state = run(algorithm, federation, 2)
    tallies = algorithm.evaluate(federation, state, "test", np.arange(2))
    assert [tally["rows"] for tally in tallies.values()] == [15, 10]
    total = sum(inertia(state.model["centroids"], federation.population.view(party).test) for party in range(2))
    assert sum(tally["inertia_sum"] for tally in tallies.values()) == pytest.approx(total)
    scored = algorithm.score(federation, state, data)
    assert scored == {"rows": 100, "inertia_sum": pytest.approx(inertia(state.model["centroids"], data))}


def test_partial_participation_comes_close_to_the_centralised_clustering() -> None:
    """Spec 003: five of twenty parties a round give about 0.99 of the centralised clusters after ten rounds."""
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]])
    features = centres[rng.integers(0, 3, 2000)] + rng.standard_normal((2000, 2))
    data = Dataset.of(Schema.of_numbers("ab", Target("none")), features)
    start = start_of(data, 3)
    algorithm = FederatedKMeans(clusters=3, centroids=start, **Parts(selector=RandomParties(count=5)))
    state = run(algorithm, federated(data, [100] * 20), 10)
    centralised = lloyd(data, start, 100)
    assert jaccard_by_number(assign(state.model["centroids"], data), assign(centralised, data)) > 0.95


def test_inertia_never_rises_with_everyone_present() -> None:
    data = blobs()
    federation = federated(data, [100] * 3)
    algorithm = FederatedKMeans(clusters=4, centroids=start_of(data))
    state, last = algorithm.start(federation), np.inf
    for _ in range(8):
        state = run(algorithm, federation, 1, state)
        now = inertia(state.model["centroids"], data)
        assert now <= last + 1e-9
        last = now


@pytest.mark.parametrize("centroids", [((1.0, 2.0),), ((1.0, 2.0, 3.0),) * 3, ((1.0, 2.0, 3.0), (1.0, 2.0))])
def test_given_centroids_must_fit(centroids: Any) -> None:
    with pytest.raises(ConfigError, match="not 2 lists of 3 numbers"):
        FederatedKMeans(clusters=2, centroids=centroids).start(federated(blobs(), [300]))


def test_categorical_columns_are_refused_before_work_starts() -> None:
    data = Dataset.of(Schema((Feature("a", ("x", "y")),), Target("none")), np.zeros((4, 1)))
    with pytest.raises(DataError, match="'a' is categorical"):
        FederatedKMeans(clusters=2).start(federated(data, [4]))


@pytest.mark.parametrize("wrong", [{"clusters": 0}, {"coordinator_rate": 0}, {"party_rate": 1.5}, {"epochs": 0},
                                   {"initial": "random"}])
def test_bad_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        build("algorithm", "kmeans", wrong)
