"""Cyclic weight transfer: one model travels round the ring of peers, and each trains it before passing it on.

Chang et al.: Distributed deep learning networks among institutions for medical imaging, JAMIA 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.algorithms.peer.exchange import peer_topology
from tequio.algorithms.training import fresh_state, train, training_settings
from tequio.components import name_of
from tequio.errors import ConfigError, QuorumError
from tequio.federation import payload as payloads
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted
from tequio.federation.topologies.peers import Cyclic
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.federation import Federation
    from tequio.learners.learner import Arrays


@register("algorithm", "cyclic", paper="Chang et al., 2018")
@dataclass(frozen=True, kw_only=True)
class CyclicTransfer(Algorithm):
    """One model visits the peers in turn, and each trains it and passes it on; a round is once round the ring.

    Needs the cyclic topology. A peer that is away is skipped while the quorum of the round holds.
    """

    def start(self, federation: Federation) -> State:
        """A fresh model at the first peer."""
        _ring(federation)
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Visit the chosen peers one after another."""
        chosen = self.select(federation, state, observed=False)
        model, visited, sent = state.model, 0, 0
        for peer in _ring(federation).route(chosen.parties, federation.rng("links")):
            after = self._visit(federation, int(peer), model)
            if after is not None:
                model, visited, sent = after, visited + 1, sent + payloads.size({"model": after})
        federation.record("peers", {"round": federation.round, "messages": visited, "bytes": sent})
        if visited < federation.rules.quorum * len(chosen.parties):
            raise QuorumError(f"only {visited} of {len(chosen.parties)} peers trained the model in round "
                              f"{federation.round}; the quorum is {federation.rules.quorum:.0%}",
                              remedy="lower rules.quorum, or find out why")
        return state.next(model, selector=chosen.memory)

    def _visit(self, federation: Federation, peer: int, model: Arrays) -> Arrays | None:
        """The model after training at one peer; nothing if the peer is away or failed."""
        try:
            replies = federation.ask([peer], train, {"model": model}, settings=training_settings(self),
                                     stages=self.parts.stages)
        except QuorumError:  # one peer alone is never a quorum; the round as a whole is judged when it is over
            return None
        return shifted(model, replies[0].payload["update"]) if replies else None


def _ring(federation: Federation) -> Cyclic:
    topology = peer_topology(federation)
    if not isinstance(topology, Cyclic):
        raise ConfigError(f"a model can only travel round a ring, not in the topology '{name_of(type(topology))}'",
                          remedy="set topology.name = 'cyclic'")
    return topology
