"""The list of runs: filters, pages, and a choice of runs to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tequio.views.web.index import STATUSES
from tequio.views.web.kit import dashboard_of, page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.views.web.index import Entry


PAGE_LENGTH = 100


@dataclass(frozen=True)
class Filters:
    """What the reader wants to see; what is empty does not filter."""

    name: str = ""
    algorithm: str = ""
    data: str = ""
    status: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Filters:
        """The filters of an address."""
        return cls(**{name: asked.get(name, "").strip() for name in cls.__dataclass_fields__})

    def keep(self, entry: Entry) -> bool:
        """Whether a run is wanted. Names match by their parts, whatever the case."""
        words = f"{entry.name} {entry.id}".lower()
        return all(word in words for word in self.name.lower().split()) and \
            self.algorithm in ("", entry.algorithm) and self.data in ("", entry.data) and \
            self.status in ("", entry.status)

    def query(self, **further: Any) -> str:
        """The filters as part of an address."""
        return urlencode({name: value for name, value in {**self.__dict__, **further}.items() if value})


def show(request: Request) -> Response:
    """The list, filtered and cut into pages."""
    entries = dashboard_of(request).index.entries()
    filters = Filters.of(request.query_params)
    kept = [entry for entry in entries if filters.keep(entry)]
    pages = max(-(-len(kept) // PAGE_LENGTH), 1)
    number = min(max(_whole_number(request.query_params.get("page", "1")), 1), pages)
    shown = kept[(number - 1) * PAGE_LENGTH:number * PAGE_LENGTH]
    present = {entry.status for entry in entries}
    choices = {"algorithm": sorted({entry.algorithm for entry in entries} - {""}),
               "data": sorted({entry.data for entry in entries} - {""}),
               "status": [status for status in STATUSES if status in present]}
    return page(request, "runs.html", entries=shown, total=len(entries), kept=len(kept), filters=filters,
                choices=choices, number=number, pages=pages,
                started=_whole_number(request.query_params.get("started", "0")))


def _whole_number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 1
