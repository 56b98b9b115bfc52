"""Small things that everything else stands on, each of which a fault once went through unnoticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from phones import MODEL, phones, send

from parts import Parts
from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split
from tequio.data.partitions.columns import Columns
from tequio.errors import ConfigError, DataError, PermissionDenied
from tequio.federation import payload as payloads
from tequio.federation.aggregators.consistency import normalised
from tequio.federation.aggregators.distances import krum_scores, shares_of
from tequio.federation.averaging import summed_updates
from tequio.federation.exchange import Replies, Reply
from tequio.federation.population import Population, alone, elsewhere
from tequio.federation.rng import stream
from tequio.federation.selection import SelectionContext
from tequio.federation.stages import Summed, SummingStage
from tequio.learners.linear import LogisticRegression


def test_what_is_read_only_is_so_at_every_depth():
    weights = np.ones(2)
    sealed = payloads.read_only({"model": {"weights": weights}, "list": [weights]})
    for array in (sealed["model"]["weights"], sealed["list"][0]):
        assert not array.flags.writeable
    assert weights.flags.writeable


def test_a_reply_says_how_long_the_task_took_not_when_it_ended():
    federation = phones([500, 1000], [10, 10])
    assert all(0 <= reply.seconds < 300 for reply in federation.ask([0, 1], send, MODEL).answers)


def test_a_charge_costs_energy_and_money_but_no_time():
    # 1,000 bytes at 500 and at 250 a second: 2 + 4 s at 1.2 W; a megabyte costs 3.
    federation = phones([500, 250], [10, 10], price=3.0)
    clock = federation.clock
    clock.charge(np.array([0, 1]), 1, np.array([1000.0, 1000.0]))
    assert clock.totals.joules == pytest.approx(1.2 * 6)
    assert clock.totals.cost == pytest.approx(3.0 * 2000 / 1e6)
    assert clock.now == 0.0


def test_krum_looks_at_one_neighbour_at_least():
    # Of three parties n - f - 2 is 0 for one hostile party; the scores are then the squared distance to the nearest.
    distances = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 4.0], [9.0, 4.0, 0.0]])
    assert krum_scores(distances, 1).tolist() == [1.0, 1.0, 4.0]


def test_weights_may_sum_to_less_than_one_but_not_to_nought():
    assert shares_of(np.array([0.125, 0.375])).tolist() == [0.25, 0.75]
    with pytest.raises(DataError, match=r"the weights of 2 updates sum to 0\.0"):
        shares_of(np.zeros(2))


def test_discrepancies_are_shares_of_their_sum_and_alike_where_there_are_none():
    assert normalised(np.array([1.0, 3.0])).tolist() == [0.25, 0.75]
    assert normalised(np.zeros(4)).tolist() == [0.25] * 4


def test_rows_elsewhere_can_be_counted_but_not_read():
    population = elsewhere(Schema.of_numbers("ab", Target("none")), ["ana", "beto"], [20, 30], Split(0.0, 0.0), 0, {})
    assert len(population.dataset) == 50
    assert population.sizes.tolist() == [20, 30]
    with pytest.raises(PermissionDenied, match="these rows are with their parties"):
        _ = population.view(1).train.features


@pytest.mark.parametrize(("target", "shape"), [
    (Target("none"), None), (Target("classes", ("no", "yes")), (50,)), (Target("number"), (50,)),
    (Target("multilabel", tuple("xyz")), (50, 3))])
def test_targets_elsewhere_have_a_shape_and_no_values(target, shape):
    population = elsewhere(Schema.of_numbers("ab", target), ["ana", "beto"], [20, 30], Split(0.0, 0.0), 0, {})
    known = population.dataset.source.target
    assert (None if known is None else known.shape) == shape
    assert known is None or not known.any()


def test_the_work_of_an_ask_goes_by_the_numbers_in_its_arrays():
    payload = {"model": {"w": np.zeros((2, 3)), "b": np.zeros(2)}, "round": 7, "names": ["x", "y"], "none": None}
    assert payloads.numbers_in(payload) == 8


def test_an_average_lets_out_buffers_where_the_model_has_any():
    class Counting(LogisticRegression):
        def buffers(self, schema):
            return frozenset({"seen"})

    schema = Schema.of_numbers("ab", Target("classes", ("no", "yes")))
    assert FedAvg(**Parts(LogisticRegression())).disclosure(schema).arrays == ("update",)
    assert FedAvg(**Parts(Counting())).disclosure(schema).arrays == ("update", "buffers")


def test_a_party_alone_knows_others_by_number_only():
    rows = Dataset.of(Schema.of_numbers("a", Target("none")), np.arange(6.0)[:, None])
    population = alone(rows, 2, "ana", Split(0.0, 0.0), 7, {"learning_rate": 0.5})
    assert [population.name(party) for party in range(len(population))] == ["0", "1", "ana"]
    assert population.sizes.tolist() == [0, 0, 6]
    assert population.view(2).train.features[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert (population.seed, population.overrides) == (7, {2: {"learning_rate": 0.5}})


def test_parties_with_different_columns_put_a_row_into_the_same_part():
    """By one number a row: below 0.25 it is for testing, below 0.4 for validation."""
    rows = Dataset.of(Schema.of_numbers("abcd", Target("classes", ("no", "yes"))), np.arange(400.0).reshape(100, 4),
                      np.arange(100) % 2, ids=np.arange(100))
    dealt = Columns(parties=2, overlap=1.0).deal(rows, np.random.default_rng(0))
    population = Population(rows, dealt, Split(validation=0.15, test=0.25), seed=3)
    luck = stream(3, "split").random(100)
    for party in (0, 1):
        data, held = population.view(party), luck[dealt.party_rows(party)]
        assert sorted(held) == sorted(luck)
        assert len(data.test) == (luck < 0.25).sum()
        assert len(data.validation) == ((luck >= 0.25) & (luck < 0.4)).sum()
        assert len(data.train) == (luck >= 0.4).sum()
        assert set(data.test.ids.tolist()) == set(np.flatnonzero(luck < 0.25).tolist())


def test_a_selector_that_judges_models_needs_a_learner_that_trains_them():
    learner = LogisticRegression()
    given = SelectionContext(phones([1], [1]), np.arange(1), {}, np.random.default_rng(0))
    assert replace(given, scorer=learner).learner is learner
    with pytest.raises(ConfigError, match=r"judges models that are trained.*selector\.name = 'random'"):
        _ = given.learner


class Revealing(SummingStage):
    """Sums numbers that the test knows: party 0 holds (1, 2), party 1 holds (3, 6)."""

    __tequio__ = ("stage", "revealing")

    def total(self, federation, parties, name, weights, size, extra_counts=0, capacity=None, by="size"):
        held = np.array([[1.0, 2.0], [3.0, 6.0]])[parties]
        return Summed(weights @ held / weights.sum(), parties, weights.sum(), {}, np.zeros(size, dtype=np.int64),
                      (32, 1.0, len(parties)), weights, np.zeros(extra_counts, dtype=np.int64))


def hidden_mean(*weights):
    promise = {"update": {"by": "revealing", "layout": [("w", "f", (1,)), ("b", "f", ())], "rest": {}}}
    replies = Replies((Reply(0, promise), Reply(1, promise)))
    mean, _ = summed_updates(phones([1, 1], [1, 1]), (Revealing(),), replies, "update", np.array(weights))
    return mean["w"].tolist(), mean["b"].tolist()


def test_weights_of_a_hidden_sum_may_be_small_or_nought_but_not_all_and_none_below():
    assert hidden_mean(0.25, 0.25) == ([2.0], 4.0)
    assert hidden_mean(0.0, 0.5) == ([3.0], 6.0)
    for weights in ((0.0, 0.0), (-0.5, 1.0), (np.nan, 1.0), (np.inf, 1.0)):
        with pytest.raises(DataError, match="weights of a sum must be numbers from 0 upwards, and not all 0"):
            hidden_mean(*weights)
