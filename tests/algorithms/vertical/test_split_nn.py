"""The split network is the composed one; what crosses is activations and their gradients, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from joint import (
    Transcript,
    assert_no_ids,
    assert_no_labels,
    assert_no_rows,
    dealt,
    federation_of,
    keeping,
    kept,
    people,
    play,
)

from parts import Parts
from tequio.algorithms.vertical.rows import PARTS, CommonRows
from tequio.algorithms.vertical.split_nn import Bottom, SplitNN, Top
from tequio.attacks.label_leakage import leaked
from tequio.data.dataset import Target
from tequio.errors import ConfigError, PartyError
from tequio.learners.descent import loss_for, target_array
from tequio.learners.learner import LocalTraining
from tequio.learners.metrics import summarise

torch = pytest.importorskip("torch")

HOW = LocalTraining(epochs=1, batch=16, learning_rate=0.05, optimizer="adam")


def made(local=HOW, **more):
    return SplitNN(**Parts(local=local), **{"bottom": (6,), "cut": (3,), "top": (5,), **more})


def ordered(population, federation, part):
    """The whole rows of a part in the agreed order, standardised column by column as the parties do it."""
    common = kept(federation.engine.states()[0], CommonRows)
    mine = population.partition.view(population.dataset, 0).ids[common["rows"]]
    place = {identity: row for row, identity in enumerate(population.dataset.ids.tolist())}
    order = np.array([place[identity] for identity in mine.tolist()])
    train, chosen = (order[common["part"] == PARTS.index(name)] for name in ("train", part))
    features = population.dataset.features
    standard = (features[chosen] - features[train].mean(0)) / features[train].std(0)
    return standard, population.dataset.target[chosen]


class Composed(torch.nn.Module):
    """All bottoms and the top as one network that autograd sees whole."""

    def __init__(self, states, columns, activation, combine):
        super().__init__()
        self.columns, self.combine = columns, combine
        self.activation = {"relu": torch.relu, "tanh": torch.tanh}[activation]
        self.bottoms = torch.nn.ModuleList(self.stack(kept(states[party], Bottom)["layers"])
                                           for party in range(len(columns)))
        self.top = self.stack(kept(states[0], Top)["layers"])

    @staticmethod
    def stack(model):
        layers = []
        for layer in range(1, len(model) // 2 + 1):
            weight, bias = model[f"weight{layer}"], model[f"bias{layer}"]
            linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
            linear.weight.data, linear.bias.data = (torch.tensor(values, dtype=torch.float64)
                                                    for values in (weight.T, bias))
            layers.append(linear)
        return torch.nn.ModuleList(layers)

    def through(self, layers, values):
        for layer in layers[:-1]:
            values = self.activation(layer(values))
        return layers[-1](values)

    def forward(self, rows):
        blocks = [self.through(bottom, rows[:, columns])
                  for bottom, columns in zip(self.bottoms, self.columns, strict=True)]
        joined = torch.cat(blocks, 1) if self.combine == "concatenate" else torch.stack(blocks).sum(0)
        return self.through(self.top, joined / (len(blocks) if self.combine == "mean" else 1))


LOSSES = {"softmax": torch.nn.functional.cross_entropy, "squares": torch.nn.functional.mse_loss,
          "sigmoid": torch.nn.functional.binary_cross_entropy_with_logits}
OPTIMIZERS = {"adam": lambda weights, how: torch.optim.Adam(weights, how.learning_rate, weight_decay=how.weight_decay),
              "sgd": lambda weights, how: torch.optim.SGD(weights, how.learning_rate, momentum=how.momentum,
                                                          weight_decay=how.weight_decay)}


def central_losses(population, federation, algorithm, states, rounds):
    """Round by round, the mean loss of the composed network on the same batches, in double precision."""
    network = Composed(states, population.partition.columns[:len(states)], algorithm.activation, algorithm.combine)
    features, target = ordered(population, federation, "train")
    how, curve = algorithm.local, []
    kind = loss_for(population.schema.target, network.top[-1].out_features)
    for number in range(1, rounds + 1):
        federation.round = number
        if number == 1 or how.optimizer_memory == "fresh":
            optimizer = OPTIMIZERS[how.optimizer](network.parameters(), how)
        total = 0.0
        for positions in algorithm._batches(federation, len(target)):
            wanted = torch.tensor(target_array(kind, target[positions]))
            wanted = wanted if kind == "softmax" else wanted.double()
            loss = LOSSES[kind](network(torch.tensor(features[positions])), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(positions)
        curve.append(total / len(target) / how.epochs)
    return curve, network


@pytest.mark.parametrize(("parties", "target", "more", "how"), [
    (2, "classes", {}, HOW),
    (2, "classes", {}, replace(HOW, optimizer_memory="kept")),
    (2, "number", {"activation": "tanh"}, LocalTraining(batch=16, learning_rate=0.05, momentum=0.9)),
    (3, "classes", {"combine": "sum", "bottom": ()}, LocalTraining(epochs=2, batch=0, weight_decay=0.01)),
    (3, "classes", {"combine": "mean", "bottom": (7, 4)}, HOW),
    (2, "classes", {"cut": (2, 5), "top": ()}, HOW)])
def test_it_equals_the_composed_network_trained_in_one_place(parties, target, more, how):
    population = dealt(people(90, target=target, columns=6), parties=parties, overlap=0.7)
    losses = []
    federation = federation_of(population, record=lambda kind, facts: losses.append(facts))
    algorithm = made(how, **more)
    before = federation_of(population)
    twin = made(LocalTraining(epochs=0), **more)  # aligned and built by the same streams, but not trained
    play(twin, before)
    start = {party: dict(state) for party, state in before.engine.states().items()}
    state = play(algorithm, federation, rounds=6)
    ours = {facts["round"]: facts["loss"] for facts in losses if "loss" in facts and facts["task"] == "split-nn.top"}
    central, network = central_losses(population, federation, algorithm, start, 6)
    assert list(ours.values()) == pytest.approx(central, abs=1e-5)
    assert central[-1] < central[0]
    features, truth = ordered(population, federation, "test")
    with torch.no_grad():
        outputs = network(torch.tensor(features)).numpy()
    found = algorithm.evaluate(federation, state, "test", federation.everyone())[0]
    if target == "classes":
        right = int(((outputs[:, 0] > 0) == truth).sum())
        assert np.trace(found["confusion"]) == right
    else:
        assert found["squared_error"] == pytest.approx(float(np.square(outputs[:, 0] - truth).sum()), rel=1e-4)


def transcript(rounds=2, **more):
    population = dealt(people(80, columns=6), parties=3, overlap=0.6)
    federation = federation_of(population, engine=Transcript())
    algorithm = made(**more)
    state = play(algorithm, federation, rounds)
    algorithm.evaluate(federation, state, "test", federation.everyone())
    return population, federation


def test_no_message_holds_a_row_an_id_a_label_or_a_weight():
    population, federation = transcript()
    assert_no_ids(federation.engine, population)
    assert_no_rows(federation.engine, population)
    assert_no_labels(federation.engine, population, federation.engine.states()[0])
    fields = {(name, field) for name, _, _, payload in federation.engine.messages for field in payload}
    assert fields == {
        ("intersection.offer", "key"), ("intersection.offer", "length"), ("intersection.offer", "brings_secret"),
        ("intersection.offer", "signature"), ("intersection.harden", "offers"), ("intersection.harden", "boxes"),
        ("intersection.harden", "signatures"), ("intersection.commit", "offers"), ("intersection.commit", "box"),
        ("intersection.commit", "digest"), ("intersection.commit", "signature"),
        ("intersection.agree", "commitments"), ("intersection.agree", "signature"),
        ("intersection.show", "signatures"), ("intersection.show", "box"), ("intersection.mask", "box"),
        ("intersection.mask", "step"), ("intersection.mask", "points"), ("intersection.settle", "steps"),
        ("intersection.settle", "places"), ("intersection.settle", "common"), ("intersection.settle", "intersection"),
        ("intersection.settle", "lengths"), ("vertical.choose order", "order"), ("vertical.keep", "order"),
        ("vertical.deal parts", "part"),
        ("vertical.settle", "part"), ("split-nn.build", "cut"), ("split-nn.build", "joined"),
        ("split-nn.build", "columns"), ("split-nn.step", "part"), ("split-nn.step", "positions"),
        ("split-nn.step", "step"), ("split-nn.step", "first"), ("split-nn.step", "gradient"),
        ("split-nn.step", "activations"), ("split-nn.top", "part"), ("split-nn.top", "positions"),
        ("split-nn.top", "step"), ("split-nn.top", "first"), ("split-nn.top", "activations"),
        ("split-nn.top", "gradients"), ("split-nn.top", "loss"), ("split-nn.top", "rows"),
        ("split-nn.activate", "part"), ("split-nn.activate", "activations"), ("split-nn.score", "part"),
        ("split-nn.score", "activations"), ("vertical.tally", "part"), ("vertical.tally", "rows"),
        ("vertical.tally", "loss_sum"), ("vertical.tally", "confusion"), ("vertical.tally", "score_histogram")}


def test_only_the_label_holder_gets_activations_and_only_their_maker_gets_gradients():
    _, federation = transcript()
    for name, sender, receiver, payload in federation.engine.messages:
        if sender == "coordinator":
            assert ("activations" in payload) <= (receiver == 0)
            assert "gradients" not in payload
        if "gradient" in payload:
            assert (name, sender) == ("split-nn.step", "coordinator")
            assert receiver in (1, 2)


def batches_seen(federation, population, party=1):
    """The gradients that a party got, batch by batch, with the labels that it should not know."""
    common = kept(federation.engine.states()[0], CommonRows)
    labels = population.partition.view(population.dataset, 0).take(common["rows"]).target[common["part"] == 0]
    pending, seen = None, []
    for name, _, receiver, payload in federation.engine.messages:
        if name == "split-nn.step" and receiver == party:
            if "gradient" in payload:
                seen.append((payload["gradient"], labels[pending] == 1))
            pending = payload.get("positions")
    return seen


def rare(rows=600):
    data = people(rows, columns=6)
    score = data.features @ np.linspace(1.0, -2.0, 6)
    values = (score > np.quantile(score, 0.85)).astype(np.int64)
    return type(data).of(data.schema, data.features, values, ids=data.ids)


@pytest.mark.parametrize(("protection", "norm", "direction"), [
    ("none", (0.8, 1.0), (0.9, 1.0)), ("max-norm", (0.5, 0.7), (0.5, 0.9)), ("marvell", (0.5, 0.7), (0.5, 0.75))])
def test_gradients_tell_labels_unless_they_are_protected(protection, norm, direction):
    population = dealt(rare(), overlap=1.0, split=None)
    federation = federation_of(population, engine=Transcript())
    algorithm = made(LocalTraining(batch=64, learning_rate=0.02, optimizer="adam"), alignment="agreed",
                     protection=protection, protection_strength=4.0)
    play(algorithm, federation, rounds=3)
    found = leaked(batches_seen(federation, population))
    assert norm[0] <= found["norm"] <= norm[1]
    assert direction[0] <= found["direction"] <= direction[1]


def test_noise_on_activations_changes_what_is_sent_and_nothing_else():
    _, clean = transcript(rounds=1)
    _, noisy = transcript(rounds=1, activation_noise=0.5)
    first = [next(payload["activations"] for name, sender, _, payload in federation.engine.messages
                  if name == "split-nn.step" and sender == 1) for federation in (clean, noisy)]
    added = first[1] - first[0]
    assert 0.2 < added.std() < 0.8
    assert abs(added.mean()) < 0.3


def test_it_learns_what_no_party_could_alone():
    population = dealt(people(600, columns=4), overlap=1.0)
    federation = federation_of(population)
    algorithm = made(alignment="agreed")
    state = play(algorithm, federation, rounds=15)
    target = population.schema.target
    found = summarise(target, algorithm.evaluate(federation, state, "test", federation.everyone())[0])
    assert found["accuracy"] > 0.88


def test_a_party_that_fails_in_a_batch_stops_the_run_and_the_run_goes_on_from_its_checkpoint():
    population = dealt(people(80), overlap=1.0)
    straight = federation_of(population)
    play(made(), straight, rounds=3)
    federation = federation_of(population)
    algorithm = made()
    state = play(algorithm, federation, rounds=2)
    states = federation.engine.states()
    federation.engine.restore({**states, 1: keeping(states[1], Bottom, {"layers": {}})})  # it lost its layers
    federation.round = 3
    with pytest.raises(PartyError, match=r"party '1' failed in round 3 at task 'split-nn.step': it sent activations"):
        algorithm.round(federation, state)
    federation.engine.restore(states)
    algorithm.round(federation, state)
    for party, expected in straight.engine.states().items():
        for part in (Bottom, Top):
            for name, values in kept(expected, part).get("layers", {}).items():
                np.testing.assert_array_equal(kept(federation.engine.states()[party], part)["layers"][name], values)


@pytest.mark.parametrize(("more", "said"), [
    ({"cut": (2, 3, 4)}, "3 widths for 2 parties"), ({"cut": (2, 3), "combine": "sum"}, "different widths"),
    ({"protection": "marvell"}, "for two classes")])
def test_cuts_and_protections_that_cannot_be_are_refused(more, said):
    data = people(target="number" if "protection" in more else "classes")
    assert data.schema.target in (Target("number"), Target("classes", ("no", "yes")))
    with pytest.raises(ConfigError, match=said):
        made(**more).start(federation_of(dealt(data)))
