"""HybridFL with a deadline that follows the candidates' mean times.

The rule comes from a bachelor's thesis on client selection (Granada, 2024): the deadline is multiplied in every round
by phi_t / phi_{t-1}, phi being the candidates' mean training time plus their mean upload time. The product telescopes:
the deadline of round t is T_0 * phi_t / phi_0 and remembers nothing in between, so its mean depends on how lucky the
first candidates were. The record shows both numbers side by side. `reference = "mean"` mends that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Gt, Interval

from tequio.federation.selectors.candidates import clock_of, draw, expected
from tequio.federation.selectors.drawing import Count, Fraction
from tequio.federation.selectors.hybridfl import hybrid_choice
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.payload import Payload
    from tequio.federation.selection import Choice, Turn


@register("selector", "dyn-hybridfl", paper="Yoshida et al., 2020, with a rule of 2024")
@dataclass(frozen=True)
class DynHybridSelector:
    """HybridFL's choice under a deadline that moves with the candidates' mean training and upload times.

    Parameters:
        deadline: seconds that the first round may take
        direction: slower candidates lengthen the deadline (follow, as the formula says) or shorten it (inverse)
        reference: a round's mean time is compared with that of the round before, or with the mean of all rounds so far
        damping: exponent on the factor; below 1 the deadline moves less
        lowest: the deadline never falls below this
        highest: the deadline never rises above this (0: no bound)
        count: candidates a round (0: use the fraction)
        fraction: share of the eligible parties that are candidates, rounded up
        root: weigh by the usual coefficient of variation; without, by variance over mean, as the formula is printed
        legacy: add up times as the runs behind the published table did, which underestimates a round a little
    """

    deadline: Annotated[float, Gt(0)] = 180.0
    direction: Literal["follow", "inverse"] = "follow"
    reference: Literal["previous", "mean"] = "previous"
    damping: Annotated[float, Interval(gt=0, le=1)] = 1.0
    lowest: Annotated[float, Ge(0)] = 0.0
    highest: Annotated[float, Ge(0)] = 0.0
    count: Count = 0
    fraction: Fraction = 0.1
    root: bool = False
    legacy: bool = False

    def choose(self, turn: Turn) -> Choice:
        """Move the deadline, then choose as HybridFL does."""
        clock = clock_of(turn, "dyn-hybridfl")
        candidates = expected(turn, clock, draw(turn, self.count, self.fraction))
        pace = float(candidates.training.mean() + candidates.upload.mean())
        rule = self.moved(turn.memory.get("rule", {}), pace)
        turn.federation.record("deadline", {"round": turn.federation.round, **rule})
        return hybrid_choice(turn, "dyn-hybridfl", clock, candidates, rule["deadline"], root=self.root,
                             legacy=self.legacy, rule=rule)

    def moved(self, rule: Payload, pace: float) -> Payload:
        """The rule's memory after a round whose candidates have this mean time (phi)."""
        rounds = rule.get("rounds", 0)
        first, mean = rule.get("first_pace", pace), rule.get("mean_pace", pace)
        before = self.deadline if self.reference == "mean" else rule.get("deadline", self.deadline)
        reference = mean if self.reference == "mean" else rule.get("pace", pace)
        deadline = max(before * self._factor(pace, reference), self.lowest)
        return {"deadline": min(deadline, self.highest) if self.highest else deadline, "pace": pace,
                "factor": self._factor(pace, reference), "telescoped": self.deadline * self._factor(pace, first),
                "first_pace": first, "mean_pace": (mean * rounds + pace) / (rounds + 1), "rounds": rounds + 1}

    def _factor(self, pace: float, reference: float) -> float:
        ratio = pace / reference if self.direction == "follow" else reference / pace
        return float(ratio ** self.damping)
