import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.errors import ConfigError
from tequio.experiments.config.toml import parse_setting, read_toml, write_toml

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-2**63, 2**63 - 1) | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_what_is_written_reads_back_the_same(table):
    assert tomllib.loads(write_toml(table)) == table


def test_nothing_is_left_out_and_tables_follow_scalars():
    table = {"data": {"name": "digits", "split": {"test": 0.5}}, "rounds": 3, "target": None,
             "stages": [{"name": "clip"}]}
    assert write_toml(table) == ('rounds = 3\n\n[data]\nname = "digits"\n\n[data.split]\ntest = 0.5\n\n'
                                 '[[stages]]\nname = "clip"\n')


@pytest.mark.parametrize(("text", "key", "value"), [
    ("rounds=20", "rounds", 20),
    ("local.learning_rate=1e-3", "local.learning_rate", 0.001),
    ("data.name=mnist", "data.name", "mnist"),
    ('data.name="mnist"', "data.name", "mnist"),
    ("learner.hidden=[64, 32]", "learner.hidden", [64, 32]),
    ("algorithm={name='fedprox', mu=0.1}", "algorithm", {"name": "fedprox", "mu": 0.1}),
    ("data.path=a=b.csv", "data.path", "a=b.csv"),
])
def test_settings_of_the_command_line_are_toml_values_or_text(text, key, value):
    assert parse_setting(text) == (key, value)


@pytest.mark.parametrize("text", ["rounds", "=3"])
def test_a_setting_without_key_or_value_is_refused(text):
    with pytest.raises(ConfigError, match="is not a setting"):
        parse_setting(text)


def test_errors_of_a_file_name_it(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no file '.*nowhere\.toml'"):
        read_toml(tmp_path / "nowhere.toml")
    (tmp_path / "broken.toml").write_text("rounds = = 3")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML: .*line 1"):
        read_toml(tmp_path / "broken.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        read_toml(tmp_path)
