"""The form covers the whole config, means what a config file means, and tells mistakes where they were made."""

from pathlib import Path

import pytest

from tequio import registry
from tequio.experiments.config.complete import complete, config_hash, load_config, resolved
from tequio.experiments.config.tables import Config
from tequio.views.web.fields import IMPORTING, as_typed, section_of, sections, tables
from tequio.views.web.submission import WHOLE, read_submission, typed_from, typed_in

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.toml"))
NO_SECTION = {"plugins", "sweep", "search", "stages", "overrides"}


def test_every_table_and_key_of_the_config_has_a_place():
    known = {one.key.partition(".")[0] for section in sections({}) for one in section.fields} | set(tables())
    assert set(Config.model_fields) - known == NO_SECTION


@pytest.mark.parametrize("table", [table for table in tables() if section_of(table).kind])
def test_every_component_can_be_chosen_and_has_all_its_parameters(table):
    from tequio.registry import parameters_of

    section = section_of(table)
    assert section.names == tuple(registry.names(section.kind))
    for name in section.names:
        keys = {one.key for one in section_of(table, name).fields}
        component = registry.find(section.kind, name).component
        assert {f"{table}.{field.name}" for field in parameters_of(component) if field.name not in IMPORTING} <= keys


def test_fields_tell_what_they_mean_and_what_empty_means():
    fields = {one.key: one for one in section_of("local").fields}
    rate = fields["local.learning_rate"]
    assert (rate.default, rate.type, rate.choices) == ("0.1", "float > 0", ())
    assert rate.meaning
    assert fields["local.optimizer"].choices == ("sgd", "adam")
    baselines = next(one for one in section_of("").fields if one.key == "baselines")
    assert baselines.many
    assert baselines.choices == ("alone", "centralised")


def test_an_empty_form_is_the_default_config():
    assert resolved(read_submission({}).config) == resolved(complete({"plugins": []}))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_config_typed_into_the_form_is_the_same_config(path):
    given = resolved(load_config(path))
    given["sweep"] = {}
    found = read_submission(typed_from(given), folder=given["output"]["folder"])
    if "data.name" in found.errors:
        pytest.skip("its data is not on this machine")
    assert found.errors == {}
    assert config_hash(found.config) == config_hash(complete(given))
    assert found.config.baselines == given["baselines"]


def test_parts_that_the_algorithm_does_not_take_are_left_out_unless_something_was_chosen_there():
    form = {"algorithm.name": "kmeans", "learner.name": "logistic", "local.name": "minibatch",
            "aggregator.name": "mean"}
    config = read_submission(form).config
    assert (config.learner, config.local, config.aggregator) == ({}, {}, {})
    for typed in ({"learner.name": "mlp"}, {"local.epochs": "3"}, {"aggregator.name": "krum"}):
        assert "would do nothing" in read_submission({**form, **typed}).errors[WHOLE]


@pytest.mark.parametrize(("typed", "field", "words"), [
    ({"rounds": "0"}, "rounds", "greater than or equal to 1"),
    ({"rounds": "many"}, "rounds", "valid integer"),
    ({"seed": "-1"}, "seed", "greater than or equal to 0"),
    ({"local.learning_rate": "-0.5"}, "local.learning_rate", "greater than 0"),
    ({"local.epochs": "1.5"}, "local.epochs", "valid integer"),
    ({"local.optimizer": "lion"}, "local.optimizer", "'sgd' or 'adam'"),
    ({"data.partition.name": "dirichlet", "data.partition.alpha": "0"}, "data.partition.alpha", "greater than 0"),
    ({"data.split.test": "1"}, "data.split.test", "less than 1"),
    ({"data.test": "half"}, "data.test", "valid number"),
    ({"evaluation.at": "nowhere"}, "evaluation.at", "list"),
    ({"learner.name": "mlp", "learner.hidden": "[0]"}, "learner.hidden", "greater than"),
    ({"attack.name": "sign-flip", "attack.fraction": "2"}, "attack.fraction", "less than 1"),
    ({"rules.quorum": "no"}, "rules.quorum", "valid"),
    ({"data.name": "csv"}, "data.path", "needed"),
    ({"further": "a ="}, "further", "not valid TOML"),
    ({"further": "[[stages]]\nname = 3"}, "further", "stage"),
    ({"further": "plugins = ['evil.py']"}, "further", "cannot be set here"),
    ({"further": "[output]\nfolder = '/etc'"}, "further", "cannot be set here"),
    ({"further": "[sweep]\nseeds = [1, 2]"}, "further", "cannot be set here"),
    ({"further": "wheels = 4"}, "further", "not permitted"),
    ({"further": "[[stages]]\nname = 'no such stage'"}, WHOLE, "there is no stage"),
])
def test_mistakes_are_told_at_their_field(typed, field, words):
    found = read_submission(typed)
    assert found.config is None
    assert field in found.errors or (field == "further" and WHOLE in found.errors)
    assert words in found.errors.get(field, found.errors.get(WHOLE, ""))


def test_all_mistakes_are_told_at_once():
    found = read_submission({"rounds": "0", "local.epochs": "x", "data.test": "2"})
    assert set(found.errors) == {"rounds", "local.epochs", "data.test"}


def test_data_that_would_have_to_be_downloaded_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("TEQUIO_CACHE", str(tmp_path))
    monkeypatch.delenv("TEQUIO_DATA", raising=False)
    found = read_submission({"data.name": "adult"})
    assert "tequio data fetch adult" in found.errors["data.name"]


def test_a_name_of_a_component_that_is_not_there_keeps_the_default():
    assert section_of("algorithm", "nonsense").chosen == "fedavg"
    assert section_of("attack", "").chosen == ""


@pytest.mark.parametrize("value", [3, 0.5, True, [1, 2], {"name": "paillier", "bits": 64}, [{"name": "drop"}], [], {}])
def test_a_value_is_typed_on_one_line_and_read_back(value):
    field = next(one for one in section_of("data").fields if one.key == "data.prepare")
    assert field.parse(as_typed(value)) == value


def test_boxes_ticked_together_are_a_list():
    typed = typed_in([("baselines", "alone"), ("baselines", "centralised"), ("rounds", "3")])
    assert read_submission(typed).config.baselines == ["alone", "centralised"]
    assert read_submission(typed_in([("baselines", "alone")])).config.baselines == ["alone"]


def test_text_that_looks_like_toml_stays_text():
    assert read_submission({"name": "2024"}).config.name == "2024"
    assert read_submission({"name": 'a"\nrounds = 99'}).config.rounds == 10


def test_the_page_shows_mistakes_and_keeps_what_was_typed(client):
    token = client.app.state.dashboard.settings.form_token
    answer = client.post("/start", data={"form_token": token, "rounds": "0", "name": "my run"})
    assert answer.status_code == 422
    assert 'value="my run"' in answer.text
    assert 'id="f-rounds-error"' in answer.text
    assert 'aria-invalid="true"' in answer.text


def test_choosing_another_component_brings_its_fields(client):
    text = client.get("/new/fields", params={"table": "algorithm", "name": "fedprox"}).text
    assert 'name="algorithm.proximal"' in text
    assert "<html" not in text
    assert client.get("/new/fields", params={"table": "nonsense"}).status_code == 404
