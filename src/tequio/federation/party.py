"""A party as a task sees it: its data, its private state, its random streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.errors import PermissionDenied
from tequio.federation.rng import Streams, stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tequio.data.dataset import Dataset
    from tequio.federation.payload import Payload
    from tequio.federation.population import PartyData, Population


class Party:
    """One holder of data. Exists only while a task runs there: afterwards its data can no longer be reached.

    `state` is private and outlives the round: put arrays and plain values in it by name, and replace them rather than
    changing them in place, so that a failing task leaves the state as it was.
    """

    __slots__ = ("_population", "_pretended", "_streams", "index", "round", "state")

    def __init__(self, index: int, round: int, state: Payload, population: Population,
                 streams: Streams | None = None) -> None:
        self.index = index
        self.round = round
        self.state = state
        self._population: Population | None = population
        self._pretended: PartyData | None = None
        self._streams = streams or Streams(population.seed, round, (index,))

    @property
    def name(self) -> str:
        """What the party is called."""
        return self._home().name(self.index)

    @property
    def data(self) -> PartyData:
        """Its own rows, or those that it pretends to have."""
        own = self._home().view(self.index)
        return own if self._pretended is None else self._pretended

    @property
    def rows(self) -> Dataset:
        """All its own rows in their own order, whatever part the split puts them in."""
        return self._home().whole(self.index)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of this party only, such as its own learning rate."""
        return self._home().overrides.get(self.index, {})

    def rng(self, purpose: str) -> np.random.Generator:
        """This party's random stream for a purpose in this round."""
        self._home()
        return self._streams.of(purpose, self.index)

    def lasting_rng(self, purpose: str) -> np.random.Generator:
        """This party's random stream for a purpose in all rounds: what is drawn from it is drawn once and for all."""
        return stream(self._home().seed, purpose, party=self.index)

    def pretend(self, data: PartyData) -> None:
        """Use other rows than its own while this task runs, as a hostile party may."""
        self._pretended = data

    def leave(self) -> None:
        """End of the task: nobody can reach the data through this object any more."""
        self._population = self._pretended = None

    def _home(self) -> Population:
        if self._population is None:
            raise PermissionDenied(f"party {self.index} can only be reached from a task that runs there",
                                   remedy="write a task and ask the party to run it")
        return self._population
