"""The generated reference says everything that the code knows, and its examples work."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tequio import errors, registry
from tequio.components import parameters_of
from tequio.experiments.bench.cases import CASES
from tequio.experiments.config import complete
from tequio.experiments.tables import Config, Data, Evaluation, Output, Override, Split, Stop
from tequio.experiments.toml import tomllib
from tequio.learners.metrics import METRICS
from tequio.views.components import meanings

from .blocks import ROOT


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference(generate):
    return generate.documents()


def test_every_component_has_its_place_with_every_parameter(reference):
    for entry in registry.entries():
        _, heading, rest = reference[f"{entry.kind}.md"].partition(f"\n## {entry.name}\n")
        section = rest.partition("\n## ")[0]
        assert heading, f"{entry.kind} {entry.name}"
        for parameter in parameters_of(entry.component):
            assert re.search(rf"^\| `{parameter.name}` \| .+ \| .+ \| \S.+ \|$", section, re.MULTILINE), parameter.name


def test_examples_of_components_are_configs(reference):
    for entry in registry.entries():
        section = reference[f"{entry.kind}.md"].partition(f"\n## {entry.name}\n")[2].partition("\n## ")[0]
        example = re.search(r"```toml\n(.*?)```", section, re.DOTALL)[1]
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


def test_the_index_links_every_component(reference):
    for entry in registry.entries():
        assert f"[{entry.name}]({entry.kind}.md#{entry.name})" in reference["index.md"]


def test_writing_changes_only_what_changed(generate, tmp_path):
    (tmp_path / "gone.md").write_text("a component that is no more")
    names = generate.write(tmp_path)
    first = {name: (tmp_path / name).stat().st_mtime_ns for name in names}
    assert generate.write(tmp_path) == names
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == first


def test_readme_lists_what_there_is(generate):
    assert generate.readme() == generate.README.read_text(encoding="utf-8"), "run: python docs/generate.py"


def test_the_page_on_benchmarks_knows_every_case():
    page = (ROOT / "docs" / "how-to" / "benchmark.md").read_text(encoding="utf-8")
    assert [name for name in CASES if f"`{name}`" not in page] == []
