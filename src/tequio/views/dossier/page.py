"""A dossier as a document of plain data with a hash over it, and the same as one HTML page that needs nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import tequio
from tequio.errors import ConfigError, MissingExtra
from tequio.experiments.running.store import CONFIG, ENVIRONMENT, explained, write_whole
from tequio.views.dossier.articles import ARTICLES, NOTICE
from tequio.views.dossier.contents import SECTIONS, croissant
from tequio.views.dossier.evidence import NAME, Evidence
from tequio.views.dossier.materials import bill_of_materials

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.experiments.running.store import Plain

FORMAT = 1
_SEAL = re.compile(rb'(<meta name="sha256" content=")([0-9a-f]{64})(">)')
_OPEN = b"0" * 64


def document_of(folder: Path) -> Plain:
    """All that is known of a run or a model, with a hash over it."""
    evidence = Evidence(folder)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    document = {
        "dossier": FORMAT, "notice": NOTICE, "made": made, "tequio": tequio.__version__,
        "subject": {"folder": folder.resolve().name, "kind": "run" if evidence.path(CONFIG) == CONFIG else "model"},
        "sections": sections_of(evidence),
        "index": [{"of": source, "article": article, "about": about, "sections": list(sections)}
                  for source, article, about, sections in ARTICLES],
        "croissant": croissant(evidence), "materials": bill_of_materials(evidence.json(ENVIRONMENT), made),
        "files": evidence.files}
    return {**document, "sha256": seal_of(document)}


def sections_of(evidence: Evidence) -> list[Plain]:
    """The sections as plain data, which follow from the files alone."""
    found: list[Plain] = json.loads(json.dumps([asdict(make(evidence)) for make in SECTIONS]))
    return found


def seal_of(document: Plain) -> str:
    """The hash over all that a dossier says."""
    return sha256(as_bytes({key: value for key, value in document.items() if key != "sha256"})).hexdigest()


def as_bytes(document: Plain) -> bytes:
    """The document as a file: the same bytes for the same facts."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def page_of(document: Plain) -> bytes:
    """The page, with a hash over itself in its head."""
    page = _template().render(document=document, shown=shown).encode()
    return _SEAL.sub(rb"\g<1>" + page_seal(page).encode() + rb"\3", page, count=1)


def page_seal(page: bytes) -> str:
    """The hash of a page whose own hash is left blank."""
    return sha256(_SEAL.sub(rb"\g<1>" + _OPEN + rb"\3", page, count=1)).hexdigest()


def said_seal(page: bytes) -> str:
    """The hash that a page gives for itself; empty where it gives none."""
    found = _SEAL.search(page)
    return found[2].decode() if found else ""


def save_dossier(folder: Path, out: Path | None = None) -> Plain:
    """Write the page and, beside it, the document (default: dossier.html and dossier.json in the folder)."""
    out = out or folder / f"{NAME}.html"
    if out.suffix.lower() != ".html":
        raise ConfigError(f"a dossier cannot be saved as '{out.name}'", remedy="end the name in .html")
    document = document_of(folder)
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, page_of(document))
    write_whole(out.with_suffix(".json"), as_bytes(document))
    return document


def shown(value: object) -> str:
    """A value as people read it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(shown, value))
    return "" if value is None else str(value)


@cache
def _template() -> Any:
    try:
        from jinja2 import Environment
    except ImportError:
        raise MissingExtra("jinja2", "report", "a dossier") from None
    text = (files("tequio.views") / "templates" / "dossier.html").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)
