"""A trained model: what rows it is for, how they are prepared, how it answers, and where it came from.

    model = tequio.load("last")
    model.predict("new.csv")            # classes, labels, numbers or clusters
    model.predict_proba(frame)
    model.score(frame)                  # the metrics of the run, on other rows
    model.of("hospital-3").predict(...) # a party's own model, where parties have one
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import ConfigError, DataError, nearest
from tequio.learners.answers import Answer, One
from tequio.learners.metrics import merge, summarise, tally
from tequio.models.rows import BATCH, Reading, asked, batch_rows, batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray
    from torch import nn

    from tequio.data.dataset import Array, Dataset, Target
    from tequio.data.inputs.shapes import Table
    from tequio.learners.learner import Tally
    from tequio.models.exporting import Format
    from tequio.models.rows import Asked, Unseen

COORDINATOR = "coordinator"
"""The name under which the model that parties share can be asked for, where they answer with their own."""

Speaks = Literal["common", "own", "joint", "together"]
"""Who answers where no party is named: the common model, nobody but the parties, all parties of which each knows some
labels, or all of which each holds a part of the model."""


@dataclass(frozen=True)
class Model:
    """What a run ends with.

    `common` is the model of the federation, `own` are those of parties, `scored` the parties whose models stand for the
    rest in the run's metrics. `facts` say where it came from.
    """

    reading: Reading
    common: Answer | None = None
    own: Mapping[str, Answer] = field(default_factory=dict)
    speaks: Speaks = "common"
    scored: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    party: str = ""

    def __repr__(self) -> str:
        facts = self.facts
        title = f"model of '{facts['run']}': {facts['algorithm']} on {facts['data']}, {facts['rounds']} rounds" \
            if {"run", "algorithm", "data", "rounds"} <= set(facts) else "model"
        names, kind = list(map(str, self.target.names)), self.target.kind
        steps = [step["name"] for step in self.reading.preparation.to_payload()["steps"]]
        said = {"predicts": "clusters" if self.clusters else self.target.name if kind == "number" else
                f"{'one' if kind == 'classes' else 'some'} of {len(names)}: {_few(names)}" if names else "nothing",
                "columns": f"{len(self.reading.schema.names)}: {_few(self.reading.schema.names)}",
                "prepared": ", ".join(steps), "party": self.party,
                "parties": f"{len(self.own)} with a part or a model of their own: {_few(self.parties)}"
                if self.own else "", "sha256": str(facts.get("sha256", ""))[:16]}
        return "\n".join([title, *(f"  {name:<10}{text}" for name, text in said.items() if text)])

    @property
    def target(self) -> Target:
        """What is predicted."""
        return self.reading.schema.target

    @property
    def classes(self) -> NDArray[Any]:
        """The classes or labels in the order of probabilities; numbers or truth values where all names are such."""
        return _plain_names(self.target.names)

    @property
    def parties(self) -> list[str]:
        """Parties with a model of their own."""
        return list(self.own)

    def of(self, party: str) -> Model:
        """The model that one party answers with."""
        if party == COORDINATOR:
            return replace(self, own={}, speaks="common", scored=(), party="")
        if party in self.reading.own and party not in self.own and self.common is not None:
            return replace(self, own={}, speaks="common", scored=(), party=party)
        if party not in self.own:
            raise ConfigError(f"there is no model of a party '{party}'" if self.own else
                              "all parties answer with the same model here",
                              remedy=nearest(party, self.own) if self.own else "leave the party out")
        return replace(self, common=self.own[party], own={}, speaks="common", scored=(), party=party)

    @property
    def answer(self) -> Answer:
        """What answers rows."""
        if self.speaks == "joint":
            return Joint(tuple(self.own.values()), self.target.size)
        if self.speaks == "own" or self.common is None:
            some = ", ".join(f"'{name}'" for name in self.parties[:3])
            raise ConfigError("every party answers with a model of its own here" if self.own else
                              f"a run of '{self.facts.get('algorithm', '?')}' makes no model that answers rows",
                              remedy=f"name a party ({some}, ...), or '{COORDINATOR}' for the model that they share: "
                              "--party NAME" if self.own else "choose a run of another algorithm")
        return self.common.among(self.own) if self.speaks == "together" else self.common

    def predict(self, rows: Table, *, unseen: Unseen = "error") -> NDArray[Any]:
        """The class, the number or the cluster of each row; of labels one column each, 0 or 1.

        `rows` are a data frame, a dict of columns, an array, or the path of a CSV or Parquet file. A row that `unseen`
        skips gets an empty answer: None, NaN, or -1 for a cluster.
        """
        return _joined([self.decided(part, scores) for part, scores in self.answered(rows, unseen=unseen)])

    def predict_proba(self, rows: Table, *, unseen: Unseen = "error") -> NDArray[np.float64]:
        """Probabilities of classes or labels, one column each in the order of `classes`."""
        if self.target.kind not in ("classes", "multilabel") or self.clusters:
            raise ConfigError("this model gives no probabilities", remedy="ask it to predict")
        return _joined([_spread(scores, part) for part, scores in self.answered(rows, unseen=unseen)])

    def score(self, rows: Table, target: Any = None, *, unseen: Unseen = "error") -> dict[str, float]:
        """The metrics of rows whose truth is known, by name, as the run itself reports them.

        `target` are the true values or the name of their column; without it, it is the column that the model was
        trained to predict. Where every party has a model of its own, the metrics are those of the scored parties'
        models together.
        """
        parts = self._asked(rows, target, unseen, with_target=not self.clusters, size=BATCH)
        tallies = [self.tally(part.rows) for part in parts if len(part.rows)]
        if not tallies:
            raise DataError("no row can be scored", remedy="correct the values that --unseen skip leaves out")
        return summarise(self.target, merge(tallies))

    def tally(self, rows: Dataset) -> Tally:
        """Additive counts of raw rows with a target."""
        if self.speaks == "own" and self.own:
            names = self.scored or tuple(self.own)
            return merge([self.own[name].tally(self.reading.prepared(rows, name)) for name in names])
        return self.answer.tally(self.reading.prepared(rows, self.party))

    def answered(self, rows: Table, *, unseen: Unseen = "error", id: str = "",
                 with_target: bool = False) -> Iterator[tuple[Asked, Array]]:
        """Rows and their scores, a batch at a time; with their true values, if wanted and there."""
        answer = self.answer
        nothing = np.empty((0, len(answer.labels(self.target.size))))
        for part in self._asked(rows, None, unseen, with_target=with_target, lenient=True, id=id):
            yield part, answer.scores(self.reading.prepared(part.rows, self.party)) if len(part.rows) else nothing

    def decided(self, part: Asked, scores: Array) -> NDArray[Any]:
        """What scores say: classes, labels, numbers or clusters, one a given row."""
        kind = self.target.kind
        if self.clusters:
            return _spread(scores, part, -1)
        if kind == "classes":
            chosen = self.classes[scores.argmax(axis=1)] if len(scores) else self.classes[:0]
            return chosen if len(chosen) == part.given else _spread(chosen.astype(object), part, None)
        if kind == "multilabel":
            return _spread((scores > 0.5).astype(np.int8), part, -1)
        return _spread(np.asarray(scores, dtype=np.float64).reshape(-1), part)

    @property
    def clusters(self) -> bool:
        """Whether rows are told their cluster."""
        return isinstance(self.common, One) and self.common.clusters

    def module(self) -> nn.Module:
        """A plain torch module with the trained weights; it takes prepared rows and gives outputs before softmax."""
        from tequio.models.modules import module_of

        return module_of(self)

    def export(self, to: Format, path: str | PathLike[str] | None = None) -> Any:
        """Write the model as onnx, rules (JSON), torch weights or safetensors, and give the path.

        With `sklearn`, and without a path, it is a fitted scikit-learn pipeline that takes raw rows.
        """
        from tequio.models.exporting import export

        return export(self, to, path)

    def _asked(self, rows: Table, target: Any, unseen: Unseen, *, with_target: bool, lenient: bool = False,
               id: str = "", size: int = 0) -> Iterator[Asked]:
        named, first = target is None or isinstance(target, str), 0
        needed, reading = None if self.common is None else self.common.needed, self.reading
        if needed is not None:
            reading = replace(reading, unused=frozenset(
                feature.column for feature in reading.schema.features if feature.name not in needed))
        truth = target if named else np.asarray(target)
        size = size or batch_rows(len(self.reading.schema.names))
        for part in batches(rows, size):
            mine = truth if named else truth[first:first + size]
            found = asked(reading, part, target=mine, unseen=unseen, id=id, with_target=with_target,
                          lenient=lenient, first=first)
            first += found.given
            yield found
        if not named and len(truth) != first:
            raise DataError(f"there are {first} rows, but {len(truth)} true values",
                            remedy="give one true value per row as target")


@dataclass(frozen=True)
class Joint(Answer):
    """All parties together: a label that several of them know gets the mean of their scores, others are not given."""

    kind = "joint"
    answers: Sequence[Answer]
    size: int

    def scores(self, rows: Dataset) -> Array:
        """The mean of the parties' scores, label by label."""
        sums, counts = np.zeros((len(rows), self.size)), np.zeros(self.size)
        for answer in self.answers:
            labels = answer.labels(self.size)
            sums[:, labels] += answer.scores(rows)
            counts[labels] += 1
        return sums / np.maximum(counts, 1)

    def tally(self, rows: Dataset) -> Tally:
        """Of all labels."""
        return tally(rows.schema.target, self.scores(rows), rows.target)

    def to_payload(self) -> dict[str, Any]:
        """Parties' answers are kept one by one, and not once more together."""
        raise NotImplementedError

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Any) -> Joint:
        """Parties' answers are kept one by one, and not once more together."""
        raise NotImplementedError


def _spread(values: Array, part: Asked, empty: Any = np.nan) -> NDArray[Any]:
    """Answers at the places of the given rows, empty ones for rows without."""
    if len(part.places) == part.given:
        return values
    whole = np.full((part.given, *values.shape[1:]), empty, dtype=values.dtype)
    whole[part.places] = values
    return whole


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _few(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _plain_names(names: Sequence[str]) -> NDArray[Any]:
    if names and all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
        return np.array([int(name) for name in names])
    if set(names) == {"False", "True"}:
        return np.array([name == "True" for name in names])
    return np.array(names, dtype=object)
