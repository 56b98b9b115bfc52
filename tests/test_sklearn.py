"""The scikit-learn estimators: scikit-learn's own checks, and the same numbers and refusals as `tequio.run`."""

from __future__ import annotations

import copy
import pickle
import tempfile

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import tequio
import tequio.sklearn
from contracts import runs
from tequio.errors import ConfigError, DataError, PartyError, TequioError
from tequio.sklearn import FederatedClassifier, FederatedRegressor

IRIS = load_iris(return_X_y=True, as_frame=True)
SCHOOLS = np.array(["north", "south", "east"])[np.arange(150) % 3]
QUICK = {"rounds": 2, "parties": 3}


@pytest.mark.filterwarnings("ignore")  # the checks look at warnings themselves where it matters
@parametrize_with_checks([FederatedClassifier(), FederatedRegressor()])
def test_scikit_learn_approves(estimator, check):
    check(estimator)


# Trees need validation rows, paillier takes seconds, and these have no target to predict.
NEEDS = {"icdta4fl": {"validation": 0.2}, "icdta4fl-plus": {"validation": 0.2}, "icdta4fl-own": {"validation": 0.2}}
SLOW = {"vertical-linear", "vertical-logistic", "vertical-poisson"}
NO_TARGET = {"kmeans", "statistics", "timing", "ask", "cox", "effect", "glm", "kaplan-meier", "log-rank", "meta",
             "penalised-glm", "test"}
ALGORITHMS = tequio.sklearn.registry.names("algorithm")


def parts_of(name):
    """The rows, the target and the settings of a small run of an algorithm."""
    config = {key: value for key, value in runs.config_of(name).items() if key not in ("name", "data", "seed")}
    data = runs.data_of(name)
    table, target = dict(data["name"]), data["target"]
    table.pop("id", None)
    wanted = [target] if isinstance(target, str) else target
    truth = pd.DataFrame({column: table.pop(column) for column in wanted})
    rows = pd.DataFrame({key: values.astype(float) if values.dtype.kind == "f" else values
                         for key, values in table.items()})
    partition = {key: value for key, value in data["partition"].items() if key != "overlap"}
    if name == "fedbn":
        partition["parties"] = 5  # no batch of one row, which cannot be normalised
    return rows, truth, partition, config


def fitted(name, folder):
    """A model of an algorithm, and the rows that it was trained on; its run stays in a folder."""
    rows, truth, partition, config = parts_of(name)
    own = {key: config.pop(key) for key in ("algorithm", "learner", "local", "rounds") if key in config}
    config |= {"output": {"folder": str(folder)}, "data": {"split": NEEDS.get(name, {})}}
    model = FederatedClassifier(**own, partition=partition, prepare=None if name == "federated-id3" else "standardise",
                                random_state=7, config=config)
    return model.fit(rows, truth if len(truth.T) > 1 else truth["y"]), rows


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in SLOW | NO_TARGET])
def test_every_algorithm_answers_as_the_model_of_its_run_and_travels(name, tmp_path):
    model, rows = fitted(name, tmp_path)
    kept = tequio.load(next(tmp_path.iterdir()))
    party = kept.parties[-1] if kept.speaks == "own" else ""
    groups = [party] * len(rows) if party else None
    expected = (kept.of(party) if party else kept).predict_proba(rows)
    for twin in (model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):  # noqa: S301
        assert np.array_equal(twin.predict_proba(rows, groups), expected)


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedrf", "federated-id3", "icdta4fl", "mlfedavg", "split-nn"])
def test_the_same_settings_give_the_numbers_of_a_run(name, tmp_path):
    model, rows = fitted(name, tmp_path / "fit")
    _, truth, partition, config = parts_of(name)
    data = {"test": 0.0, "split": {"validation": 0.0, "test": 0.0} | NEEDS.get(name, {}), "one_class": "allow",
            "prepare": [] if name == "federated-id3" else ["standardise"], "partition": partition,
            "name": rows.join(truth), "target": "y" if len(truth.T) == 1 else list(truth)}
    result = tequio.run(**config, seed=7, data=data, output={"folder": str(tmp_path / "run")})
    assert model.summary_["model_sha256"] == result.summary["model_sha256"]
    assert model.summary_["bytes_up"] == result.summary["bytes_up"]
    party = {"groups": ["0"] * len(rows)} if name == "ditto" else {}
    assert np.array_equal(model.predict_proba(rows, **party),
                          result.predict_proba(rows, party="0" if party else ""))


@pytest.mark.parametrize("name", sorted(NO_TARGET))
def test_an_algorithm_without_a_target_is_refused(name):
    config = {"devices": "mobile"} if name == "timing" else None
    reason = f"a run of '{name}' makes no model that predicts a target|'{name}': 'formula' is missing"
    with pytest.raises(ConfigError, match=reason):
        FederatedClassifier(name, config=config, **QUICK).fit(*IRIS)


def test_the_defaults_learn_about_as_much_as_scikit_learn():
    folds = KFold(3, shuffle=True, random_state=0)
    X, y = load_breast_cancer(return_X_y=True)
    mine = cross_val_score(FederatedClassifier(), X, y, cv=folds).mean()
    theirs = cross_val_score(make_pipeline(StandardScaler(), LogisticRegression()), X, y, cv=folds).mean()
    assert abs(mine - theirs) < 0.01
    X, y = load_diabetes(return_X_y=True)
    mine = cross_val_score(FederatedRegressor(), X, y, cv=folds).mean()
    assert abs(mine - cross_val_score(LinearRegression(), X, y, cv=folds).mean()) < 0.02


BAD = {
    "an unknown algorithm": {"algorithm": "fedavgg"}, "an unknown learner": {"learner": "mlpp"},
    "a learner that does not fit": {"algorithm": "fedrf", "learner": "mlp", "local": {}},
    "a table that would do nothing": {"algorithm": "fedrf", "learner": "random-forest", "local": {"epochs": 3}},
    "a key that is not there": {"local": {"epoch": 3}}, "a value out of range": {"local": {"learning_rate": -1.0}},
    "no round": {"rounds": 0}, "rounds in words": {"rounds": "many"}, "an unknown selector": {"selector": "lucky"},
    "stages that do not compose": {"stages": [{"name": "secure-sum"}], "aggregator": "median"},
    "a privacy key": {"privacy": {"epsilonn": 1.0}}, "an algorithm without a name": {"algorithm": {"mu": 1.0}},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_a_run_refuses_is_refused_with_the_same_words(bad):
    with pytest.raises(TequioError) as told:
        tequio.run(data={"name": (IRIS[0].to_numpy(), IRIS[1].to_numpy())}, **{"rounds": 2, **bad})
    with pytest.raises(type(told.value)) as again:
        FederatedClassifier(**{"rounds": 2, **bad}).fit(*IRIS)
    assert str(again.value) == str(told.value)


@pytest.mark.parametrize(("settings", "groups", "message"), [
    ({"parties": 151}, None, "151 parties with at least 1 rows each need 151"),
    ({"partition": "dirichlett"}, None, r"\[data.partition\]: there is no partition called 'dirichlett'"),
    ({"partition": "dirichlett"}, SCHOOLS, r"\[data.partition\]: there is no partition called 'dirichlett'"),
    ({"partition": "iid"}, SCHOOLS, "the partition 'iid' does not look at groups"),
    ({"parties": 3}, SCHOOLS, "the groups are the parties"),
    ({"prepare": "standardize"}, None, "standardise"),
    ({"config": {"rounds": 3}}, None, r"leave it out of config: FederatedClassifier\(rounds=...\)"),
    ({"config": {"seed": 3}}, None, r"FederatedClassifier\(random_state=...\)"),
    ({"config": {"data": {"prepare": []}}}, None, r"FederatedClassifier\(prepare=...\)"),
    ({"config": {"data": {"missing": "median"}}}, None, "no key 'missing'"),
    ({"config": {"baselines": ["alone"]}}, None, "config={'output': {'folder': 'runs'}"),
    ({"config": {"data": {"name": "digits"}}}, None, "leave data.name out of config"),
    ({"config": {"engine": "local"}, "n_jobs": 2}, None, "set n_jobs=None"),
    ({"config": "quick.toml"}, None, "config is a dict here"),
    ({"config": {"sweep": {"rounds": [1, 2]}}}, None, "sweep"),
    ({"config": {"round": 2}}, None, "did you mean 'rounds'"),
    ({"config": {"stop": {"patience": 2}}}, None, "validation"),
])
def test_settings_that_would_do_nothing_are_refused(settings, groups, message):
    with pytest.raises(TequioError, match=message):
        FederatedClassifier(**{"rounds": 2, **settings}).fit(*IRIS, groups=groups)


@pytest.mark.parametrize(("groups", "message"), [
    ([1.0, np.nan] + [2.0] * 148, "groups has no value for row 1"), (SCHOOLS[:149], "inconsistent numbers of samples"),
    (["coordinator"] * 150, "cannot be called 'coordinator'"),
])
def test_bad_groups_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        FederatedClassifier(rounds=2).fit(*IRIS, groups=groups)


def test_groups_are_parties_and_answer_with_their_own_models():
    X, y = IRIS[0].to_numpy(), np.where(SCHOOLS == "east", 2 - IRIS[1], IRIS[1])  # one school names things otherwise
    model = FederatedClassifier("ditto", rounds=10, local={"epochs": 5, "momentum": 0.9}).fit(X, y, groups=SCHOOLS)
    assert model.summary_["parties"] == 3
    assert sorted(model.model_.parties) == ["east", "north", "south"]
    assert model.score(X, y, groups=SCHOOLS) > 0.75 > 0.7 > model.score(X, y)
    assert np.array_equal(model.predict(X), model.predict(X, groups=["a new school"] * 150))
    for school in np.unique(SCHOOLS):
        mine = np.equal(SCHOOLS, school)
        assert np.array_equal(model.predict_proba(X, SCHOOLS)[mine], model.model_.of(school).predict_proba(X[mine]))


def test_a_number_names_one_party_whatever_its_type():
    X, y = IRIS
    model = FederatedClassifier("ditto", rounds=2).fit(X, y, groups=np.arange(150) % 2)
    expected = model.predict_proba(X, np.arange(150) % 2)
    assert not np.array_equal(expected, model.predict_proba(X))
    for groups in (np.arange(150) % 2.0, pd.Series(np.arange(150) % 2, index=np.arange(150)[::-1]),
                   [str(row % 2) for row in range(150)]):
        assert np.array_equal(model.predict_proba(X, groups), expected)


@pytest.mark.parametrize("algorithm", ["alone", "fedper"])
def test_without_a_shared_model_rows_need_a_party(algorithm):
    model = FederatedClassifier(algorithm, "mlp", rounds=2).fit(*IRIS, groups=SCHOOLS)
    with pytest.raises(ConfigError, match=r"nobody said whose these rows are; .* groups=\['east', 'north', 'south', "):
        model.predict(IRIS[0])
    with pytest.raises(ConfigError, match="'west' is none of them"):
        model.predict(IRIS[0], groups=["west"] * 150)
    assert model.score(*IRIS, groups=SCHOOLS) > 0.5


def test_rows_that_parties_prepare_apart_need_a_party():
    X = IRIS[0] + 100 * (SCHOOLS == "east")[:, None]
    model = FederatedClassifier(rounds=10, config={"data": {"prepare_scope": "local"}}).fit(X, IRIS[1], groups=SCHOOLS)
    assert model.score(X, IRIS[1], groups=SCHOOLS) > 0.7
    with pytest.raises(ConfigError, match="prepare rows each in its own way"):
        model.predict(X)


def test_a_grid_over_algorithm_and_learner_in_a_pipeline():
    chain = make_pipeline(StandardScaler(), FederatedClassifier(prepare=None, **QUICK))
    name = "federatedclassifier__"
    grid = GridSearchCV(chain, {f"{name}algorithm": ["fedavg", {"name": "fedprox", "proximal": 1.0}],
                                f"{name}learner": ["logistic", {"name": "mlp", "hidden": [8]}]}, cv=2,
                        error_score="raise").fit(*IRIS)
    scores = grid.cv_results_["mean_test_score"]
    assert len(scores) == 4
    assert grid.best_score_ == max(scores) > 0.6
    alone = clone(chain).set_params(**grid.best_params_).fit(*IRIS)
    assert np.array_equal(grid.predict_proba(IRIS[0]), alone.predict_proba(IRIS[0]))


def test_cross_validation_hands_groups_to_fits_predictions_and_splits():
    X, y = IRIS
    seen = []

    class Watched(FederatedClassifier):
        def fit(self, X, y, groups=None):
            seen.append(sorted(set(groups)))
            return super().fit(X, y, groups)

    cross_val_score(Watched(rounds=2), X, y, params={"groups": SCHOOLS}, cv=KFold(2))
    assert seen == [["east", "north", "south"]] * 2
    seen.clear()
    with config_context(enable_metadata_routing=True):
        model = Watched("ditto", rounds=2).set_fit_request(groups=True).set_score_request(groups=True)
        model.set_predict_request(groups=True)
        scores = cross_val_score(model, X, y, params={"groups": SCHOOLS}, cv=GroupKFold(3), error_score="raise")
        assert sorted(seen) == [["east", "north"], ["east", "south"], ["north", "south"]]
        told = cross_val_predict(model, X, y, params={"groups": SCHOOLS}, cv=GroupKFold(3))
    assert np.isclose(np.mean(told == y), scores.mean())


def test_a_clone_is_not_trained_and_trains_to_the_same_bits():
    model = FederatedClassifier("scaffold", {"name": "mlp", "hidden": [4]}, **QUICK).fit(*IRIS)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "model_")
    assert np.array_equal(twin.fit(*IRIS).predict_proba(IRIS[0]), model.predict_proba(IRIS[0]))


def test_the_seed_is_the_runs_seed_and_none_draws_a_new_one():
    one, two, other = (FederatedClassifier(random_state=seed, **QUICK).fit(*IRIS)
                       for seed in (5, np.random.RandomState(5), None))
    assert one.summary_["seed"] == 5
    assert two.summary_["seed"] == np.random.RandomState(5).randint(2**31)
    assert other.summary_["seed"] != FederatedClassifier(random_state=None, **QUICK).fit(*IRIS).summary_["seed"]


def test_nothing_is_left_behind_or_printed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tequio.sklearn, "_MEMORY", tmp_path / "no such place")
    model = FederatedClassifier("ditto", **QUICK).fit(*IRIS)
    with pytest.raises(PartyError):
        FederatedClassifier("fedbn", {"name": "torch", "module": "contracts.normalised:build",
                                      "arguments": {"inputs": 4, "outputs": 3}}, parties=150).fit(*IRIS)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    assert len(model.predict(IRIS[0], groups=["0"] * 150)) == 150


def test_a_run_stays_where_the_config_wants_it(tmp_path):
    config = {"output": {"folder": str(tmp_path)}, "baselines": ["centralised"]}
    model = FederatedRegressor(config=config, **QUICK).fit(*IRIS)
    result = tequio.load(next(tmp_path.iterdir()))
    assert np.array_equal(result.predict(IRIS[0]), model.predict(IRIS[0]))
    assert (next(tmp_path.iterdir()) / "baselines" / "centralised" / "summary.json").is_file()


def test_stop_rules_look_at_validation_rows():
    model = FederatedClassifier(rounds=30, config={"stop": {"patience": 2}, "data": {"split": {"validation": 0.2}}})
    model.fit(*IRIS)
    assert model.summary_["stopped"] == "patience"
    assert len(model.history_) == model.summary_["rounds"] < 30
    assert "validation.accuracy" in model.history_[0]


def test_a_private_fit_says_what_it_spent():
    model = FederatedClassifier({"name": "fedavg", "weights": "uniform"}, stages=["central-dp"],
                                privacy={"epsilon": 50.0}, prepare=None, rounds=3).fit(*IRIS)
    assert 40 < model.summary_["privacy"]["epsilon"] <= 50
    model.set_params(prepare="standardise")
    with pytest.raises(ConfigError, match="prepare shares exact statistics"):
        model.fit(*IRIS)
    with pytest.warns(UserWarning, match="prepare shares exact statistics"):
        model.set_params(privacy={"epsilon": 50.0, "when_void": "warn"}).fit(*IRIS)


def frame(count=60):
    draw = np.random.default_rng(0)
    colour = draw.choice(["red", "green", "blue"], count)
    size = draw.standard_normal(count)
    return pd.DataFrame({"colour": colour, "size": size, "odd": draw.random(count) > 0.5}), np.where(
        (colour == "red") ^ (size > 1), "yes", "no")


@pytest.mark.parametrize("kind", ["pandas", "categories", "polars"])
def test_frames_with_text_are_read_as_they_are(kind):
    rows, y = frame()
    numbers = OneHotEncoder(sparse_output=False).fit_transform(rows[["colour", "odd"]])
    numbers = np.hstack([numbers[:, :3], rows[["size"]], numbers[:, 3:]])
    if kind == "polars":
        rows = pytest.importorskip("polars").DataFrame(rows.to_dict(orient="list"))
    elif kind == "categories":
        rows["colour"] = rows["colour"].astype("category")
    model = FederatedClassifier(prepare=["one-hot", "standardise"], **QUICK).fit(rows, y)
    assert list(model.feature_names_in_) == ["colour", "size", "odd"]
    expected = FederatedClassifier(**QUICK).fit(numbers, y).predict_proba(numbers)
    assert np.allclose(model.predict_proba(rows), expected, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(rows[["size", "colour", "odd"]])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(rows, y[1:])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        model.fit(rows, [np.nan] * 60)


def test_what_was_not_seen_in_training_is_an_error_or_the_usual_value():
    rows, y = frame()
    model = FederatedClassifier("federated-id3", "id3", prepare="discretise", **QUICK).fit(rows, y)
    new = rows.assign(colour="purple")
    with pytest.raises(DataError, match="'purple' in column 'colour'"):
        model.predict(new)
    usual = rows["colour"].mode()[0]
    assert np.array_equal(model.set_params(unseen="fill").predict(new), model.predict(rows.assign(colour=usual)))
    with pytest.raises(ConfigError, match="every row has to have an answer"):
        model.set_params(unseen="skip").predict(new)


def test_rows_may_be_images():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 40)
    X = draw.standard_normal((40, 1, 8, 8)) + 2 * y[:, None, None, None]
    model = FederatedClassifier(learner="simple-cnn", rounds=3, parties=2).fit(X, y)
    assert model.score(X, y) > 0.9
    with pytest.raises(DataError, match="rows of shape"):
        model.predict(X[:, :, :4])


def test_several_labels_have_a_column_each():
    X, y = IRIS[0], np.stack([IRIS[1] == 0, IRIS[1] == 2], axis=1).astype(int)
    model = FederatedClassifier(rounds=10).fit(X, y)
    assert model.predict(X).shape == model.predict_proba(X).shape == (150, 2)
    assert np.mean(model.predict(X)[:, 0] == y[:, 0]) > 0.95
    assert list(model.classes_) == [0, 1]
