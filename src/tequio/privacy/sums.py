"""Noise on sums over a party's rows: counts and sums by cluster (k-means), histograms and counts (trees).

Blum, Dwork, McSherry, Nissim: Practical privacy: the SuLQ framework, PODS 2005. Su, Cao, Li, Bertino, Jin:
Differentially private k-means clustering, CODASPY 2016.

Neighbours are two data sets of a party, one with a row more. The algorithm says how far one row moves each array; these
are noised in proportion, so that all arrays of a reply together are one Gaussian release.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from tequio.errors import ConfigError
from tequio.federation.stages import Trait
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.ledger import Context, Entry, Ledger
from tequio.privacy.local import costliest
from tequio.privacy.noising import gaussian, plus_noise, release_rng
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays


@register("stage", "dp-sums", paper="Blum et al., 2005")
@dataclass(frozen=True)
class NoisySums:
    """Add Gaussian noise, at the party, to sums over its rows: of k-means, histogram boosting and Federated-ID3.

    Parameters:
        noise: standard deviation in units of what one row can change (left out: as privacy.epsilon asks)
        secret: seed the noise from the operating system rather than from the run's seed; runs then differ
        moves: by array, how far one row can move it (runs fill it in from what the algorithm says)
        expected: parties that a round expects (runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
    """

    noise: Annotated[float, Ge(0)] | None = None
    secret: bool = False
    moves: dict[str, float] = field(default_factory=dict)
    expected: Annotated[float, Ge(0)] = 0.0
    arrays: tuple[str, ...] = ("update",)
    ledger: Ledger | None = field(default=None, metadata={"part": True}, repr=False, compare=False)

    unit: ClassVar[str] = "row"
    place: ClassVar[Literal["coordinator", "party", "sum"]] = "party"
    protects: ClassVar[str] = "sums"
    by_party: ClassVar[bool] = True
    trait: ClassVar[Trait] = Trait(takes=("model",), noise="party")

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: noise every sum."""
        sums: Arrays = payload.get("update", {})
        if self.noise is None or set(payload) != {"update"} or set(sums) != set(self.moves):
            raise ConfigError("'dp-sums' does not know what one row can change in what this task sends",
                              remedy="use it with 'kmeans', 'histogram-gbdt' or 'federated-id3', in a run")
        rng = release_rng(party, "noisy sums", secret=self.secret)
        spreads = {name: self.noise * len(sums) ** 0.5 * self.moves[name] for name in sums}
        return {"update": {name: _noised(values, spreads[name], rng) for name, values in sums.items()}}

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: note who answered."""
        if self.ledger is not None:
            self.ledger.charge(replies, round, self.noise or 0.0)
        return replies

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """What the rows of the parties that answered most often have spent."""
        return [{Release(noise): count for noise, count in bill} for bill in costliest(entries)]

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """A party that answers as often as it can."""
        rounds = range(1, context.rounds + 1, context.turns or 1)
        return [Entry(round, noise, 1, (0,)) for round in rounds for _ in range(context.releases)]

    def objections(self, context: Context) -> list[str]:
        """None: whatever is made of noised sums is as private as they are."""
        return []

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Each party adds Gaussian noise to sums over its rows, {self.noise or 0:.4g} times what one row can "
                "change, before they leave. Neighbours: two data sets of a party, one with a row more, as everybody "
                "else sees it. Told is the epsilon of the parties that answered most often.")


def _noised(values: NDArray[Any], spread: float, rng: np.random.Generator) -> NDArray[Any]:
    alone = {"": np.asarray(values, dtype=np.float64)}
    return plus_noise(alone, gaussian(alone, spread, rng), spread)[""]
