"""Gossip learning: peers train models of their own and average them with those of their neighbours.

Lian et al.: Can decentralized algorithms outperform centralized algorithms? NeurIPS 2017. The weights that keep the
mean on any graph are those of Metropolis (Xiao and Boyd: Fast linear iterations for distributed averaging, 2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.peer.exchange import (
    MixingRule,
    mixing_weights,
    peer_topology,
    record_exchange,
    relayed,
)
from tequio.algorithms.peer.mailbox import addressed, collect_offers, delivered, open_all, seal_for_all
from tequio.algorithms.training import fresh_state, job_from, training_settings, training_task
from tequio.errors import ConfigError, DataError
from tequio.federation.aggregation import Updates
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.evaluation import evaluate, evaluate_own
from tequio.federation.models import weighted_mean
from tequio.federation.task import task
from tequio.learners import metrics
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.exchange import Reply
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Job, Tally, Trained


@register("algorithm", "gossip", paper="Lian et al., 2017")
@dataclass(frozen=True, kw_only=True)
class Gossip(Algorithm):
    """Peers train their own models and mix them with those of their neighbours; there is no coordinator's model.

    Needs a topology of peers: parallel, random or cyclic. In the parallel one every peer ends a round with the model
    of federated averaging. A peer that takes part for the first time starts from the mean of the others' models, and
    that mean is also the model of the run; evaluation is of each peer's own model.

    Parameters:
        weights: weigh models by training rows (size), alike (uniform), or so that their mean is kept (metropolis)
        sealed: models travel encrypted from peer to peer, and the coordinator that carries them has no model at all
    """

    weights: MixingRule = "size"
    sealed: bool = False

    def start(self, federation: Federation) -> State:
        """A fresh model, for whoever comes first."""
        peer_topology(federation)
        if self.parts.stages:
            raise ConfigError("stages change updates, but gossiping peers send whole models",
                              remedy="leave the stages out, or use the algorithm 'cyclic'")
        return fresh_state(self, federation, joined=np.empty(0, dtype=np.int64))

    def round(self, federation: Federation, state: State) -> State:
        """Everyone trains, sends their model along the links, and mixes what they hear."""
        if self.sealed:
            return self._sealed_round(federation, state)
        topology, chosen = peer_topology(federation), self.select(federation, state)
        newcomers = np.setdiff1d(chosen.parties, state.memory["joined"])
        trained = federation.ask(chosen.parties, train_own, settings=training_settings(self),
                                 each={int(party): {"model": state.model} for party in newcomers})
        if not trained:
            return self.conclude(federation, state, chosen, trained)
        messages = {reply.party: {"model": reply.payload["model"], "rows": reply.payload["rows"]} for reply in trained}
        heard = relayed(topology.links(trained.parties, federation.rng("links")), messages)
        record_exchange(federation, heard)
        federation.ask(trained.parties, mix_models, each=heard,
                       settings={"weights": self.weights, "aggregator": self.parts.aggregator})
        return self.conclude(federation, state, chosen, trained, self._mean(trained),
                             joined=np.union1d(state.memory["joined"], trained.parties))

    def _sealed_round(self, federation: Federation, state: State) -> State:
        """The same round, in which the coordinator sees boxes only; newcomers start from the fresh model."""
        topology, chosen = peer_topology(federation), self.select(federation, state)
        session, offers = collect_offers(federation, chosen.parties)
        peers = np.array(sorted(offers), dtype=np.int64)
        links = topology.links(peers, federation.rng("links"))
        mail = addressed(links, offers, session)
        newcomers = np.setdiff1d(peers, state.memory["joined"]).tolist()
        trained = federation.ask(peers, train_own, settings=training_settings(self), each={
            party: {"mail": mail[party], **({"model": state.model} if party in newcomers else {})} for party in mail})
        sent = delivered(links, {reply.party: reply.payload["boxes"] for reply in trained}, offers, session)
        heard = {party: {"neighbours": len(sent[party]["senders"]), "messages": [], "mail": sent[party]}
                 for party in trained.parties.tolist()}
        federation.record("peers", {"round": federation.round, "messages": len(links), "bytes": sum(
            len(box) for mail in sent.values() for box in mail["boxes"])})
        if heard:
            federation.ask(trained.parties, mix_models, each=heard,
                           settings={"weights": self.weights, "aggregator": self.parts.aggregator})
        return self.conclude(federation, state, chosen, trained,
                             joined=np.union1d(state.memory["joined"], trained.parties))

    def evaluate(self, federation: Federation, state: State, part: str, parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each peer's tally of its own model; of the mean of the others where it has none yet."""
        settings = {"learner": self.learner, "part": part}
        joined = np.isin(parties, state.memory["joined"])
        replies: list[Reply] = []
        if joined.any():
            replies += federation.ask(parties[joined], evaluate_own, settings=settings)
        if not joined.all():
            replies += federation.ask(parties[~joined], evaluate, {"model": state.model}, settings=settings)
        return {reply.party: reply.payload for reply in sorted(replies, key=lambda reply: reply.party) if reply.payload}

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The tallies of all peers' models together, so that metrics are means over the peers."""
        if self.sealed:
            return None
        if not len(state.memory["joined"]):
            return self.learner.evaluate(state.model, rows)
        known: dict[bytes, Tally] = {}
        tallies = []
        for payload in federation.ask(state.memory["joined"], show_model).payloads:
            key = b"".join(values.tobytes() for values in payload["model"].values())
            if key not in known:  # in a full mesh all peers hold the same model
                known[key] = self.learner.evaluate(payload["model"], rows)
            tallies.append(known[key])
        return metrics.merge(tallies)

    def _mean(self, trained: Replies) -> Payload:
        weights = trained.values("rows") if self.weights == "size" else np.ones(len(trained))
        return weighted_mean([payload["model"] for payload in trained.payloads], weights)


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    model = payload.get("model") or party.state.get("own_model")
    if model is None:
        raise DataError(f"peer '{party.name}' has lost its model", remedy="resume the run from its checkpoint")
    return job_from(party, model)


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    party.state["own_model"] = result.model
    if "mail" in payload:
        content = {"model": result.model, "rows": result.rows, "neighbours": payload["mail"]["hears"]}
        return {"boxes": seal_for_all(party, payload["mail"], content), "rows": result.rows, "loss": result.loss}
    return {"model": result.model, "rows": result.rows, "loss": result.loss}


train_own = training_task("gossip: train", _job, _reply)
"""Train the peer's own model (or, at a newcomer, the received one), keep it, and show it to the neighbours."""


@task("gossip: mix")
def mix_models(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Aggregate the peer's own model and those it heard, in party order so that equal peers get equal bits."""
    own = {"sender": party.index, "neighbours": payload["neighbours"], "rows": len(party.data.train),
           "model": party.state["own_model"]}
    heard = open_all(party, payload["mail"]) if "mail" in payload else payload["messages"]
    messages = sorted([own, *heard], key=lambda message: int(message["sender"]))
    senders = [message["sender"] for message in messages]
    weights = mixing_weights(settings["weights"], [message["rows"] for message in messages],
                             [message["neighbours"] for message in messages], senders.index(party.index))
    updates = Updates(np.array(senders), [message["model"] for message in messages], weights)
    mixed = settings["aggregator"].combine(updates, party.state.get("aggregator", {}))
    party.state["own_model"], party.state["aggregator"] = mixed.update, mixed.memory
    return {}


@task("gossip: show model")
def show_model(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The peer's own model, to score it on rows kept for evaluation."""
    return {"model": party.state["own_model"]}
