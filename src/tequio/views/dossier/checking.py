"""`tequio verify DOSSIER`: every hash, signature and chain again; with the run's folder every number too."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import tequio
from tequio.errors import ConfigError, PermissionDenied, TequioError
from tequio.experiments.running.store import CONFIG
from tequio.experiments.running.transcripts import TRANSCRIPT, verify_run
from tequio.models import folder as model_folder
from tequio.models import publishing
from tequio.views.dossier.evidence import Evidence
from tequio.views.dossier.page import FORMAT, as_bytes, page_of, page_seal, said_seal, seal_of, sections_of

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.experiments.running.store import Plain


@dataclass
class Check:
    """What was checked, and what is wrong: the file and why."""

    done: list[str] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)


def is_dossier(place: Path) -> bool:
    """Whether this is a file of a dossier, rather than a run."""
    return place.is_file() and place.suffix.lower() in (".json", ".html")


def check_dossier(path: Path, folder: Path | None = None, authority: bytes | None = None) -> Check:
    """Check the document and the page of a dossier, and the files that it rests on where they are at hand.

    The folder is the one that the dossier lies in, if it is that of a run or a model, or the one that is named. The
    signature of a published model has to be that of the coordinator of the `authority`, or of any where none is given.
    """
    check = Check()
    document = _check_document(path.with_suffix(".json"), check)
    _check_page(path.with_suffix(".html"), document, check)
    place = folder or (path.parent if any((path.parent / name).is_file() for name in
                                          (CONFIG, model_folder.FILE)) else None)
    if document is None or place is None:
        return check
    for name, facts in document["files"].items():
        found = place / name
        if not found.is_file():
            check.wrong.append((name, "it is gone"))
        elif sha256(found.read_bytes()).hexdigest() != facts["sha256"]:
            check.wrong.append((name, "it is not the file that the dossier was made from"))
    check.done.append(f"{len(document['files'])} files compared with their hashes")
    if not check.wrong:
        _check_chains(place, authority, check)
    if not check.wrong:
        _check_numbers(place, document, check)
    return check


def _check_document(path: Path, check: Check) -> Plain | None:
    """The document, if it is bit for bit what was written."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        document: Plain = json.loads(content)
        if document["dossier"] > FORMAT:
            raise ConfigError(f"'{path}' is a dossier of format {document['dossier']}, which tequio "
                              f"{tequio.__version__} does not know", remedy="install a newer tequio")
        is_whole = document["sha256"] == seal_of(document) and as_bytes(document) == content
    except (KeyError, TypeError, ValueError):
        is_whole = False
    if not is_whole:
        check.wrong.append((path.name, "it is not what was written"))
        return None
    check.done.append(f"the document is what was written: {document['sha256']}")
    return document


def _check_page(path: Path, document: Plain | None, check: Check) -> None:
    """The page says what was written, and what the document says."""
    if not path.is_file():
        return
    page = path.read_bytes()
    if page_seal(page) != said_seal(page):
        check.wrong.append((path.name, "it is not what was written"))
    elif document is not None and document["tequio"] == tequio.__version__ and page != page_of(document):
        check.wrong.append((path.name, "it does not say what the document beside it says"))
    else:
        check.done.append("the page is what was written")


def _check_chains(place: Path, authority: bytes | None, check: Check) -> None:
    if (place / TRANSCRIPT).is_file():
        verdict = verify_run(place)
        check.wrong += [(TRANSCRIPT, f"line {found.line + 1}: {found.what}") for found in verdict.findings]
        check.done.append(f"{verdict.lines} lines of the transcript, {verdict.sums} proofs and {verdict.receipts} "
                          "receipts")
    try:
        model = model_folder.find(place)
        document = model_folder.read_document(model)
        check.done.append("the model's folder is whole")
    except ConfigError:
        return  # a run whose model cannot be asked about rows has none
    except TequioError as cause:
        check.wrong.append((model_folder.FOLDER, cause.message))
        return
    if (model / publishing.FILE).is_file():
        try:
            publishing.check_signature(model, document["sha256"], authority)
        except PermissionDenied as cause:
            check.wrong.append((publishing.FILE, cause.message))
        check.done.append("the model is signed by a coordinator" + ("; of which authority was not asked (--authority)"
                          if authority is None else " of this authority"))


def _check_numbers(place: Path, document: Plain, check: Check) -> None:
    """Make every section again from the files."""
    if document["tequio"] != tequio.__version__:
        check.done.append(f"numbers were not made again: that takes tequio {document['tequio']}")
        return
    made = {section["id"]: section for section in sections_of(Evidence(place))}
    wrong = [section["title"] for section in document["sections"] if made.get(section["id"]) != section]
    check.wrong += [("dossier", f"the section '{title}' is not what the files say") for title in wrong]
    check.done.append(f"{len(made)} sections made again from the files")
