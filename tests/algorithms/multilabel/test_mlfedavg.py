"""MLFedAvg: hand-worked aggregations, heads that never cross, padding that changes nothing, and its stop rules."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from cases import LOCAL, SETS, SPLIT, arrays_in, dataset, federation, names_in, parts, play, population, states

from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.multilabel.heads import OwnNetworks, widened_data
from tequio.algorithms.multilabel.mlfedavg import EarlyStopping, MLFedAvg, MLFedAvgAlone, aggregation_weights
from tequio.algorithms.multilabel.tasks import SharedSettings, train_shared
from tequio.data.dataset import Schema, Target
from tequio.errors import ConfigError, DataError
from tequio.federation.aggregation import difference
from tequio.federation.exchange import Replies, Reply
from tequio.federation.population import state_name
from tequio.federation.selection import RandomParties
from tequio.learners.metrics import summarise
from tequio.learners.zoo import MLP, Logistic


def replies(rows, labels) -> Replies:
    return Replies(tuple(Reply(party, {"rows": count, "labels": own})
                         for party, (count, own) in enumerate(zip(rows, labels, strict=True))))


@pytest.mark.parametrize(("rule", "shares"), [(0, [1 / 2, 1 / 2]), (1, [1 / 4, 3 / 4]), (2, [2 / 5, 3 / 5])])
def test_the_worked_example_of_the_specification(rule, shares):
    """Two parties with 1 and 3 rows, 2 labels and 1 label."""
    weights = aggregation_weights(replies((1, 3), (2, 1)), rule)
    np.testing.assert_allclose(weights / weights.sum(), shares, atol=1e-12)


def test_with_equal_label_counts_rows_times_labels_is_rows():
    found = [aggregation_weights(replies((5, 9, 2), (3, 3, 3)), rule) for rule in (1, 2)]
    np.testing.assert_allclose(found[0] / found[0].sum(), found[1] / found[1].sum(), atol=1e-15)
    sets = ((0, 1), (2, 3), (4, 5))
    cores = [play(MLFedAvg(**parts(), aggregation=rule), federation(population(sets)), 2).model for rule in (1, 2)]
    for name in cores[0]:
        np.testing.assert_allclose(cores[0][name], cores[1][name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("rule", [0, 1, 2])
def test_the_core_is_the_weighted_mean_of_what_the_parties_sent(rule):
    who = federation()
    algorithm = MLFedAvg(**parts(), aggregation=rule)
    before = algorithm.start(who)
    who.round = 1
    after = algorithm.round(who, before)
    sent = [payload for payload in who.engine.crossed if "update" in payload]
    assert [payload["labels"] for payload in sent] == [3, 1, 2]
    weights = {0: [1, 1, 1], 1: [payload["rows"] for payload in sent],
               2: [payload["rows"] * payload["labels"] for payload in sent]}[rule]
    for name, values in before.model.items():
        mean = np.average([payload["update"][name] for payload in sent], axis=0, weights=weights)
        np.testing.assert_allclose(after.model[name], values + mean, rtol=1e-5, atol=1e-7)


def test_the_core_has_the_size_of_the_thesis():
    core = MLFedAvg(**parts(hidden=(100, 20))).start(federation()).model
    assert sum(values.size for values in core.values()) == 100 * (7 + 1) + 20 * 101


@pytest.mark.parametrize("algorithm", [MLFedAvg(**parts()), MLFedAvg(**parts(), evaluated="local"),
                                       MLFedAvgAlone(**parts(), patience=1)])
def test_no_head_is_in_any_message(algorithm):
    who = federation()
    state = play(algorithm, who, 3)
    algorithm.evaluate(who, state, "test", who.everyone())
    algorithm.score(who, state, dataset(20, seed=9))
    assert not {name for payload in who.engine.crossed for name in names_in(payload) if name.startswith("output")}
    heads = [array for kept in states(who).values() for array in arrays_in(kept["head"])]
    assert len(heads) == 6
    sent = [array for payload in who.engine.crossed for array in arrays_in(payload)]
    for head in heads:
        assert not any(other.shape == head.shape and np.array_equal(other, head) for other in sent)


def test_a_head_goes_on_from_where_it_was_and_has_one_output_a_label():
    who = federation()
    algorithm = MLFedAvg(**parts())
    first = play(algorithm, who, 1)
    kept = {party: kept["head"]["output.weight"] for party, kept in states(who).items()}
    assert [kept[party].shape for party in range(3)] == [(3, 5), (1, 5), (2, 5)]
    who.round = 2
    algorithm.round(who, first)
    # One more round from the kept head: small steps away from it, far from a fresh draw.
    for party, head in kept.items():
        moved = np.abs(states(who)[party]["head"]["output.weight"] - head).max()
        assert 0 < moved < 0.15


def test_a_party_that_is_not_chosen_keeps_its_head():
    who = federation()
    algorithm = MLFedAvg(**parts(selector=RandomParties(fraction=0.4)))
    state = play(algorithm, who, 6)
    before = {party: kept["head"] for party, kept in states(who).items()}
    chosen: list[int] = []
    who.record = lambda kind, facts: chosen.extend(facts["parties"] if kind == "selection" else [])
    who.round += 1
    algorithm.round(who, state)
    assert len(chosen) == 1
    for party, head in before.items():
        same = np.array_equal(head["output.weight"], states(who)[party]["head"]["output.weight"])
        assert same == (party not in chosen)


def test_padding_changes_nothing_and_together_equals_one_by_one():
    """Parties with 3, 1 and 2 labels trained in one call, one by one, and without padding by the learner itself."""
    algorithm, who = MLFedAvg(**parts()), federation()
    core = algorithm.start(who).model
    settings = SharedSettings(learner=algorithm.learner, local=LOCAL, width=3, balance=0.0, accuracy="subset_accuracy",
                              keep_core=False)
    together = who.ask(who.everyone(), train_shared, {"model": core}, settings=settings)
    heads = {party: kept["head"] for party, kept in states(who).items()}
    for party in range(3):
        alone = federation()
        one = alone.ask([party], dataclasses.replace(train_shared, many=None), {"model": core}, settings=settings)
        assert_models_close(one.of(party)["update"], together.of(party)["update"])
        assert_models_close(states(alone)[party]["head"], heads[party])
        assert_models_close(plain_update(who, party, core, algorithm.learner), together.of(party)["update"])


def plain_update(who, party, core, learner):
    """Train the party's own network, of exactly its own size, from the same head and in the same order of rows."""
    from tequio.federation.population import Party

    here = Party(party, who.round, {}, who.population)
    data = who.population.view(party).train
    head = {name: values for name, values in learner.initial(data.schema, here.rng("head")).items()
            if name.startswith("output")}
    trained = learner.train({**core, **head}, data, LOCAL, here.rng("train")).model
    return difference({name: trained[name] for name in core}, core)


def assert_models_close(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=2e-3, atol=2e-5)


def test_padded_rows_have_the_labels_of_the_party_first():
    view = population().view(2).train
    padded = widened_data(view, 4)
    np.testing.assert_array_equal(padded.target[:, :2], view.target)
    assert padded.schema is widened_data(population().view(2).train, 4).schema or len(padded.schema.target.names) == 4


def test_a_round_from_one_common_head_weighed_by_rows_is_a_round_of_federated_averaging():
    everything = population((range(6),) * 2, (50, 70))
    common = dataclasses.replace(everything, partition=dataclasses.replace(everything.partition, labels=None))
    averaging, split_up = federation(common), federation(everything)
    start = FedAvg(**parts()).start(averaging)
    head = {name: values for name, values in start.model.items() if name.startswith("output")}
    split_up.engine.restore({party: {state_name(OwnNetworks): {"head": head}} for party in (0, 1)})
    ours, theirs = (play(algorithm, who, 1).model for algorithm, who in (
        (MLFedAvg(**parts(), aggregation=1), split_up), (FedAvg(**parts()), averaging)))
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-6)


def test_other_algorithms_say_that_parties_know_different_labels():
    with pytest.raises(ConfigError, match=r"know different labels.*algorithm.name = 'mlfedavg'"):
        FedAvg(**parts()).start(federation())


def test_what_has_no_labels_or_no_core_is_refused():
    numbers = dataset(150)
    classes = dataclasses.replace(numbers, schema=Schema(numbers.schema.features, Target("classes", ("a", "b"))))
    whole = population()
    with pytest.raises(DataError, match="of kind 'classes'"):
        MLFedAvg(**parts()).start(federation(dataclasses.replace(whole, dataset=classes)))
    with pytest.raises(ConfigError, match=r"has no hidden layers to share.*learner.hidden = \[100, 20\]"):
        MLFedAvg(**parts() | {"learner": Logistic()}).start(federation())


def told(rows) -> list[Replies]:
    return [Replies(tuple(Reply(party, {"validation_loss": loss, "validation_accuracy": accuracy})
                          for party, (loss, accuracy) in enumerate(each))) for each in rows]


def stop_round(rule, rows) -> int:
    history: dict[str, list[float]] = {}
    for number, each in enumerate(told(rows), start=1):
        history = rule.remembered(history, each)
        if rule.reason(history):
            return number
    return 0


def test_it_stops_only_when_both_got_worse_in_two_rounds_in_a_row():
    rule = EarlyStopping("rounds", minimum_rounds=3)
    both = [[(1.0, 0.5)], [(1.1, 0.4)], [(1.2, 0.3)]]
    assert stop_round(rule, both) == 3
    assert stop_round(rule, [[(1.0, 0.5)], [(1.1, 0.4)], [(1.2, 0.4)]]) == 0  # accuracy only stayed
    assert stop_round(rule, [[(1.0, 0.5)], [(1.1, 0.4)], [(1.05, 0.3)]]) == 0  # loss got better again
    assert stop_round(EarlyStopping("off", minimum_rounds=3), both) == 0
    assert stop_round(EarlyStopping("rounds", minimum_rounds=5), both * 2) == 6


def test_means_are_over_parties_that_have_validation_rows():
    rule = EarlyStopping("rounds", 3)
    mixed = Replies((Reply(0, {"validation_loss": 1.0, "validation_accuracy": 0.2}), Reply(1, {}),
                     Reply(2, {"validation_loss": 3.0, "validation_accuracy": 0.4})))
    assert rule.remembered({}, mixed) == {"loss": [2.0], "accuracy": [pytest.approx(0.3)]}


def test_the_cumulative_reading_looks_at_means_over_all_rounds_so_far():
    # Round by round 4, 1, 2, 2.5, 2.6 the loss rises from round 2 on, but its running mean 4, 2.5, 2.33, 2.375, 2.42
    # only from round 4 on; the accuracy falls all the time.
    losses, accuracies = (4, 1, 2, 2.5, 2.6), (0.9, 0.8, 0.7, 0.6, 0.5)
    rows = [[(loss, accuracy)] for loss, accuracy in zip(losses, accuracies, strict=True)]
    assert stop_round(EarlyStopping("rounds", 3), rows) == 4
    assert stop_round(EarlyStopping("cumulative", 3), rows) == 5


def test_the_state_says_that_it_has_finished_and_remembers_every_round():
    who = federation()
    algorithm = MLFedAvg(**parts(), minimum_rounds=3)
    state = play(algorithm, who, 2)
    assert algorithm.finished(state) == ""
    assert len(state.memory["history"]["loss"]) == 2
    assert algorithm.finished(state.next(finished="worse")) == "worse"


def test_the_federation_predicts_every_label_through_all_heads():
    who = federation()
    algorithm = MLFedAvg(**parts())
    state = play(algorithm, who, 25)
    rows = dataset(150, seed=0).take(np.arange(100, 150))
    joint = algorithm.score(who, state, rows)
    expected = np.zeros((50, 6))
    for party, own in enumerate(SETS):
        model = {**state.model, **states(who)[party]["head"]}
        expected[:, list(own)] = MLP(hidden=(9, 5)).predict(model, rows.select_labels(own))
    positives = ((expected > 0.5) & (rows.target == 1)).sum(axis=0)
    np.testing.assert_array_equal(joint["true_positives"], positives)
    assert joint["decisions"] == 300
    assert summarise(rows.schema.target, joint)["f1_micro"] > 0.5


def test_common_rows_are_counted_in_both_readings():
    who = federation()
    algorithm = MLFedAvg(**parts())
    state = play(algorithm, who, 2)
    rows = dataset(40, seed=4)
    found = algorithm.score_at_parties(who, state, rows)
    for party, own in enumerate(SETS):
        assert found["common_all"][party]["rows"] == 40
        assert found["common"][party]["rows"] == rows.target[:, list(own)].any(axis=1).sum()
        np.testing.assert_array_equal(found["common"][party]["true_positives"],
                                      found["common_all"][party]["true_positives"])


def test_a_label_that_two_parties_know_gets_the_mean_of_their_scores():
    who = federation(population(((0, 1), (1, 2)), (70, 80)))
    algorithm = MLFedAvg(**parts())
    state = play(algorithm, who, 8)
    rows = dataset(30, seed=5)
    from tequio.algorithms.multilabel.scoring import joint_tally, score_rows

    scores = score_rows(who, state.model, rows, algorithm.evaluation_settings(who))
    mean = (scores[0][:, 1] + scores[1][:, 0]) / 2
    tally = joint_tally(who, scores, rows)
    assert tally["true_positives"][1] == ((mean > 0.5) & (rows.target[:, 1] == 1)).sum()
    assert tally["true_positives"][3:].sum() == tally["false_positives"][3:].sum() == 0  # nobody knows these


def test_a_label_in_all_rows_and_one_in_none_are_learnt_as_they_are():
    data = dataset(120)
    labels = data.target.copy()
    labels[:, 0], labels[:, 1] = 1, 0
    data = dataclasses.replace(data, source=dataclasses.replace(data.source, target=labels))
    who = federation(population(((0, 2), (1, 3)), (60, 60), data))
    algorithm = MLFedAvg(**parts())
    tallies = algorithm.evaluate(who, play(algorithm, who, 30), "test", who.everyone())
    assert tallies[0]["false_negatives"][0] == 0
    assert tallies[1]["false_positives"][0] == 0


def test_sparse_wide_rows_are_read_batch_by_batch():
    from scipy import sparse

    from tequio.data.dataset import Dataset

    draw = np.random.default_rng(0)
    wide = sparse.random(150, 27_530, density=0.001, format="csr", random_state=0, dtype=np.float32)
    schema = Schema.of_numbers((f"w{column}" for column in range(27_530)), Target("multilabel", ("a", "b", "c")))
    data = Dataset.of(schema, wide, (draw.random((150, 3)) < 0.5).astype(np.int8))
    who = federation(population(((0, 1), (2,)), (75, 75), data))
    algorithm = MLFedAvg(**parts(hidden=(4, 3)))
    state = play(algorithm, who, 2)
    assert who.population.view(0).train.is_sparse
    assert algorithm.score(who, state, data.take(np.arange(10)))["decisions"] == 30
    assert all("dense" not in names_in(payload) for payload in who.engine.crossed)


def test_many_labels_train_together():
    draw = np.random.default_rng(1)
    data = dataset(160, labels=374)
    sets = np.split(draw.permutation(374), [234, 314, 354])
    who = federation(population(sets, (40,) * 4, data, SPLIT))
    algorithm = MLFedAvg(**parts(), aggregation=2)
    tallies = algorithm.evaluate(who, play(algorithm, who, 2), "test", who.everyone())
    assert [len(tally["true_positives"]) for tally in tallies.values()] == [234, 80, 40, 20]
