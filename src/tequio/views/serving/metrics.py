"""Counts of a service as Prometheus reads them: requests, errors, seconds, rows, and answers per version and class."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tequio.views.serving.answering import Reply
    from tequio.views.serving.versions import Versions

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of seconds."""

Labels = tuple[tuple[str, str], ...]


@dataclass
class Metrics:
    """What has happened since the service was started."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    answers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    rows: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def requested(self, path: str, status: int, seconds: float) -> None:
        """Count a request; its time too if it asked for predictions."""
        self.requests[path, status] += 1
        if path == "/predict":
            self.seconds += seconds
            self.buckets[bisect_left(BOUNDS, seconds)] += 1

    def answered(self, reply: Reply) -> None:
        """Count the rows of an answer."""
        self.rows += reply.rows
        for version, name in reply.answered:
            self.answers[version.sha256, version.role, name] += 1

    def text(self, versions: Versions, waiting: int) -> str:
        """Everything in the text format of Prometheus."""
        errors: Counter[int] = Counter()
        for (_, status), count in self.requests.items():
            errors[status] += count if status >= 400 else 0
        cumulated = [sum(self.buckets[:place + 1]) for place in range(len(self.buckets))]
        bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        lines = [
            *_lines("requests_total", "counter", "Requests by path and status.", (
                ((("path", path), ("status", str(status))), count)
                for (path, status), count in sorted(self.requests.items()))),
            *_lines("errors_total", "counter", "Requests that were not answered, by status.", (
                ((("status", str(status)),), count) for status, count in sorted(errors.items()) if count)),
            *_lines("rows_total", "counter", "Rows of requests that were answered.", [((), self.rows)]),
            *_lines("answers_total", "counter", "Answers by version and class.", (
                ((("version", version), ("role", role), ("class", name)), count)
                for (version, role, name), count in sorted(self.answers.items()))),
            *_lines("waiting_requests", "gauge", "Requests that wait for an answer.", [((), waiting)]),
            *_lines("share", "gauge", "Share of ids that a version answers.", (
                ((("version", one.sha256), ("role", one.role)),
                 versions.share if one is versions.candidate else 1 - versions.share) for one in versions.all)),
            "# HELP tequio_request_seconds Seconds from a request for predictions to its answer.",
            "# TYPE tequio_request_seconds histogram",
            *(f'tequio_request_seconds_bucket{{le="{bound}"}} {count}'
              for bound, count in zip(bounds, cumulated, strict=True)),
            f"tequio_request_seconds_sum {self.seconds:.6f}",
            f"tequio_request_seconds_count {cumulated[-1]}"]
        return "\n".join(lines) + "\n"


def _lines(name: str, kind: str, help: str, values: Iterable[tuple[Labels, float]]) -> list[str]:
    return [f"# HELP tequio_{name} {help}", f"# TYPE tequio_{name} {kind}",
            *(f"tequio_{name}{_labels(labels)} {value}" for labels, value in values)]


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels) + "}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
