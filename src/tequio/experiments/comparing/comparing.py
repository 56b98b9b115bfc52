"""Comparing methods: which test fits, what it says, how large the differences are, and what to be careful about."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.errors import ConfigError, nearest
from tequio.experiments.comparing.pairing import values_of
from tequio.experiments.comparing.values import (
    Values,
    common_rope,
    contenders,
    find_runs,
    fits,
    means_of_problems,
    read_values,
)
from tequio.experiments.running.recording import as_json
from tequio.models.statistics import (
    Belief,
    Estimate,
    Friedman,
    Ranking,
    bayesian_signed_rank,
    cohen_d,
    draw_weights,
    estimate,
    friedman,
    holm,
    nemenyi_p,
    rank_biserial,
    rank_methods,
    row_ranks,
    smallest_wilcoxon_p,
    wilcoxon_p,
    wins_ties_losses,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.experiments.comparing.values import Values
    from tequio.experiments.running.store import Plain


Over = Literal["auto", "seeds", "problems"]
Test = Literal["none", "wilcoxon", "nemenyi", "wilcoxon-holm"]

ENOUGH_PROBLEMS = 6
"""With fewer rows Wilcoxon's exact test cannot fall below 0.05."""

_SEED = 0


@dataclass(frozen=True)
class Standing:
    """One method: its values, its mean rank (1 is best), and in how many rows it is the best (ties count for all)."""

    method: str
    values: Estimate
    median: float
    rank: float
    best: int


@dataclass(frozen=True)
class Pair:
    """Two methods. `difference` is first minus second, turned so that more is better.

    `wilcoxon` is the p-value by itself, `holm` adjusted for all pairs that are shown, `nemenyi` that of the mean ranks.
    """

    first: str
    second: str
    difference: Estimate
    effect: float
    cohen_d: float
    wins: int
    ties: int
    losses: int
    wilcoxon: float
    holm: float
    nemenyi: float
    belief: Belief
    differ: bool


@dataclass(frozen=True)
class Comparison:
    """Everything a comparison says. `test` decided, `why` says why that one, and `verdict` what it found."""

    metric: str
    higher_is_better: bool
    rows: int
    problems: int
    over: str
    alpha: float
    rope: float
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    ranking: Ranking | None
    friedman: Friedman | None
    test: Test
    why: str
    verdict: str
    cautions: tuple[str, ...]

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The largest sets of methods, best first, that Nemenyi's test cannot tell apart; all where none differ."""
        if self.ranking is None:
            return []
        return self.ranking.groups() if self._some_differ else [self.ranking.methods]

    @property
    def _some_differ(self) -> bool:
        return self.friedman.f_p <= self.alpha if self.friedman is not None else any(one.differ for one in self.pairs)

    def to_dict(self) -> Plain:
        """As plain data: what `tequio compare --json` prints."""
        plain: Plain = as_json(asdict(self))
        return plain

    def _repr_html_(self) -> str:
        from tequio.experiments.showing.comparison import comparison_html

        return comparison_html(self)


def compare(*places: str | Path, metric: str = "", by: Sequence[str] = (), only: Sequence[str] = (), against: str = "",
            over: Over = "auto", alpha: float = 0.05, rope: float | None = None, baselines: bool = False,
            lower_is_better: bool | None = None) -> Comparison:
    """Compare runs (folders, folders of runs, patterns), or the columns of one CSV file.

    `metric` is the one that all runs have first, if none is named; `by` the keys that make the methods; `only` patterns
    of the methods to compare; `against` one method that all others are compared with; `over` whether a seed or a
    problem's mean is a row.
    """
    values = gather_values(places, metric=metric, by=by, baselines=baselines, lower_is_better=lower_is_better)
    return compare_values(chosen_methods(values, only), against=against, over=over, alpha=alpha, rope=rope)


def gather_values(places: Sequence[str | Path], *, metric: str = "", by: Sequence[str] = (), baselines: bool = False,
                  lower_is_better: bool | None = None) -> Values:
    """The values of methods on blocks, from runs or from a CSV file."""
    if len(places) == 1 and str(places[0]).lower().endswith(".csv"):
        return read_values(Path(places[0]), metric=metric, higher_is_better=not lower_is_better)
    runs, problems = contenders(find_runs(places, baselines=baselines))
    if not runs:
        raise ConfigError("none of these runs came to its end", remedy=problems[0])
    values = values_of(runs, metric, by=by, left_out=problems)
    return values if lower_is_better is None else replace(values, higher_is_better=not lower_is_better)


def chosen_methods(values: Values, patterns: Sequence[str]) -> Values:
    """The methods whose names fit one of some patterns; all where there is none."""
    places = [place for place, method in enumerate(values.methods)
              if not patterns or any(fits(method, pattern) for pattern in patterns)]
    if len(places) < 2:
        raise ConfigError(f"{len(places)} of the methods fits {', '.join(map(repr, patterns))}, and two are needed",
                          remedy=f"the methods are: {'; '.join(values.methods)}")
    return replace(values, methods=tuple(values.methods[place] for place in places), matrix=values.matrix[:, places])


def compare_values(given: Values, *, against: str = "", over: Over = "auto", alpha: float = 0.05,
                   rope: float | None = None) -> Comparison:
    """Compare the columns of a matrix."""
    if against and against not in given.methods:
        raise ConfigError(f"there is no method '{against}'", remedy=nearest(against, given.methods))
    chosen = _rows_to_take(given, over)
    values = means_of_problems(given) if chosen == "problems" else given
    count, rows = len(values.methods), len(values.matrix)
    ranking = rank_methods(values.matrix, values.methods, higher_is_better=values.higher_is_better, alpha=alpha) \
        if rows > 1 else None
    omnibus = friedman(values.matrix, higher_is_better=values.higher_is_better) if rows > 1 and count > 2 else None
    test, why = choose_test(count, rows, against)
    width = common_rope(values) if rope is None else rope
    pairs = _pairs(values, against, alpha, width, test, omnibus, ranking)
    return Comparison(values.metric, values.higher_is_better, rows, len(set(values.problems)), chosen, alpha, width,
                      _standings(values, ranking), pairs, ranking, omnibus, test, why,
                      _verdict(test, omnibus, pairs, alpha), cautions_on(given, values, chosen))


def choose_test(methods: int, rows: int, against: str = "") -> tuple[Test, str]:
    """Which test decides, and why in a sentence (Demšar, JMLR 2006)."""
    if rows < 2:
        return "none", "A single row has no spread, so no test can say anything."
    if methods == 2:
        return "wilcoxon", (f"Two methods on the same {rows} rows: Wilcoxon's signed-rank test, which pairs them and "
                            "needs no normal distribution.")
    first = (f"{methods} methods on the same {rows} rows: Friedman's test first (as Iman and Davenport improved it), "
             "because it ranks within rows and does not add up values of unlike problems; ")
    if against:
        return "wilcoxon-holm", first + (f"then Wilcoxon's test with Holm's correction against '{against}' alone, "
                                         "because fewer questions leave more power.")
    return "nemenyi", first + "then Nemenyi's test of all pairs, because no method was singled out beforehand."


def _rows_to_take(values: Values, over: Over) -> str:
    if over != "auto":
        return over
    enough = len(set(values.problems)) >= ENOUGH_PROBLEMS
    return "problems" if values.repeated and enough else "seeds"


def _standings(values: Values, ranking: Ranking | None) -> tuple[Standing, ...]:
    matrix = values.matrix
    top = matrix.max(axis=1) if values.higher_is_better else matrix.min(axis=1)
    ranks = ranking.ranks if ranking else tuple(row_ranks(-_turned(values))[0])
    found = [Standing(method, estimate(matrix[:, place]), float(np.median(matrix[:, place])), float(ranks[place]),
                      int((matrix[:, place] == top).sum())) for place, method in enumerate(values.methods)]
    return tuple(sorted(found, key=lambda standing: standing.rank))


def _pairs(values: Values, against: str, alpha: float, rope: float, test: Test, omnibus: Friedman | None,
           ranking: Ranking | None) -> tuple[Pair, ...]:
    if ranking is None:
        return ()
    order = sorted(range(len(values.methods)), key=lambda place: ranking.ranks[place])
    wanted = [(first, second) for first, second in combinations(order, 2)
              if not against or against in (values.methods[first], values.methods[second])]
    turned = _turned(values)
    alone = [wilcoxon_p(turned[:, first], turned[:, second]) for first, second in wanted]
    adjusted, weights = holm(alone), draw_weights(len(turned), np.random.default_rng(_SEED))
    some_differ = omnibus is None or omnibus.f_p <= alpha
    pairs = []
    for place, (first, second) in enumerate(wanted):
        pair = _pair(turned[:, first], turned[:, second], bayesian_signed_rank(
            turned[:, first] - turned[:, second], rope, weights))
        by_rank = nemenyi_p(ranking.ranks[first] - ranking.ranks[second], len(values.methods), len(turned))
        deciding = {"wilcoxon": alone[place], "wilcoxon-holm": adjusted[place], "nemenyi": by_rank}.get(test, 1.0)
        pairs.append(replace(pair, first=values.methods[first], second=values.methods[second], wilcoxon=alone[place],
                             holm=adjusted[place], nemenyi=by_rank, differ=some_differ and deciding <= alpha))
    return tuple(pairs)


def _pair(first: NDArray[np.float64], second: NDArray[np.float64], belief: Belief) -> Pair:
    """How two methods differ, before anything is decided."""
    differences = first - second
    return Pair("", "", estimate(differences), rank_biserial(differences), cohen_d(first, second),
                *wins_ties_losses(differences), 1.0, 1.0, 1.0, belief, differ=False)


def _turned(values: Values) -> NDArray[np.float64]:
    """The matrix with more being better."""
    return values.matrix if values.higher_is_better else -values.matrix


def _verdict(test: Test, omnibus: Friedman | None, pairs: tuple[Pair, ...], alpha: float) -> str:
    if test == "none":
        return "Nothing can be tested: run more seeds or more problems."
    if omnibus is not None and omnibus.f_p > alpha:
        return f"No difference shown: Friedman's p is {omnibus.f_p:.3g}, which is more than {alpha:g}."
    found = [f"{pair.first} is ahead of {pair.second}" for pair in pairs if pair.differ]
    told = "; ".join(found[:6]) + (f"; and {len(found) - 6} more pairs" if len(found) > 6 else "")
    before = "" if omnibus is None else f"The methods differ (Friedman's p is {omnibus.f_p:.3g}). "
    return before + (f"{told}." if found else "No pair can be told apart.")


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
