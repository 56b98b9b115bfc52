import json
import os
import subprocess
import sys

import pytest

from tequio import registry

ENTRY_POINT_PLUGIN = '''
from dataclasses import dataclass

from tequio.federation.selection import Choice, Selector
from tequio.registry import register


@register("selector", "first", paper="Nobody, 2020")
@dataclass(frozen=True)
class FirstParty(Selector):
    """Only the first party takes part.

    Parameters:
        eager: means nothing
    """

    eager: bool = True

    def choose(self, context):
        return Choice(context.eligible[:1])
'''


def test_everything_registered_is_listed(tequio):
    code, out, _ = tequio("list", "--json")
    assert code == 0
    listed = {(one["kind"], one["name"]) for one in json.loads(out)["components"]}
    assert {("algorithm", "fedavg"), ("partition", "iid"), ("engine", "local"), ("dataset", "digits")} <= listed
    assert listed == {(entry.kind, entry.name) for entry in registry.entries()}


def test_one_kind_is_listed_on_request(tequio, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = tequio("list", "selector")
    assert code == 0
    assert "random" in out
    assert "McMahan et al., 2017" in out
    assert "fedprox" not in out
    code, _, err = tequio("list", "selectors")
    assert code == 2
    assert "did you mean 'selector'?" in err


def test_a_component_is_shown_with_its_parameters(tequio, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = tequio("show", "random")
    assert code == 0
    for text in ("count", "int >= 0", "fraction", "float > 0 and <= 1", "share of the eligible parties",
                 "McMahan et al., 2017", "[selector]", 'name = "random"', "fraction = 1.0"):
        assert text in out


def test_a_component_as_json(tequio):
    _, out, _ = tequio("show", "random", "--kind", "selector", "--json")
    (shown,) = json.loads(out)["components"]
    assert shown["parameters"][0] == {"name": "count", "type": "int >= 0", "required": False, "default": 0,
                                      "meaning": "parties a round (0: use the fraction)"}
    code, _, err = tequio("show", "radnom")
    assert code == 2
    assert "did you mean 'random'?" in err


def test_a_plugin_of_an_entry_point_is_listed_and_runs(toy, tmp_path):
    home = tmp_path / "site"
    (home / "tiny-1.0.dist-info").mkdir(parents=True)
    (home / "tiny.py").write_text(ENTRY_POINT_PLUGIN)
    (home / "tiny-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    (home / "tiny-1.0.dist-info" / "entry_points.txt").write_text("[tequio.plugins]\ntiny = tiny\n")
    paths = [str(home), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def run(*words):
        done = subprocess.run([sys.executable, "-m", "tequio", *words, "--json"], env=environment, cwd=toy.parent,
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    assert "first" in {one["name"] for one in run("list", "selector")["components"]}
    document = run("run", "toy.toml", "--set", "selector.name=first", "--set", "rounds=1")
    assert document["messages"] == 2


def test_doctor_says_what_is_there_and_what_to_type(tequio, monkeypatch):
    from tequio.cli import doctor

    monkeypatch.setattr(doctor, "_devices", lambda: ["cpu"])
    monkeypatch.setenv("TEQUIO_DATA", "/nowhere")
    monkeypatch.setattr(doctor, "required_packages", lambda: {"": ["numpy"], "moon": ["no-such-package"],
                                                             "flower": ["no-such-either"]})
    code, out, _ = tequio("doctor", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["cores"] == os.cpu_count()
    assert facts["missing_extras"] == ["moon", "flower"]
    assert facts["to_type"] == "pip install 'tequio[moon]'"
    assert facts["data_folder_exists"] is False
    _, out, _ = tequio("doctor")
    assert "no-such-package not installed" in out
    assert "pip install 'tequio[moon]'" in out
    assert "/nowhere does not exist" in out


def test_extras_come_from_the_distribution_itself():
    from tequio.cli.doctor import required_packages

    packages = required_packages()
    assert "numpy" in packages[""]
    assert packages["torch"] == ["torch"]
    assert "dev" not in packages


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["list", "--help"], ["--version"]])
def test_help_and_version_import_nothing_heavy(words):
    program = (f"import sys\nfrom tequio.cli.main import call\ncode = call({words!r})\n"
               "heavy = {'torch', 'sklearn', 'scipy', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules)\n"
               "assert code == 0 and not heavy, (code, heavy)\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
