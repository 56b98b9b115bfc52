"""Batch-norm statistics are no weights: in every averaging algorithm they become the parties' mean, at rate 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import tequio
from tequio import registry
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, PartyError
from tequio.federation.aggregation import Mean, Updates
from tequio.federation.algorithm import part_types
from tequio.federation.averaging import Averaging, possible
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population
from tequio.federation.selection import FixedParties
from tequio.federation.stages import Stage
from tequio.federation.topology import Hierarchical
from tequio.learners.learner import LocalTraining, buffers_of
from tequio.learners.torch_learner import TorchLearner
from tequio.registry import build

from .subjects import NORMALISED, clock, table
from .test_algorithms import ON_LABELS, ON_THE_CLOCK, TOPOLOGIES

MEAN, VARIANCE = "norm.running_mean", "norm.running_var"
LOCAL = LocalTraining(epochs=2, batch=8, learning_rate=0.05)


def learner():
    return build("learner", "torch", NORMALISED)


def component(name):
    return registry.find("algorithm", name).component


def takes(name):
    wanted = part_types(component(name)).get("learner")
    return wanted is not None and isinstance(learner(), wanted)


NORMALISABLE = [name for name in registry.names("algorithm") if name not in ON_LABELS and takes(name)]
AVERAGING = [name for name in NORMALISABLE if issubclass(component(name), Averaging)]
OF_ONE_MODEL = [name for name in AVERAGING if component(name).__module__.startswith("tequio.algorithms.horizontal")]
"""Those in which parties train the common model once a round, and nothing else."""


class Play:
    def __init__(self, name, sizes=(48, 48), topology="client-server", rules=None, settings=None, **parts):
        data = table(sum(sizes))
        rows = np.split(np.arange(len(data)), np.cumsum(sizes)[:-1])
        people = Population(data, Partition.of(rows), Split(0.0, 0.0), seed=1)
        engine = InlineEngine()
        engine.open(people)
        self.federation = Federation(people, engine, seed=7, rules=rules or Rules(),
                                     topology=build("topology", TOPOLOGIES.get(name, topology)),
                                     clock=clock(people) if name in ON_THE_CLOCK else None)
        parts = {"learner": learner(), "local": LOCAL, **parts}
        wanted = part_types(component(name))
        self.algorithm = build("algorithm", name, settings,
                               parts={part: value for part, value in parts.items() if part in wanted})
        self.state = self.algorithm.start(self.federation)

    def rounds(self, count=1):
        for _ in range(count):
            self.federation.round += 1
            self.state = self.algorithm.round(self.federation, self.state)
        return self

    @property
    def buffers(self):
        return {name: self.state.model[name] for name in (MEAN, VARIANCE)}


@pytest.fixture
def trained(monkeypatch):
    """What parties' models were after each training, in the order of the parties."""
    models, train = [], TorchLearner.train

    def watched(self, *given, **options):
        result = train(self, *given, **options)
        models.append(result.model)
        return result

    monkeypatch.setattr(TorchLearner, "train", watched)
    return models


def test_the_learner_says_which_of_its_arrays_are_buffers():
    assert buffers_of(learner(), table().schema) == {MEAN, VARIANCE}
    assert buffers_of(build("learner", "mlp"), table().schema) == frozenset()


@pytest.mark.parametrize("name", NORMALISABLE)
def test_it_trains_a_model_with_batch_norm(name):
    sizes = (96,) if name == "centralised" else (32, 40, 24)
    settings = {"router": {"name": "autoencoder", "epochs": 1}} if name == "flprotector" else None
    play = Play(name, sizes, settings=settings).rounds(4)
    models = list(models_in(play.algorithm.result(play.state)))
    assert models or name in ("timing", "voting")  # no model, or those of the parties as they are
    for model in models:
        assert all(np.isfinite(values).all() for values in model.values())
        assert (model[VARIANCE] > 0).all()
    tallies = play.algorithm.evaluate(play.federation, play.state, "train", play.federation.everyone())
    assert tallies or name == "timing"
    assert all(np.isfinite(tally["loss_sum"]) for tally in tallies.values())


def models_in(result):
    if VARIANCE in result:
        yield result
    for value in result.values():
        if isinstance(value, dict):
            yield from models_in(value)


@pytest.mark.parametrize("name", OF_ONE_MODEL)
def test_one_partys_buffers_come_out_bit_for_bit(name, trained):
    play = Play(name, (40,)).rounds(1)
    (own,) = trained
    for key, values in play.buffers.items():
        assert values.tobytes() == own[key].tobytes()
        assert values.dtype == own[key].dtype


UNIFORM = {"hybridfl"}
"""Algorithms that weigh all parties alike unless told otherwise."""


@pytest.mark.parametrize("name", OF_ONE_MODEL)
def test_buffers_of_two_parties_become_their_weighted_mean(name, trained):
    play = Play(name, (24, 72)).rounds(1)
    first, second = trained
    shares = (0.5, 0.5) if name in UNIFORM else (0.25, 0.75)
    for key, values in play.buffers.items():
        expected = shares[0] * first[key].astype(np.float64) + shares[1] * second[key].astype(np.float64)
        np.testing.assert_array_equal(values, expected.astype(np.float32))


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedadam"])
def test_robust_aggregators_leave_buffers_to_a_median(name, trained):
    play = Play(name, (32, 32, 32), aggregator=build("aggregator", "krum")).rounds(1)
    for key, values in play.buffers.items():
        np.testing.assert_allclose(values, np.median([model[key] for model in trained], axis=0), rtol=1e-6)


# --- a variance that no rows can have ---


@dataclass(frozen=True)
class Sink(Stage):
    """Makes the running variance of one party negative on its way.

    Parameters:
        party: number of the party
    """

    party: int = 1

    def send(self, party, payload):
        if party.index != self.party:
            return payload
        sunk = {**payload["buffers"], VARIANCE: payload["buffers"][VARIANCE] - 100.0}
        return {**payload, "buffers": sunk}


@pytest.fixture
def sink():
    registry.register("stage", "buffers-test-sink")(Sink)
    yield (Sink(),)
    del registry._entries["stage", "buffers-test-sink"]


@pytest.mark.parametrize("name", [name for name in OF_ONE_MODEL if name != "hybridfl"])
def test_a_negative_variance_names_its_party(name, sink):
    with pytest.raises(PartyError, match=r"party '1' failed in round 1 .*makes 'norm\.running_var' negative"):
        Play(name, (32, 32, 32), stages=sink).rounds(1)
    goes_on = Play(name, (32, 32, 32), stages=sink, rules=Rules(on_failure="continue")).rounds(1)
    without = Play(name, (32, 32, 32), selector=FixedParties(("0", "2"))).rounds(1)
    for key, values in without.state.model.items():
        np.testing.assert_array_equal(goes_on.state.model[key], values)


def test_a_variance_that_noise_made_negative_is_nought_and_nothing_else_changes():
    noised = possible({MEAN: np.array([-2.0, 0.5]), VARIANCE: np.array([-1.0, 0.25, 3.0])})
    assert noised[MEAN].tolist() == [-2.0, 0.5]
    assert noised[VARIANCE].tolist() == [0.0, 0.25, 3.0]


# --- pooled variances ---


def of(*parties, weights=None):
    arrays = [{MEAN: np.array([mean]), VARIANCE: np.array([variance])} for mean, variance in parties]
    return Updates(np.arange(len(arrays)), arrays, np.ones(len(arrays)) if weights is None else np.array(weights))


def test_variances_are_averaged_or_pooled():
    two = of((0.0, 1.0), (2.0, 1.0))
    assert Mean().combine(two, {}).update[VARIANCE] == [1.0]
    assert Mean(variance="pooled").combine(two, {}).update == {MEAN: [1.0], VARIANCE: [2.0]}
    # 1/4 (1 + 0) + 3/4 (3 + 16) - 3^2
    assert Mean(variance="pooled").combine(of((0.0, 1.0), (4.0, 3.0), weights=[1.0, 3.0]), {}).update[VARIANCE] == [5.5]


def test_changes_of_statistics_pool_as_the_statistics_do():
    before, pooled = np.array([[3.0], [0.5]]), Mean(variance="pooled")
    changes = of(*((mean - 3.0, variance - 0.5) for mean, variance in ((0.0, 1.0), (2.0, 4.0), (5.0, 0.1))))
    whole = pooled.combine(of((0.0, 1.0), (2.0, 4.0), (5.0, 0.1)), {}).update
    moved = pooled.combine(changes, {}).update
    np.testing.assert_allclose([moved[MEAN], moved[VARIANCE]], [whole[MEAN] - before[0], whole[VARIANCE] - before[1]])


def test_pooling_groups_first_gives_the_same():
    parties = [(float(draw), 1.0 + draw / 7) for draw in np.random.default_rng(0).integers(0, 9, 12)]
    many, pooled = of(*parties, weights=np.arange(1.0, 13.0)), Mean(variance="pooled")
    in_groups = Hierarchical(aggregators=3).combine(many, pooled, {}).update
    for key, values in pooled.combine(many, {}).update.items():
        np.testing.assert_allclose(in_groups[key], values)


@pytest.mark.parametrize("name", OF_ONE_MODEL)
@pytest.mark.parametrize("topology", ["client-server", "hierarchical"])
def test_a_run_pools_variances_where_it_is_told_to(name, topology, trained):
    play = Play(name, (24, 72), topology, aggregator=Mean(variance="pooled")).rounds(1)
    shares = np.array([[0.5], [0.5]] if name in UNIFORM else [[0.25], [0.75]])
    means, variances = (np.stack([model[key].astype(np.float64) for model in trained]) for key in (MEAN, VARIANCE))
    expected = (shares * (variances + means**2)).sum(axis=0) - (shares * means).sum(axis=0) ** 2
    np.testing.assert_allclose(play.buffers[VARIANCE], expected, rtol=1e-5)
    assert (play.buffers[VARIANCE] > (shares * variances).sum(axis=0)).all()


def test_pooling_is_refused_where_there_is_nothing_to_pool(tmp_path):
    with pytest.raises(ConfigError, match=r"aggregator\.variance = 'pooled' would do nothing: .*no batch-norm"):
        tequio.run(data="iris", aggregator={"name": "mean", "variance": "pooled"}, rounds=1,
                   output={"folder": str(tmp_path)})
    assert not any(tmp_path.iterdir())


def test_pooling_is_refused_where_only_a_sum_is_known(tmp_path):
    with pytest.raises(ConfigError, match=r"aggregator\.variance = 'pooled' does not go with the stage 'secure-sum'"):
        tequio.run(data="iris", learner={"name": "torch", **NORMALISED}, rounds=1, stages=["secure-sum"],
                   aggregator={"name": "mean", "variance": "pooled"}, output={"folder": str(tmp_path)})
    assert not any(tmp_path.iterdir())


# --- the case that was found by hand ---


def on_digits(algorithm, folder):
    """Two parties and six rounds; the mean running variance at the end, and all metrics."""
    result = tequio.run(
        data={"name": "digits", "partition": {"name": "iid", "parties": 2}}, algorithm=algorithm, rounds=6,
        learner={"name": "torch", "module": "contracts.normalised:build", "arguments": {"inputs": 64, "outputs": 10}},
        engine={"workers": 1}, evaluation={"every": 6}, output={"folder": str(folder)})
    return float(result.model[VARIANCE].mean()), result.summary["metrics"]


@pytest.mark.parametrize("name", ["fedavgm", "feddyn"])
def test_what_stopped_on_digits_comes_to_its_end(name, tmp_path):
    variance, metrics = on_digits(name, tmp_path)
    assert variance > 0
    assert metrics["test.accuracy"] > 0.5


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad", "scaffold", "fednova"])
def test_on_digits_variances_end_where_those_of_federated_averaging_do(name, tmp_path):
    """Moments and control variates left FedAdam with 0.906."""
    assert on_digits(name, tmp_path)[0] == pytest.approx(on_digits("fedavg", tmp_path)[0], rel=1.0)
