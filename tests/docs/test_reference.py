"""The generated reference says everything that the code knows, and its examples work."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib

import pytest

from tequio import errors
from tequio.experiments.bench.cases import CASES
from tequio.experiments.config import complete
from tequio.experiments.tables import Config, Data, Evaluation, Output, Override, Split, Stop
from tequio.learners.metrics import METRICS
from tequio.views.components import meanings

from .blocks import ROOT

_TELL = """
import json, sys
sys.path.insert(0, "docs")
import generate
from tequio import registry
from tequio.components import parameters_of

components = [[entry.kind, entry.name, [one.name for one in parameters_of(entry.component)]]
              for entry in registry.entries()]
print(json.dumps({"components": components, "pages": generate.documents(), "readme": generate.readme()}))
"""


@pytest.fixture(scope="module")
def told():
    """What `docs/generate.py` makes of a registry that no test has added to."""
    done = subprocess.run([sys.executable, "-c", _TELL], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def reference(told):
    return told["pages"]


@pytest.fixture(scope="module")
def components(told):
    return told["components"]


def section_of(reference, kind, name):
    _, heading, rest = reference[f"{kind}.md"].partition(f"\n## {name}\n")
    assert heading, f"{kind} {name}"
    return rest.partition("\n## ")[0]


def test_every_component_has_its_place_with_every_parameter(reference, components):
    for kind, name, parameters in components:
        section = section_of(reference, kind, name)
        for parameter in parameters:
            assert re.search(rf"^\| `{parameter}` \| .+ \| .+ \| \S.+ \|$", section, re.MULTILINE), (name, parameter)


def test_examples_of_components_are_configs(reference, components):
    for kind, name, _ in components:
        example = re.search(r"```toml\n(.*?)```", section_of(reference, kind, name), re.DOTALL)[1]
        if " = ...  #" not in example:  # a needed value that only the reader knows
            complete(tomllib.loads(example))


@pytest.mark.parametrize("table", [Config, Data, Split, Evaluation, Stop, Output, Override])
def test_every_config_key_is_told_with_its_meaning(reference, table):
    for key, field in table.model_fields.items():
        assert f"| `{key}` |" in reference["config.md"]
        is_table = hasattr(field.annotation, "model_fields") or key == "rules"
        assert is_table or meanings(table.__doc__)[key]


def test_every_error_has_an_anchor_and_its_messages(reference):
    page = reference["errors.md"]
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.TequioError):
            assert f"\n## {error.id}\n" in page
            assert f"| {error.exit_code} |" in page
    assert "a resumed run keeps its settings, but '…' is changed | start a new run" in page
    assert "there is no … called '…' | the message names the nearest one that there is" in page


def test_commands_and_metrics_are_all_there(reference):
    for command in ("run", "list", "show", "data partition", "reproduce", "bench", "doctor"):
        assert f"\n## tequio {command}\n" in reference["cli.md"]
    assert "| `--set KEY=VALUE` |" in reference["cli.md"]
    for metric in METRICS:
        assert f"| `{metric}` |" in reference["metrics.md"]


def test_the_index_links_every_component(reference, components):
    for kind, name, _ in components:
        assert f"[{name}]({kind}.md#{name})" in reference["index.md"]


def test_readme_lists_what_there_is(told):
    assert told["readme"] == (ROOT / "README.md").read_text(encoding="utf-8"), "run: python docs/generate.py"


def test_the_page_on_benchmarks_knows_every_case():
    page = (ROOT / "docs" / "how-to" / "benchmark.md").read_text(encoding="utf-8")
    assert [name for name in CASES if f"`{name}`" not in page] == []
