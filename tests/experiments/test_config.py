import json

import pytest

from tequio.errors import ConfigError
from tequio.experiments.config.complete import (
    complete,
    config_hash,
    load_config,
    read_given,
    resolved,
    resolved_toml,
    with_key,
)


def error_of(given, source="toy.toml"):
    with pytest.raises(ConfigError) as caught:
        complete(given, source=source)
    return caught.value


def test_an_empty_config_is_complete():
    config = complete({})
    assert (config.rounds, config.seed, config.data.name, config.algorithm["name"]) == (10, 0, "digits", "fedavg")
    assert config.learner["name"] == "logistic"
    assert config.local == {"name": "minibatch", "epochs": 1, "steps": 0, "batch": 32, "optimizer": "sgd",
                            "learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0, "decay": 1.0, "clip_norm": 0.0,
                            "shuffle": True, "optimizer_memory": "fresh"}
    assert config.rules["on_failure"] == "stop"


@pytest.mark.parametrize(("key", "value", "message", "remedy"), [
    ("round", 3, "toy.toml has no key 'round'", "did you mean 'rounds'?"),
    ("epochs", 3, "toy.toml has no key 'epochs'", "'epochs' is a key of [local]"),
    ("patience", 3, "toy.toml has no key 'patience'", "'patience' is a key of [stop]"),
    ("data.splt", {}, "toy.toml: [data] has no key 'splt'", "did you mean 'split'?"),
    ("data.copeis", 2, "toy.toml: [data] has no key 'copeis'", "did you mean 'copies'?"),
    ("data.split.tets", 0.1, "toy.toml: [data.split] has no key 'tets'", "did you mean 'test'?"),
    ("learner.sclae", 1.0, "toy.toml: [learner] 'toy_mean' has no parameter 'sclae'", "did you mean 'scale'?"),
    ("local.learning_rat", 1.0, "toy.toml: [local] 'minibatch' has no parameter 'learning_rat'",
     "did you mean 'learning_rate'?"),
    ("rules.quorun", 1.0, "toy.toml: [rules] has no parameter 'quorun'", "did you mean 'quorum'?"),
    ("stop.patence", 1, "toy.toml: [stop] has no key 'patence'", "did you mean 'patience'?"),
    ("overrides.ana", {"locl": {}}, "toy.toml: [overrides.ana] has no key 'locl'", "did you mean 'local'?"),
    ("overrides.ana.local", {"epoch": 1}, "toy.toml: [overrides.ana.local] has no parameter 'epoch'",
     "did you mean 'epochs'?"),
    ("algorithm.name", "fedavgg", "toy.toml: [algorithm]: there is no algorithm called 'fedavgg'",
     "did you mean 'fedavg'?"),
    ("data.name", "toy_number", "toy.toml: [data]: there is no dataset called 'toy_number'",
     "did you mean 'toy_numbers'?"),
    ("data.partition.name", "naturl", "toy.toml: [data.partition]: there is no partition called 'naturl'",
     "did you mean 'natural'?"),
])
def test_a_wrong_key_or_name_is_named_with_its_place_and_the_nearest_right_one(given, key, value, message, remedy):
    error = error_of(with_key(given, key, value))
    assert (error.message, error.remedy) == (message, remedy)


@pytest.mark.parametrize(("key", "value", "message"), [
    ("rounds", 0, "toy.toml: 'rounds': input should be greater than or equal to 1 (got 0)"),
    ("rounds", "many", "toy.toml: 'rounds': input should be a valid integer"),
    ("data.split.test", 1.0, "toy.toml: 'data.split.test': input should be less than 1 (got 1.0)"),
    ("local.learning_rate", -1, "toy.toml: [local] 'minibatch': 'learning_rate': input should be greater than 0"),
    ("baselines", ["together"], "toy.toml: 'baselines.0': input should be 'alone' or 'centralised'"),
    ("stages", [{}], "toy.toml: [[stages]] does not say which stage it is"),
    ("plugins", ["nowhere.py"], "the plugin file 'nowhere.py' does not exist"),
    ("plugins", ["no.such.module"], "the plugin 'no.such.module' cannot be imported"),
])
def test_a_wrong_value_is_refused(given, key, value, message):
    assert error_of(with_key(given, key, value)).message.startswith(message)


def test_a_name_alone_stands_for_a_table(given):
    short = with_key({**given, "learner": "toy_mean"}, "learner.scale", 2.0)
    assert complete(short).learner == {"name": "toy_mean", "scale": 2.0}
    assert complete({**given, "algorithm": "toy_stumble"}).algorithm["weights"] == "size"


def test_overrides_go_on_top_of_the_file(toy):
    config = load_config(toy, ["rounds=7", "local.epochs=3", "data.copies=2", "data.partition.name=iid"])
    assert (config.rounds, config.local["epochs"], config.data.parameters["copies"]) == (7, 3, 2)
    assert config.data.partition["name"] == "iid"
    with pytest.raises(ConfigError, match="'rounds' is not a table"):
        load_config(toy, ["rounds.x=7"])


def test_the_resolved_config_is_complete_and_gives_the_same_config_again(toy, tmp_path):
    config = load_config(toy, ["overrides.ana.local.epochs=2", "stop.target=0.5"])
    again = tmp_path / "again.toml"
    again.write_text(resolved_toml(config))
    assert resolved(load_config(again)) == resolved(config)
    assert load_config(again) == config
    assert json.loads(json.dumps(resolved(config))) == resolved(config)
    assert resolved(config)["data"]["split"] == {"validation": 0.0, "test": 0.0, "stratify": True}


def test_the_hash_follows_the_numbers_and_nothing_else(given):
    base = config_hash(complete(given))
    for key, value in (("name", "other"), ("engine.workers", 2), ("output.folder", "elsewhere")):
        assert config_hash(complete(with_key(given, key, value))) == base
    for key, value in (("seed", 1), ("rounds", 3), ("learner.scale", 2.0), ("data.copies", 2), ("rules.quorum", 0.4)):
        assert config_hash(complete(with_key(given, key, value))) != base
    assert config_hash(complete(with_key(given, "learner.scale", 1.0))) == base  # a default, written out


def test_files_named_in_a_config_are_found_beside_it(tmp_path, monkeypatch):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "rows.csv").write_text("x,y\n1,a\n")
    (tmp_path / "study" / "plug.py").write_text("")
    text = 'plugins = ["plug.py", "json"]\n[data]\nname = "csv"\npath = "rows.csv"\n'
    (tmp_path / "study" / "c.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    given = read_given("study/c.toml")
    assert given["data"]["path"] == str(tmp_path / "study" / "rows.csv")
    assert given["plugins"] == [str(tmp_path / "study" / "plug.py"), "json"]
    assert given["name"] == "c"
