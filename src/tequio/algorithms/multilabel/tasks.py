"""What parties do: train core and head together, or a network of their own, and score rows with it.

Heads stay at the party, in `OwnNetworks`. No reply ever holds one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tequio.algorithms.multilabel.heads import (
    OwnNetworks,
    around_half,
    balanced_weights,
    best_borders,
    core_of,
    head_of,
    label_weights,
    narrowed,
    own_head,
    scores_of,
    widened,
    widened_data,
)
from tequio.algorithms.training import Phase, UpdateReply, job_from, training_task, update_of
from tequio.data.dataset import Dataset
from tequio.federation.aggregation import sha256_of
from tequio.federation.evaluation import EvaluateSettings, Fingerprint, check_own_tally, keep_answer
from tequio.federation.task import Count, Done, NoSettings, Reveals, Rows, Share, TrainSettings, record, task
from tequio.learners.answers import Answer, learner_of
from tequio.learners.label_metrics import macro, tally_labels
from tequio.learners.learner import Arrays, Correction, Job, Learner, Tally
from tequio.learners.metrics import tally
from tequio.registry import to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.algorithms.training import ModelPayload
    from tequio.data.dataset import Schema
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import Trained

Accuracy = Literal["subset_accuracy", "argmax_agreement"]
ChosenBy = Literal["loss", "f1"]
Evaluated = Literal["aggregated", "local", "best"]
"""Which network of a party is judged: the common core with its head, the last that it trained, or its best."""


@record
class HeadSettings(TrainSettings):
    """Labels of the widest head, and how strongly rare labels are weighed."""

    width: int
    balance: float


@record
class SharedSettings(HeadSettings):
    """What counts as accuracy on validation rows, and whether the party keeps the core that it trained."""

    accuracy: Accuracy
    keep_core: bool


class Validated(TypedDict, total=False):
    """How a party's validation rows fare; nothing where it has none."""

    validation_loss: float
    validation_accuracy: float


class SharedReply(UpdateReply):
    """How the core changed, how many labels the party knows, and how its validation rows fare."""

    labels: Count
    validation_loss: NotRequired[float]
    validation_accuracy: NotRequired[Share]


def _job(party: Party, payload: ModelPayload, settings: SharedSettings) -> Job:
    return _widened_job(party, payload["model"], settings)


def _widened_job(party: Party, core: Arrays, settings: HeadSettings) -> Job:
    rows = party.data.train
    weights = label_weights(balanced_weights(rows.target, settings.balance), rows.schema.target.size, settings.width)
    model = {**core, **widened(own_head(party, settings.learner), settings.width)}
    job = job_from(party, model, None if weights is None else Correction(label_weights=weights))
    return Job(job.model, widened_data(job.data, settings.width), job.rng, job.correction)


def _reply(party: Party, payload: ModelPayload, result: Trained, settings: SharedSettings) -> SharedReply:
    core, head = _keep_head(party, result)
    if settings.keep_core:
        party.keep(OwnNetworks, {"core": core})
    rows, found = party.data.validation, Validated()
    if len(rows):
        found = validated(scores_of(settings.learner, core, head, rows, settings.width), rows.target, settings.accuracy)
    return {**update_of(party, payload["model"], result, settings.learner),
            "labels": party.data.train.schema.target.size, **found}


train_shared = training_task("multilabel.train", SharedSettings, SharedReply, Phase(_job, _reply))
"""Train the received core with the party's own head; reply with the core's change and how validation rows fare."""


def _keep_head(party: Party, result: Trained) -> tuple[Arrays, Arrays]:
    core, head = core_of(result.model), narrowed(head_of(result.model), party.data.train.schema.target.size)
    party.keep(OwnNetworks, {"head": head})
    return core, head


def validated(scores: NDArray[Any], truth: NDArray[Any], accuracy: Accuracy) -> Validated:
    """Mean binary cross-entropy and accuracy of some rows; nothing where there are none."""
    if not len(truth):
        return {}
    actual = truth.astype(bool)
    likely = np.clip(np.where(actual, scores, 1.0 - scores).astype(np.float64), 1e-7, 1.0)
    if accuracy == "subset_accuracy" or actual.shape[1] == 1:
        right = ((scores > 0.5) == actual).all(axis=1)
    else:
        right = scores.argmax(axis=1) == actual.argmax(axis=1)
    return {"validation_loss": float(-np.log(likely).mean()), "validation_accuracy": float(right.mean())}


@record
class ChoosingSettings:
    """How a party chooses its best network on validation rows."""

    learner: Learner
    width: int
    chosen_by: ChosenBy
    calibrate: bool


@record
class OwnSettings(ChoosingSettings, HeadSettings):
    """How long a party goes on without a better network (0: for ever)."""

    patience: int


class OwnPayload(TypedDict, total=False):
    """A core to begin with."""

    model: Arrays


class OwnReply(TypedDict):
    """That the party trained, and whether it has finished."""

    rows: Rows
    steps: Count
    loss: float
    finished: bool


def _own_job(party: Party, payload: OwnPayload, settings: OwnSettings) -> Job:
    core = party.recall(OwnNetworks).get("core") or payload.get("model")
    if core is None:
        core = core_of(settings.learner.initial(party.data.train.schema, party.rng("initial model")))
    return _widened_job(party, core, settings)


def _own_reply(party: Party, payload: OwnPayload, result: Trained, settings: OwnSettings) -> OwnReply:
    waited = _keep_best(party, *_keep_head(party, result), settings)
    return {"rows": result.rows, "steps": result.steps, "loss": result.loss,
            "finished": bool(settings.patience and waited >= settings.patience)}


train_own_network = training_task("multilabel.train own network", OwnSettings, OwnReply, Phase(_own_job, _own_reply),
                                  reveals=Reveals.METRICS)
"""Train a network of the party's own on. It has finished when validation rows did not get better for a while."""


def _keep_best(party: Party, core: Arrays, head: Arrays, settings: ChoosingSettings) -> int:
    """Keep the network, and remember it if none was better on validation rows; without such rows the last is best.

    Gives for how many rounds none was better.
    """
    kept, judged = party.recall(OwnNetworks), len(party.data.validation) > 0
    score = _choice(party, core, head, settings) if judged else 0.0
    party.keep(OwnNetworks, {"core": core})
    if "best" not in kept or score < kept["best"]["score"] or not judged:
        party.keep(OwnNetworks, {"best": {"core": core, "head": head, "score": score}, "waited": 0})
        return 0
    party.keep(OwnNetworks, {"waited": kept["waited"] + 1})
    return kept["waited"] + 1


def _choice(party: Party, core: Arrays, head: Arrays, settings: ChoosingSettings) -> float:
    """What the best network of a party is chosen by, on its validation rows; less is better."""
    rows = party.data.validation
    scores = scores_of(settings.learner, core, head, rows, settings.width)
    loss = validated(scores, rows.target, "subset_accuracy")["validation_loss"]
    if settings.chosen_by == "loss":
        return loss
    centred = around_half(scores, best_borders(scores, rows.target)) if settings.calibrate else scores
    counts = tally_labels(centred, rows.target, 0.0)
    f1 = macro(*(counts[name] for name in ("true_positives", "false_positives", "false_negatives")))["f1_macro"]
    # The loss decides between networks of equal F1, of which there are many on few rows.
    return float(-f1) + 1e-3 * loss


@task("multilabel.adopt core", settings=ChoosingSettings, reply=Done, reveals=Reveals.NOTHING)
def adopt_core(party: Party, payload: ModelPayload, settings: ChoosingSettings) -> Done:
    """Begin a personal phase: the received core and the party's head are its first and so far best network."""
    head = own_head(party, settings.learner)
    party.keep(OwnNetworks, {"head": head})
    _keep_best(party, payload["model"], head, settings)
    return {}


@task("multilabel.set network aside", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def set_network_aside(party: Party, payload: Payload, settings: NoSettings) -> Done:
    """Put the best network so far aside: the party begins a second one, from nothing."""
    kept = party.recall(OwnNetworks)
    party.forget(OwnNetworks)
    aside = kept.get("best") or kept.get("aside")
    if aside is not None:
        party.keep(OwnNetworks, {"aside": aside})
    return {}


@record
class JudgeSettings(EvaluateSettings):
    """Which network of a party is judged, and whether each label has a border of its own."""

    learner: Learner
    width: int
    evaluated: Evaluated
    calibrate: bool


class PackedRows(TypedDict, total=False):
    """Features of rows: a dense array, or the three arrays of a sparse one with its shape."""

    dense: NDArray[Any]
    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    shape: list[int]


class CoreAndRows(TypedDict):
    """The common core, and rows of the coordinator's."""

    model: Arrays
    rows: PackedRows


class ScoresReply(TypedDict):
    """Probabilities of the party's labels, (rows, labels); nothing where it has no head yet."""

    scores: NotRequired[NDArray[np.float32]]


@task("multilabel.evaluate", settings=JudgeSettings, reply=Tally, reveals=Reveals.METRICS, check=check_own_tally)
def evaluate_own_rows(party: Party, payload: ModelPayload, settings: JudgeSettings) -> Tally:
    """The tally of the party's network on one part of its own rows; empty where it has no rows or no head yet."""
    rows = party.data.part(settings.part)
    if not len(rows) or "head" not in party.recall(OwnNetworks):
        return {}
    heads = heads_here(party, payload["model"], settings)
    assert heads is not None
    return tally(rows.schema.target, heads.own_scores(rows), rows.target)


@task("multilabel.score", settings=JudgeSettings, reply=ScoresReply, reveals=Reveals.STRUCTURE)
def score_received_rows(party: Party, payload: CoreAndRows, settings: JudgeSettings) -> ScoresReply:
    """Scores of the coordinator's own rows for the party's labels; empty where it has no head yet."""
    heads, mine = heads_here(party, payload["model"], settings), party.data.train
    if heads is None:
        return {}
    rows = Dataset(mine.schema, type(mine.source)(_unpacked(payload["rows"])))
    return {"scores": np.asarray(heads.own_scores(rows), dtype=np.float32)}


@task("multilabel.keep own model to answer with", settings=JudgeSettings, reply=Done, reveals=Reveals.NOTHING)
def keep_heads(party: Party, payload: ModelPayload, settings: JudgeSettings) -> Done:
    """Keep how the party's networks answer."""
    return keep_answer(party, heads_here(party, payload["model"], settings))


@task("multilabel.fingerprint own model", settings=JudgeSettings, reply=Fingerprint, reveals=Reveals.NOTHING)
def fingerprint_own(party: Party, payload: ModelPayload, settings: JudgeSettings) -> Fingerprint:
    """A hash of the networks that the party predicts with."""
    return {"sha256": sha256_of({"networks": [{**core, **head} for core, head
                                              in _networks(party, payload["model"], settings)]})}


def packed(rows: Dataset) -> PackedRows:
    """Features as a payload; sparse ones stay sparse."""
    features = rows.features
    if not sparse.issparse(features):
        return {"dense": np.asarray(features, dtype=np.float32)}
    return {"data": features.data, "indices": features.indices, "indptr": features.indptr,
            "shape": [int(size) for size in features.shape]}


def _unpacked(rows: PackedRows) -> Any:
    if "dense" in rows:
        return rows["dense"]
    return sparse.csr_matrix((rows["data"], rows["indices"], rows["indptr"]), shape=tuple(rows["shape"]))


@dataclass(frozen=True)
class Heads(Answer):
    """A party's networks for the labels that it knows, each a core with a head; `borders` are where a label's decision
    lies, if not at one half."""

    kind: ClassVar[str] = "heads"
    learner: Learner
    networks: Sequence[tuple[Arrays, Arrays]]
    known: NDArray[np.int64]
    width: int
    borders: NDArray[np.float64] | None = None

    def own_scores(self, rows: Dataset) -> NDArray[Any]:
        """Probabilities of the party's labels, of rows that are seen through its schema; borders at one half."""
        scores = self._mean(rows)
        return scores if self.borders is None else around_half(scores, self.borders)

    def _mean(self, rows: Dataset) -> NDArray[Any]:
        scores = [scores_of(self.learner, core, head, rows, self.width) for core, head in self.networks]
        return scores[0] if len(scores) == 1 else np.mean(scores, axis=0)

    def scores(self, rows: Dataset) -> NDArray[Any]:
        """The same of rows with all labels, as the party scores rows that it is sent."""
        mine = rows.select_labels([int(label) for label in self.known])
        sent = Dataset(mine.schema, type(mine.source)(_unpacked(packed(rows))))
        return np.asarray(self.own_scores(sent), dtype=np.float32)

    def tally(self, rows: Dataset) -> Tally:
        """Over the labels that the party knows."""
        mine = rows.select_labels([int(label) for label in self.known])
        return tally(mine.schema.target, self.scores(rows), mine.target)

    def labels(self, size: int) -> NDArray[np.int64]:
        """Those that the party knows."""
        return self.known

    def to_payload(self) -> Payload:
        """The learner by name, the networks, and the labels."""
        return {"learner": to_plain(self.learner), "networks": [{"core": core, "head": head} for core, head
                in self.networks], "known": self.known, "width": self.width, "borders": self.borders}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Schema) -> Heads:
        """The learner is built again by name."""
        return cls(learner_of(payload["learner"]), [(network["core"], network["head"]) for network
                   in payload["networks"]], payload["known"], payload["width"], payload["borders"])


def heads_here(party: Party, core: Arrays, settings: JudgeSettings) -> Heads | None:
    """How this party answers; nothing while it has no head yet."""
    if "head" not in party.recall(OwnNetworks):
        return None
    mine, chosen_on = party.data.train, party.data.validation
    known = np.asarray(np.arange(mine.schema.target.size) if mine.labels is None else mine.labels, dtype=np.int64)
    heads = Heads(settings.learner, _networks(party, core, settings), known, settings.width)
    if not settings.calibrate:
        return heads
    borders = best_borders(heads.own_scores(chosen_on), chosen_on.target) if len(chosen_on) else \
        np.full(len(known), 0.5)
    return replace(heads, borders=borders)


def _networks(party: Party, core: Arrays, settings: JudgeSettings) -> list[tuple[Arrays, Arrays]]:
    """The networks to judge: the shared core or the party's own with its head, or the best on validation rows."""
    kept = party.recall(OwnNetworks)
    if settings.evaluated == "best" and "best" in kept:
        best = [kept["best"], *([kept["aside"]] if "aside" in kept else [])]
        return [(network["core"], network["head"]) for network in best]
    if settings.evaluated == "aggregated" or "core" not in kept:
        return [(core, kept["head"])]
    return [(kept["core"], kept["head"])]
