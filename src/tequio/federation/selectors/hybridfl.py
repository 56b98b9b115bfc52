"""Parties that fit before a deadline and balance the classes, and offers of rows to the coordinator.

Yoshida, Nishio, Morikura, Yamamoto, Yonetani: Hybrid-FL for wireless networks: cooperative learning mechanism using
non-IID data, ICC 2020. The algorithm of the same name takes up the offers; with any other, only the choice counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Gt

from tequio.federation.scheduling import fitting, imbalance
from tequio.federation.selectors.candidates import ask_classes, chosen, clock_of, draw, expected
from tequio.federation.selectors.drawing import Count, Fraction
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.clock import Clock
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.scheduling import Candidates
    from tequio.federation.selection import Choice, Turn


@register("selector", "hybridfl", paper="Yoshida et al., 2020")
@dataclass(frozen=True)
class HybridSelector:
    """Of some random candidates, those that fit before a deadline and keep the classes in balance.

    Parameters:
        deadline: seconds that a round may take
        count: candidates a round (0: use the fraction)
        fraction: share of the eligible parties that are candidates, rounded up
        root: weigh by the usual coefficient of variation; without, by variance over mean, as the formula is printed
        legacy: add up times as the runs behind the published table did, which underestimates a round a little
    """

    deadline: Annotated[float, Gt(0)] = 180.0
    count: Count = 0
    fraction: Fraction = 0.1
    root: bool = False
    legacy: bool = False

    def choose(self, turn: Turn) -> Choice:
        """Ask for resources and classes, then choose under the deadline."""
        clock = clock_of(turn, "hybridfl")
        candidates = expected(turn, clock, draw(turn, self.count, self.fraction))
        return hybrid_choice(turn, "hybridfl", clock, candidates, self.deadline, root=self.root, legacy=self.legacy)


def hybrid_choice(turn: Turn, selector: str, clock: Clock, candidates: Candidates, deadline: float, *, root: bool,
                  legacy: bool, **memory: Any) -> Choice:
    """The choice under a deadline, with the offers of consenting candidates in its memory."""
    replies = ask_classes(turn, candidates.parties)
    candidates = candidates.part(np.isin(candidates.parties, replies.parties))
    told = np.array(replies.values("classes")).reshape(len(replies), turn.federation.schema.target.size)
    # Replies come in party order, candidates in the order of the draw.
    classes = told[np.searchsorted(replies.parties, candidates.parties)]
    places = fitting(candidates, deadline, coefficient=partial(imbalance, root=root), classes=classes, legacy=legacy)
    offers = _offers(turn, clock, candidates, places, replies)
    return chosen(turn, selector, candidates, places, deadline, offers=offers, **memory)


def _offers(turn: Turn, clock: Clock, candidates: Candidates, places: NDArray[np.int64], replies: Replies) -> Payload:
    """What candidates that were not chosen would hand over, and the time until the first model is uploaded."""
    picked = candidates.parties[places]
    willing = [reply for reply in replies if reply.payload["shares"] and reply.party not in picked]
    parties = np.array([reply.party for reply in willing], dtype=np.int64)
    return {"parties": parties, "classes": [reply.payload["classes"] for reply in willing],
            "row_bytes": np.array([reply.payload["row_bytes"] for reply in willing], dtype=np.int64),
            "throughput": clock.resources(parties, turn.federation.round).throughput,
            "window": float(candidates.training[places].min()) if len(places) else 0.0}
