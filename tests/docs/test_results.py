"""The page of results is what the kept numbers say."""

from __future__ import annotations

import importlib.util

from .blocks import ROOT


def test_the_page_is_up_to_date():
    place = ROOT / "docs" / "generate_results.py"
    spec = importlib.util.spec_from_file_location("generate_results", place)
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(ROOT / "studies"), \
        "run: python docs/generate_results.py"
