"""Private rows: the ledger of local training by 'dp-sgd', in which every step hides single rows from everybody else.

Neighbours are two data sets of a party, one with a row more. What leaves the party after its steps follows from noised
gradients only, so that it costs as much as they do, however it is used.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from annotated_types import Ge

from tequio.federation.stages import Form, Trait
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.clipping import SILENT
from tequio.privacy.ledger import Context, Entry, Ledger
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies

_MOST_BILLS = 4


@register("stage", "silent-training")
@dataclass(frozen=True)
class SilentTraining:
    """Leave out what parties report about private training, and let the ledger count who trained.

    A run whose local training is 'dp-sgd' has this stage without being told.

    Parameters:
        noise: that of the training
        expected: parties that a round expects (runs fill it in)
        arrays: which parts of a reply follow from private training (runs fill it in)
    """

    noise: Annotated[float, Ge(0)] | None = None
    expected: Annotated[float, Ge(0)] = 0.0
    arrays: tuple[str, ...] = ("update",)
    ledger: Ledger | None = field(default=None, metadata={"part": True}, repr=False, compare=False)

    unit: ClassVar[str] = "row"
    place: ClassVar[Literal["coordinator", "party", "sum"]] = "party"
    protects: ClassVar[str] = "training"
    by_party: ClassVar[bool] = True
    trait: ClassVar[Trait] = Trait(takes=get_args(Form), noise="party")

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: no losses."""
        return {name: value for name, value in payload.items() if name not in SILENT}

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: note who trained."""
        if self.ledger is not None:
            self.ledger.charge(replies, round, self.noise or 0.0)
        return replies

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """What the rows of the costliest parties have spent. Where many parties differ, one bill above them all."""
        if context.descent is None:
            return []
        rounds = Counter((party, entry.noise) for entry in entries for party in entry.answered)
        bills: dict[tuple[float, float], int] = {}
        for (party, noise), count in rounds.items():
            chance, each = context.descent(party)
            bills[noise, chance] = max(bills.get((noise, chance), 0), each * count)
        if len({noise for noise, _ in bills}) > 1 or len(bills) > _MOST_BILLS:
            least, most = min(noise for noise, _ in bills), max(chance for _, chance in bills)
            steps: Counter[int] = Counter()
            for (party, _), count in rounds.items():
                steps[party] += context.descent(party)[1] * count
            return [{_release(least, most): max(steps.values())}]
        return [{_release(noise, chance): count} for (noise, chance), count in bills.items()]

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """All parties, as often as they can be chosen."""
        rounds = range(1, context.rounds + 1, context.turns or 1)
        return [Entry(round, noise, len(context.everybody), context.everybody) for round in rounds]

    def objections(self, context: Context) -> list[str]:
        """None of its own."""
        return []

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"In local training every row joins a batch by chance, its gradient is clipped, and Gaussian noise of "
                f"{self.noise or 0:.4g} times the clip is added to the sum. Neighbours: two data sets of a party, one "
                "with a row more, as everybody else sees it. Told is the epsilon of the parties that paid most; how "
                "many rows a party has is not hidden.")


def _release(noise: float, chance: float) -> Release:
    return Release(noise, sampling="poisson", rate=chance)
