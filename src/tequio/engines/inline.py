"""Everything in this process, one order after another: the simplest engine, and the one to debug with."""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import TYPE_CHECKING, Protocol

from tequio.errors import EngineError
from tequio.federation.exchange import execute

if TYPE_CHECKING:
    from tequio.federation.exchange import Order, Outcome
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population


class InlineEngine:
    """Runs each order when its outcome is collected."""

    def __init__(self) -> None:
        self._population: Population | None = None
        self._waiting: deque[Order] = deque()
        self._states: dict[int, Payload] = {}
        self._limits: ThreadLimits | None = None

    def open(self, population: Population) -> None:
        """Remember whose data this is."""
        self._limits = one_thread()
        self._population = population

    def submit(self, order: Order) -> None:
        """Queue it."""
        self._waiting.append(order)

    def collect(self) -> Outcome:
        """Run the next order here and now."""
        if self._population is None or not self._waiting:
            raise EngineError("nothing was submitted to this engine")
        return execute(self._waiting.popleft(), self._population, self._states)

    def states(self) -> dict[int, Payload]:
        """Private states of all parties that have one, in party order."""
        return dict(sorted(self._states.items()))

    def restore(self, states: dict[int, Payload]) -> None:
        """Put states of a checkpoint back."""
        self._states = dict(states)

    def close(self) -> None:
        """Forget everything."""
        self._population = None
        self._waiting.clear()
        if self._limits is not None:
            self._limits.restore_original_limits()
            self._limits = None


# Several threads per process are slower on small models, and would change the last digits of sums.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class ThreadLimits(Protocol):
    """Limits on compute threads that can be lifted again."""

    def restore_original_limits(self) -> None:
        """Let libraries use as many threads as before."""
        ...


def one_thread() -> ThreadLimits:
    """Limit this process to one compute thread."""
    from threadpoolctl import threadpool_limits

    os.environ.update(ONE_THREAD)  # for libraries that are not loaded yet
    limits: ThreadLimits = threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return limits
