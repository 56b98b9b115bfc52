"""The faults that a newcomer meets: each ends with one screen that names place, cause and remedy, and a code not 0."""

import errno
import os
import subprocess
import sys

import pytest

from tequio.experiments.running import store

SCREEN = 24

PATIENTS = """age,ward,sick
31,north,no
44,north,yes
52,south,no
67,south,yes
"""

CSV = """
[data]
name = "csv"
path = "patients.csv"
target = "sick"
group = "ward"
test = 0.0
[data.partition]
name = "natural"
[learner]
name = "sgd-classifier"
[engine]
workers = 1
"""


def flat(text):
    return " ".join(text.replace("│", " ").split())


def check_screen(err):
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) <= SCREEN
    assert "What to do:" in err


@pytest.fixture
def patients(tmp_path, monkeypatch):
    """A config about a CSV file that a test may spoil."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "patients.csv").write_text(PATIENTS)
    (tmp_path / "wards.toml").write_text(CSV)
    return tmp_path / "patients.csv"


def test_a_misspelt_key(toy, tequio):
    toy.write_text(toy.read_text().replace("[learner]", "[lerner]"))
    code, _, err = tequio("run", toy)
    assert code == 2
    check_screen(err)
    assert "toy.toml has no key 'lerner' What to do: did you mean 'learner'? error id: config" in flat(err)


def test_an_unknown_algorithm(toy, tequio):
    code, _, err = tequio("run", toy, "--set", "algorithm.name=fedavgg")
    assert code == 2
    check_screen(err)
    assert "[algorithm]: there is no algorithm called 'fedavgg' What to do: did you mean 'fedavg'?" in flat(err)


def test_a_csv_with_nan(patients, tequio):
    patients.write_text(PATIENTS.replace("44", ""))
    code, _, err = tequio("run", "wards.toml")
    assert code == 3
    check_screen(err)
    assert "column 'age'" in flat(err)
    assert "missing" in flat(err)
    assert not os.path.exists("runs")


def test_a_label_that_the_schema_does_not_know(toy, tequio, patients):
    code, _, err = tequio("run", "wards.toml", "--set", "data.target=cured")
    assert code == 3
    check_screen(err)
    assert "cured" in flat(err)


def test_a_party_with_no_rows(toy, tequio, tmp_path):
    (tmp_path / "deal.py").write_text(
        "import numpy as np\nfrom dataclasses import dataclass\nfrom tequio.registry import register\n"
        "from tequio.data.partition import Partition\n\n@register('partition', 'lazy')\n@dataclass(frozen=True)\n"
        "class Lazy:\n    '''The second party gets nothing.'''\n\n    def deal(self, dataset, rng):\n"
        "        return Partition.of([np.arange(5), np.arange(0)], names=('ana', 'beto'))\n")
    toy.write_text(toy.read_text().replace('plugins = [', 'plugins = ["deal.py", '))
    code, _, err = tequio("run", toy, "--set", "data.partition={name='lazy'}")
    assert code == 3
    check_screen(err)
    assert "1 of 2 parties have fewer than 1 rows: 'beto' (0)" in flat(err)


def test_a_party_with_one_class(patients, tequio):
    patients.write_text(PATIENTS.replace("52,south,no", "52,south,yes"))
    code, _, err = tequio("run", "wards.toml")
    assert code == 3
    check_screen(err)
    assert "1 of 2 parties have rows of one class only: party 'south'" in flat(err)
    assert tequio("run", "wards.toml", "--set", "data.one_class=allow", "-q")[0] == 0


def test_a_task_that_raises_at_a_party_in_round_2(toy, tequio):
    settings = ["--set", "algorithm={name='toy_stumble', party='caro', fails_in=2}"]
    code, _, err = tequio("run", toy, *settings)
    assert code == 6
    check_screen(err[err.index("╭"):])
    assert "party 'caro' failed in round 2 at task 'stumble': ValueError: the disk of this party" in flat(err)
    code, _, err = tequio("run", toy, *settings, "--debug")
    assert code == 6
    assert "Traceback" in err
    assert "in stumble" in err


def test_a_full_disk(toy, tequio, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "write_all", full)
    code, _, err = tequio("run", toy)
    assert code == 8
    check_screen(err)
    assert "cannot be written: No space left on device" in flat(err)


def test_a_mistake_in_a_plugin(toy, tequio):
    code, _, err = tequio("run", toy, "-q", "--set", "algorithm.name=toy_crash")
    assert code == 70
    check_screen(err)
    assert "KeyError: 'no such name'" in flat(err)
    assert "toy.py, line" in flat(err)
    code, _, err = tequio("--debug", "run", toy, "-q", "--set", "algorithm.name=toy_crash")
    assert "Traceback" in err


def test_a_plugin_that_cannot_be_imported(toy, tequio, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_package\n")
    code, _, err = tequio("run", toy, "--set", "plugins=['broken.py']")
    assert code == 2
    check_screen(err)
    assert "No module named 'no_such_package'" in flat(err)


def test_a_wrong_option_and_no_command(toy, tequio):
    code, _, err = tequio("run", toy, "--wrokers", 2)
    assert code == 2
    assert "--wrokers" in err
    check_screen(err)
    code, out, err = tequio()
    assert code == 2
    assert "run" in out + err


def test_the_installed_command_ends_with_the_same_code(toy):
    done = subprocess.run([sys.executable, "-m", "tequio", "run", "toy.toml", "--set", "rouns=2"], cwd=toy.parent,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "did you mean 'rounds'?" in done.stderr
