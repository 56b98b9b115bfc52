"""Models over several parties' columns: what each part holds, and how the parts answer together."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load

import tequio
from contracts import runs
from tequio.data.inputs import read
from tequio.errors import ConfigError, PayloadError, RunError
from tequio.experiments.running.scenario import make_scenario
from tequio.models.folder import load as load_model

PLAIN = {"encryption": "plain"}
KEYS = {"n", "roots", "p", "q"}
"""Parts of Paillier keys: bytes."""


def run(folder, name, **algorithm):
    config = runs.config_of(name)
    config["algorithm"] |= algorithm
    return tequio.run(**config, output={"folder": str(folder)})


def scenario_of(result, name):
    """What the run worked on, dealt again."""
    table = runs.rows(number=name == "vertical-linear", ids=True)
    return make_scenario(result.config, read(table, target="y", id="id"))


def rows_of(name, count=20):
    return {column: values[:count] for column, values in runs.rows(number=name == "vertical-linear").items()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of each vertical algorithm, encrypted, since plain text has no keys to leave lying about."""
    folder = tmp_path_factory.mktemp("runs")
    return {name: run(folder, name) for name in runs.ON_COLUMNS}


@pytest.fixture
def model(finished, tmp_path):
    """The folder of a copy, to be damaged."""
    return shutil.copytree(finished["vertical-logistic"].folder / "model", tmp_path / "model")


def arrays_in(folder):
    return {f"{path.relative_to(folder)}: {name}": array for path in sorted(folder.rglob("*.safetensors"))
            for name, array in load(path.read_bytes()).items()}


@pytest.mark.parametrize("name", sorted(runs.ON_COLUMNS))
def test_no_file_holds_training_rows_their_ids_or_their_order(finished, name):
    folder = finished[name].folder / "model"
    dealt = scenario_of(finished[name], name).population
    trained = json.loads((folder / "model.json").read_text())["common"]["model"]["rows"]["train"]
    assert trained == 67
    # A threshold lies between two values, or is one of them: it cannot be left out.
    arrays = {place: array for place, array in arrays_in(folder).items() if not place.endswith("threshold")}
    values = np.unique(dealt.dataset.features)
    for place, array in arrays.items():
        assert not np.isin(array[array != 0].astype(values.dtype), values).any(), place
        assert place.rpartition("/")[2] in KEYS or max(array.shape, default=0) < trained, place
    thresholds = [array for place, array in arrays_in(folder).items() if place.endswith("threshold")]
    assert sum(map(len, thresholds)) < 20
    text = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not [identity for identity in dealt.dataset.ids.tolist() if str(identity).encode() in text]


def test_a_part_is_what_its_party_needs_and_no_other_has(finished):
    folder = finished["vertical-logistic"].folder / "model"
    held = {place.partition(": ")[2].rpartition("/")[2] for place in arrays_in(folder)}
    assert held == {"mean", "deviation", "weights", *KEYS}
    with_primes = [place for place in arrays_in(folder) if place.endswith(("/p", "/q"))]
    assert {place.partition(":")[0] for place in with_primes} == {"parties/00003.safetensors"}
    calibrated = [path.name for path in folder.rglob("*.json") if b"calibration" in path.read_bytes()]
    assert calibrated == ["00000.json"]
    forest = finished["vertical-forest"].folder / "model"
    assert {place.rpartition("/")[2] for place in arrays_in(forest) if place.startswith("parties/00001")} == {
        "column", "threshold"}


def test_the_parts_add_up_to_the_prediction(tmp_path):
    """By hand: each party's standardised columns times its weights, added up, in the units of the target."""
    result = run(tmp_path, "vertical-linear", **PLAIN)
    rows, found = rows_of("vertical-linear"), 0.0
    for party, own in (("0", ["a", "b"]), ("1", ["c"]), ("2", ["d"])):
        state = result.trained.own[party].state
        scale, weights = state["rows.CommonRows"]["scale"], state["regression_tasks.OwnWeights"]["weights"]
        columns = (np.stack([rows[name] for name in own], axis=1) - scale["mean"]) / scale["deviation"]
        found = found + (weights[0] + columns @ weights[1:] if party == "0" else columns @ weights)
    target = result.trained.own["0"].state["regression_tasks.KeptByLabels"]["target"]
    np.testing.assert_allclose(result.predict(rows), found * target["deviation"] + target["mean"], rtol=1e-6, atol=1e-6)


def test_it_answers_batches_as_it_answers_all(finished):
    model, rows = finished["secureboost"].trained, rows_of("secureboost", 60)
    whole = model.predict_proba(rows)
    parts = [model.predict_proba({name: values[start:start + 20] for name, values in rows.items()})
             for start in range(0, 60, 20)]
    assert np.array_equal(whole, np.concatenate(parts))
    assert len(np.unique(whole[:, 0])) > 2


def test_a_missing_part_is_named_and_the_others_are_of_no_use(model):
    for path in model.glob("parties/00001.*"):
        path.unlink()
    with pytest.raises(ConfigError, match="not here: '1';") as told:
        load_model(model).predict(rows_of("vertical-logistic"))
    assert "tequio coordinator predict" in told.value.remedy
    with pytest.raises(ConfigError, match="party '0' holds one part of this model"):
        load_model(model).of("0").predict(rows_of("vertical-logistic"))


def test_a_party_can_be_handed_its_own_part_only(model):
    for path in model.glob("parties/*"):
        if not path.name.startswith("00002"):
            path.unlink()
    kept = load_model(model)
    assert kept.parties == ["2"]
    assert kept.own["2"].state["regression_tasks.OwnWeights"]["weights"].shape == (1,)
    with pytest.raises(ConfigError, match="not here: '0', '1', 'key holder';"):
        kept.predict(rows_of("vertical-logistic"))


def test_a_changed_part_is_refused(model):
    part = model / "parties" / "00001.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    with pytest.raises(RunError, match="00001\\.safetensors' is not what was written"):
        load_model(model)


def test_half_a_part_is_refused(model):
    (model / "parties" / "00001.safetensors").unlink()
    with pytest.raises(RunError, match="00001\\.safetensors' is not what was written"):
        load_model(model).predict(rows_of("vertical-logistic"))


def test_parts_of_other_parties_are_refused(finished):
    trained = finished["vertical-logistic"].trained
    swapped = {**trained.own, "1": trained.own["2"]}
    with pytest.raises(PayloadError, match="party '1' is not its part"):
        trained.common.among(swapped)


def test_an_algorithm_of_another_kind_is_refused(finished):
    trained = finished["split-nn"].trained
    payload = trained.common.to_payload()
    payload["algorithm"] = {"$component": ["learner", "mlp"], "parameters": {}}
    with pytest.raises(PayloadError, match="no vertical algorithm"):
        type(trained.common).from_payload({**payload, "parts": {}}, trained.reading.prepared_schema)


def test_columns_that_no_party_holds_are_not_asked_for(tmp_path):
    config = runs.config_of("split-nn")
    config["data"]["partition"] = {"name": "columns", "names": [["b"], ["d"]], "overlap": 0.8}
    config["data"]["prepare"] = ["standardise"]
    result = tequio.run(**config, output={"folder": str(tmp_path)})
    rows = rows_of("split-nn")
    told = result.predict_proba({"d": rows["d"], "b": rows["b"]})
    assert np.array_equal(told, result.predict_proba(rows))
    metrics = {name.removeprefix("test."): value for name, value in result.summary["metrics"].items()
               if name.startswith("test.")}
    table = runs.rows(ids=True)
    tested = np.isin(table["id"], scenario_of(result, "split-nn").test.ids.astype(np.int64))
    assert result.score({name: values[tested] for name, values in table.items()}) == metrics


def test_a_model_that_was_never_evaluated_is_calibrated(tmp_path):
    config = runs.config_of("vertical-logistic")
    config["algorithm"] |= PLAIN
    config["data"] |= {"test": 0.0, "split": {}}
    result = tequio.run(**config, output={"folder": str(tmp_path)})
    kept = result.trained.own["0"].state["regression_tasks.KeptByLabels"]
    assert kept["calibration"] != {"slope": 1.0, "shift": 0.0}
    assert result.score({**rows_of("vertical-logistic", 150)})["accuracy"] > 0.85


def test_parties_that_vanish_by_chance_do_not_cost_the_model(tmp_path):
    config = runs.config_of("vertical-logistic")
    config["algorithm"] |= PLAIN
    result = tequio.run(**config, rules={"dropout": 0.2, "on_failure": "continue"}, output={"folder": str(tmp_path)})
    assert len(result.trained.own) == 4


def test_which_rows_match_stays_hidden_in_the_model_too(tmp_path):
    result = run(tmp_path, "vertical-logistic", **PLAIN, hide_matches=True)
    assert set(result.trained.common.state.memory) == {"key"}
    metrics = {name.removeprefix("test."): value for name, value in result.summary["metrics"].items()
               if name.startswith("test.")}
    table = runs.rows(ids=True)
    tested = np.isin(table["id"], scenario_of(result, "vertical-logistic").test.ids.astype(np.int64))
    assert result.score({name: values[tested] for name, values in table.items()}) == metrics
