"""The page on coverage adds up what coverage.py measured."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from .blocks import ROOT


@pytest.fixture
def coverage(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return import_module("reference_pages.coverage")


def file(statements, covered, branches, taken):
    return {"summary": {"num_statements": statements, "covered_lines": covered, "num_branches": branches,
                        "covered_branches": taken}}


def test_files_add_up_by_package(coverage):
    kept = coverage.summarised({"files": {"src/tequio/federation/rng.py": file(10, 9, 4, 2),
                                          "src/tequio/federation/rooms/one.py": file(30, 30, 0, 0),
                                          "src/tequio/learners/zoo.py": file(60, 31, 4, 1)}})
    assert kept["packages"]["tequio.federation"] == {"num_statements": 40, "covered_lines": 39, "num_branches": 4,
                                                     "covered_branches": 2}
    page = coverage.coverage_page(kept)
    assert "| `tequio.federation` | 40 | 97.5% | 4 | 50.0% |" in page
    assert "| **all** | 100 | 70.0% | 8 | 37.5% |" in page


def test_the_kept_numbers_are_of_packages_that_exist_and_make_a_page(coverage):
    kept = json.loads(coverage.KEPT.read_text(encoding="utf-8"))
    assert {(ROOT / "src" / name.replace(".", "/")).is_dir() for name in kept["packages"]} == {True}
    assert coverage.coverage_page(kept).count("%") == 2 * (len(kept["packages"]) + 1)
