"""The pictures of the docs: drawn as the code says, described for those who cannot see them, and used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from .blocks import ROOT, pages

IMAGES = ROOT / "docs" / "images"
PICTURES = sorted(IMAGES.glob("*.svg"))
_DRAW = "import json, sys; sys.path.insert(0, 'docs'); import draw; print(json.dumps(draw.pictures()))"
_USED = re.compile(r"!\[([^\]]*)\]\(([^)]*images/([\w.-]+))\)")


def used():
    """Every use of an image: page, alternative text, path, file name."""
    return [(page, *found) for page in pages() for found in _USED.findall(page.read_text(encoding="utf-8"))]


def test_files_are_what_the_code_draws():
    done = subprocess.run([sys.executable, "-c", _DRAW], cwd=ROOT, capture_output=True, text=True, check=True)
    drawn = json.loads(done.stdout)
    assert {path.name: path.read_text(encoding="utf-8") for path in PICTURES} == drawn, "run: python docs/draw.py"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_describes_itself_and_is_small(path):
    picture = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    name = "{http://www.w3.org/2000/svg}"
    assert picture.get("role") == "img"
    assert picture.findtext(f"{name}title")
    assert len(picture.findtext(f"{name}desc")) > 60
    assert path.stat().st_size < 10_000
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", path.read_text(encoding="utf-8"))


def test_every_image_is_used_exists_and_has_words_instead():
    uses = used()
    assert {path.name for path in PICTURES} == {name for *_, name in uses if name.endswith(".svg")}
    for page, words, path, _ in uses:
        assert (page.parent / path).exists(), (page.name, path)
        assert len(words) > 25, (page.name, path)


def test_every_explanation_has_a_picture():
    without = {"peers.md"}  # which compares, and has a table
    explained = {page.name for page, *_ in used() if page.parent.name == "explanation"}
    assert {page.name for page in (ROOT / "docs" / "explanation").glob("*.md")} - explained == without


def test_every_family_of_algorithms_has_a_picture_or_a_page_of_its_own():
    _, *families = (ROOT / "docs" / "explanation" / "algorithms.md").read_text(encoding="utf-8").split("\n## ")
    assert len(families) > 10
    assert [family.partition("\n")[0] for family in families
            if ".svg)" not in family and "a page of their own" not in family] == []


def test_a_line_that_would_leave_its_box_is_refused():
    code = ("import sys; sys.path.insert(0, 'docs')\nfrom pictures.drawing import Picture\n"
            "picture = Picture(100, 'p', 'd')\n"
            "for draw in (lambda: picture.box(10, 10, 40, 20, 'much too long'),\n"
            "             lambda: picture.text(590, 50, 'outside')):\n"
            "    try:\n        draw()\n    except ValueError:\n        print('refused')\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused", "refused"]
