"""The page on trust states numbers that pytest counts, and every key of a policy is explained."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from tequio.gate.policy import Budget, OwnSplit, Policy, Requirement

from .blocks import ROOT

_PUT_IN = """
import json, sys
sys.path.insert(0, "docs")
import generate
from reference_pages.attacks import attacks, collected
from reference_pages.policy import MEANINGS, policy_page
page = open("docs/explanation/trust.md", encoding="utf-8").read()
print(json.dumps({"page": generate.on_page_markdown(page), "tests": collected(), "policy": policy_page(),
                  "example": attacks([f"tests/adversaries/{test}" for test in (
                      "test_a.py::test_x[1]", "test_a.py::test_x[2]", "test_some_one.py::test_1_000_forged_replies")]),
                  "meanings": {kind.__name__: list(keys) for kind, keys in MEANINGS.items()}}))
"""


@pytest.fixture(scope="module")
def shown():
    done = subprocess.run([sys.executable, "-c", _PUT_IN], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_tests_and_messages_are_counted_by_adversary(shown):
    assert shown["example"].split("\n")[2:] == [
        "| a | 2 |  | `tests/adversaries/test_a.py` |",
        "| some one | 1 | 1,000 forged replies | `tests/adversaries/test_some_one.py` |",
        "| **together** | **3** |  |  |"]


def test_the_page_has_a_line_for_each_file_of_attacks_and_their_number(shown):
    files = sorted((ROOT / "tests" / "adversaries").glob("test_*.py"))
    for file in files:
        count = sum(test.startswith(f"tests/adversaries/{file.name}::") for test in shown["tests"])
        assert f"| {count} |" in next(line for line in shown["page"].split("\n") if f"/{file.name}`" in line)
    assert f"| **together** | **{len(shown['tests'])}** |" in shown["page"]
    assert len(shown["tests"]) > 100


@pytest.mark.parametrize("kind", [Policy, Requirement, Budget, OwnSplit], ids=lambda kind: kind.__name__)
def test_every_key_of_a_policy_is_explained(shown, kind):
    assert shown["meanings"][kind.__name__] == [field.name for field in msgspec.structs.fields(kind)]
    for field in msgspec.structs.fields(kind):
        assert f"| `{field.name}` | " in shown["policy"]
