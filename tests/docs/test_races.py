"""The page on peers shows the races as they were run."""

from __future__ import annotations

import subprocess
import sys

from .blocks import ROOT

_PUT_IN = """
import sys
sys.path.insert(0, "docs")
import generate
page = open("docs/explanation/peers.md", encoding="utf-8").read()
print(generate.on_page_markdown(page, page=None, config=None, files=None))
"""
_RESULTS = """
2026-11-16, 2 cores (x86_64), Python 3.11.7.

## `small`

A little work.

| | seconds a round | times ours | workers |
|---|---:|---:|---:|
| tequio | 0.5 | 1.00 | 2 |
| Rival | 0.4 | 0.80 | 1 |

## `large`

Much work.

| | seconds a round | times ours | workers |
|---|---:|---:|---:|
| tequio | 5.0 | 1.00 | 2 |
| Other | 10.0 | 2.00 | 1 |

"""


def run(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout


def test_every_contestant_has_a_line_and_every_case_a_column():
    shown = run("import sys; sys.path.insert(0, 'docs')\n"
                "from reference_pages.races import races; print(races(sys.argv[1]))", _RESULTS)
    assert "|  | `small` | `large` |" in shown
    assert [line for line in shown.split("\n") if line.startswith(("| R", "| O"))] == ["| Rival | 0.80 |  |",
                                                                                      "| Other |  | 2.00 |"]
    assert "- `large`: Much work." in shown
    assert "2026-11-16, 2 cores" in shown


def test_the_page_on_peers_holds_them():
    page = run(_PUT_IN)
    assert "<!-- races" not in page
    assert "\n| tequio | 1.00 | 1.00 |\n" in page
