"""What the files around the code say of it agrees: version, changelog, citation, metadata, constraints."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import tequio

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
SECTIONS = re.findall(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_newest_section_of_the_changelog_is_that_of_this_version() -> None:
    version, dated = SECTIONS[0]
    assert version == Version(tequio.__version__).base_version
    assert (dated == "unreleased") == Version(tequio.__version__).is_prerelease


def test_older_sections_are_dated_and_in_order() -> None:
    versions, dates = zip(*SECTIONS[1:], strict=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates)
    assert list(versions) == sorted(versions, key=Version, reverse=True)
    assert list(dates) == sorted(dates, reverse=True)


def test_the_citation_is_of_this_version_and_a_release_has_its_date() -> None:
    assert CITATION["version"] == tequio.__version__
    assert CITATION["license"] == PROJECT["license"]
    assert [author["name"] for author in CITATION["authors"]] == [author["name"] for author in PROJECT["authors"]]
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert str(CITATION.get("date-released", "unreleased")) == SECTIONS[0][1]


def test_constraints_pin_what_the_extras_ask_for() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, lines[1:])}
    extras = chain.from_iterable(PROJECT["optional-dependencies"].values())
    for wanted in map(Requirement, (*PROJECT["dependencies"], *extras)):
        if wanted.name not in ("tequio", "flwr"):  # flwr: constraints-flower.txt
            [pinned] = pins[canonicalize_name(wanted.name)].specifier
            assert pinned.operator == "==", wanted
            assert wanted.specifier.contains(pinned.version), wanted


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_call_targets_of_the_makefile(workflow: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    called = {words.split()[1] for words in steps if words.startswith("make ")}
    assert called
    assert called <= targets


def test_the_tested_versions_of_python_are_those_of_the_metadata() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    declared = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == declared
    assert PROJECT["requires-python"] == f">={declared[0]}"
