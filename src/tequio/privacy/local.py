"""Local differential privacy: noise is added before an update leaves its party, so that nobody need be trusted.

Dwork, McSherry, Nissim, Smith: Calibrating noise to sensitivity in private data analysis, TCC 2006 (Laplace).
Truex, Liu, Chow, Gursoy, Wei: LDP-Fed: federated learning with local differential privacy, EdgeSys 2020.

Neighbours are any two data sets that a party might hold: its clipped update may then turn round, which is twice the
clip. A party pays for the rounds in which it answers; nobody is hidden by being drawn, because the coordinator knows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tequio.federation.stages import Trait
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.clipping import clipped
from tequio.privacy.ledger import Context, Entry
from tequio.privacy.noised_sum import ClippedUpdates
from tequio.privacy.noising import gaussian, laplace, plus_noise, release_rng
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.stages import Room

Shape = Literal["gaussian", "laplace"]
_REPLACED = 2.0


@register("stage", "local-dp", paper="Truex et al., 2020")
@dataclass(frozen=True)
class LocalDP(ClippedUpdates):
    """Clip each party's update and add Gaussian or Laplace noise to every entry, both at the party.

    Parameters:
        clip: largest length of a party's update, all its arrays together: Euclidean for Gaussian noise, the sum of
            absolute values for Laplace noise
        noise: standard deviation (Gaussian) or scale (Laplace) in units of `clip` (left out: as privacy.epsilon asks)
        shape: gaussian or laplace
        secret: seed the noise from the operating system rather than from the run's seed; runs then differ
        expected: parties that a round expects (runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
    """

    shape: Shape = "gaussian"

    place: ClassVar[Literal["coordinator", "party", "sum"]] = "party"
    by_party: ClassVar[bool] = True
    trait: ClassVar[Trait] = Trait(takes=("model",), bounds=True, noise="party")

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: clip and noise."""
        draw, order = (laplace, 1) if self.shape == "laplace" else (gaussian, 2)
        content, _ = clipped(payload, self.arrays, self.clip, order, kept=party.state)
        rng, spread = release_rng(party, "local noise", secret=self.secret), self.known_noise * self.clip
        return {**content, **{name: plus_noise(content[name], draw(content[name], spread, rng), spread)
                              for name in self.arrays}}

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: only note who answered."""
        if self.ledger is not None:
            self.ledger.charge(replies, round, self.noise or 0.0)
        return replies

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """What the parties that answered most often have spent."""
        return [{Release(noise / _REPLACED, self.shape): count for noise, count in total}
                for total in costliest(entries)]

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """A party that answers as often as it can."""
        rounds = range(1, context.rounds + 1, context.turns or 1)
        return [Entry(round, noise, 1, (0,)) for round in rounds]

    def room(self) -> Room | None:
        """None: a noised update may be rounded by what others do."""
        return None

    def objections(self, context: Context) -> list[str]:
        """None: whatever is made of a noised update is as private as it."""
        return []

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Each party clips its update to {'an absolute sum' if self.shape == 'laplace' else 'a length'} of "
                f"{self.clip:g} and adds {self.shape.title()} noise of {self.noise or 0:.4g} times that to every entry "
                "before it leaves. Neighbours: any two data sets that a party might hold, as the coordinator sees it. "
                "Told is the epsilon of the parties that answered most often; how many rows a party has is not hidden.")


def costliest(entries: Sequence[Entry]) -> set[tuple[tuple[float, int], ...]]:
    """The different bills, each as (noise, releases) in order; bills that another one contains are left out where all
    noise is the same."""
    by_party: dict[int, Counter[float]] = {}
    for entry in entries:
        for party in entry.answered:
            by_party.setdefault(party, Counter())[entry.noise] += 1
    bills = {tuple(sorted(bill.items())) for bill in by_party.values()}
    if len({noise for bill in bills for noise, _ in bill}) == 1:
        return {max(bills, key=lambda bill: bill[0][1])}
    return bills
