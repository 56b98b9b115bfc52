"""Transfer between parties with few common rows, against the whole loss under autograd in one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from joint import Transcript, federation_of, kept, people, play

import tequio
from parts import Parts
from tequio.algorithms.vertical import transfer
from tequio.algorithms.vertical.conversation import conversation
from tequio.algorithms.vertical.rows import CommonRows, LabelAnswers
from tequio.algorithms.vertical.transfer import Net, OtherLabels, Transfer
from tequio.data.dataset import Dataset, Target
from tequio.data.partition import Split
from tequio.data.partitions.columns import Columns, RowsAndColumns
from tequio.errors import ConfigError, DataError, PartyError
from tequio.federation import task
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining
from tequio.privacy.labels import truth_chance

torch = pytest.importorskip("torch")

HOW = LocalTraining(epochs=2, batch=8, learning_rate=0.2)


def made(local=HOW, **more):
    return Transfer(**Parts(local=local), **{"width": 3, **more})


def dealt(data=None, *, parties=2, overlap=0.4, seed=0):
    data = data or people(120, columns=6)
    partition = RowsAndColumns(parties=parties, row_overlap=overlap).deal(data, np.random.default_rng(seed))
    return Population(data, partition, Split(validation=0.1, test=0.2), seed=seed)


def three_classes():
    data = people(150, columns=6)
    codes = np.digitize(data.features @ np.linspace(1.0, -2.0, 6), [-1.0, 1.0])
    return Dataset.of(replace(data.schema, target=Target("classes", ("low", "middle", "high"))), data.features, codes,
                      ids=data.ids)


def standardised(population, state, party):
    """A party's columns, standardised by its rows that are not held out; its common rows for training; the others."""
    common = kept(state, CommonRows)
    held_out = common["rows"][common["part"] > 0]
    mine = population.partition.view(population.dataset, party)
    own = np.setdiff1d(np.arange(len(mine)), held_out)
    columns = np.asarray(mine.features, np.float64)
    columns = (columns - columns[own].mean(axis=0)) / columns[own].std(axis=0)
    target = population.dataset.target[population.partition.party_rows(party)]
    return columns, common["rows"][common["part"] == 0], np.setdiff1d(own, common["rows"]), target


def layers_of(state):
    return {name: torch.tensor(values.astype(np.float64), requires_grad=True)
            for name, values in kept(state, Net)["layers"].items()}


def through(layers, rows):
    count = len(layers) // 2
    for layer in range(1, count + 1):
        rows = rows @ layers[f"weight{layer}"] + layers[f"bias{layer}"]
        rows = torch.tanh(rows) if layer < count else rows
    return rows


@pytest.mark.parametrize(("data", "parties", "more"), [
    (None, 2, {}), (None, 3, {"hidden": (4,)}), (three_classes(), 2, {"pull": 0.7})],
    ids=["linear", "three parties, hidden layer", "three classes"])
def test_it_equals_the_whole_loss_under_autograd_in_one_place(data, parties, more):
    population, algorithm = dealt(data, parties=parties), made(**more)
    federation = federation_of(population)
    federation.round = 1
    with conversation(federation) as talk:
        state = algorithm._aligned(talk, algorithm.start(federation))
        before = federation.engine.states()
        algorithm.step(talk, state)
    layers = {party: layers_of(before[party]) for party in range(parties)}
    tables = {party: standardised(population, before[party], party) for party in range(parties)}
    columns, common, others, target = tables[0]
    own = torch.tensor(np.concatenate([columns[others], columns[common]]))
    labels, classes = target[np.concatenate([others, common])], len(population.schema.target.names)
    wanted = torch.tensor(np.stack([np.where(labels == label, 1.0, -1.0)
                                    for label in (range(classes) if classes > 2 else [1])], axis=1))
    for positions in algorithm._batches(federation, len(common)):
        places = len(others) + positions
        mine = through(layers[0], own)
        centre = wanted.T @ mine / len(own)
        loss = torch.zeros((), dtype=torch.float64)
        for party in range(1, parties):
            theirs = through(layers[party], torch.tensor(tables[party][0][tables[party][1][positions]]))
            margins = theirs @ centre.T
            loss = loss + (np.log(2) - wanted[places] * margins / 2 + margins ** 2 / 8).mean() \
                + algorithm.pull * ((theirs - mine[places]) ** 2).sum(dim=1).mean()
        weights = [values for party in layers.values() for values in party.values()]
        for values, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            values.data -= HOW.learning_rate * gradient
    after = federation.engine.states()
    for party in range(parties):
        for name, values in layers[party].items():
            np.testing.assert_allclose(kept(after[party], Net)["layers"][name], values.detach(), atol=1e-5)
    centre = (wanted.T @ through(layers[0], own) / len(own)).detach()
    np.testing.assert_allclose(kept(after[1], Net)["centre"], centre, atol=1e-5)


def test_labels_of_all_rows_are_randomised_where_they_are_to_be():
    population = dealt(people(1200, columns=6), overlap=0.3)
    federation = federation_of(population)
    play(made(label_epsilon=1.0), federation, rounds=2)
    state = federation.engine.states()[0]
    _, common, others, target = standardised(population, state, 0)
    for rows, said in ((common, kept(state, LabelAnswers)["labels"]), (others, kept(state, OtherLabels)["labels"])):
        expected = truth_chance(1.0, 2)
        assert abs((said == target[rows]).mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / len(rows))


def test_a_party_without_labels_answers_by_its_own_columns_alone(tmp_path):
    run = tequio.run(data={"name": "breast-cancer", "test": 0.3,
                           "partition": {"name": "rows-and-columns", "row_overlap": 0.2}},
                     algorithm="transfer", local={"epochs": 20, "batch": 0}, rounds=3, engine={"workers": 1},
                     output={"folder": str(tmp_path)})
    model = tequio.load(run.folder)
    data = tequio.registry.build("dataset", "breast-cancer").load().train
    table = {name: np.asarray(data.features)[:, place] for place, name in enumerate(data.schema.names)}
    alone, together = model.of("1").predict_proba(table), model.predict_proba(table)
    np.testing.assert_allclose(alone, together, atol=1e-9)
    assert (alone.argmax(axis=1) == data.target).mean() > 0.85
    theirs = model.common.partition.columns[0]
    own = {name: values for place, (name, values) in enumerate(table.items()) if place not in theirs}
    assert len(own) == 15
    np.testing.assert_array_equal(model.of("1").predict_proba(own), alone)
    with pytest.raises(DataError, match="the rows lack 15 of the model's 30 columns"):
        model.predict(own)
    with pytest.raises(DataError, match="the rows lack 1 of"):
        model.of("1").predict(dict(list(own.items())[1:]))
    with pytest.raises(ConfigError, match="holds one part of this model"):
        model.of("0").predict(table)


def test_only_representations_gradients_and_a_centre_cross():
    federation = federation_of(dealt(), engine=Transcript())
    play(made(), federation)
    fields = {(task, field) for task, _, _, payload in federation.engine.messages for field in payload
              if task.startswith("transfer.")}
    assert {field for _, field in fields} <= {"part", "positions", "step", "represented", "gradient", "gradients",
                                              "rows", "loss", "centre"}


@pytest.mark.parametrize("found", [np.zeros((2, 3), np.float32), np.full((8, 3), np.nan, np.float32)])
def test_a_representation_that_cannot_be_used_names_its_party(found, monkeypatch):
    hostile = replace(transfer.represent, run=lambda party, payload, settings: {"represented": found})
    monkeypatch.setattr(transfer, "represent", hostile)
    monkeypatch.setitem(task._tasks, hostile.name, hostile)
    with pytest.raises(PartyError, match="party '1' failed"):
        play(made(), federation_of(dealt()))


@pytest.mark.parametrize(("partition", "data", "said"), [
    (RowsAndColumns(parties=1, row_overlap=1.0, column_overlap=1.0), people(), "no party without labels"),
    (Columns(names=((), ("c0", "c1"))), people(), "party '0' has no columns"),
    (RowsAndColumns(target_parties=(0, 1)), people(), r"2 parties hold the target \('0', '1'\)"),
    (RowsAndColumns(), people(target="number"), "is for classes")])
def test_what_cannot_work_is_refused_before_anything_is_sent(partition, data, said):
    population = Population(data, partition.deal(data, np.random.default_rng(0)), Split(0.1, 0.2), seed=0)
    with pytest.raises(ConfigError, match=said):
        made().start(federation_of(population))


@pytest.mark.parametrize("algorithm", ["fedavg", "alone", "kmeans"])
def test_algorithms_that_need_the_same_columns_are_refused_before_work_starts(algorithm, tmp_path):
    with pytest.raises(ConfigError, match=f"the algorithm '{algorithm}' needs the same ones at all of them"):
        tequio.run(data={"name": "breast-cancer", "partition": {"name": "rows-and-columns", "row_overlap": 0.2}},
                   algorithm=algorithm, rounds=1, engine={"workers": 1}, output={"folder": str(tmp_path)})
    assert not list(tmp_path.iterdir())
