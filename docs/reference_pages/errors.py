"""The error index: ids and exit codes, and every message with its remedy, found in the code that raises them."""

from __future__ import annotations

from reference_pages.markup import anchor, first_line, page, table, text
from reference_pages.raising import Raised, raised_errors
from tequio import errors
from tequio.cli import errors as cli_errors

AREAS = {
    "registry": "Components by name", "components": "Parameters of components",
    "data": "Reading, preparing and dealing data", "learners": "Models and training",
    "federation": "Parties, rounds and rules", "noise": "Noise and coins", "privacy": "Privacy and encryption",
    "gate": "What a party lets through",
    "engines": "Engines, links and joining", "algorithms": "Algorithms", "attacks": "Attacks",
    "models": "Trained models", "experiments": "Configs and runs", "sklearn": "Estimators of scikit-learn",
    "probing": "Attacks on privacy", "studies": "Studies", "bench": "Benchmarks",
    "views": "Tables, plots and reports", "cli": "The command line"}
_INTRODUCTION = """An error names the place, the cause and what to do, and ends the command with its exit code. The
screen shows its id: look that up here, or search this page for words of the message. `--debug` adds the trace. In
Python all are `tequio.TequioError`, with `message`, `remedy`, `id` and `exit_code`.

The messages are read from the source. ⟨party⟩ stands for a name or a number of your case, (a | b) for one or the other.
Where *what to do* is empty, the message says it, or passes on what another library said."""


def errors_page() -> str:
    """Every error: id, exit code, and what its messages say to do, by the part of tequio that raises it."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.TequioError)]
    raised = raised_errors({one.__name__ for one in classes})
    overview = [[f"`{one.__name__}`", anchor(one.id), str(one.exit_code), text(first_line(one)),
                 str(sum(row.error == one.__name__ for row in raised))] for one in classes]
    overview += [["wrong command line", "", "2", "A command, argument or option is wrong.", ""],
                 ["any other exception", "", str(cli_errors.UNEXPECTED), "A mistake in tequio or in a plugin.", ""],
                 ["Ctrl-C", "", str(cli_errors.INTERRUPTED), "Stopped; the message says how to go on.", ""]]
    return page("Error index", _INTRODUCTION, table(["error", "id", "exit code", "means", "messages"], overview),
                *(_section(one, [row for row in raised if row.error == one.__name__]) for one in classes))


def _section(error: type[errors.TequioError], rows: list[Raised]) -> str:
    head = f"## {error.id}\n\n`{error.__name__}`, exit code {error.exit_code}. {text(first_line(error))}"
    areas = sorted({row.area for row in rows}, key=list(AREAS).index)
    return "\n\n".join([head, *(_area(error.id, area, [row for row in rows if row.area == area]) for area in areas)])


def _area(error_id: str, area: str, rows: list[Raised]) -> str:
    listing = table(["message", "what to do"], [[text(row.message), text(row.remedy)] for row in rows])
    return f"### {AREAS[area]} {{ #{error_id}-{area} }}\n\n{listing}"
