"""Training many parties at once: equal to plain torch, and for each party the same bits in any company."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch import nn
from torch_cases import (
    TARGETS,
    assert_close,
    assert_same_bits,
    jobs_for,
    parties,
    plain_training,
    rng,
    table,
)

from tequio.data.dataset import Dataset, Schema
from tequio.errors import DataError, TequioError
from tequio.learners import batched
from tequio.learners.batched import plan_rows
from tequio.learners.learner import Correction, Job, LocalTraining
from tequio.learners.zoo import MLP, Logistic

SIZES = (23, 40, 7, 24, 1)
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "identity": nn.Identity}
WAYS = {
    "plain": LocalTraining(epochs=2, batch=6),
    "momentum": LocalTraining(epochs=2, batch=6, momentum=0.9),
    "adam": LocalTraining(epochs=2, batch=6, optimizer="adam", learning_rate=0.01),
    "decay": LocalTraining(epochs=2, batch=6, weight_decay=0.05),
    "momentum with decay": LocalTraining(epochs=2, batch=6, momentum=0.5, weight_decay=0.05),
    "adam with decay": LocalTraining(batch=6, optimizer="adam", learning_rate=0.01, weight_decay=0.05),
    "clipped": LocalTraining(epochs=2, batch=6, clip_norm=0.2),
    "clipped adam": LocalTraining(batch=6, optimizer="adam", learning_rate=0.01, clip_norm=0.2, weight_decay=0.01),
    "steps": LocalTraining(steps=9, batch=6),
    "whole set": LocalTraining(epochs=3, batch=0),
    "one row": LocalTraining(batch=1),
    "as stored": LocalTraining(epochs=2, batch=6, shuffle=False),
}
every_way = pytest.mark.parametrize("way", WAYS)
every_target = pytest.mark.parametrize("kind", TARGETS)


def together(learner, model, datasets, how, correction=None):
    return learner.train_together(jobs_for(model, datasets, correction), how)


@every_way
@every_target
def test_batched_autograd_and_a_plain_loop_agree(kind, way):
    data, how, learner = table(kind), WAYS[way], MLP(hidden=(8, 5))
    model = learner.initial(data.schema, rng(1))
    datasets = parties(data, SIZES)
    for place, (result, own) in enumerate(zip(together(learner, model, datasets, how), datasets, strict=True)):
        alone = learner.train(model, own, how, rng(100 + place))
        assert (result.steps, result.rows) == (alone.steps, alone.rows)
        assert result.loss == pytest.approx(alone.loss, rel=1e-4)
        assert_close(result.model, alone.model)
        assert_close(result.model, plain_training(kind, model, own, how, 100 + place))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_agrees_with_a_plain_loop(activation):
    data, how, learner = table("classes"), WAYS["plain"], MLP(hidden=(8, 5), activation=activation)
    model = learner.initial(data.schema, rng(1))
    datasets = parties(data, SIZES)
    for place, (result, own) in enumerate(zip(together(learner, model, datasets, how), datasets, strict=True)):
        assert_close(result.model, plain_training("classes", model, own, how, 100 + place,
                                                  activation=ACTIVATIONS[activation]))


@every_target
def test_logistic_regression_agrees_with_a_plain_loop(kind):
    data, how, learner = table(kind), WAYS["plain"], Logistic()
    model = learner.initial(data.schema, rng(1))
    datasets = parties(data, SIZES)
    for place, (result, own) in enumerate(zip(together(learner, model, datasets, how), datasets, strict=True)):
        assert_close(result.model, plain_training(kind, model, own, how, 100 + place))


@pytest.mark.parametrize("way", ["plain", "momentum", "adam", "clipped", "decay"])
def test_a_correction_is_the_gradient_of_the_explicit_objective(way):
    """offset.w + pull/2 |w - anchor|^2 added to the loss, differentiated by autograd."""
    import torch

    data, learner, how = table("classes"), MLP(hidden=(6,)), WAYS[way]
    model, anchor, offset = (learner.initial(data.schema, rng(seed)) for seed in (1, 2, 3))
    correction = Correction(offset=offset, pull=0.7, anchor=anchor)

    def objective(weights):
        return sum((torch.tensor(offset[name]) * weight + 0.35 * (weight - torch.tensor(anchor[name])).square()).sum()
                   for name, weight in zip(model, weights, strict=True))

    datasets = parties(data, SIZES)
    results = together(learner, model, datasets, how, correction)
    for place, (result, own) in enumerate(zip(results, datasets, strict=True)):
        assert_close(result.model, learner.train(model, own, how, rng(100 + place), correction=correction).model)
        if not how.clip_norm:  # there the batch's gradient alone is clipped, not the sum
            assert_close(result.model, plain_training("classes", model, own, how, 100 + place, extra=objective))


def test_without_an_anchor_the_pull_is_towards_the_model_training_starts_from():
    data, learner, how = table("classes"), MLP(hidden=(6,)), WAYS["plain"]
    model = learner.initial(data.schema, rng(1))
    datasets = parties(data, SIZES)
    implicit = together(learner, model, datasets, how, Correction(pull=0.5))
    explicit = together(learner, model, datasets, how, Correction(pull=0.5, anchor=model))
    copied = {name: values.copy() for name, values in model.items()}
    other = together(learner, model, datasets, how, Correction(pull=0.5, anchor=copied))
    for one, two, three in zip(implicit, explicit, other, strict=True):
        assert_same_bits(one, two)
        assert_same_bits(one, three)


@every_way
@pytest.mark.parametrize(("kind", "hidden"), [("classes", (128,)), ("classes", (7,)), ("two classes", ()),
                                              ("multilabel", (5, 1, 9)), ("number", (33,))])
def test_company_does_not_change_a_bit(kind, hidden, way, monkeypatch):
    data, how = table(kind, columns=13), replace(WAYS[way], epochs=1)
    learner = MLP(hidden=hidden, activation="sigmoid")
    model = learner.initial(data.schema, rng(1))
    other = learner.initial(data.schema, rng(2))
    datasets = parties(data, (20, 31, 7, 24, 1, 31, 6, 12, 25, 40))
    some = [None, Correction(pull=0.1), Correction(offset=other), None, Correction(pull=0.3, anchor=other)]
    corrections = some * 2 if "clipped" in way or "decay" in way else [None] * 10

    def jobs(places):
        return [Job(model, datasets[place], rng(place), corrections[place]) for place in places]

    alone = [learner.train_together(jobs([place]), how)[0] for place in range(10)]
    for places in ([0, 1], [4, 6], [2, 9, 5, 0, 7], list(range(10)), list(rng(7).permutation(10))):
        for place, result in zip(places, learner.train_together(jobs(places), how), strict=True):
            assert_same_bits(result, alone[place])
    monkeypatch.setattr(batched, "MOST", 3)
    monkeypatch.setattr(batched, "BLOCK_NUMBERS", 1)
    for place, result in enumerate(learner.train_together(jobs(range(10)), how)):
        assert_same_bits(result, alone[place])


def test_large_batches_are_worked_on_one_party_at_a_time(monkeypatch):
    data, learner, how = table("classes"), MLP(hidden=(6,)), LocalTraining(batch=0)
    model = learner.initial(data.schema, rng(1))
    datasets = parties(data, (100, 101, 102))
    expected = together(learner, model, datasets, how)
    together_with = []
    monkeypatch.setattr(batched, "plan_rows", lambda *given: together_with.append(len(given[0])) or plan_rows(*given))
    monkeypatch.setattr(batched, "ROOM_NUMBERS", 1_000)
    for one, two in zip(expected, together(learner, model, datasets, how), strict=True):
        assert_same_bits(one, two)
    assert together_with == [1, 1, 1]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(columns=st.integers(1, 40), hidden=st.lists(st.integers(1, 70), max_size=2), batch=st.integers(0, 40),
       sizes=st.lists(st.integers(1, 60), min_size=2, max_size=6), optimizer=st.sampled_from(["sgd", "adam"]),
       activation=st.sampled_from(list(ACTIVATIONS)), kind=st.sampled_from(list(TARGETS)))
def test_any_shape_gives_the_bits_of_a_party_alone(columns, hidden, batch, sizes, optimizer, activation, kind):
    data = table(kind, rows=60, columns=columns)
    how = LocalTraining(batch=batch, optimizer=optimizer, learning_rate=0.01)
    learner = MLP(hidden=tuple(hidden), activation=activation)
    model = learner.initial(data.schema, rng(1))
    datasets = parties(data, tuple(sizes))
    results = together(learner, model, datasets, how)
    for place, (result, own) in enumerate(zip(results, datasets, strict=True)):
        assert_same_bits(result, learner.train_together([Job(model, own, rng(100 + place))], how)[0])
        alone = learner.train(model, own, how, rng(100 + place)).model
        # By length: Adam makes a whole step of a gradient of nearly nothing, and of its rounding, too.
        assert length(result.model, alone) <= 1e-3 * length(alone, model)


def length(first, second):
    return float(np.sqrt(sum(np.square(first[name] - second[name]).sum() for name in first)))


def test_parties_with_sources_of_their_own_get_the_same_bits():
    data, learner, how = table("multilabel"), MLP(hidden=(6,)), WAYS["plain"]
    model = learner.initial(data.schema, rng(1))
    shared = parties(data, SIZES)
    own = [Dataset.of(part.schema, part.features, part.target) for part in shared]
    for one, two in zip(together(learner, model, shared, how), together(learner, model, own, how), strict=True):
        assert_same_bits(one, two)


@pytest.mark.parametrize("change", [lambda x: x.astype(np.float64), lambda x: sparse.csr_matrix(x)])
def test_other_types_of_features_get_the_same_bits(change):
    data, learner, how = table("classes"), MLP(hidden=(6,)), WAYS["plain"]
    model = learner.initial(data.schema, rng(1))
    changed = Dataset.of(data.schema, change(data.features), data.target)
    for one, two in zip(together(learner, model, parties(data, SIZES), how),
                        together(learner, model, parties(changed, SIZES), how), strict=True):
        assert_same_bits(one, two)


def test_images_are_flattened():
    draw = rng(3)
    schema = Schema.of_images((2, 3, 4), "abc")
    features, target = draw.random((30, 2, 3, 4), dtype=np.float32), draw.integers(0, 3, 30)
    images = Dataset.of(schema, features, target)
    flat = Dataset.of(Schema(schema.features, schema.target), features.reshape(30, 24), target)
    learner, how = MLP(hidden=(6,)), WAYS["plain"]
    model = learner.initial(schema, rng(1))
    for one, two in zip(together(learner, model, parties(images, (9, 12)), how),
                        together(learner, model, parties(flat, (9, 12)), how), strict=True):
        assert_same_bits(one, two)


def test_jobs_may_start_from_different_models():
    data, learner, how = table("classes"), MLP(hidden=(6,)), WAYS["plain"]
    models = [learner.initial(data.schema, rng(seed)) for seed in (1, 2, 1, 3)]
    models[2] = models[0]
    datasets = parties(data, SIZES[:4])
    results = learner.train_together([Job(model, own, rng(100 + place)) for place, (model, own)
                                      in enumerate(zip(models, datasets, strict=True))], how)
    for place, result in enumerate(results):
        assert_close(result.model, plain_training("classes", models[place], datasets[place], how, 100 + place))


def test_models_come_in_read_only_and_come_out_in_memory_of_their_own():
    data, learner, how = table("classes"), MLP(hidden=(6,)), WAYS["plain"]
    model = learner.initial(data.schema, rng(1))
    for values in model.values():
        values.setflags(write=False)
    first, second = together(learner, model, parties(data, (20, 30)), how)
    kept = {name: values.copy() for name, values in first.model.items()}
    together(learner, model, parties(data, (25, 9), seed=8), how)
    for name, values in first.model.items():
        np.testing.assert_array_equal(values, kept[name])
        assert not np.shares_memory(values, second.model[name])
        assert values.flags.c_contiguous


def test_no_epochs_give_the_model_back():
    data, learner = table("classes"), MLP(hidden=(6,))
    model = learner.initial(data.schema, rng(1))
    (result,) = together(learner, model, parties(data, (20,)), LocalTraining(epochs=0))
    assert result.steps == 0
    assert np.isnan(result.loss)
    assert_close(result.model, model, 0)


def test_no_jobs_give_no_results():
    assert MLP().train_together([], LocalTraining()) == []


def test_a_rate_can_be_given_for_the_round():
    data, learner = table("classes"), MLP(hidden=(6,))
    model = learner.initial(data.schema, rng(1))
    jobs = jobs_for(model, parties(data, (20, 30)))
    results = learner.train_together(jobs, LocalTraining(learning_rate=0.5), learning_rate=0.02)
    for place, (result, job) in enumerate(zip(results, jobs, strict=True)):
        expected = plain_training("classes", model, job.data, LocalTraining(learning_rate=0.02), 100 + place)
        assert_close(result.model, expected)


def test_a_loss_that_is_no_number_names_the_step_and_the_remedy():
    data, learner = table("number"), Logistic()
    model = learner.initial(data.schema, rng(1))
    with pytest.raises(TequioError, match=r"became not finite at step \d+.*lower local.learning_rate"):
        together(learner, model, parties(data, (40, 30)), LocalTraining(epochs=40, batch=5, learning_rate=1e6))


def test_weights_that_the_last_step_blew_up_are_an_error():
    data, learner = table("number"), Logistic()
    model = learner.initial(data.schema, rng(1))
    with pytest.raises(TequioError, match="not finite at step 1"):
        together(learner, model, parties(data, (40, 30)), LocalTraining(steps=1, learning_rate=3e38))


def test_a_party_without_rows_is_an_error():
    data, learner = table("classes"), MLP(hidden=(6,))
    model = learner.initial(data.schema, rng(1))
    with pytest.raises(DataError, match="no rows to train on"):
        together(learner, model, [data.take([]), data], LocalTraining())


def test_a_model_of_another_shape_is_an_error():
    data, learner = table("classes"), MLP(hidden=(6,))
    model = MLP(hidden=(7,)).initial(data.schema, rng(1))
    with pytest.raises(DataError, match=r"'hidden1.weight' has shape \(7, 9\), and the learner needs \(6, 9\)"):
        together(learner, model, [data], LocalTraining())


def test_a_correction_of_another_shape_is_an_error():
    data, learner = table("classes"), MLP(hidden=(6,))
    model = learner.initial(data.schema, rng(1))
    other = MLP(hidden=(7,)).initial(data.schema, rng(1))
    for correction in (Correction(offset=other), Correction(pull=1.0, anchor=other)):
        with pytest.raises(DataError, match=r"hidden1\.weight' has shape \(7, 9\)"):
            together(learner, model, [data], LocalTraining(), correction)
        with pytest.raises(DataError, match=r"hidden1\.weight' has shape \(7, 9\)"):
            learner.train(model, data, LocalTraining(), rng(1), correction=correction)


def test_large_stacks_and_other_modules_do_not_train_together():
    schema = table("classes").schema
    assert MLP(hidden=(100,)).trains_together(schema, LocalTraining())
    assert not MLP(hidden=(1000, 1000)).trains_together(schema, LocalTraining())


@pytest.mark.parametrize(("hidden", "batch"), [((128,), 20), ((), 10)])
def test_the_shapes_of_the_benchmark_give_the_bits_of_a_party_alone(hidden, batch):
    data, learner = table("classes", columns=784), MLP(hidden=hidden)
    model = learner.initial(data.schema, rng(1))
    datasets, how = parties(data, (40,) * 20), LocalTraining(batch=batch)
    results = together(learner, model, datasets, how)
    for place in (0, 7, 19):
        (alone,) = learner.train_together([Job(model, datasets[place], rng(100 + place))], how)
        assert_same_bits(results[place], alone)
