"""`tequio dossier`: what is known of a run or a model, for those who decide about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def dossier(
    run: Annotated[str, typer.Argument(metavar="RUN_OR_MODEL", help="A finished run (its folder, its name under runs/, "
                                       "or 'last'), or the folder of a model or of a version in use.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the page goes, and beside it the JSON file "
                                             "(default: dossier.html in the folder).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON document too, on stdout.")] = False,
) -> None:
    """Write a dossier: one HTML page and one JSON file, every fact with the file and the hash that it comes from.

    What no file says reads 'not stated'. An index leads from articles of the EU AI Act and the GDPR and from items of
    TRIPOD+AI to the sections. It is evidence, and not compliance. 'tequio verify' checks it.
    """
    from tequio.experiments.running.store import find_folder
    from tequio.models.folder import FILE
    from tequio.views.dossier.page import as_bytes, save_dossier

    folder = Path(run) if (Path(run) / FILE).is_file() else find_folder(run)
    place = out or folder / "dossier.html"
    document = save_dossier(folder, place)
    if as_json:
        typer.echo(as_bytes(document).decode(), nl=False)
        return
    unknown = sum(fact["value"] == "not stated" for section in document["sections"] for fact in section["facts"])
    typer.echo(f"dossier     {place}")
    typer.echo(f"document    {place.with_suffix('.json')}")
    typer.echo(f"sha256      {document['sha256']}")
    typer.echo(f"rests on    {len(document['files'])} files; {unknown} facts are not stated")
