"""The partition explorer: deal a dataset and see who holds what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.errors import TequioError
from tequio.views.web.kit import dashboard_of, page
from tequio.views.web.partitions import share_out
from tequio.views.web.reading import read_config
from tequio.views.web.submission import WHOLE, read_submission, typed_from

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.views.web.partitions import Shared
    from tequio.views.web.submission import Submission

_TABLES = ("data", "data.partition")


def show(request: Request) -> Response:
    """The form and, once a dataset is chosen or a run is named, what it deals to whom."""
    asked = {key: value for key, value in request.query_params.items() if key.startswith(("seed", "data."))}
    run = request.query_params.get("run", "")
    if run:
        given = read_config(dashboard_of(request).folder(run))
        asked = {key: text for key, text in typed_from(given).items() if key.startswith(("seed", "data."))}
    found = read_submission(asked)
    shared = _shared(found) if asked else None
    return page(request, "partition.html", status=422 if found.errors and asked else 200, values=found.values,
                errors=found.errors if asked else {}, shared=shared, run=run,
                sections=[section for section in found.sections if section.table in _TABLES],
                seed=next(one for one in found.sections[0].fields if one.key == "seed"))


def _shared(found: Submission) -> Shared | None:
    if found.config is None:
        return None
    try:
        return share_out(found.config)
    except TequioError as cause:
        found.errors[WHOLE] = str(cause)
        return None
