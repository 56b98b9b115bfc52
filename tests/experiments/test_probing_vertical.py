"""Attacks on what parties with different columns send each other: they succeed where nothing protects, and not where
something does."""

from __future__ import annotations

import numpy as np
import pytest

import tequio
from tequio.algorithms.vertical.trees.offering import OwnColumns
from tequio.errors import ConfigError
from tequio.probing.columns import _opened
from tequio.probing.labels import gradients_of, nodes_reached
from tequio.probing.overheard import overheard, without_labels
from tequio.probing.probe import probe, probe_table

DATA = {"name": "breast-cancer", "test": 0.0, "split": {"validation": 0.0, "test": 0.25},
        "partition": {"name": "columns", "called": ["hospital", "laboratory"], "counts": [10, 20]}}
SPLIT = {"name": "split-nn", "bottom": [16], "cut": [8], "top": [16], "alignment": "agreed"}
BOOST = {"name": "secureboost", "encryption": "plain", "alignment": "agreed"}
HOW = {"batch": 32, "learning_rate": 0.05}
TREES = {"name": "boosted-trees", "depth": 3, "bins": 32, "learning_rate": 0.3}
RUNS = {
    "net": {"algorithm": SPLIT, "local": HOW},
    "stretched": {"algorithm": SPLIT | {"protection": "max-norm"}, "local": HOW},
    "marvell": {"algorithm": SPLIT | {"protection": "marvell", "protection_strength": 4.0}, "local": HOW},
    "net answers": {"algorithm": SPLIT | {"label_epsilon": 1.0}, "local": HOW},
    "blurred": {"algorithm": SPLIT | {"activation_noise": 2.0}, "local": HOW},
    "trees": {"algorithm": BOOST, "learner": TREES},
    "noised": {"algorithm": BOOST | {"offer_noise": 0.5}, "learner": TREES},
    "tree answers": {"algorithm": BOOST | {"label_epsilon": 1.0}, "learner": TREES},
    "own first": {"algorithm": BOOST | {"own_first_tree": True}, "learner": TREES, "rounds": 1},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder, made = str(tmp_path_factory.mktemp("vertical")), {}

    def run(name):
        if name not in made:
            made[name] = tequio.run({"data": DATA, "rounds": 8, "engine": {"workers": 1}, **RUNS[name]},
                                    name=name.replace(" ", "-"), output={"folder": folder})
        return made[name]

    return run


def test_what_is_overheard_is_the_run(runs):
    heard, result = overheard(runs("trees")), runs("trees")
    party = without_labels(heard, "laboratory")
    assert heard.federation.name(party) == "laboratory"
    assert max(message.round for message in heard.messages) == 8
    opened = list(_opened(heard, party, 0))
    assert [heard.algorithm.learner.bins, len(result.model["sizes"])] == [32, 8]
    # Every sum that the label holder opens is that of the rows left of the place it stands for.
    for node in opened:
        np.testing.assert_allclose(node.left.astype(float) @ node.values, node.sums)
    assert len(OwnColumns.kept_by(heard.party(party)).bins.cuts) == 20


def test_a_party_follows_rows_to_the_nodes_that_the_label_holder_sees(runs):
    heard = overheard(runs("trees"))
    party = without_labels(heard, "")
    for nodes, (leaf, count) in zip(nodes_reached(heard, party), _leaves(heard), strict=True):
        # Nodes as the party knows them are made of whole leaves.
        assert all(len(np.unique(nodes[leaf == one])) <= 1 for one in range(count))


def _leaves(heard):
    """For each tree the leaf of each row, from both parties' splits."""
    from tequio.algorithms.vertical.trees.offering import route
    from tequio.algorithms.vertical.trees.skeleton import OwnTrees, Skeleton

    trees = Skeleton.of(heard.party(heard.roles.label_holder).recall(OwnTrees)["trees"])
    rows = len(heard.labels())
    for root, size in zip(trees.roots.tolist(), trees.sizes.tolist(), strict=True):
        at = np.full(rows, root)
        for node in range(root, root + size):
            if trees.owner[node] < 0:
                continue
            here = at == node
            asked = {"part": "train", "records": np.array([trees.record[node]], np.int32),
                     "reach": np.packbits(here[None], axis=1)}
            ways = np.unpackbits(route(heard.party(int(trees.owner[node])), asked, None)["ways"], axis=1)[0, :rows]
            at[here] = np.where(ways[here] == 1, *trees.children[node])
        yield at - root, size


def test_gradients_of_a_split_network_are_an_open_book_and_noise_of_single_batches_is_averaged_away(runs):
    bare, stretched, marvell, answers = (probe(runs(name), "label-inference")
                                         for name in ("net", "stretched", "marvell", "net answers"))
    assert bare["low"] > 0.99
    assert bare["direction"] > 0.8
    assert stretched["norm"] < 0.6
    assert stretched["low"] > 0.95
    assert marvell["norm"] < 0.6
    assert marvell["direction"] < 0.6
    assert 0.6 < marvell["low"] < marvell["success"] < 0.95
    # An answer is true with a chance of e / (e + 1) = 0.73, and nothing else is known of a label.
    assert answers["success"] < 0.78


def test_every_row_has_a_gradient_in_every_round(runs):
    heard = overheard(runs("net"))
    batches = gradients_of(heard, without_labels(heard, ""))
    counts = np.bincount(np.concatenate([positions for positions, _ in batches]))
    assert counts.tolist() == [8] * len(heard.labels())


def test_nodes_group_rows_by_labels_and_less_so_by_answers(runs):
    bare, answers = (probe(runs(name), "instance-spaces") for name in ("trees", "tree answers"))
    assert bare["low"] > bare["guess"]
    assert answers["first_tree"] < bare["first_tree"]
    assert answers["success"] < bare["low"]
    with pytest.raises(ConfigError, match="took part in no tree"):
        probe(runs("own first"), "instance-spaces")


def test_rows_alone_between_two_cuts_are_found_and_noise_hides_them(runs):
    bare, noised = (probe(runs(name), "offer-sums") for name in ("trees", "noised"))
    assert bare["low"] > 0.02 > bare["guess"]
    assert noised["low"] <= noised["guess"] <= 0.01


def test_activations_tell_columns_and_noise_on_them_does_not(runs):
    bare, blurred = (probe(runs(name), "feature-inference") for name in ("net", "blurred"))
    assert bare["low"] > bare["guess"]
    assert blurred["success"] < bare["guess"] + 0.02


@pytest.mark.parametrize("unlabelled", [False, True])
def test_a_part_of_a_model_is_completed(runs, unlabelled):
    found = probe(runs("net"), "model-completion", known=40, unlabelled=unlabelled)
    assert 0.9 < found["low"] < found["success"] < found["high"]
    assert found["attempts"] == len(overheard(runs("net")).labels()) - 40


def test_one_column_is_known_from_its_part_of_the_score(tmp_path):
    run = tequio.run({"data": DATA | {"partition": {"name": "columns", "counts": [29, 1], "key_holder": True}},
                      "rounds": 2, "engine": {"workers": 1}, "local": {"batch": 64},
                      "algorithm": {"name": "vertical-logistic", "encryption": "plain", "alignment": "agreed"}},
                     output={"folder": str(tmp_path)})
    found = probe(run, "feature-inference")
    assert found["solved"] == pytest.approx(1.0)
    assert found["success"] > 0.99


def test_a_table_holds_what_suits_the_run(runs):
    table = probe_table([runs("trees")])
    assert [row["attack"] for row in table] == ["instance-spaces", "offer-sums"]
    assert {row["seen by"] for row in table} == {"another party"}
    assert all(row["low"] <= row["success"] <= row["high"] for row in table)


@pytest.mark.parametrize(("attack", "settings", "message"), [
    ("label-inference", {"party": "hospital"}, "no party 'hospital' has columns and no labels"),
    ("label-inference", {"known": 400}, "fewer than 201 training rows of a class"),
    ("feature-inference", {"known": 300}, "300 cannot be known"),
    ("offer-sums", {}, "finds nothing of its kind in a run of 'split-nn'")])
def test_what_cannot_be_attacked_is_said(runs, attack, settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        probe(runs("net"), attack, **settings)
    assert caught.value.remedy
