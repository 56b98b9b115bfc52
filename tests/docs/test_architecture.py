"""The map is true: layers are those that are checked, and files that it names are there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from .blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "tequio"


def checked_layers():
    """From top to bottom, as `make check` knows them; layers that stand side by side are one entry."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [layer.replace("tequio.", "").split(" | ") for layer in contract["layers"]]


def test_the_listing_has_every_layer_from_bottom_to_top():
    listing = next(block.content for block in blocks_of(PAGE) if block.content.startswith("src/tequio/"))
    listed = [name.removesuffix(".py") for name in re.findall(r"^  (\w+)(?:/|\.py) ", listing, re.MULTILINE)]
    wanted = [name for layer in reversed(checked_layers()) for name in sorted(layer, reverse=True)]
    assert listed == wanted
    assert set(wanted) == {path.stem for path in SOURCE.iterdir()
                           if (path / "__init__.py").exists() or (path.suffix == ".py" and "__" not in path.name)}


def test_the_picture_has_them_from_top_to_bottom():
    code = ("import sys; sys.path.insert(0, 'docs')\nfrom pictures.system import _LAYERS\n"
            "print(*(name for name, *_ in _LAYERS), sep=';')")
    drawn = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert drawn.strip().split(";") == [", ".join(layer) for layer in checked_layers()]


def test_files_that_it_names_are_there():
    named = re.findall(r"`([\w/]+(?:/|\*?\.py))`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 15
    assert [name for name in named if not [*SOURCE.glob(name), *ROOT.glob(name)]] == []
