"""The averaging family, written once: select, ask, screen, aggregate, step, finish.

An algorithm of the family is an `Averaging` whose `round` calls `averaging_round` with its own task and, where the
model does not simply follow the mean, its own `step`. Batch-norm statistics and other buffers are no weights: they
travel beside the update and always become the parties' mean, with the weights of federated averaging, whatever the
algorithm does to the weights of the model.

How an algorithm gets a weighted mean of updates that the coordinator cannot read: through the stage that hides them.

Parties answer a task with everything but their updates, which they hold. When the algorithm has decided on the weights,
the hiding stage finds out the weighted mean, and the stages before it undo on the mean what they did to each update.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np

from tequio.errors import ConfigError, DataError, PayloadError, QuorumError
from tequio.federation.aggregation import (
    RUNNING_VARIANCE,
    SUMMED,
    Aggregator,
    Combined,
    Mean,
    Updates,
    check_shapes,
    difference,
    flatten,
    screened,
    shapes_of,
    shifted,
    unflatten,
    zeros,
)
from tequio.federation.aggregators.coordinates import of_buffers
from tequio.federation.algorithm import Algorithm, Attacked, Disclosure, State, part
from tequio.federation.contributions import Contribution, score_round
from tequio.federation.exchange import Replies, Reply
from tequio.federation.selection import AllParties, Choice, RoundOutcome, SelectionContext, Selector
from tequio.federation.stages import BUFFERS, Aggregated, Stage, summing_stage
from tequio.federation.topology import ClientServer, Hierarchical, Topology
from tequio.learners.learner import Learner, LocalTraining, buffers_of
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import Components
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.stages import Layout, Summed
    from tequio.federation.task import Task
    from tequio.learners.learner import Arrays

    Weigh = Callable[[Replies[Any]], NDArray[Any]]
    Step = Callable[["Averaged"], tuple[Arrays, dict[str, Any]]]


S = TypeVar("S")

Weights = Literal["size", "uniform"]
"""Weigh each party by its number of training rows, or all alike."""

@dataclass(frozen=True, kw_only=True)
class Averaging(Algorithm):
    """What algorithms are composed of that average updates of a common model."""

    learner: Learner = part()
    local: LocalTraining = part(factory=LocalTraining)
    selector: Selector = part(factory=AllParties)
    aggregator: Aggregator = part(factory=Mean)
    stages: tuple[Stage, ...] = part(())
    attack: Stage | None = part(None)
    contribution: Contribution | None = part(None)

    topologies: ClassVar[tuple[type[Topology], ...]] = (ClientServer, Hierarchical)
    attackable: ClassVar[frozenset[Attacked]] = frozenset({"rows", "updates", "cohort"})
    coordinator_trains: ClassVar[bool] = True
    sums_only: ClassVar[bool] = True

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        return fresh_state(self.learner, federation)

    def discloses(self, schema: Schema, arrays: tuple[str, ...] = ("update",), **facts: Any) -> Disclosure:
        """What a round lets out: these arrays, the buffers where the model has any, and further facts."""
        return Disclosure((*arrays, BUFFERS) if buffers_of(self.learner, schema) else arrays, **facts)

    @property
    def way(self) -> tuple[Stage, ...]:
        """What is done to updates on their way: an attack first, so that every other stage sees what is really sent."""
        return self.stages if self.attack is None else (self.attack, *self.stages)


@dataclass(frozen=True)
class Averaged:
    """What a `step` sees: the round's replies, the mean of their updates, and means of further arrays by name."""

    federation: Federation
    state: State
    replies: Replies[Any]
    weights: NDArray[np.float64]
    mean: Arrays
    others: Mapping[str, Arrays] = field(default_factory=dict)

    @property
    def model(self) -> Arrays:
        """The weights of the model before the round, without its buffers."""
        return {name: self.state.model[name] for name in self.mean}

    @property
    def round(self) -> int:
        """The number of the round."""
        return self.federation.round

    def following(self, rate: float = 1.0) -> Arrays:
        """The weights moved along the mean at a rate."""
        return shifted(self.model, self.mean, rate)


def fresh_state(learner: Learner, federation: Federation, **memory: Any) -> State:
    """A fresh model of the learner, and what the algorithm remembers from the start."""
    if federation.population.partition.labels is not None:
        raise ConfigError("the parties know different labels, and this algorithm trains one model for all of them",
                          remedy="set algorithm.name = 'mlfedavg', or deal rows by another partition")
    return State(learner.initial(federation.schema, federation.rng("initial model")), memory)


def weights_by(rule: Weights, replies: Replies[Any]) -> NDArray[np.float64]:
    """How much each reply counts: by the party's training rows, or all alike."""
    return replies.values("rows").astype(np.float64) if rule == "size" else np.ones(len(replies))


def averaging_round(algorithm: Averaging, federation: Federation, state: State, task: Task[S, Any], settings: S, *,
                    payload: Payload | None = None, weights: Weights | Weigh = "size", step: Step | None = None,
                    also: Sequence[str] = (), private: Sequence[str] = (),
                    buffers_by: Weights | None = None) -> State:
    """One round: select parties, let them do the task, average what they send, step, and let selectors see it.

    `weights` says how much each reply counts. `step` makes the next weights of the averaged round and whatever the
    algorithm remembers; without one the model follows the mean. `also` are further arrays of the replies that are
    averaged with the same weights. `private` are names of the model that parties keep for themselves and do not send.
    Buffers go by the same rule, or by one of their own.
    """
    by: Weights | None = None if callable(weights) else weights
    check_weighing(algorithm, by)
    chosen = select(algorithm, federation, state)
    replies = federation.ask(chosen.parties, task, {"model": state.model} if payload is None else payload,
                             settings=settings, stages=algorithm.way)
    sent = {name: values for name, values in state.model.items() if name not in private}
    trained, buffers = split_buffers(sent, buffers_of(algorithm.learner, federation.schema))
    noised = any(stage.mechanism is not None for stage in algorithm.stages)
    replies = replies if noised else with_sound_buffers(federation, replies, buffers)
    if not replies:
        return finish_round(algorithm, federation, state, chosen, replies)
    shares = weights(replies).astype(np.float64) if callable(weights) else weights_by(weights, replies)
    try:
        mean = aggregate(algorithm, federation, state, replies, trained, shares, by=by)
        memory: dict[str, Any] = {}
        others: dict[str, Arrays] = {}
        for name in also:
            # An aggregator may remember what it saw, to judge parties by it: each kind of array has its own.
            combined = aggregate(algorithm, federation, state, replies, trained, shares, name=name, by=by)
            others[name], memory[f"{name}_aggregator"] = combined.update, combined.memory
        averaged = Averaged(federation, state, replies, shares, mean.update, others)
        after, remembered = step(averaged) if step is not None else (averaged.following(), {})
        if buffers:
            rule = buffers_by or by or "size"
            kept = averaged_buffers(algorithm, federation, state, replies, buffers, weights_by(rule, replies), mean,
                                    rule)
            after = {**after, **(possible(kept) if noised else kept)}
    except QuorumError as cause:
        _check_goes_on(algorithm, federation, cause)
        return finish_round(algorithm, federation, state, chosen, replace(replies, answers=()))
    model = {name: after.get(name, values) for name, values in state.model.items()}
    return finish_round(algorithm, federation, state, chosen, replies, model, mean, **memory, **remembered)


def _check_goes_on(algorithm: Averaging, federation: Federation, cause: QuorumError) -> None:
    """Whether the model stays as it is for a round that is lost, and the run goes on; noise that later rounds take back
    has no gaps."""
    lasts = any(stage.mechanism is not None and stage.mechanism.noise_lasts for stage in algorithm.stages)
    if not cause.lost or lasts or federation.rules.on_failure == "stop":
        raise cause
    federation.record("warning", {"message": f"round {federation.round} is lost, and the model stays as it was: "
                                             f"{cause.message}"})


def check_weighing(algorithm: Averaging, by: Weights | None) -> None:
    """Refuse weights that the coordinator would work out where parties weigh themselves."""
    stage = summing_stage(algorithm.stages) if by is None else None
    if stage is not None and stage.weighed_by_parties:
        raise ConfigError(f"the algorithm '{name_of(type(algorithm))}' weighs parties by what it learns of each, and "
                          f"under the stage '{name_of(type(stage))}' parties weigh themselves, by their rows or alike",
                          remedy="set algorithm.weights = 'uniform' (or aggregation = 0), or leave the stage out")


def split_buffers(model: Arrays, buffers: frozenset[str]) -> tuple[Arrays, Arrays]:
    """The weights of a model, and its buffers."""
    if not buffers:
        return model, {}
    return ({name: values for name, values in model.items() if name not in buffers},
            {name: values for name, values in model.items() if name in buffers})


def with_sound_buffers(federation: Federation, replies: Replies[Any], buffers: Arrays) -> Replies[Any]:
    """The replies without those that would make a running variance negative, which count as failures."""

    def check(payload: Payload, whose: str) -> None:
        if isinstance(sent := payload.get(BUFFERS), dict) and shapes_of(sent) == shapes_of(buffers):
            check_variances(shifted(buffers, sent), whose)

    return federation.sound(replies, check) if buffers else replies


def check_variances(buffers: Arrays, whose: str) -> None:
    """Refuse running variances that no rows can have."""
    for name, values in buffers.items():
        if name.endswith(RUNNING_VARIANCE) and not (values >= 0).all():
            raise PayloadError(f"{whose} sent a change that makes '{name}' negative")


def possible(buffers: Arrays) -> Arrays:
    """Buffers after noise: a variance that it made negative is 0."""
    return {name: np.maximum(values, 0) if name.endswith(RUNNING_VARIANCE) else values
            for name, values in buffers.items()}


def check_pooling(parts: Components, schema: Schema) -> None:
    """Refuse to pool the variances of a model that has none."""
    pools = isinstance(parts.aggregator, Mean) and parts.aggregator.variance == "pooled"
    if pools and not any(name.endswith(RUNNING_VARIANCE) for name in buffers_of(parts.learner, schema)):
        raise ConfigError("aggregator.variance = 'pooled' would do nothing: the model has no batch-norm statistics",
                          remedy="leave aggregator.variance out")


def averaged_buffers(algorithm: Averaging, federation: Federation, state: State, replies: Replies[Any],
                     buffers: Arrays, weights: NDArray[np.float64], mean: Combined, by: Weights) -> Arrays:
    """The buffers after the round: the mean of those parties whose updates are in `mean`, or their median."""
    if mean.updates is not None and len(mean.updates) < len(replies):
        kept = np.isin(replies.parties, mean.updates.parties)
        replies, weights = replace(replies, answers=tuple(
            reply for reply, stays in zip(replies.answers, kept, strict=True) if stays)), weights[kept]
    combined = aggregate(algorithm, federation, state, replies, buffers, weights, name=BUFFERS,
                         aggregator=of_buffers(algorithm.aggregator), by=by)
    return shifted(buffers, combined.update)


def select(algorithm: Any, federation: Federation, state: State) -> Choice:
    """The parties of this round. `finish_round` lets the selector see what came of it."""
    selector, memory = algorithm.selector, state.memory.get("selector", {})

    def choose(among: Federation, purpose: str) -> Choice:
        context = _context(algorithm, among, state, memory, purpose)
        choice: Choice = selector.choose(replace(context, eligible=among.reachable()))
        return choice

    if federation.left_out and selector.forgets(len(federation.eligible()), len(federation.left_out)):
        # A draw that would have met a party that is left out is drawn again among the others, which gives these the
        # chances of a federation that never had it, and leaves all rounds before it as they were (decision 23).
        choice = choose(federation.whole(), "select")
        if np.isin(choice.parties, federation.left_out).any():
            choice = choose(federation, "select again")
    else:
        choice = choose(federation, "select")
    federation.record("selection", {"round": federation.round, "parties": choice.parties.tolist()})
    return choice


def finish_round(algorithm: Any, federation: Federation, state: State, chosen: Choice, replies: Replies[Any],
                 model: Payload | None = None, combined: Combined | None = None, **memory: Any) -> State:
    """The state after a round, once the selector has seen what came of its choice and contributions are scored.

    Without a model the old one stays. The aggregator's memory is kept; `memory` is what else to remember.
    """
    parts = algorithm.components
    outcome = RoundOutcome(replies, state.model if model is None else model, combined)
    remembered = chosen.memory
    if parts.selector.observes:
        remembered = parts.selector.observe(_context(algorithm, federation, state, chosen.memory, "observe"), outcome)
    if parts.contribution is not None:
        score_round(_context(algorithm, federation, state, {}, "contribution"), outcome, parts.contribution)
    if combined is not None:
        memory["aggregator"] = combined.memory
    return state.next(model, selector=remembered, **memory)


def _context(algorithm: Any, federation: Federation, state: State, memory: Payload, purpose: str) -> SelectionContext:
    parts = algorithm.components
    return SelectionContext(federation, federation.eligible(), memory, federation.coins(purpose), state.model,
                            parts.learner, parts.local)


def aggregate(algorithm: Averaging, federation: Federation, state: State, replies: Replies[Any], like: Arrays,
              weights: NDArray[np.float64] | None = None, *, name: str = "update",
              aggregator: Aggregator | None = None, by: Weights | None = None) -> Combined:
    """The aggregate of what the replies hold under a name, in the shapes of `like`, along the topology.

    Updates that cannot be used are refused with the name of their party; where none is left the aggregate is zero.
    """
    weights = np.ones(len(replies)) if weights is None else weights.astype(np.float64)
    memory = dict(state.memory.get("aggregator" if name == "update" else f"{name}_aggregator", {}))
    combine = algorithm.aggregator if aggregator is None else aggregator
    if algorithm.stages and summing_stage(algorithm.stages) is not None and not replies.of_nobody:
        return _aggregate_hidden(algorithm, federation, replies, like, weights, name, combine, memory, by or "size")
    updates, seen = screened(federation, like, replies, name, weights, memory)
    if not len(updates):
        none = Aggregated(name, replies, updates.parties, updates.weights, 0.0)
        return Combined(_transformed(algorithm, federation, zeros(like), none), {**memory, **seen})
    if combine.coordinator_rows and federation.root is not None:
        updates = replace(updates, root=_coordinator_update(algorithm, federation, state, like))
    combined = federation.topology.combine(updates, combine, memory)
    if combined.notes:
        names = [federation.name(party) for party in combined.notes.get("parties", [])]
        federation.record("aggregation", {"round": federation.round, **combined.notes,
                                          **({"names": names} if names else {})})
    weight = float(updates.weights.sum())
    aggregated = Aggregated(name, replies, updates.parties, updates.weights / weight, weight, updates.arrays)
    _after_aggregate(algorithm, federation, aggregated)
    return replace(combined, update=_transformed(algorithm, federation, combined.update, aggregated), updates=updates,
                   memory={**combined.memory, **seen})


def _aggregate_hidden(algorithm: Averaging, federation: Federation, replies: Replies[Any], like: Arrays,
                      weights: NDArray[np.float64], name: str, aggregator: Aggregator, memory: Payload,
                      by: Weights) -> Combined:
    """The aggregate of updates of which only the sum is known, as if it were the one update of everybody."""
    mean, summed = summed_updates(federation, algorithm.stages, replies, name, weights, by)
    check_shapes(mean, like, f"the sum of {len(summed.parties)} parties")
    whole = unflatten(flatten(mean), like)
    one = Updates(np.array([SUMMED]), [whole], np.array([summed.weight]))
    combined = federation.topology.combine(one, aggregator, memory)
    federation.record("aggregation", {"round": federation.round, **summed.notes, **combined.notes})
    aggregated = Aggregated(name, replies, summed.parties, summed.shares, summed.weight, summed=summed)
    _after_aggregate(algorithm, federation, aggregated)
    return replace(combined, update=_transformed(algorithm, federation, combined.update, aggregated))


def _transformed(algorithm: Averaging, federation: Federation, mean: Arrays, aggregated: Aggregated) -> Arrays:
    """What the algorithm gets instead of the mean, where stages transform it."""
    for stage in reversed([stage.now() for stage in algorithm.way]):
        mean = stage.transform_mean(federation, mean, aggregated)
    return mean


def _after_aggregate(algorithm: Averaging, federation: Federation, aggregated: Aggregated) -> None:
    for stage in algorithm.way:
        stage.after_aggregate(federation, aggregated)


def _coordinator_update(algorithm: Averaging, federation: Federation, state: State, like: Arrays) -> Arrays:
    """What the coordinator's own rows make of the model, for an aggregator that asks for it."""
    assert federation.root is not None
    local = replace(algorithm.local, optimizer_memory="fresh")
    trained = algorithm.learner.train(state.model, federation.root, local, federation.rng("root"),
                                      learning_rate=local.rate(federation.round))
    return difference(trained.model, {name: state.model[name] for name in like})


def summed_updates(federation: Federation, stages: tuple[Stage, ...], replies: Replies, name: str,
                   weights: NDArray[np.float64], by: Weights = "size") -> tuple[Arrays, Summed]:
    """The weighted mean of what the parties hold under a name, in the shapes of the model, and how it was found."""
    stage = summing_stage(stages)
    if stage is None:
        raise ConfigError("no stage hides updates here", remedy="add: [[stages]] name = 'secure-sum'")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise DataError(f"weights of a sum must be numbers from 0 upwards, and not all 0: {weights.tolist()[:5]} ...")
    kept = _alike(federation, replies, name, name_of(type(stage)))
    held = replies[kept[0]].payload[name]
    size = sum(prod(shape) for _, _, shape in held["layout"])
    capacity = next((found for before in stages if (found := before.capacity()) is not None), None)
    summed = stage.total(federation, replies.parties[kept], name, weights[kept], size, held.get("extra_counts", 0),
                         capacity, by)
    mean = Replies((Reply(-1, {name: {**_cut(summed.mean, held["layout"]), **held["rest"]}}),))
    for before in reversed(stages[:stages.index(stage)]):
        # Those that leave the form of an update as it is have nothing to undo; they have met the replies already.
        if before.spec.gives:
            mean = before.receive(mean, federation.round, federation.seed)
    return mean[0].payload[name], summed


def _cut(vector: NDArray[np.float64], layout: Layout) -> Arrays:
    parts, start = {}, 0
    for name, _, shape in layout:
        parts[name] = vector[start:start + prod(shape)].reshape(shape)
        start += prod(shape)
    return parts


def _alike(federation: Federation, replies: Replies, name: str, stage: str) -> list[int]:
    """Places of the replies that promise an update of the shape that most have."""
    promises = [_promise(reply.payload.get(name), stage) for reply in replies]
    usual = Counter(promises).most_common(1)[0][0]
    faults = {reply.party: f"it holds no update '{name}' of the shape that the others have"
              for reply, promise in zip(replies, promises, strict=True) if promise != usual or not promise}
    if faults:
        federation.refuse(replies, faults)
    kept = [place for place, reply in enumerate(replies) if reply.party not in faults]
    if not kept:
        raise DataError(f"no party holds an update '{name}'", remedy="use an algorithm that averages updates")
    return kept


def _promise(held: object, stage: str) -> str:
    if not isinstance(held, dict) or held.get("by") != stage:
        return ""
    return json.dumps([held.get("layout"), held.get("rest"), held.get("extra_counts")], sort_keys=True, default=str)
