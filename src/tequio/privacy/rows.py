"""Mechanisms that hide single rows: local training by 'dp-sgd', and noise on sums over a party's rows.

Neighbours are two data sets of a party, one with a row more. What leaves a party after training by 'dp-sgd' follows
from noised gradients only, so that it costs as much as they do, however it is used.

Sums are counts and sums by cluster (k-means), histograms and counts (trees). The algorithm says how far one row moves
each array; these are noised in proportion, so that all arrays of a reply together are one Gaussian release. Blum,
Dwork, McSherry, Nissim: Practical privacy: the SuLQ framework, PODS 2005. Su, Cao, Li, Bertino, Jin: Differentially
private k-means clustering, CODASPY 2016.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np

from tequio.errors import ConfigError
from tequio.federation.stages import MOVED, SUMS, Form, StageSpec
from tequio.noise.grid import step_for
from tequio.noise.sampling import rounded_gaussian
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.ledger import Context, Entry, Ledger
from tequio.privacy.mechanism import Mechanism, Noise, costliest
from tequio.privacy.noising import SILENT, on_grid, release_coins
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays
    from tequio.noise.coins import Coins
    from tequio.privacy.noising import Floats

_MOST_BILLS = 4


@register("stage", "silent-training")
@dataclass(frozen=True)
class SilentTraining(Mechanism):
    """Leave out what parties report about private training, and let the ledger count who trained.

    A run whose local training is 'dp-sgd' has this stage without being told.

    Parameters:
        noise: that of the training
        secret: whether the training's noise comes from the operating system
    """

    noise: Noise = None
    secret: bool = False

    unit: ClassVar[Literal["party", "row", "label"]] = "row"
    protects: ClassVar[Literal["updates", "training", "sums"]] = "training"

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=get_args(Form), withholds=SILENT)

    def opened(self, noise: float, context: Context, ledger: Ledger | None = None) -> Self:
        """With the noise that training adds."""
        return replace(self, noise=noise, ledger=ledger)

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: no losses."""
        return {name: value for name, value in payload.items() if name not in SILENT}

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

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"In local training every row joins a batch by chance, its gradient is clipped, and Gaussian noise of "
                f"{self.noise or 0:.4g} times the clip is added to the sum. Neighbours: two data sets of a party, one "
                "with a row more, as everybody else sees it. Told is the epsilon of the parties that paid most; how "
                "many rows a party has is not hidden.")


def _release(noise: float, chance: float) -> Release:
    return Release(noise, sampling="poisson", rate=chance)


@register("stage", "dp-sums", paper="Blum et al., 2005")
@dataclass(frozen=True)
class NoisySums(Mechanism):
    """Add Gaussian noise, at the party, to sums over its rows: of statistics, k-means and trees from counts.

    Parameters:
        noise: standard deviation in units of what one row can change (left out: as privacy.epsilon asks)
        secret: seed the noise from the operating system rather than from the run's seed; runs then differ
        moves: by array, how far one row can move it (runs fill it in from what the algorithm says)
    """

    noise: Noise = None
    secret: bool = False
    moves: dict[str, float] = field(default_factory=dict)

    unit: ClassVar[Literal["party", "row", "label"]] = "row"
    protects: ClassVar[Literal["updates", "training", "sums"]] = "sums"

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=("model",))

    def opened(self, noise: float, context: Context, ledger: Ledger | None = None) -> Self:
        """With what one row can change."""
        return replace(self, noise=noise, ledger=ledger, moves=dict(context.moves))

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: noise every sum."""
        entry = next(iter(payload.keys() - {MOVED}), SUMS)
        sums: Arrays = payload.get(entry, {})
        if self.noise is None or payload.keys() - {MOVED} != {entry} or not sums or not set(sums) <= set(self.moves):
            raise ConfigError("'dp-sums' does not know what one row can change in what this task sends",
                              remedy="use it in a run, with 'statistics', 'kmeans', 'histogram-gbdt' or "
                                     "'federated-id3'")
        coins, noise = release_coins(party, "noisy sums", secret=self.secret), self.noise * len(sums) ** 0.5
        return {**payload, entry: {name: _noised(values, noise, self.moves[name], coins)
                                   for name, values in sums.items()}}

    def deviations(self, names: Sequence[str]) -> dict[str, float]:
        """In proportion to what one row moves, so that all sums of a reply are one release."""
        return {name: self.known_noise * len(names) ** 0.5 * self.moves[name] for name in names}

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """What the rows of the parties that answered most often have spent."""
        return costliest(entries, lambda entry: Release(entry.noise))

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Each party adds Gaussian noise to sums over its rows, {self.noise or 0:.4g} times what one row can "
                "change, before they leave. Neighbours: two data sets of a party, one with a row more, as everybody "
                "else sees it. Told is the epsilon of the parties that answered most often.")


def _noised(values: Floats, noise: float, moved: float, coins: Coins) -> Floats:
    """Sums with noise of so many times what one row moves them by; noughts where a sum is not finite."""
    exact = np.asarray(values, dtype=np.float64) if np.isfinite(values).all() else np.zeros(values.shape)
    if not noise * moved:
        return exact
    step = step_for(noise * moved, moved)
    # Sums with and without a row are rounded each, so that every entry may differ by one step more.
    spread = noise * (moved / step + sqrt(exact.size))
    return on_grid({"": exact}, step, rounded_gaussian(coins, spread, exact.size))[""]
