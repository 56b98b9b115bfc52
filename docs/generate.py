"""Writes docs/reference, and README's table of components, from what the code says about itself.

Run it by hand (`python docs/generate.py`) or let mkdocs do it: it is also a hook that puts the pages into the
navigation. Nothing that the registry knows is listed by hand anywhere.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from reference_pages.api import python_page
from reference_pages.attacks import PLACE as ATTACKS
from reference_pages.attacks import attacks, collected
from reference_pages.commands import cli_page
from reference_pages.components import kind_page, prepare_page
from reference_pages.config import config_page
from reference_pages.coverage import KEPT, coverage_page
from reference_pages.errors import errors_page
from reference_pages.markup import page, table
from reference_pages.metrics import metrics_page
from reference_pages.policy import policy_page
from reference_pages.races import PLACE, RESULTS, races

import tequio
from tequio import registry

FOLDER = Path(__file__).parent / "reference"
README = Path(__file__).parents[1] / "README.md"
_README_PART = re.compile(r"(<!-- components: [^\n]*-->\n).*?(<!-- end of components -->)", re.DOTALL)
_MOST_NAMES = 40


def documents() -> dict[str, str]:
    """Every page by file name, in the order of the navigation."""
    registry.load_everything()
    kinds = {f"{kind}.md": kind_page(kind) for kind in registry.KINDS if registry.entries(kind)}
    return {"index.md": index_page(), "config.md": config_page(), "policy.md": policy_page(), "cli.md": cli_page(),
            "python.md": python_page(), **kinds, "prepare.md": prepare_page(), "metrics.md": metrics_page(),
            "errors.md": errors_page(),
            "coverage.md": coverage_page(json.loads(KEPT.read_text(encoding="utf-8")))}


def write(folder: Path = FOLDER) -> list[str]:
    """Write all pages, touching only those that changed; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = documents()
    for stale in {path.name for path in folder.glob("*.md")} - set(pages):
        (folder / stale).unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return list(pages)


def readme() -> str:
    """README with its table of components brought up to date."""
    rows = []
    for kind, meaning in registry.KINDS.items():
        names = registry.names(kind)
        listed = ", ".join(f"`{name}`" for name in names) if len(names) <= _MOST_NAMES else f"{len(names)} of them"
        rows += [[kind, meaning, listed]] if names else []
    listing = table(["kind", "is", "which"], rows)
    return _README_PART.sub(lambda found: f"{found[1]}\n{listing}\n\n{found[2]}", README.read_text(encoding="utf-8"))


def on_config(config: Any) -> Any:
    """Hook of mkdocs: the reference in the navigation is whatever was written."""
    for entry in config.nav:
        if "Reference" in entry:
            entry["Reference"] = [f"reference/{name}" for name in write()]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Hook of mkdocs: the races against peers and the attacks of the tests are put in where a page asks for them."""
    markdown = ATTACKS.sub(lambda _: attacks(collected()), markdown)
    return PLACE.sub(lambda _: races(RESULTS.read_text(encoding="utf-8")), markdown)


def index_page() -> str:
    """What there is, by kind."""
    rows = [[f"[{kind}]({kind}.md)", meaning, str(len(found)), ", ".join(_link(entry) for entry in found)]
            for kind, meaning in registry.KINDS.items() if (found := registry.entries(kind))]
    return page("Reference", "Written from the code of tequio " + tequio.__version__ + ": what you read here is what "
                 "runs. `tequio list` and `tequio show NAME` say the same in a terminal.",
                 table(["kind", "is", "how many", "which"], rows),
                 "Besides components: the [config file](config.md), the [policy file](policy.md), the "
                 "[command line](cli.md), the [Python API](python.md), [preparation steps](prepare.md), "
                 "[metrics](metrics.md) and the [error index](errors.md); and how much of the code is [covered by "
                 "tests](coverage.md).")


def _link(entry: registry.Entry) -> str:
    return f"[{entry.name}]({entry.kind}.md#{entry.name})"


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
    print(f"{len(write())} pages in {FOLDER}")
