"""The generated reference says everything that the code knows, and its examples work."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib

import pytest

from tequio import errors
from tequio.bench.cases import CASES
from tequio.experiments.config.complete import complete
from tequio.experiments.config.tables import Config, Data, Evaluation, Output, Override, Split, Stop
from tequio.learners.metrics import METRICS
from tequio.views.components import meanings

from .blocks import ROOT

_TELL = """
import json, sys
sys.path.insert(0, "docs")
import generate
from tequio import registry
from tequio.registry import parameters_of

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


def test_examples_of_components_are_configs_or_commands(reference, components):
    for kind, name, _ in components:
        if kind == "probe":
            assert f"```bash\ntequio probe last --attack {name}\n```" in section_of(reference, kind, name)
            continue
        example = re.search(r"```toml\n(.*?)```", section_of(reference, kind, name), re.DOTALL)[1]
        if " = ...  #" not in example:  # a needed value that only the reader knows
            complete(tomllib.loads(example))


@pytest.mark.parametrize("table", [Config, Data, Split, Evaluation, Stop, Output, Override])
def test_every_config_key_is_told_with_its_meaning(reference, table):
    for key, field in table.model_fields.items():
        assert f"| `{key}` |" in reference["config.md"]
        is_table = hasattr(field.annotation, "model_fields") or key == "rules"
        assert is_table or meanings(table.__doc__)[key]


ERRORS = [error for error in vars(errors).values()
          if isinstance(error, type) and issubclass(error, errors.TequioError)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.id)
def test_every_error_is_in_the_index_with_its_exit_code_and_messages(reference, error):
    page = reference["errors.md"]
    assert f"| `{error.__name__}` | [{error.id}](#{error.id}) | {error.exit_code} |" in page
    _, heading, rest = page.partition(f"\n## {error.id}\n")
    assert heading
    section = rest.partition("\n## ")[0]
    assert f"`{error.__name__}`, exit code {error.exit_code}." in section
    assert "\n| message | what to do |\n" in section


def test_messages_in_the_error_index_name_what_is_filled_in(reference):
    page = reference["errors.md"]
    assert "| a resumed run keeps its settings, but '⟨changed⟩' is changed | start a new run" in page
    assert ("| there is no ⟨kind⟩ called '⟨name⟩' | its name is '⟨hyphenated⟩', or the message names the nearest one "
            "that there is |") in page
    assert "| a plot needs the package 'matplotlib', which is not installed | type: pip install 'tequio" in page
    assert "| lower local.learning\\_rate, or set local.clip\\_norm |" in page


def test_every_error_that_is_raised_with_a_text_is_in_the_index(reference):
    """Independently of how the index reads the source: the plain words before the first gap are on the page."""
    names = "|".join(error.__name__ for error in ERRORS if error is not errors.MissingExtra)
    opening = re.compile(rf"raise (?:{names})\(\s*f?\"([^\"{{}}\\]+)")
    page = re.sub(r"\\([|*_<\[\]])", r"\1", reference["errors.md"])
    openings = [found.strip() for path in (ROOT / "src" / "tequio").rglob("*.py")
                for found in opening.findall(path.read_text(encoding="utf-8"))]
    assert len(openings) > 500
    assert [words for words in openings if words not in page] == []


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
