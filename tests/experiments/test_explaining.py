import json

import numpy as np
import pytest

import tequio
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import ConfigError, DataError, RunError
from tequio.experiments.explaining.explaining import compared
from tequio.experiments.running.scenario import make_scenario
from tequio.learners.trees.explain import Condition, Explanation
from tequio.learners.trees.tree import Tree

TREES = {"algorithm": "federated-id3", "learner": "id3", "data": {"name": "iris", "prepare": ["discretise"]},
         "baselines": ["alone"], "data.split": {"test": 0.2}}


def run(folder, **keys):
    return tequio.run(rounds=1, engine={"workers": 1}, output={"folder": str(folder)},
                      **{"data.partition": {"name": "iid", "parties": 3}, **keys})


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs"), **TREES)


def path(text, prediction):
    steps = tuple(Condition(*step.partition("==")) for step in text.split())
    return Explanation(steps, prediction, {}, 1.0, tuple(range(len(steps) + 1)))


@pytest.mark.parametrize(("local", "other", "told"), [
    # The three rows of the published table of explanations, and what it says of them.
    (("x7==priority x1==improper x0==pretentious", "3"),
     ("x7==priority x1==improper x0==pretentious x5==convenient", "1"),
     "The global tree asks further: x5 == convenient."),
    (("x7==recommended x1==very_crit x6==slightly_prob x3==2", "1"),
     ("x7==recommended x1==very_crit x6==slightly_prob x4==less_conv", "3"),
     "After 3 conditions in common the global tree asks x4 == less_conv instead of x3 == 2."),
    (("x7==recommended x1==critical x0==great_pret x3==1", "3"),
     ("x7==recommended x1==critical x0==great_pret x3==1", "1"),
     "Both trees ask the same, but different rows stand behind their answers."),
    (("x7==priority", "1"), ("x7==priority", "1"), "Both trees ask the same."),
    (("x7==priority x1==proper", "1"), ("x7==priority", "1"), "The global tree does not ask: x1 == proper."),
    (("x1==proper", "1"), ("x7==priority", "1"), "From the start the global tree asks x7 == priority instead of "
                                                 "x1 == proper."),
])
def test_the_difference_of_two_paths_in_a_sentence(local, other, told):
    assert compared(path(*local), path(*other)) == told


def test_both_sides_decide_as_the_models_predict(trees):
    explained = tequio.explain(trees, row=[0, 7, 29])
    test = make_scenario(trees.config).test
    names = test.schema.target.names
    assert isinstance(explained.model, Tree)
    assert isinstance(explained.local, Tree)
    assert explained.party == "0"
    for row in explained.rows:
        features = test.features[row.row][None]
        assert row.truth == names[test.target[row.row]]
        assert row.by_global.prediction == names[explained.model.predict(features)[0].argmax()]
        assert row.by_local.prediction == names[explained.local.predict(features)[0].argmax()]
        assert sum(row.local_decisions.values()) == 3
        assert row.local_decisions[row.by_local.prediction] >= 1
    local, other = (model.predict(test.features).argmax(axis=1) for model in (explained.local, explained.model))
    assert explained.agreement == pytest.approx((local == other).mean())


def test_the_rows_of_a_party_come_with_its_own_tree(trees):
    explained = tequio.explain(trees.folder, row=1, party=2)
    mine = make_scenario(trees.config).population.view(2)
    assert explained.rows[0].truth == mine.test.schema.target.names[mine.test.target[1]]
    assert explained.local.support[0] == len(mine.train)
    assert explained.where == "test rows of party '2'"


def test_rules_cover_every_row_once_and_importance_adds_up(trees):
    explained = tequio.explain(trees)
    assert sum(rule["support"] for rule in explained.rules) == explained.model.support[0]
    assert [rule["support"] for rule in explained.rules] == sorted((rule["support"] for rule in explained.rules),
                                                                   reverse=True)
    assert sum(explained.importance.values()) == pytest.approx(1)
    assert list(explained.importance.values()) == sorted(explained.importance.values(), reverse=True)
    assert explained.rows == ()


def test_an_explanation_shows_itself(trees):
    explained = tequio.explain(trees, row=7)
    text, html = str(explained), explained._repr_html_()
    for step in explained.rows[0].by_global.conditions:
        assert str(step) in text
        assert str(step).replace("<", "&lt;").replace(">", "&gt;") in html
    assert explained.rows[0].comparison in text.replace("\n", " ")
    assert json.loads(json.dumps(explained.to_plain()))["rows"][0]["global"]["prediction"] in text


def test_files_are_written_by_their_names(trees, tmp_path):
    explained = tequio.explain(trees, row=7)
    explained.save_tree(tmp_path / "tree.html")
    explained.save_tree(tmp_path / "tree.svg")
    for name in ("rules.txt", "rules.json", "rules.csv"):
        explained.save_rules(tmp_path / name)
    assert "local tree of party 0" in (tmp_path / "tree.html").read_text()
    assert (tmp_path / "tree.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "rules.json").read_text()) == explained.rules
    assert len((tmp_path / "rules.csv").read_text().splitlines()) == len(explained.rules) + 1
    assert len((tmp_path / "rules.txt").read_text().splitlines()) == len(explained.rules)
    with pytest.raises(ConfigError, match=r"cannot be written as 'tree\.png'; .* \.html, \.svg"):
        explained.save_tree(tmp_path / "tree.png")
    with pytest.raises(RunError, match="cannot be written"):
        explained.save_rules(tmp_path / "nowhere" / "rules.txt")


def test_parties_that_trained_alone_have_only_their_own_trees(trees):
    explained = tequio.explain(trees.baselines["alone"], row=3, party="1")
    assert explained.model is None
    assert explained.rows[0].by_global is None
    assert explained.rules
    assert "global" not in str(explained)


def test_without_a_checkpoint_only_the_global_side_is_left(tmp_path):
    result = run(tmp_path, **{**TREES, "baselines": []})
    (result.folder / "checkpoint").unlink()
    explained = tequio.explain(result, row=0)
    assert explained.rows[0].by_local is None
    assert "only the global one is shown" in str(explained)
    assert explained.differences == []


def test_a_forest_is_explained_by_its_votes(tmp_path):
    result = run(tmp_path, algorithm={"name": "fedrf", "trees": 4}, learner={"name": "random-forest", "trees": 4},
                 data="iris")
    explained = tequio.explain(result, row=2)
    votes = explained.rows[0].by_global
    assert votes.trees == 12
    assert sum(votes.votes.values()) == 12
    assert "of 12 trees for" in str(explained)
    assert sum(explained.importance.values()) == pytest.approx(1)
    with pytest.raises(ConfigError, match="'fedrf' is an ensemble, which is not one tree to draw"):
        explained.save_tree(tmp_path / "tree.html")
    with pytest.raises(ConfigError, match="'fedrf' is an ensemble, which has no list of rules"):
        explained.save_rules(tmp_path / "rules.txt")


@pytest.mark.parametrize(("algorithm", "learner"), [("histogram-gbdt", {"name": "boosted-trees", "depth": 2}),
                                                    ("xgboost-bagging", {"name": "xgboost", "depth": 2}),
                                                    ("voting", {"name": "cart"})])
def test_other_ensembles_decide_as_they_predict(tmp_path, algorithm, learner):
    if algorithm.startswith("xgboost"):
        pytest.importorskip("xgboost")
    result = run(tmp_path, algorithm=algorithm, learner=learner, data="iris", **{"data.one_class": "allow"})
    test = make_scenario(result.config).test
    explained = tequio.explain(result, row=range(len(test)))
    right = np.mean([row.by_global.prediction == row.truth for row in explained.rows])
    assert right == pytest.approx(result.summary["metrics"]["test.accuracy"])
    assert explained.rows[0].by_global.trees == {"voting": 3, "xgboost-bagging": 9}.get(algorithm, 3)


def test_what_is_not_made_of_trees_is_not_explained(tmp_path):
    result = run(tmp_path, data="iris", learner="sgd-classifier")
    with pytest.raises(ConfigError, match=r"'fedavg' is not made of trees: .*id3, cart.*random forest.*boosted trees"):
        tequio.explain(result, row=0)


def test_data_that_was_handed_over_is_needed_again(tmp_path):
    schema = Schema((Feature("a", ("x", "y")), Feature("b", ("x", "y"))), Target("classes", ("no", "yes")))
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 2, (90, 2)).astype(float)
    data = Dataset.of(schema, codes, (codes[:, 0] == codes[:, 1]).astype(int))
    result = run(tmp_path, **{**TREES, "baselines": [], "data": data})
    assert tequio.explain(result, row=0, data=data).rows[0].by_global.conditions
    with pytest.raises(ConfigError, match=r"hand it over again: tequio\.explain"):
        tequio.explain(result, row=0)
    with pytest.raises(DataError, match="not the data that the run was made with"):
        tequio.explain(result, row=0, data=Dataset.of(schema, codes[:80], data.target[:80]))


def test_data_is_not_handed_to_a_run_that_reads_its_own(trees):
    with pytest.raises(ConfigError, match="reads its data 'iris' by itself"):
        tequio.explain(trees, data=(np.zeros((2, 2)), np.zeros(2)))
