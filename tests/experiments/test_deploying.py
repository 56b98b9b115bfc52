"""What a coordinator makes of a config before it runs it, and what it prints while it waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tequio.cli.main import call
from tequio.data.dataset import Feature, Schema, Target
from tequio.data.sharing import SharedSchema, save_schema
from tequio.engines.network.homes import CoordinatorHome
from tequio.errors import ConfigError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import prepared_run
from tequio.experiments.deploying.flower_coordinator import write_app
from tequio.experiments.deploying.remote import difference
from tequio.experiments.showing.progress import awaited, shown


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "real.toml"
    path.write_text('[data]\nname = "parties"\n[engine]\nworkers = 2\nthreads = 3\nwait = 7\n')
    return path


def prepared(file, *settings):
    heard = []
    config, _ = prepared_run(file.parent / "home", file, [f"output.folder={file.parent / 'runs'}", *settings], None,
                             lambda kind, facts: heard.append((kind, facts["message"])))
    return config.engine, heard


def test_keys_of_the_engine_that_a_config_was_written_for_are_set_aside_and_named(file, tmp_path):
    file.write_text(file.read_text().replace("threads = 3\n", ""))
    engine, heard = prepared(file)
    assert (engine["name"], engine["wait"], "workers" in engine) == ("network", 7.0, False)
    assert heard == [("note", "set aside, because the engine is 'network' here and not 'local': engine.workers = 2")]
    engine, heard = prepared(file, "engine.name=ray", "engine.address=auto")
    assert "engine.address = 'auto'" in heard[0][1]
    notes = []
    write_app(file, tmp_path / "app", [], "mine", lambda kind, facts: notes.append(facts["message"]))
    assert notes == ["set aside, because the engine is 'flower' here and not 'local': engine.workers = 2"]
    written = load_config(tmp_path / "app/experiment.toml").engine
    assert (written["name"], written["wait"], "workers" in written) == ("flower", 7.0, False)


def test_keys_that_no_engine_of_the_config_has_are_refused(file):
    with pytest.raises(ConfigError, match="has no parameter 'threads'"):
        prepared(file)
    file.write_text('[engine]\nname = "network"\nworkers = 2\n')
    with pytest.raises(ConfigError, match="has no parameter 'workers'"):
        prepared(file)
    file.write_text('[engine]\nname = "locall"\n')
    with pytest.raises(ConfigError, match="locall") as wrong:
        prepared(file)
    assert "did you mean 'local'" in wrong.value.remedy


def test_a_config_without_keys_of_another_engine_is_passed_on_in_silence(file):
    file.write_text('[data]\nname = "parties"\n[engine]\nname = "network"\nwait = 7\n')
    engine, heard = prepared(file)
    assert (engine["name"], engine["wait"], heard) == ("network", 7.0, [])


def test_whom_a_run_waits_for_is_one_line_for_each_change(capsys):
    def waiting(there, missing, more=0):
        return {"name": "tumours", "there": there, "missing": missing, "more": more}

    with shown(lambda kind, facts: None) as listen:
        for _ in range(3):
            listen("waiting", waiting(["north"], {"south": "not connected", "east": "not connected"}))
        listen("waiting", waiting(["north", "south"], {"east": "a person at the party has to approve the run"}))
        listen("note", {"message": "something"})
    assert capsys.readouterr().err.splitlines() == [
        "tumours: waiting for south, east (not connected); here: north",
        "tumours: waiting for east (a person at the party has to approve the run); here: north, south",
        "note: something"]


def test_long_lists_of_parties_are_cut():
    names = [f"p{number}" for number in range(9)]
    assert awaited({"there": names, "missing": {}, "more": 2}) == \
        "waiting for 2 more, of any name; here: p0, p1, p2, p3, p4, p5 and 3 others"


NORTH = Schema((Feature("age"), Feature("sex", ("f", "m"))), Target("classes", ("no", "yes"), "ill"))


@pytest.mark.parametrize(("south", "sentence"), [
    (Schema((Feature("agee"), *NORTH.features[1:]), NORTH.target), "has a column 'agee' where party 'north' has 'age'"),
    (Schema((Feature("agee"), Feature("x")), NORTH.target), "has a column 'agee' where party 'north' has 'age'"),
    (Schema((*NORTH.features, Feature("bmi")), NORTH.target), "has a column 'bmi' that party 'north' lacks"),
    (Schema(NORTH.features[1:], NORTH.target), "lacks the column 'age' of party 'north'"),
    (Schema(NORTH.features[::-1], NORTH.target), "has its columns in another order than party 'north'"),
    (Schema((NORTH.features[0], Feature("sex")), NORTH.target), "holds 'sex' as number, party 'north' as category"),
    (Schema((NORTH.features[0], Feature("sex", ("female", "male"))), NORTH.target),
     "describes the column 'sex' otherwise than party 'north', such as its categories"),
    (replace(NORTH, target=Target("classes", ("no", "yes"), "sick")), "predicts 'sick', party 'north' predicts 'ill'"),
    (replace(NORTH, target=Target("number", (), "ill")), "predicts 'ill' as number, party 'north' as classes"),
    (replace(NORTH, target=Target("classes", ("0", "1"), "ill")), "knows other classes of 'ill' than party 'north'"),
])
def test_where_two_schemas_differ_is_said_by_the_names_of_columns_and_without_values(south, sentence):
    said = difference(south, NORTH, "north")
    assert said == sentence
    assert not any(value in said.split("'") for value in ("f", "m", "no", "yes", "0", "1", "female"))


@pytest.mark.parametrize(("header", "options", "cause", "remedy"), [
    ("agee,sex,ill", [], "the column 'age' of the schema is missing", "did you mean 'agee'?"),
    ("age,sex,illl", [], "the column 'ill' of the schema is missing", "did you mean 'illl'?"),
    ("age,sex,ill,bmi", [], "the column 'bmi' is not in the schema", 'data.ignore = ["bmi"]'),
    ("age,sex,ill", ["--id", "sexx"], "has no column 'sexx'", "did you mean 'sex'?"),
])
def test_a_table_with_a_wrong_header_is_refused_before_its_token_is_shown(tmp_path, capsys, header, options, cause,
                                                                           remedy):
    save_schema(SharedSchema(NORTH), tmp_path / "schema.json")
    extra = ",1" * (header.count(",") - 2)
    (tmp_path / "rows.csv").write_text(f"{header}\n50,f,no{extra}\n60,m,yes{extra}\n")
    home = CoordinatorHome.create(tmp_path / "coordinator", "t", "localhost", 1, 2)
    (tmp_path / "token").write_text(home.new_token("south").to_text())
    code = call(["party", "join", str(tmp_path / "token"), "--name", "south", "--data", str(tmp_path / "rows.csv"),
                 "--target", "ill", "--schema", str(tmp_path / "schema.json"), "--home", str(tmp_path / "south"),
                 *options, "--debug"])
    said = " ".join(capsys.readouterr().err.split())
    assert code == 3
    assert cause in said
    assert remedy in said
    assert not (tmp_path / "south").exists()
    assert len(list(home.tokens.waiting())) == 1
