"""The answers of a cohort, always in party order, so that sums do not depend on who was fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.exchange import Failure, Reply
    from tequio.federation.payload import Payload


NOBODY = -1
"""The number of the party in an answer that nobody gave."""


@dataclass(frozen=True)
class Replies(Sequence["Reply"]):
    """What came back from an ask. `dropped` were chosen and vanished; `failures` say why a party could not answer.

    `late` answered, or would have, after the exchange closed on the virtual clock.
    """

    answers: tuple[Reply, ...]
    failures: tuple[Failure, ...] = ()
    dropped: tuple[int, ...] = ()
    late: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.answers)

    @overload
    def __getitem__(self, index: int) -> Reply: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Reply]: ...
    def __getitem__(self, index: int | slice) -> Reply | Sequence[Reply]:
        return self.answers[index]

    @property
    def parties(self) -> NDArray[np.int64]:
        """Who answered."""
        return np.array([reply.party for reply in self.answers], dtype=np.int64)

    @property
    def payloads(self) -> list[Payload]:
        """The contents."""
        return [reply.payload for reply in self.answers]

    @property
    def of_nobody(self) -> bool:
        """Whether there is one answer that no party gave, which a stage put where there was none."""
        return len(self.answers) == 1 and self.answers[0].party == NOBODY

    def values(self, name: str) -> NDArray[Any]:
        """One number a party."""
        return np.array([reply.payload[name] for reply in self.answers])

    def of(self, party: int) -> Payload:
        """The content one party sent."""
        for reply in self.answers:
            if reply.party == party:
                return reply.payload
        raise DataError(f"party {party} gave no answer", remedy="look for it in `failures` and `dropped`")
