"""Algorithms without a coordinator's model: peers pass models to each other along the links of a topology.

Gossip. Lian et al.: Can decentralized algorithms outperform centralized algorithms? NeurIPS 2017. The weights that keep
the mean on any graph are those of Metropolis (Xiao and Boyd: Fast linear iterations for distributed averaging, 2004).

Cyclic weight transfer. Chang et al.: Distributed deep learning networks among institutions for medical imaging, JAMIA
2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, TypedDict

import numpy as np

from tequio.algorithms.peer.mailbox import (
    IncomingMail,
    OutgoingMail,
    addressed,
    collect_offers,
    delivered,
    open_all,
    seal_for_all,
)
from tequio.algorithms.training import Phase, UpdateReply, job_from, train, training_task
from tequio.errors import ConfigError, DataError, QuorumError
from tequio.federation import payload as payloads
from tequio.federation.aggregation import (
    Aggregator,
    Mean,
    Updates,
    check_shapes,
    shifted,
    weighted_mean,
)
from tequio.federation.aggregators.coordinates import of_buffers
from tequio.federation.algorithm import Algorithm, Answering, Attacked, State, part
from tequio.federation.averaging import finish_round, fresh_state, select
from tequio.federation.evaluation import (
    EvaluateSettings,
    OwnModel,
    Part,
    evaluate,
    evaluate_own,
    keep_own,
    own_fingerprints,
    tallies_in,
)
from tequio.federation.payload import Payload
from tequio.federation.selection import AllParties, Selector
from tequio.federation.stages import Stage
from tequio.federation.task import Done, Floats, NoSettings, Reveals, Rows, TrainSettings, record, task
from tequio.federation.topology import Cyclic, Flow, Parallel, PeerTopology, RandomPeers, Topology, require
from tequio.learners import metrics
from tequio.learners.answers import One
from tequio.learners.learner import Arrays, Learner, LocalTraining, buffers_of
from tequio.registry import name_of, register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.federation.selection import Choice
    from tequio.learners.learner import Job, Tally, Trained

MixingRule = Literal["size", "uniform", "metropolis"]
"""Weigh models by their training rows, all alike, or so that the mean of all peers' models is kept on any graph."""


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

    learner: Learner = part()
    local: LocalTraining = part(factory=LocalTraining)
    selector: Selector = part(factory=AllParties)
    aggregator: Aggregator = part(factory=Mean)

    topologies: ClassVar[tuple[type[Topology], ...]] = (Parallel, RandomPeers, Cyclic)
    adoptable: ClassVar[bool] = False

    weights: MixingRule = "size"
    sealed: bool = False

    def start(self, federation: Federation) -> State:
        """A fresh model, for the first peers."""
        peer_topology(federation)
        return fresh_state(self.learner, federation, joined=np.empty(0, dtype=np.int64))

    def round(self, federation: Federation, state: State) -> State:
        """Everyone trains, sends their model along the links, and mixes what they hear."""
        topology, chosen = peer_topology(federation), select(self, federation, state)
        if self.sealed:
            return self._sealed_round(federation, state, topology, chosen)
        newcomers = np.setdiff1d(chosen.parties, state.memory["joined"])
        trained = federation.ask(chosen.parties, train_own, settings=self._settings(),
                                 each={int(party): {"model": state.model} for party in newcomers},
                                 check=lambda reply, whose: check_shapes(reply.get("model", {}), state.model, whose))
        if not trained:
            return finish_round(self, federation, state, chosen, trained)
        messages = {reply.party: {"model": reply.payload["model"], "rows": reply.payload["rows"]} for reply in trained}
        heard = relayed(topology.links(trained.parties, federation.rng("links")), messages)
        sent = [message for payload in heard.values() for message in payload["messages"]]
        federation.record("peers", {"round": federation.round, "messages": len(sent),
                                    "bytes": sum(payloads.size(dict(message)) for message in sent)})
        rows = trained.values("rows") if self.weights == "size" else np.ones(len(trained))
        mean = weighted_mean([payload["model"] for payload in trained.payloads], rows)
        return self._mixed(federation, state, chosen, trained, heard, mean)

    def _sealed_round(self, federation: Federation, state: State, topology: PeerTopology, chosen: Choice) -> State:
        """The same round, in which the coordinator sees boxes only; newcomers start from the fresh model."""
        session, offers = collect_offers(federation, chosen.parties)
        peers = np.array(sorted(offers), dtype=np.int64)
        links = topology.links(peers, federation.rng("links"))
        newcomers = np.setdiff1d(peers, state.memory["joined"]).tolist()
        trained = federation.ask(peers, train_own, settings=self._settings(), each={
            party: {"mail": mail, **({"model": state.model} if party in newcomers else {})}
            for party, mail in addressed(links, offers, session).items()})
        sent = delivered(links, {reply.party: reply.payload["boxes"] for reply in trained}, offers, session)
        heard: dict[int, Heard] = {party: {"neighbours": len(sent[party]["senders"]), "messages": [],
                                           "mail": sent[party]} for party in trained.parties.tolist()}
        federation.record("peers", {"round": federation.round, "messages": len(links), "bytes": sum(
            len(box) for mail in sent.values() for box in mail["boxes"])})
        return self._mixed(federation, state, chosen, trained, heard)

    def _mixed(self, federation: Federation, state: State, chosen: Choice, trained: Replies[GossipReply],
               heard: Mapping[int, Heard], mean: Arrays | None = None) -> State:
        """Let peers mix what they heard; the mean of their models, where it is known, is the model of the run."""
        if heard:
            settings = MixSettings(weights=self.weights, aggregator=self.aggregator,
                                   buffers=tuple(sorted(buffers_of(self.learner, federation.schema))))
            federation.ask(trained.parties, mix_models, settings=settings,
                           each={party: dict(payload) for party, payload in heard.items()})
        return finish_round(self, federation, state, chosen, trained, mean,
                            joined=np.union1d(state.memory["joined"], trained.parties))

    def answer(self, federation: Federation, state: State) -> One | None:
        """The mean of the peers' models, where the coordinator knows it."""
        return None if self.sealed else super().answer(federation, state)  # type: ignore[return-value]

    def own_answer(self, party: Party, federation: Federation, state: State) -> One | None:
        """The peer's own model."""
        own = party.recall(OwnModel)
        return One(self.learner, own["model"]) if "model" in own else None

    def keep_answers(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """Each keeps its own model."""
        federation.ask(parties, keep_own, settings=EvaluateSettings(learner=self.learner, part="test"))

    def answering(self, federation: Federation, state: State) -> Answering:
        """Every peer that took part, and all of them are scored."""
        joined = tuple(state.memory["joined"].tolist())
        return Answering("own", joined, joined) if joined else Answering()

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each peer's tally of its own model; of the mean of the others where it has none yet."""
        settings = EvaluateSettings(learner=self.learner, part=part)
        joined = np.isin(parties, state.memory["joined"])
        tallies: dict[int, Tally] = {}
        if joined.any():
            replies = federation.ask(parties[joined], evaluate_own, settings=settings)
            tallies |= tallies_in(replies)
        if not joined.all():
            replies = federation.ask(parties[~joined], evaluate, {"model": state.model}, settings=settings)
            tallies |= tallies_in(replies)
        return dict(sorted(tallies.items()))

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

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """A hash of each peer's model."""
        return own_fingerprints(federation, state.memory["joined"])

    def _settings(self) -> TrainSettings:
        return TrainSettings(learner=self.learner, local=self.local)


@register("algorithm", "cyclic", paper="Chang et al., 2018")
@dataclass(frozen=True, kw_only=True)
class CyclicTransfer(Algorithm):
    """One model visits the peers in turn, and each trains it and passes it on; a round is once round the ring.

    Needs the cyclic topology. A peer that is away is skipped while the quorum of the round holds.
    """

    learner: Learner = part()
    local: LocalTraining = part(factory=LocalTraining)
    selector: Selector = part(factory=AllParties)
    stages: tuple[Stage, ...] = part(())
    attack: Stage | None = part(None)

    topologies: ClassVar[tuple[type[Topology], ...]] = (Cyclic,)
    attackable: ClassVar[frozenset[Attacked]] = frozenset({"rows", "updates"})
    shows_replies: ClassVar[bool] = False

    def start(self, federation: Federation) -> State:
        """A fresh model at the first peer."""
        _ring(federation)
        return fresh_state(self.learner, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Visit the chosen peers one after another."""
        chosen = select(self, federation, state)
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
        way = self.stages if self.attack is None else (self.attack, *self.stages)
        try:
            replies = federation.ask([peer], train, {"model": model}, stages=way,
                                     settings=TrainSettings(learner=self.learner, local=self.local))
            replies = federation.sound(replies, lambda sent, whose: check_shapes(_change(sent), model, whose))
        except QuorumError:  # one peer alone is never a quorum; the round as a whole is judged when it is over
            return None
        if not replies:
            return None
        return shifted(model, _change(replies[0].payload))


def _change(sent: UpdateReply) -> Arrays:
    """How training changed a model, buffers and all."""
    return {**sent["update"], **sent.get("buffers", {})}


def peer_topology(federation: Federation) -> PeerTopology:
    """The federation's topology, if its parties are peers that may exchange models."""
    topology = federation.topology
    if not isinstance(topology, PeerTopology):
        raise ConfigError(f"peers cannot send models to each other in the topology '{name_of(type(topology))}'",
                          remedy="set topology.name = 'parallel', 'random' or 'cyclic'")
    require(topology.cast.party, topology.cast.party, Flow.EXCHANGE)
    return topology


def _ring(federation: Federation) -> Cyclic:
    topology = peer_topology(federation)
    if not isinstance(topology, Cyclic):
        raise ConfigError(f"a model can only travel round a ring, not in the topology '{name_of(type(topology))}'",
                          remedy="set topology.name = 'cyclic'")
    return topology


class GossipPayload(TypedDict, total=False):
    """The model to start from, at a newcomer; and the keys to seal for, where models travel sealed."""

    model: Arrays
    mail: OutgoingMail


class GossipReply(TypedDict):
    """The peer's new model, in the open or in boxes for its neighbours."""

    rows: Rows
    loss: float
    model: NotRequired[Floats]
    boxes: NotRequired[list[bytes]]


class Message(TypedDict):
    """One peer's model, how many rows made it, and how many others that peer hears."""

    sender: int
    neighbours: int
    model: Arrays
    rows: int


class Heard(TypedDict):
    """What reaches a peer: from how many others, and their messages in the open or sealed."""

    neighbours: int
    messages: list[Message]
    mail: NotRequired[IncomingMail]


@record
class MixSettings:
    """How a peer mixes models; `buffers` are the names of arrays that are no weights."""

    weights: MixingRule
    aggregator: Aggregator
    buffers: tuple[str, ...]


class MixMemory(TypedDict, total=False):
    """What a peer's aggregator remembers."""

    aggregator: Payload


def relayed(links: NDArray[np.int64], messages: Mapping[int, Payload]) -> dict[int, Heard]:
    """What each receiver hears: the messages of its senders, in party order, each with how many the sender hears."""
    hears = dict(zip(*(counts.tolist() for counts in np.unique(links[:, 1], return_counts=True)), strict=True))
    heard: dict[int, Heard] = {party: {"neighbours": hears.get(party, 0), "messages": []} for party in messages}
    for sender, receiver in links.tolist():
        message: Any = {"sender": sender, "neighbours": hears.get(sender, 0), **messages[sender]}
        heard[receiver]["messages"].append(message)
    return heard


def _job(party: Party, payload: GossipPayload, settings: TrainSettings) -> Job:
    model = payload.get("model") or party.recall(OwnModel).get("model")
    if model is None:
        raise DataError(f"peer '{party.name}' has lost its model", remedy="resume the run from its checkpoint")
    return job_from(party, model)


def _reply(party: Party, payload: GossipPayload, result: Trained, settings: TrainSettings) -> GossipReply:
    party.keep(OwnModel, {"model": result.model})
    if "mail" not in payload:
        return {"model": result.model, "rows": result.rows, "loss": result.loss}
    content = {"model": result.model, "rows": result.rows, "neighbours": payload["mail"]["hears"]}
    return {"boxes": seal_for_all(party, payload["mail"], content), "rows": result.rows, "loss": result.loss}


train_own = training_task("gossip: train", TrainSettings, GossipReply, Phase(_job, _reply))
"""Train the peer's own model (or, at a newcomer, the received one), keep it, and show it to the neighbours."""


@task("gossip: mix", settings=MixSettings, reply=Done, reveals=Reveals.NOTHING)
def mix_models(party: Party, payload: Heard, settings: MixSettings) -> Done:
    """Aggregate the peer's own model and those it heard, in party order so that equal peers get equal bits."""
    own: Message = {"sender": party.index, "neighbours": payload["neighbours"], "rows": len(party.data.train),
                    "model": party.recall(OwnModel)["model"]}
    heard: list[Any] = open_all(party, payload["mail"]) if "mail" in payload else payload["messages"]
    messages: list[Message] = sorted([own, *heard], key=lambda message: int(message["sender"]))
    senders = [message["sender"] for message in messages]
    weights = mixing_weights(settings.weights, [message["rows"] for message in messages],
                             [message["neighbours"] for message in messages], senders.index(party.index))

    def named(*, buffers: bool) -> Updates:
        return Updates(np.array(senders), [{name: values for name, values in message["model"].items()
                                            if (name in settings.buffers) == buffers} for message in messages], weights)

    mixed = settings.aggregator.combine(named(buffers=False), party.recall(MixMemory).get("aggregator", {}))
    model = dict(mixed.update)
    if settings.buffers:  # no weights: a mean, or a median where the aggregator is robust
        model |= of_buffers(settings.aggregator).combine(named(buffers=True), {}).update
    party.keep(OwnModel, {"model": {name: model[name] for name in own["model"]}})
    party.keep(MixMemory, {"aggregator": mixed.memory})
    return {}


def mixing_weights(rule: MixingRule, rows: Sequence[int], neighbours: Sequence[int], own: int) -> NDArray[np.float64]:
    """Weights of the models at one peer, whose own is at position `own`; `neighbours` is how many each one hears."""
    if rule == "size":
        return np.asarray(rows, dtype=np.float64)
    degrees = np.asarray(neighbours, dtype=np.float64)
    if rule == "uniform":
        return np.ones(len(degrees))
    weights: NDArray[np.float64] = 1.0 / (1.0 + np.maximum(degrees, degrees[own]))
    weights[own] = 0.0
    weights[own] = 1.0 - weights.sum()
    return weights


class ShownModel(TypedDict):
    """A peer's own model."""

    model: Floats


@task("gossip: show model", settings=NoSettings, reply=ShownModel, reveals=Reveals.UPDATE)
def show_model(party: Party, payload: Payload, settings: NoSettings) -> ShownModel:
    """The peer's own model, to score it on rows kept for evaluation."""
    return {"model": party.recall(OwnModel)["model"]}
