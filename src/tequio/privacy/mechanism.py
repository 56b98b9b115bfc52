"""Mechanisms: what adds noise for privacy, declared once. The accounting reads a mechanism and nothing else.

A mechanism is the stage that adds the noise. It says whom it protects, what it bounds, where the noise is added, and
what one release costs: the noise over the sensitivity, its distribution, and how those behind it were drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge

from tequio.errors import ConfigError
from tequio.federation.stages import NoisePlace, Stage
from tequio.privacy.accounting import Accountant  # noqa: TC001 - components look up the types of class variables
from tequio.privacy.ledger import Context, Entry, Ledger
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from tequio.federation.exchange import Replies
    from tequio.privacy.accounting import Release, Spent

Noise = Annotated[float, Ge(0)] | None
"""The type of the parameter; nothing: as privacy.epsilon asks."""


@dataclass(frozen=True)
class Mechanism(Stage, ABC):
    """A stage that adds noise and can say what that costs.

    Subclasses say in class variables what they are, what releases cost by `spent`, and what that means in `words`. The
    ledger of a run is charged whenever replies arrive.
    """

    ledger: Ledger | None = field(default=None, metadata={"part": True}, repr=False, compare=False)

    unit: ClassVar[Literal["party", "row", "label"]] = "party"
    """Whom it protects."""

    protects: ClassVar[Literal["updates", "training", "sums"]] = "updates"
    """What it bounds: updates, the steps of local training, or sums over rows."""

    place: ClassVar[NoisePlace] = "party"
    """Where the noise is added; at `sum` each party adds a share that is enough in a hidden sum only."""

    by_party: ClassVar[bool] = True
    """Whether the cost differs from party to party, so that the ledger keeps who answered."""

    noise_lasts: ClassVar[bool] = False
    """Whether a round that is played again gets the same noise, even where the noise is secret."""

    accountant: ClassVar[Accountant | None] = None
    """The only accountant that knows its noise, if there is but one."""

    @property
    def mechanism(self) -> Mechanism:
        """Itself."""
        return self

    @property
    @abstractmethod
    def noise(self) -> float | None:
        """In units that the mechanism explains; nothing until it is calibrated to a budget."""

    @property
    def secret(self) -> bool:
        """Whether its noise comes from the operating system rather than from the run's seed."""
        return False

    @property
    def known_noise(self) -> float:
        """The noise, once it is known."""
        if self.noise is None:
            raise ConfigError(f"the noise of '{name_of(type(self))}' is not known",
                              remedy="set its noise, or privacy.epsilon")
        return self.noise

    @abstractmethod
    def opened(self, noise: float, context: Context, ledger: Ledger | None = None) -> Self:
        """The mechanism ready for a run: with its noise, what it has to know of the run, and the ledger."""

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: charge the ledger."""
        if self.ledger is not None:
            self.ledger.charge(replies, round, self.noise or 0.0)
        return replies

    @abstractmethod
    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """What the entries cost those they cost most, in releases: noise over sensitivity, distribution and sampling.
        The largest epsilon counts."""

    def deviations(self, names: Sequence[str]) -> dict[str, float]:
        """Where sums over rows of these names leave together: the standard deviation of the noise on each entry."""
        return {}

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """The entries of a whole run at worst: of a party that answers as often as it can."""
        return [Entry(round, noise, 1, (0,)) for round in range(1, context.rounds + 1, context.turns or 1)
                for _ in range(context.releases)]

    def objections(self, context: Context) -> list[str]:
        """Why its guarantee would not hold in such a run."""
        return []

    @abstractmethod
    def words(self, context: Context) -> str:
        """What is done to updates, and between which neighbours that hides the difference."""


def costliest(entries: Sequence[Entry], release: Callable[[Entry], Release]) -> list[Spent]:
    """The different bills of parties that pay for the entries they answered; where all their releases are alike, the
    longest bill."""
    by_party: dict[int, Counter[Release]] = {}
    for entry in entries:
        one = release(entry)
        for party in entry.answered:
            by_party.setdefault(party, Counter())[one] += 1
    if len({one for bill in by_party.values() for one in bill}) == 1:
        longest = max(by_party.values(), key=lambda bill: bill.total())
        return [dict(longest)]
    bills = {tuple(sorted(bill.items(), key=lambda item: item[0].noise)) for bill in by_party.values()}
    return [dict(bill) for bill in bills]
