"""In which form a reply leaves its party: numbers of rows as the policy reports them, metrics coarse or noised."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.gate.policy import refused
from tequio.gate.tasks import PREPARING
from tequio.learners.descent import steps_of_epochs
from tequio.learners.label_metrics import made_possible
from tequio.learners.learner import Tally
from tequio.noise.sampling import discrete_gaussian

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.gate.gate import Passed
    from tequio.gate.policy import Policy
    from tequio.noise.coins import Coins

_DIGITS = 2
_ADD_UP = frozenset({"count", "rows", "sums", "squares", "missing", "gaps", "counts"})
"""What a step of a preparation finds that is added up over parties."""

_FOLLOWS = frozenset({"lacking", "open", "frequent"})
"""What filling in derives from its counts. The coordinator derives it from those of all parties together."""

_WITHHELD = ("loss_sum", "score_histogram", "target_sum", "target_squares", "inertia_sum")
"""What of a tally leaves in its exact form only: it follows single rows too closely."""


def released(reply: Payload, passed: Passed, policy: Policy, coins: Coins) -> Payload:
    """A reply as it leaves."""
    if passed.only is not None and (surplus := reply.keys() - passed.only):
        raise refused(f"the reply of task '{passed.task.name}' also has '{min(surplus)}', on which there is no noise",
                      "leave it out of what the algorithm asks for")
    if passed.task.reply is Tally and passed.metrics != "exact" and passed.metrics:
        return _tally(reply, passed, policy, coins)
    if passed.counted is not None:
        return {name: _counts(value, passed, *passed.counted) for name, value in reply.items()}
    if passed.metrics == "coarse":
        # One draw for all: were each entry rounded by itself, a list of the same trees would show an exact mean.
        luck, judged = float(coins.uniform(1)[0]), reply.get("rows")
        step = policy.cell / judged if isinstance(judged, int) and judged else None
        reply = {name: value if name == "rows" else _coarse(value, policy.cell, luck, step)
                 for name, value in reply.items()}
    if passed.task.name == PREPARING and policy.cell > 1:
        reply = {**reply, "statistics": _without_few(reply["statistics"], policy.cell)}
    if passed.task.reply is Tally or policy.tell_rows == "exact":
        return reply
    return _with_told_rows(reply, passed, policy)


def _with_told_rows(reply: Payload, passed: Passed, policy: Policy) -> Payload:
    """What the policy says about numbers of rows holds in every reply, and for what follows from them."""
    told, rows, statistics = dict(reply), reply.get("rows"), reply.get("statistics")
    if isinstance(rows, int) and rows:
        told["rows"] = policy.told_rows(rows)
    elif isinstance(rows, np.ndarray) and rows.dtype.kind == "i":
        told["rows"] = np.array([policy.told_rows(int(one)) if one else 0 for one in rows.flat]).reshape(rows.shape)
    if isinstance(statistics, dict):
        told["statistics"] = _of_told_rows(statistics, policy)
    if "steps" in reply and isinstance(rows, int):
        steps = {sum(steps_of_epochs(told["rows"], local)) for local in passed.trainings}
        told["steps"] = max(steps, default=1)
        if isinstance(longer := reply.get("effective_steps"), float) and reply["steps"]:
            told["effective_steps"] = longer * told["steps"] / reply["steps"]
    return told


def _without_few(statistics: Mapping[str, Any], cell: int) -> dict[str, Any]:
    """What filling in has counted, in multiples of a cell, and without what follows from exact counts. Means stay."""
    if "missing" not in statistics:
        return dict(statistics)
    kept = {name: values for name, values in statistics.items() if name not in _FOLLOWS}
    counted = {name: kept[name] // cell * cell for name in ("missing", "gaps", "counts")}
    if "sums" in kept:
        present = kept["rows"][0] - kept["missing"]
        counted["sums"] = kept["sums"] * ((kept["rows"][0] - counted["missing"]) / np.maximum(present, 1))
    return {**kept, **counted}


def _of_told_rows(statistics: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
    """Sums as the told number of rows would have them: means and shares stay what they are."""
    rows = int(next((statistics[name][0] for name in ("count", "rows") if name in statistics), 0))
    if not rows:
        return dict(statistics)
    ratio = policy.told_rows(rows) / rows
    return {name: values if name not in _ADD_UP else np.rint(values * ratio).astype(values.dtype)
            if values.dtype.kind in "iu" else values * ratio for name, values in statistics.items()}


def _counts(value: object, passed: Passed, cell: int, rows: int) -> object:
    """Counts as multiples of a cell, rounded down. Where fewer than that are missing to all rows, none are."""
    if isinstance(value, dict):
        return {name: _counts(inner, passed, cell, rows) for name, inner in value.items()}
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
        raise refused(f"the reply of task '{passed.task.name}' has sums of values, and two of them that differ by one "
                      "row show it", "add the stage 'dp-sums' or 'secure-sum' where the algorithm takes it, or list "
                      "the task under 'exempt_tasks'")
    return np.where(value > rows - cell, rows, value) // cell * cell


def _tally(tally: Payload, passed: Passed, policy: Policy, coins: Coins) -> Payload:
    """A tally with its counts rounded at random or noised, and without what cannot be protected so."""
    if passed.metrics == "no" or not tally or tally["rows"] < policy.cell:
        return {}
    noise = 0.0 if policy.budget is None else policy.budget.evaluation_noise
    if passed.metrics == "noised":
        drawn = tally["confusion"] + discrete_gaussian(coins, noise, tally["confusion"].shape)
        kept: Payload = {"confusion": _as_counts(drawn, min(float(drawn.sum()), passed.most or inf))}
    else:
        kept = {name: _coarse(value, policy.cell, coins.uniform(np.size(value)).reshape(np.shape(value)))
                for name, value in tally.items() if name not in _WITHHELD}
    rows = int(kept["confusion"].sum()) if "confusion" in kept else kept["rows"]
    return made_possible({**kept, "rows": rows}) if 0 < rows <= (passed.most or rows) else {}


def _as_counts(noised: NDArray[np.generic], total: float) -> NDArray[np.int64]:
    """Noised numbers as counts that add up to about a total. Cutting off what is negative alone would add to it."""
    kept = np.maximum(noised.astype(np.float64), 0.0).ravel()
    shares = kept * (max(total, 0.0) / (kept.sum() or 1.0))
    counts = np.floor(shares).astype(np.int64)
    rest = np.argsort(counts - shares, kind="stable")[:int(max(total, 0.0)) - int(counts.sum())]
    counts[rest] += 1
    return counts.reshape(noised.shape)


def _coarse(value: object, cell: int, luck: float | NDArray[np.float64], step: float | None = None) -> object:
    """Counts as multiples of `cell`, rounded up or down by luck so that they are right on average. Arrays of shares are
    rounded to multiples of `step` likewise, where there is one, and other numbers to two digits."""
    if isinstance(value, dict):
        return {name: _coarse(inner, cell, luck, step) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_coarse(inner, cell, luck) for inner in value]
    if isinstance(value, bool | str | bytes) or value is None:
        return value
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf":
        return value
    shares = step is not None and bool(numbers.ndim) and bool(((numbers >= 0) & (numbers <= 1)).all())
    whole = numbers.dtype.kind in "iu" or bool((numbers == np.rint(numbers)).all() and (
        (numbers > 1).any() or (numbers.ndim and not shares)))
    if not whole and step is not None and shares:
        found = np.minimum(_rounded(numbers, step, luck), 1.0)
    else:
        found = _rounded(numbers, cell, luck) if whole else _to_digits(numbers)
    if isinstance(value, np.ndarray):
        return found.astype(value.dtype)
    return int(found) if isinstance(value, int) else float(found)


def _rounded(counts: NDArray[np.generic], cell: float, luck: float | NDArray[np.float64]) -> NDArray[np.float64]:
    lower = np.floor(counts.astype(np.float64) / cell)
    return np.asarray((lower + (luck < counts.astype(np.float64) / cell - lower)) * cell)


def _to_digits(values: NDArray[np.generic]) -> NDArray[np.float64]:
    found = values.astype(np.float64)
    sizes = 10.0 ** (np.floor(np.log10(np.where(found == 0, 1.0, np.abs(found)))) - (_DIGITS - 1))
    return np.asarray(np.rint(found / sizes) * sizes)
