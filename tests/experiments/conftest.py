import json
from pathlib import Path

import pytest

from tequio.experiments.config.complete import read_given
from tequio.experiments.config.toml import write_toml

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


@pytest.fixture
def store_run():
    """Writes the folder of a finished run by hand: what comparisons read, without running anything."""
    def store(folder, *, seed=0, algorithm="fedavg", accuracy=0.5, data="digits", metrics=None, **tables):
        folder.mkdir(parents=True, exist_ok=True)
        config = {"name": folder.name, "seed": seed, "rounds": 3, "data": {"name": data, "partition": {"name": "iid"}},
                  "algorithm": {"name": algorithm}, "local": {"name": "minibatch", "epochs": 1}}
        for table, keys in tables.items():
            config[table] = {**config.get(table, {}), **keys}
        (folder / "config.toml").write_text(write_toml(config))
        summary = {"run": folder.name, "name": folder.name, "data": data, "algorithm": algorithm, "seed": seed,
                   "seconds": 1.0, "bytes_up": 10, "rounds": 3,
                   "metrics": metrics or {"test.loss": 1 - accuracy, "test.accuracy": accuracy}}
        (folder / "summary.json").write_text(json.dumps(summary))
        return folder

    return store
