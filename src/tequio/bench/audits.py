"""Audits of every mechanism: the epsilon that an attacker finds in what real stages release, beside the one claimed.

Each audit runs the stage in rounds of a federation in which one party, row or label is there or not (or turned round),
scores what is released in the direction in which that shows, and bounds epsilon from below by the scores. With the
noise of the claim the bound has to stay below the claim; with a fifth of it, above.

Whether a stage calibrates, clips, divides and noises rightly shows here, whatever its code looks like: audits use what
runs use, the hooks of stages and the ledger, and nothing of how noise is drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tequio.algorithms.clustering.kmeans import FederatedKMeans, MoveSettings, move_centroids
from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.training import UpdateReply
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import Averaging, averaging_round
from tequio.federation.evaluation import evaluate
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.sums import sum_over_rows
from tequio.federation.task import Count, NoSettings, Reveals, record, task
from tequio.federation.task import Floats as Named
from tequio.gate.gate import Passed
from tequio.gate.policy import Budget, Policy
from tequio.gate.release import released
from tequio.learners.private_training import PrivateTraining
from tequio.learners.trees.tree import with_noisy_counts
from tequio.learners.zoo import Logistic
from tequio.noise.coins import Coins
from tequio.privacy.auditing import epsilon_lower_bound, one_run_bound
from tequio.privacy.ledger import Terms
from tequio.privacy.opening import open_ledger
from tequio.registry import build

if TYPE_CHECKING:

    from numpy.typing import NDArray

    from tequio.federation.algorithm import Algorithm, Disclosure
    from tequio.federation.population import Party
    from tequio.privacy.ledger import Ledger

    Floats = NDArray[np.float64]

DELTA = 1e-5
FIFTH = 0.2
_LOUD = 50.0
"""What the canary sends in every entry, long before it is clipped."""


@dataclass(frozen=True)
class Audit(ABC):
    """One mechanism in one setting. `noise` is that of the claim, in the unit of its stage."""

    mechanism: str
    noise: float

    @abstractmethod
    def claim(self) -> float | None:
        """The epsilon that the ledger states after such a run, with the noise of the claim, where there is a ledger."""

    @abstractmethod
    def bound(self, share: float, runs: int, first: int = 0) -> float:
        """What attackers of that many runs with that share of the noise find; seeds count from `first`."""


@dataclass(frozen=True)
class ManyRuns(Audit):
    """Half of the runs with the canary, half without."""

    is_gaussian: bool = True

    def bound(self, share: float, runs: int, first: int = 0) -> float:
        """By thresholds on scores; mechanisms that claim Gaussian privacy are judged by both errors together."""
        seen = [np.stack([self.run(share, inside, 2 * seed + inside)[0] for seed in range(first, first + runs)])
                for inside in (True, False)]
        along = _best_direction(*(values[:runs // 2] for values in seen))
        return epsilon_lower_bound(seen[0] @ along, seen[1] @ along, DELTA, is_gaussian=self.is_gaussian)

    def claim(self) -> float | None:
        """After one of the runs."""
        ledger = self.run(1.0, True, 0)[1]
        return None if ledger is None else ledger.epsilon()

    @abstractmethod
    def run(self, share: float, inside: bool, seed: int) -> tuple[Floats, Ledger | None]:
        """The numbers in which the canary shows, of all that is released, and the ledger."""


def _best_direction(inside: Floats, outside: Floats) -> Floats:
    """Fisher's discriminant: of numbers whose noises hang together, as from round to round, the sum that tells most.

    It is learnt from those runs only that also choose the threshold.
    """
    spread = (np.atleast_2d(np.cov(inside.T)) + np.atleast_2d(np.cov(outside.T))) / 2
    smallest = 1e-9 * max(float(np.trace(spread)), 1e-30)
    found: Floats = np.linalg.solve(spread + smallest * np.eye(len(spread)), inside.mean(0) - outside.mean(0))
    return found


@record
class CanarySettings:
    """In which rounds the canary sings (in every one, or in the first of so many), and in how many entries."""

    every: Count
    entries: Count


@task("bench.canary", settings=CanarySettings, reply=UpdateReply, reveals=Reveals.UPDATE)
def send_canary(party: Party, payload: dict[str, Any], settings: CanarySettings) -> UpdateReply:
    """Send an update whose entries are all the party's only number, or nothing in rounds that are not for it."""
    value = float(party.data.train.target[0]) if (party.round - 1) % settings.every == 0 else 0.0
    return {"update": {"w": np.full(settings.entries, value, dtype=np.float32)}, "rows": 1, "steps": 1, "loss": 0.0}


@dataclass(frozen=True, kw_only=True)
class Canaries(Averaging):
    """Averages what canaries send."""

    learner: Any = part(None)
    every: int = 1
    entries: int = 1

    def start(self, federation: Federation) -> State:
        """A model of noughts."""
        return State({"w": np.zeros(self.entries, dtype=np.float32)})

    def disclosure(self, schema: Schema) -> Disclosure:
        """Updates."""
        return self.discloses(schema)

    def round(self, federation: Federation, state: State) -> State:
        """One round of averaging."""
        settings = CanarySettings(every=self.every, entries=self.entries)
        return averaging_round(self, federation, state, send_canary, settings, payload={}, weights="uniform")


@dataclass(frozen=True)
class OfUpdates(ManyRuns):
    """The update of one party among some is the canary, or it is nothing (or turned round, where `turned`). In `turns`
    the canary is whoever comes first."""

    parties: int = 3
    rounds: int = 1
    fraction: float = 1.0
    turns: bool = False
    entries: int = 4
    settings: dict[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    turned: bool = False

    def run(self, share: float, inside: bool, seed: int) -> tuple[Floats, Ledger]:
        """Rounds of averaging under the stage, whose noise follows from the seed."""
        canary = _LOUD if inside else -_LOUD if self.turned else 0.0
        stages = (build("stage", self.mechanism, {"noise": share * self.noise, **self.settings}),
                  *(build("stage", name) for name in self.after))
        selector = build("selector", "in-turn", {"count": 1}) if self.turns else \
            build("selector", "poisson", {"fraction": self.fraction}) if self.fraction < 1 else build("selector", "all")
        algorithm: Algorithm = Canaries(stages=stages, selector=selector, every=self.parties if self.turns else 1,
                                        entries=self.entries)
        rows = Dataset.of(Schema.of_numbers("x", Target("number")), np.zeros((self.parties, 1)),
                          np.array([canary, *[canary if self.turns else 0.0] * (self.parties - 1)]))
        population = Population(rows, Partition.of(np.split(np.arange(self.parties), self.parties)), Split(0.0, 0.0),
                                seed)
        with closing(InlineEngine()) as engine:
            engine.open(population)
            federation = Federation(population, engine, seed)
            algorithm, ledger = open_ledger(algorithm, federation, Terms(delta=DELTA), self.rounds)
            assert ledger is not None
            state, sums = algorithm.start(federation), []
            ledger.template = dict(state.model)
            for federation.round in range(1, self.rounds + 1):
                state = algorithm.round(federation, state)
                sums.append(float(state.model["w"].sum()))
        return np.array(sums), ledger


@dataclass(frozen=True)
class OfTraining(ManyRuns):
    """A party's training by dp-sgd with a row of one class that lies far out, or without it."""

    rows: int = 39
    batch: int = 20
    steps: int = 4

    def run(self, share: float, inside: bool, seed: int) -> tuple[Floats, Ledger]:
        """A round of federated averaging with one party: what it sends is what training made of its rows."""
        features, target = np.zeros((self.rows + 1, 2)), np.arange(self.rows + 1) % 2
        features[-1, 0], target[-1] = 1e4, 1
        rows = Dataset.of(Schema.of_numbers("xy", Target("classes", ("no", "yes"))), features, target)
        held = np.arange(self.rows + inside)
        population = Population(rows, Partition.of([held]), Split(0.0, 0.0), seed)
        local = PrivateTraining(batch=self.batch, steps=self.steps, epochs=1, learning_rate=0.1,
                                noise=share * self.noise)
        algorithm: Algorithm = FedAvg(learner=Logistic(), local=local)
        with closing(InlineEngine()) as engine:
            engine.open(population)
            federation = Federation(population, engine, 0)
            algorithm, ledger = open_ledger(algorithm, federation, Terms(delta=DELTA), 1)
            assert ledger is not None
            before = algorithm.start(federation)
            federation.round = 1
            after = algorithm.round(federation, before)
        moved = after.model["output.weight"].astype(np.float64) - before.model["output.weight"]
        return (moved[-1] - (moved[0] if len(moved) > 1 else 0))[:1], ledger


@dataclass(frozen=True)
class OfSums(ManyRuns):
    """Counts and sums of a party's rows by cluster, with a row at the radius or without it."""

    radius: float = 3.0

    def run(self, share: float, inside: bool, seed: int) -> tuple[Floats, Ledger]:
        """What one party answers to k-means."""
        features = np.zeros((11, 2))
        features[-1, 0] = 100.0
        rows = Dataset.of(Schema.of_numbers("xy", Target("none")), features)
        population = Population(rows, Partition.of([np.arange(10 + inside)]), Split(0.0, 0.0), seed)
        stage = build("stage", "dp-sums", {"noise": share * self.noise})
        algorithm: Algorithm = FederatedKMeans(clusters=1, centroids=((0.0, 0.0),), radius=self.radius, stages=(stage,))
        settings = MoveSettings(epochs=1, batch=0, party_rate=1.0, minimum_count=1, radius=self.radius)
        with closing(InlineEngine()) as engine:
            engine.open(population)
            federation = Federation(population, engine, seed, round=1)
            algorithm, ledger = open_ledger(algorithm, federation, Terms(delta=DELTA), 1)
            assert ledger is not None
            found = sum_over_rows(federation, [0], move_centroids, {"centroids": np.zeros((1, 2))}, settings=settings,
                                  shapes={"counts": (1,), "sums": (1, 2)}, stages=algorithm.components.stages)
        return np.array([found["counts"][0], found["sums"][0, 0] / self.radius]), ledger


@dataclass(frozen=True)
class OfCounts(ManyRuns):
    """The confusion of a party's evaluation, as it passes the gate of a policy with a budget, with a row or without."""

    def run(self, share: float, inside: bool, seed: int) -> tuple[Floats, Ledger | None]:
        """The tally that leaves."""
        confusion = np.full((2, 2), 50)
        confusion[0, 1] += inside
        policy = Policy(budget=Budget(1.0, DELTA, share * self.noise))
        passed = Passed(evaluate, "", metrics="noised")
        told = released({"rows": int(confusion.sum()), "confusion": confusion}, passed, policy,
                        Coins.derived(seed, "audit"))
        return told["confusion"].ravel().astype(np.float64), None


@dataclass(frozen=True)
class OfLeaves(ManyRuns):
    """The counts in the leaves of a tree that a party publishes, with a row or without. `noise` is 1 / epsilon."""

    def run(self, share: float, inside: bool, seed: int) -> tuple[Floats, Ledger | None]:
        """Those of a tree with one leaf."""
        rows = Dataset.of(Schema((Feature("x", ("a", "b")),), Target("classes", ("no", "yes"))), np.zeros((20, 1), int),
                          np.arange(20) % 2)
        tree = build("learner", "id3").fit(rows.take(np.arange(19 + inside)), np.random.default_rng(0))
        noised = with_noisy_counts(tree, 1 / (share * self.noise), Coins.derived(seed, "audit"))
        return noised.counts[0].astype(np.float64), None


class LabelsReply(TypedDict):
    """What a party takes its labels to be."""

    update: Named


@task("bench.labels", settings=NoSettings, reply=LabelsReply, reveals=Reveals.UPDATE)
def send_labels(party: Party, payload: dict[str, Any], settings: NoSettings) -> LabelsReply:
    """Send the labels that the party would train on."""
    return {"update": {"labels": party.data.train.target.astype(np.float64)}}


@dataclass(frozen=True)
class OfLabels(Audit):
    """One run whose every label is a canary: one of two, by a fair coin. `noise` is 1 / epsilon."""

    def claim(self) -> float:
        """Labels are told once."""
        return self._answers(1.0, 10, 0)[2].epsilon()

    def bound(self, share: float, runs: int, first: int = 0) -> float:
        """Each label is guessed to be what the party says."""
        labels, told, _ = self._answers(share, runs, first)
        return one_run_bound(runs, runs, int((labels == told).sum()))

    def _answers(self, share: float, count: int, seed: int) -> tuple[NDArray[Any], NDArray[Any], Ledger]:
        labels = np.random.default_rng(seed).integers(0, 2, count)
        rows = Dataset.of(Schema.of_numbers("x", Target("classes", ("no", "yes"))), np.zeros((count, 1)), labels)
        population = Population(rows, Partition.of([np.arange(count)]), Split(0.0, 0.0), seed)
        stage = build("stage", self.mechanism, {"epsilon": 1 / (share * self.noise)})
        with closing(InlineEngine()) as engine:
            engine.open(population)
            federation = Federation(population, engine, seed, round=1)
            algorithm, ledger = open_ledger(Canaries(stages=(stage,)), federation, Terms(delta=DELTA), 1)
            assert ledger is not None
            replies = federation.ask([0], send_labels, {}, settings=NoSettings(), stages=algorithm.components.stages)
        return labels, replies.payloads[0]["update"]["labels"], ledger


AUDITS: dict[str, Audit] = {
    "central": OfUpdates("central-dp", 1.0),
    "central-sampled": OfUpdates("central-dp", 2.0, is_gaussian=False, parties=4, rounds=4, fraction=0.5),
    "central-hidden": OfUpdates("central-dp", 1.0, after=("secure-sum",)),
    "ftrl": OfUpdates("dp-ftrl", 2.0, parties=4, rounds=8, turns=True),
    "matrix": OfUpdates("dp-mf", 2.0, parties=4, rounds=8, turns=True),
    "distributed": OfUpdates("distributed-dp", 2.2, is_gaussian=False, settings={"tolerated": 0.0},
                             after=("secure-sum",)),
    "local": OfUpdates("local-dp", 2.0, parties=1, turned=True),
    "local-laplace": OfUpdates("local-dp", 2.0, is_gaussian=False, parties=1, turned=True, entries=1,
                               settings={"shape": "laplace"}),
    "sgd": OfTraining("silent-training", 2.0, is_gaussian=False),
    "sums": OfSums("dp-sums", 1.0),
    "labels": OfLabels("randomised-response", 0.5),
    "counts": OfCounts("", 2.0, is_gaussian=False),
    "leaves": OfLeaves("", 1.0, is_gaussian=False),
}
"""By case of the table in docs/explanation/privacy.md; at least one of every mechanism in the registry."""


def found(audit: Audit, runs: int) -> dict[str, float]:
    """What an audit finds with the noise of the claim, and with a fifth of it."""
    return {"lower_right": round(audit.bound(1.0, runs), 3), "lower_fifth": round(audit.bound(FIFTH, runs), 3)}
