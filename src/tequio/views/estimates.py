"""Tables of estimates as journals print them: HTML that pastes into Word, LaTeX, and CSV and JSON for R.

An estimate is a row as R's `broom` has it: term, estimate, std.error, statistic, p.value, conf.low, conf.high. CSV and
JSON hold all digits, on the scale of the model; HTML and LaTeX round, and print ratios where a model's scale is a log.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from html import escape
from math import exp, floor, isfinite, isnan, log10
from typing import TYPE_CHECKING

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tequio.experiments.running.table import Cell

TIDY = ("term", "estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high")
"""The columns that every such table has, in the order of broom's `tidy`."""

FORMAT = "tequio-tidy-1"
_IN_WORDS = {"nobs": "rows", "nevent": "events", "df.residual": "residual degrees of freedom",
             "null.deviance": "null deviance", "logLik": "log-likelihood", "nstudies": "parties"}
_RULE = "border-top:1.5pt solid black;"
_LATEX = str.maketrans({"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
                        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
                        "<": r"\textless{}", ">": r"\textgreater{}"})


@dataclass(frozen=True)
class Estimates:
    """A table of estimates: rows with the columns of `TIDY` and maybe more, facts about the whole (as broom's `glance`
    has them), the name of the ratio that exp(estimate) is (empty: estimates are printed as they are), and notes."""

    title: str
    rows: Sequence[Mapping[str, Cell]]
    glance: Mapping[str, Cell] = field(default_factory=dict)
    ratio: str = ""
    level: float = 0.95
    notes: Sequence[str] = ()


def save_estimates(found: Estimates, path: Path) -> None:
    """Write them in the format that the name of the file ends in."""
    from tequio.experiments.running.store import write_whole

    if path.suffix.lower() not in WRITERS:
        raise ConfigError(f"a table cannot be saved as '{path.name}'",
                          remedy=f"end the name in one of: {', '.join(WRITERS)}")
    write_whole(path, WRITERS[path.suffix.lower()](found).encode())


def estimates_csv(found: Estimates) -> str:
    """CSV with all digits; R: `read.csv(file, check.names = FALSE)`."""
    more = dict.fromkeys(column for row in found.rows for column in row if column not in TIDY)
    out = io.StringIO()
    writer = csv.DictWriter(out, [*TIDY, *more], restval="NA", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _for_r(value) for name, value in row.items()} for row in found.rows)
    return out.getvalue()


def estimates_json(found: Estimates) -> str:
    """JSON with all digits; R: `jsonlite::fromJSON(file)$tidy`. What is not a number is null."""
    def plain(row: Mapping[str, Cell]) -> dict[str, Cell]:
        return {name: None if isinstance(value, float) and not isfinite(value) else value
                for name, value in row.items()}

    rows = [{**dict.fromkeys(TIDY), **plain(row)} for row in found.rows]
    return json.dumps({"format": FORMAT, "title": found.title, "conf.level": found.level, "tidy": rows,
                       "glance": plain(found.glance), "notes": list(found.notes)}, indent=1, ensure_ascii=False) + "\n"


def estimates_html(found: Estimates) -> str:
    """A table whose look stands in each cell, so that it survives being pasted into a document."""
    head, rows = printed(found)
    cell = "padding:2pt 8pt;text-align:{};"

    def line(cells: Sequence[str], tag: str, rule: str) -> str:
        return "<tr>" + "".join(f'<{tag} style="{rule}{cell.format("left" if not place else "right")}">{escape(text)}'
                                f"</{tag}>" for place, text in enumerate(cells)) + "</tr>"

    rules = ("border-top:0.75pt solid black;", *[""] * len(rows))
    body = [line(head, "th", _RULE), *(line(row, "td", rule) for row, rule in zip(rows, rules, strict=False))]
    notes = "".join(f'<p style="font-size:9pt;margin:2pt 0;">{escape(note)}</p>' for note in notes_of(found))
    return ('<table style="border-collapse:collapse;border-bottom:1.5pt solid black;font-family:serif;font-size:10pt;">'
            f'<caption style="text-align:left;font-weight:bold;padding:4pt 0;">{escape(found.title)}</caption>\n'
            + "\n".join(body) + f"\n</table>\n{notes}\n")


def estimates_latex(found: Estimates) -> str:
    """A `table` with the rules of booktabs."""
    head, rows = printed(found)
    lines = [" & ".join(text.translate(_LATEX) for text in row) + r" \\" for row in (head, *rows)]
    notes = [rf"\par\smallskip\footnotesize {note.translate(_LATEX)}" for note in notes_of(found)]
    return "\n".join([r"\begin{table}", rf"\caption{{{found.title.translate(_LATEX)}}}",
                      rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", lines[0], r"\midrule", *lines[1:],
                      r"\bottomrule", r"\end{tabular}", *notes, r"\end{table}", ""])


WRITERS: Mapping[str, Callable[[Estimates], str]] = {
    ".html": estimates_html, ".tex": estimates_latex, ".csv": estimates_csv, ".json": estimates_json}


def p_text(p: float) -> str:
    """A p-value as journals print it: three digits up to 0.1, two above, and no zeros that mean little."""
    if not isfinite(p):
        return "\u2013"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.0995 else f"{min(p, 0.99):.2f}" if p < 0.995 else ">0.99"


def interval_text(estimate: float, low: float, high: float, *, ratio: bool = False) -> str:
    """An estimate with its interval, to two digits of the interval's width; of a ratio at least two decimals."""
    if not isfinite(estimate):
        return "\u2013"
    width = high - low if isfinite(high - low) and high > low else abs(estimate) or 1.0
    digits = min(max(1 - floor(log10(width)), 2 if ratio else 0), 8)
    both = f" ({low:.{digits}f} to {high:.{digits}f})" if isfinite(low) and isfinite(high) else ""
    return f"{estimate:.{digits}f}{both}".replace("-", "\u2212")


def printed(found: Estimates) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table, as texts."""
    name = found.ratio or "Estimate"
    head = ["", f"{name} ({100 * found.level:g}% CI)"]
    tested = any("p.value" in row for row in found.rows)
    head += ["P value"] if tested else []
    adjusted = any("p.adjusted" in row for row in found.rows)
    head += ["Adjusted P"] if adjusted else []
    rows = []
    for row in found.rows:
        values = [_number(row.get(column)) for column in ("estimate", "conf.low", "conf.high")]
        if found.ratio:
            values = [exp(value) if value < 700 else value for value in values]
        shown = interval_text(*values, ratio=bool(found.ratio))
        rows.append([str(row["term"]), shown])
        rows[-1] += [p_text(_number(row.get("p.value")))] if tested else []
        rows[-1] += [p_text(_number(row.get("p.adjusted")))] if adjusted else []
    return head, rows


def notes_of(found: Estimates) -> list[str]:
    """What stands below the table."""
    facts = "; ".join(f"{_IN_WORDS.get(name, name)} {f'{value:,}' if isinstance(value, int) else f'{value:.6g}'}"
                      for name, value in found.glance.items() if isinstance(value, int | float))
    return [*([facts] if facts else []), *found.notes]


def _number(value: Cell) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _for_r(value: Cell) -> Cell:
    """Numbers as R reads them."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Inf" if value > 0 else "-Inf"
    return "NA" if value is None else value


def methods_paragraph(what: str, *, parties: int, rows: int | None, hidden: bool, pooled: bool,
                      versions: Mapping[str, str], run: str = "", config_hash: str = "", result_hash: str = "") -> str:
    """The paragraph for the methods section: what was computed, where rows stayed, and by which versions."""
    sent = "sums over its own rows" if pooled else "its own estimates"
    seen = "the coordinating centre saw totals over all sites only (secure aggregation)" if hidden else \
        "the coordinating centre saw these and no rows"
    of = "" if rows is None else f" with {rows:,} rows in all"
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    hashes = "; ".join(f"{name} sha256 {value[:16]}" for name, value in (("configuration", config_hash),
                                                                        ("result", result_hash)) if value)
    equal = "The estimates equal those of the pooled rows up to rounding. " if pooled else ""
    return (f"{what} Data were held by {parties} sites{of} and were not pooled: each site sent {sent}, and {seen}. "
            f"{equal}Analyses were done with {named}{f' (run {run})' if run else ''}{f'; {hashes}' if hashes else ''}.")
