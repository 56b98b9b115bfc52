"""Every block of README and of the docs is run, and does what the page says."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from .blocks import ROOT, blocks_of, pages
from .running import is_run, run_page

PAGES = [page for page in pages() if any(is_run(block) for block in blocks_of(page))]
SLOW_PAGES = [page for page in PAGES if any(block.slow for block in blocks_of(page))]


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_its_blocks_do_what_the_page_says(page, tmp_path, socket):
    run_page(blocks_of(page), tmp_path, socket)


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW_PAGES, ids=name)
def test_its_slow_blocks_do_too(page, tmp_path, socket):
    run_page(blocks_of(page), tmp_path, socket, slow=True)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_python_prints_is_compared(page):
    pairs = [pair for pair in pairwise(blocks_of(page)) if [block.language for block in pair] == ["python", "text"]]
    assert [text.place for python, text in pairs if not (text.printed or text.file or python.file or python.skip)] == []


def test_the_docs_are_found():
    names = {name(page) for page in PAGES}
    assert {"README.md", "docs/index.md", "docs/tutorial/first-run.md", "docs/tutorial/your-data.md",
            "docs/tutorial/your-components.md"} <= names
