"""Private set intersection: two parties, 100,000 ids each, everything that both of them do on one core."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.alignment import find_common
from tequio.algorithms.vertical.conversation import Conversation
from tequio.algorithms.vertical.roles import roles_of
from tequio.data.dataset import Dataset
from tequio.data.partition import Partition
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population

if TYPE_CHECKING:
    from numpy.typing import NDArray

IDS = 100_000


def intersect(repeats: int, workers: int) -> dict[str, Any]:
    """One alignment of two sets of which half is common, in seconds of one core, whatever else the machine does."""
    federation = _two_parties(IDS)
    started = time.process_time()
    find_common(Conversation(federation, roles_of(federation)), "psi")
    took = time.process_time() - started
    sizes = [len(state["rows"]) for state in federation.engine.states().values()]
    federation.engine.close()
    return {"seconds": took, "value": took, "mark": 60.0, "unit": "s", "ids": [IDS, IDS], "common": sizes[0],
            "bytes": federation.traffic.bytes_up + federation.traffic.bytes_down}


def _two_parties(size: int) -> Federation:
    total = size + size // 2
    schema = Schema.of_numbers(["a", "b"], Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, np.zeros((total, 2), np.float32), np.arange(total) % 2)
    rows: list[NDArray[np.int64]] = [np.arange(size), np.arange(size // 2, total)]
    partition = Partition.of(rows, columns=(np.array([0]), np.array([1])), holds_target=(True, False))
    engine = InlineEngine()
    engine.open(Population(dataset, partition, Split(0.0, 0.0)))
    return Federation(Population(dataset, partition, Split(0.0, 0.0)), engine)
