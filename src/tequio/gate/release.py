"""In which form a reply leaves its party: numbers of rows as the policy reports them, metrics coarse or noised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.gate.policy import refused
from tequio.learners.learner import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.gate.gate import Passed
    from tequio.gate.policy import Policy

_DIGITS = 2
_WITHHELD = ("loss_sum", "score_histogram", "target_sum", "target_squares", "inertia_sum")
"""What of a tally leaves in its exact form only: it follows single rows too closely."""


def released(reply: Payload, passed: Passed, policy: Policy, rng: np.random.Generator) -> Payload:
    """A reply as it leaves."""
    if passed.only is not None and (surplus := reply.keys() - passed.only):
        raise refused(f"the reply of task '{passed.task.name}' also has '{min(surplus)}', on which there is no noise",
                      "leave it out of what the algorithm asks for")
    if passed.task.reply is Tally and passed.metrics != "exact" and passed.metrics:
        return _tally(reply, passed, policy, rng)
    if passed.metrics == "coarse":
        reply = {name: value if name == "rows" else _coarse(value, policy.cell, rng) for name, value in reply.items()}
    return reply if passed.task.reply is Tally else _with_told_rows(reply, policy)


def _with_told_rows(reply: Payload, policy: Policy) -> Payload:
    """What the policy says about numbers of rows holds in every reply."""
    rows = reply.get("rows")
    if policy.tell_rows == "exact" or not isinstance(rows, int) or not rows:
        return reply
    return {**reply, "rows": policy.told_rows(rows)}


def _tally(tally: Payload, passed: Passed, policy: Policy, rng: np.random.Generator) -> Payload:
    """A tally with its counts rounded at random or noised, and without what cannot be protected so."""
    if passed.metrics == "no" or not tally or tally["rows"] < policy.cell:
        return {}
    noise = 0.0 if policy.budget is None else policy.budget.evaluation_noise
    if passed.metrics == "noised":
        drawn = tally["confusion"] + rng.normal(0.0, noise, tally["confusion"].shape)
        kept: Payload = {"confusion": np.maximum(np.rint(drawn), 0).astype(np.int64)}
    else:
        kept = {name: _coarse(value, policy.cell, rng) for name, value in tally.items() if name not in _WITHHELD}
    rows = int(kept["confusion"].sum()) if "confusion" in kept else kept["rows"]
    return {**kept, "rows": rows} if rows else {}


def _coarse(value: object, cell: int, rng: np.random.Generator) -> object:
    """Counts as multiples of `cell`, rounded up or down at random so that they are right on average; other numbers to
    two digits."""
    if isinstance(value, dict):
        return {name: _coarse(inner, cell, rng) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_coarse(inner, cell, rng) for inner in value]
    if isinstance(value, bool | str | bytes) or value is None:
        return value
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf":
        return value
    whole = numbers.dtype.kind in "iu" or bool((numbers == np.rint(numbers)).all() and (numbers > 1).any())
    found = _rounded_at_random(numbers, cell, rng) if whole else _to_digits(numbers)
    if isinstance(value, np.ndarray):
        return found.astype(value.dtype)
    return int(found) if isinstance(value, int) else float(found)


def _rounded_at_random(counts: NDArray[np.generic], cell: int, rng: np.random.Generator) -> NDArray[np.float64]:
    lower = np.floor(counts.astype(np.float64) / cell)
    up = rng.random(counts.shape) < counts.astype(np.float64) / cell - lower
    return np.asarray((lower + up) * cell)


def _to_digits(values: NDArray[np.generic]) -> NDArray[np.float64]:
    found = values.astype(np.float64)
    sizes = 10.0 ** (np.floor(np.log10(np.where(found == 0, 1.0, np.abs(found)))) - (_DIGITS - 1))
    return np.asarray(np.rint(found / sizes) * sizes)
