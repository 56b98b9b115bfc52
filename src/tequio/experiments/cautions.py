"""What to be careful about in a comparison: too few rows, rows that depend on each other, choices made on test rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.experiments.statistics_pairs import smallest_wilcoxon_p

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.experiments.values import Values

FEW_ROWS = 10
_CHOSEN_ON = ("test.", "parties.", "local.", "global.", "common.", "domains.")


def cautions_on(given: Values, values: Values, over: str) -> tuple[str, ...]:
    """Lines of warning. `given` are all rows, `values` those that were compared."""
    return (*given.left_out, *_few(values), *_dependent(given, values, over), *_chosen_on_test_rows(given),
            *_ties(values))


def _few(values: Values) -> Iterator[str]:
    rows = len(values.matrix)
    smallest = smallest_wilcoxon_p(rows)
    if rows < 2:
        return  # the verdict says so
    if smallest > 0.05:
        yield (f"Too few rows: with {rows} Wilcoxon's p cannot fall below {smallest:.3g}, however large the "
               "differences; run at least 6 seeds or problems.")
    elif rows < FEW_ROWS:
        yield f"Few rows ({rows}): only large differences can be found, and their size is uncertain."


def _dependent(given: Values, values: Values, over: str) -> Iterator[str]:
    problems = len(set(given.problems))
    if over == "seeds" and given.repeated and problems > 1:
        counts = [given.problems.count(problem) for problem in dict.fromkeys(given.problems)]
        uneven = f", and the largest have {max(counts)} rows where others have {min(counts)}" \
            if max(counts) > min(counts) else ""
        yield (f"The {len(given.matrix)} rows are seeds of {problems} problems and depend on each other{uneven}: "
               f"p-values are too small. {_instead(problems)}")
    elif given.repeated and problems == 1:
        yield "All rows are seeds of one problem: the tests speak of this data and its partitions, not of others."
    elif over == "problems" and given.repeated:
        yield f"Every row is the mean of a problem's seeds ({len(given.matrix)} rows became {len(values.matrix)})."


def _instead(problems: int) -> str:
    return "Compare the problems' means too: --over problems." if smallest_wilcoxon_p(problems) <= 0.05 \
        else "Six or more problems could be compared by their means."


def _chosen_on_test_rows(given: Values) -> Iterator[str]:
    tuned = [key for key in given.settings if not key.endswith(".name")]
    if tuned and given.metric.startswith(_CHOSEN_ON):
        yield (f"The methods differ in settings ({', '.join(tuned[:3])}) and '{given.metric}' is of test rows: whoever "
               "picks the best line here picks on the test set. Pick by validation.*, then report its test rows.")


def _ties(values: Values) -> Iterator[str]:
    tied = sum(len(np.unique(row)) < len(row) for row in values.matrix)
    if tied > len(values.matrix) / 4 and len(values.matrix) > 1:
        yield f"{tied} of {len(values.matrix)} rows have ties, which weakens tests of ranks."
