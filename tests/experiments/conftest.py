from pathlib import Path

import pytest

from tequio.experiments.config import read_given

PLUGIN = Path(__file__).parent / "plugins" / "toy.py"

TOY = f"""
name = "toy"
rounds = 2
plugins = ["{PLUGIN}"]

[data]
name = "toy_numbers"
test = 0.0
[data.partition]
name = "natural"
[data.split]
validation = 0.0
test = 0.0

[learner]
name = "toy_mean"

[local]
learning_rate = 0.5

[engine]
workers = 1
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The path of a small config; runs go to a temporary folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.toml"
    path.write_text(TOY)
    return path


@pytest.fixture
def given(toy):
    """The same config as data."""
    return read_given(toy)
