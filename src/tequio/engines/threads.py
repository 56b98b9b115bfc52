"""One compute thread a process: several are slower on small models, and would change the last digits of sums."""

from __future__ import annotations

import os
import sys
from typing import Any

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def one_thread() -> Any:
    """Limit this process to one compute thread; call `.restore_original_limits()` on the result to undo it."""
    from threadpoolctl import threadpool_limits

    os.environ.update(ONE_THREAD)  # for libraries that are not loaded yet
    limits = threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return limits
