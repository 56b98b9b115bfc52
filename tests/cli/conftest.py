from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "experiments" / "plugins" / "toy.py"

TOY = f"""
name = "toy"
rounds = 3
plugins = ["{PLUGIN}"]

[data]
name = "toy_numbers"
copies = 10
test = 0.2
[data.partition]
name = "natural"
[data.split]
validation = 0.1
test = 0.1

[learner]
name = "toy_mean"

[engine]
workers = 1
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A config in the working folder; `toy.toml` is its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "toy.toml").write_text(TOY)
    return tmp_path / "toy.toml"


@pytest.fixture
def tequio(capfd):
    """Run a command line in this process: exit code, stdout, stderr."""
    from tequio.cli.main import call

    def run(*words):
        capfd.readouterr()
        code = call([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run
