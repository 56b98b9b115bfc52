"""A model that is spread over real parties answers rows that are with them, and only the label holder is told."""

from __future__ import annotations

import csv
import json
from contextlib import closing

import numpy as np
import pytest

import tequio
from contracts import runs
from tequio.cli.main import call
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.journal import Journal
from tequio.engines.network.telemetry import Telemetry
from tequio.errors import ConfigError, DataError, EngineError, PermissionDenied, RunError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import predict_here_or_there, serving
from tequio.experiments.deploying.holdings import new_rows, open_holding
from tequio.experiments.deploying.predicting import Brought, predict_with_parties
from tequio.experiments.deploying.remote import run_with_parties
from tequio.experiments.running.scenario import make_scenario

from .fleet import Parties, enrol, make_coordinator
from .test_real_columns import REAL, SIMULATED, SPLIT_NN, TABLE, write_table

NEW = TABLE.with_name("bank-and-insurer-new.csv")
NAMES = ("bank", "insurer", "key holder")


def new_table(path, columns, leave_out, draw):
    """Some of the new rows in another order, with the columns of one party in another order."""
    with NEW.open() as source:
        rows = [row for row in csv.DictReader(source) if row["customer"] != leave_out]
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, ["remark", *reversed(columns), "customer"], restval="x", extrasaction="ignore")
        out.writeheader()
        out.writerows(rows[place] for place in draw.permutation(len(rows)))
    return path


def read_answers(path):
    with path.open() as file:
        return {row["id"]: (row["prediction"], float(row["probability"])) for row in csv.DictReader(file)}


def simulated_answers(result, brought):
    """What the same model says where all columns are in one place, of the rows that both parties bring, in the order of
    those that the label holder brings: the last bit of a product may depend on its place among others."""
    with NEW.open() as source, brought.open() as order:
        rows = {row["customer"]: row for row in csv.DictReader(source)}
        common = [rows[row["customer"]] for row in csv.DictReader(order) if row["customer"] not in ("C5000", "C5001")]
    with (brought.parent / "common.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, list(common[0]))
        out.writeheader()
        out.writerows(common)
    return {row["id"]: (row["prediction"], row["probability"])
            for row in tequio.predict(result.folder, brought.parent / "common.csv")}


@pytest.mark.network
def test_real_parties_predict_what_a_simulation_predicts(tmp_path, capsys):
    simulated, real, draw = tmp_path / "simulated.toml", tmp_path / "real.toml", np.random.default_rng(0)
    simulated.write_text(SIMULATED)
    real.write_text(REAL)
    population = make_scenario(load_config(simulated)).population
    home, homes = make_coordinator(tmp_path / "coordinator"), []
    for party, name in enumerate(NAMES):
        columns = [population.schema.features[column].name for column in population.partition.columns[party]]
        facts = {"path": "none"}
        if columns:
            write_table(tmp_path / f"{name}.csv", population, party, ["customer", *columns, *(
                ["repays"] if name == "bank" else [])])
            new_table(tmp_path / f"{name}-new.csv", columns, "C5000" if name == "bank" else "C5001", draw)
            facts = {"path": str(tmp_path / f"{name}.csv"), "id": "customer",
                     "target": "repays" if name == "bank" else None}
        homes.append(enrol(home, tmp_path / name, name, facts).folder)
        (homes[-1] / "policy.toml").write_text("private_randomness = false\n[psi]\nper_day = 20\nper_dataset = 20\n")
    bank, insurer = homes[0], homes[1]

    def bring(name, run, *more):
        assert call(["party", "bring", run, "--data", str(tmp_path / f"{name}-new.csv"), "--home",
                     str(tmp_path / name), *more]) == 0
        assert "11 rows" in capsys.readouterr().out

    with serving(home.folder, Telemetry()) as service, closing(Parties(homes)) as parties:
        for settings in ([], [SPLIT_NN]):
            here = tequio.run(load_config(simulated, [*settings, "engine.workers=1",
                                                      f"output.folder={tmp_path / 'own'}"]))
            there = run_with_parties(load_config(real, [*settings, f"output.folder={tmp_path / 'runs'}",
                                                        "engine.name=network", f"engine.home={home.folder}"]), service)
            run = there.folder.name
            with pytest.raises(ConfigError, match="not here: 'bank', 'insurer', 'key holder';"):
                there.predict(NEW)
            bring("bank", run)
            with pytest.raises(EngineError, match="party 'insurer' declined the run: this party has brought no new "):
                predict_there(home, there)
            bring("insurer", run)
            before = {place: Journal(place / "runs" / run).last_state() for place in homes}
            assert predict_there(home, there) == {"rows": 10}
            wanted = simulated_answers(here, tmp_path / "bank-new.csv")
            assert len(wanted) == 10
            assert read_answers(bank / "predictions" / f"{run}.csv") == wanted
            assert not (insurer / "predictions" / f"{run}.csv").exists()
            assert not [path for path in there.folder.rglob("*") if path.is_file() and b"C5003" in path.read_bytes()]
            for place in homes:  # the part of the model stays as it was, for the next question
                assert str(Journal(place / "runs" / run).last_state()) == str(before[place])

            with pytest.raises(EngineError, match="party 'bank' declined"):  # one answer only
                predict_there(home, there)
            bring("bank", run)
            bring("insurer", run)
            with pytest.raises(EngineError, match=r"'bank' declined .* has not agreed that 'coordinator' is told"):
                predict_there(home, there, tell="coordinator")
            bring("bank", run, "--tell", "coordinator")
            (tmp_path / "told.csv").write_text(predict_there(home, there, tell="coordinator")["table"])
            assert read_answers(tmp_path / "told.csv") == wanted
            (bank / "predictions" / f"{run}.csv").unlink()
            bring("bank", run, "--tell", "insurer")
            bring("insurer", run)
            assert predict_there(home, there, tell="insurer") == {"rows": 10}
            assert read_answers(insurer / "predictions" / f"{run}.csv") == wanted
            assert not list((bank / "predictions").iterdir())
        bring("bank", run)
        bring("insurer", run)
        parties.kill("insurer")
        with pytest.raises(EngineError, match="insurer"):
            predict_there(home, there)


def predict_there(home, there, *, tell=""):
    try:
        return predict_here_or_there(home.folder, there.folder, tell=tell, wait=4.0)
    except RunError as cause:  # a coordinator in another process tells the message only
        raise EngineError(cause.message, remedy=cause.remedy) from cause


@pytest.fixture
def brought(tmp_path):
    (tmp_path / "rows.csv").write_text("id,x,colour,y\nA,1.5,red,no\nB,2.5,blue,yes\nC,4.0,red,yes\n")
    return party_of(tmp_path, {"path": str(tmp_path / "rows.csv"), "id": "id", "target": "y", "prepare": ["minmax"],
                               "minimum_count": 1})


def party_of(tmp_path, data):
    """The folder of a party that took part in a run called 'loans'."""
    (tmp_path / "home" / "runs" / "loans").mkdir(parents=True)
    (tmp_path / "home" / "party.json").write_text(json.dumps({"name": "b", "data": data}))
    return Brought(PartyHome(tmp_path / "home"), open_holding("b", data))


def bring(brought, tmp_path, text, run="loans", **more):
    (tmp_path / "new.csv").write_text(text)
    return brought.bring(run, tmp_path / "new.csv", **{"id": "", "unseen": "error", "tell": "", "out": None, **more})


def about(brought, state, algorithm="split-nn", tell=""):
    return brought.about("loans", {"algorithm": algorithm, "schema": brought.holding.schema, "tell": tell}, state)


def test_new_rows_are_prepared_by_what_the_training_rows_were_fitted_to(brought, tmp_path):
    rows = bring(brought, tmp_path, "colour,x,id\nblue,9.0,D\nred,1.5,E\n").dataset
    assert rows.ids.tolist() == ["D", "E"]
    assert rows.features[:, 0].tolist() == [3.0, 0.0]
    assert rows.schema == brought.holding.dataset.schema


@pytest.mark.parametrize(("text", "told"), [
    ("colour,x,id\ngreen,1,D\n", "'green' in column 'colour'"), ("colour,id\nred,D\n", "lack 1 of"),
    ("colour,x\nred,1\n", "no column 'id'"), ("colour,x,id\nred,,D\n", "no value in column 'x'")])
def test_rows_that_do_not_fit_are_refused_before_anybody_asks(brought, tmp_path, text, told):
    with pytest.raises(DataError, match=told):
        bring(brought, tmp_path, text)
    with pytest.raises(PermissionDenied, match="brought no new rows"):
        about(brought, {"some": "state"})


def test_runs_that_the_party_does_not_know_are_refused(brought, tmp_path):
    with pytest.raises(ConfigError, match="took no part in a run 'other'"):
        bring(brought, tmp_path, "colour,x,id\nred,1,D\n", run="other")
    with pytest.raises(ConfigError, match=r"took no part in a run '../loans'"):
        bring(brought, tmp_path, "colour,x,id\nred,1,D\n", run="../loans")


def test_a_question_gets_the_part_of_the_model_and_the_tasks_of_predictions_only(brought, tmp_path):
    bring(brought, tmp_path, "colour,x,id\nred,1,D\n")
    state = {"rows.CommonRows": {"rows": np.arange(3), "scale": {"mean": 0}}, "split_nn.Bottom": {"optimizer": {}}}
    question = about(brought, state)
    assert question.part == {"rows.CommonRows": {"scale": {"mean": 0}}}
    assert {"split-nn.activate", "intersection.mask"} <= question.tasks
    assert not {"split-nn.step", "vertical.tell answers", "vertical.hand out", "vertical.tally",
                "vertical.seal answers"} & question.tasks
    question.judge("split-nn.activate", {"part": "query"})
    with pytest.raises(PermissionDenied, match="does not come with 'features'"):  # to find out the weights
        question.judge("split-nn.activate", {"features": np.eye(2)})
    with pytest.raises(PermissionDenied, match=r"not agreed to the task 'split-nn\.step'"):
        question.judge("split-nn.step", {})
    with pytest.raises(PermissionDenied, match="keeps no part of the model"):
        about(brought, {})
    with pytest.raises(PermissionDenied, match="is not spread over parties"):
        about(brought, state, "fedavg")


WAYS = {"": "hold", "b": "hold", "coordinator": "tell", "insurer": "seal"}


def telling(question):
    """The tasks that let answers go anywhere."""
    every = {"vertical.give key", *(f"vertical.{way} answers" for way in ("hold", "tell", "seal", "open"))}
    return question.tasks & every


def test_the_label_holder_says_who_is_told(brought, tmp_path):
    state = {"rows.CommonRows": {"scale": {}}}
    for agreed in ("", "coordinator", "insurer"):
        bring(brought, tmp_path, "colour,x,id\nred,1,D\n", tell=agreed)
        for asked, way in WAYS.items():
            if asked in ("", "b", agreed):
                assert telling(about(brought, state, tell=asked)) == {f"vertical.{way} answers"}
            else:
                with pytest.raises(PermissionDenied, match=f"has not agreed that '{asked}' is told"):
                    about(brought, state, tell=asked)


def test_a_party_that_is_not_told_takes_no_answers(tmp_path):
    (tmp_path / "rows.csv").write_text("id,x\nA,1.5\nB,2.5\n")
    brought = party_of(tmp_path, {"path": str(tmp_path / "rows.csv"), "id": "id"})
    bring(brought, tmp_path, "x,id\n1,D\n", tell="b")
    for asked in ("", "coordinator", "bank"):
        assert not telling(about(brought, {"some": {}}, tell=asked))
    assert telling(about(brought, {"some": {}}, tell="b")) == {"vertical.give key", "vertical.open answers"}


def test_a_party_without_a_table_has_no_rows_to_bring():
    with pytest.raises(ConfigError, match="without a table of its own"):
        new_rows("keys", {"path": "none"}, "new.csv")


def test_a_simulated_run_is_predicted_where_it_is(tmp_path):
    result = tequio.run(**{**runs.config_of("split-nn"), "output": {"folder": str(tmp_path)}})
    with pytest.raises(ConfigError, match="its parties were simulated"):
        predict_with_parties(result.folder, None, None)
