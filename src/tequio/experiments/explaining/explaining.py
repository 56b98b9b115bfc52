"""Why a run's model decides as it does: the local tree beside the global one, rules, importance, where trees part."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, DataError
from tequio.experiments.explaining.sources import explain_vertical, found_result, given_data, is_vertical, open_run
from tequio.experiments.running.scenario import make_scenario
from tequio.learners.trees.explain import Explanation, agreement, differences
from tequio.learners.trees.explain import explain as explain_row
from tequio.learners.trees.learner import rows_of
from tequio.learners.trees.rules import extract
from tequio.learners.trees.text import plain_rules
from tequio.learners.trees.tree import Tree
from tequio.learners.trees.votes import Votes, ensemble_importance, votes_on

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset, Schema
    from tequio.experiments.explaining.sources import Explainable, PartyTrees, Source
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain
    from tequio.learners.trees.explain import Difference
    from tequio.learners.trees.text import PlainRule


Decision = Explanation | Votes
"""How a tree decided, or an ensemble."""


@dataclass(frozen=True)
class ExplainedRow:
    """One row with its true class and what the local and the global model make of it, as far as there are such.

    `local_decisions` says how many parties' own models decide for which class.
    """

    row: int
    truth: str
    by_local: Decision | None
    by_global: Decision | None
    local_decisions: dict[str, int]

    @property
    def comparison(self) -> str:
        """In a sentence, how the global tree's conditions differ from the local tree's."""
        if isinstance(self.by_local, Explanation) and isinstance(self.by_global, Explanation):
            return compared(self.by_local, self.by_global)
        return ""

    def to_plain(self) -> Plain:
        """The row as JSON knows it."""
        return {"row": self.row, "truth": self.truth,
                "local": None if self.by_local is None else self.by_local.to_plain(),
                "global": None if self.by_global is None else self.by_global.to_plain(),
                "comparison": self.comparison, "local_decisions": self.local_decisions}


@dataclass(frozen=True, eq=False)
class Explained:
    """A run's model explained. Shows itself in a terminal and in a notebook.

    where:      whose rows are explained
    party:      whose model stands beside the global one; empty where no party's is known
    agreement:  share of these rows to which the local and the global model give the same class
    """

    run: str
    algorithm: str
    schema: Schema
    where: str
    party: str
    rows: tuple[ExplainedRow, ...]
    model: Explainable | None
    local: Explainable | None
    agreement: float | None

    @property
    def main(self) -> Explainable:
        """The global model, or the party's own where there is no other."""
        main = self.model if self.model is not None else self.local
        if main is None:
            raise DataError(f"party '{self.party}' keeps no model in this run", remedy="name another party")
        return main

    @cached_property
    def trees(self) -> dict[str, Tree]:
        """The single trees among the two models by the names that they are shown under."""
        both = {"global tree": self.model, f"local tree of party {self.party}": self.local}
        return {name: model for name, model in both.items() if isinstance(model, Tree)}

    @cached_property
    def rules(self) -> list[PlainRule]:
        """What the tree's leaves say, most rows first; nothing for an ensemble."""
        tree = self.main
        return plain_rules(extract(tree, len(self.schema.features)), self.schema) if isinstance(tree, Tree) else []

    @cached_property
    def importance(self) -> dict[str, float]:
        """Each column's share of what all splits earned, largest first."""
        earned = ensemble_importance(self.main, len(self.schema.features))
        return {self.schema.names[column]: float(earned[column]) for column in np.argsort(-earned, kind="stable")}

    @cached_property
    def differences(self) -> list[Difference]:
        """Where the local tree and the global tree part; nothing where they are not both single trees."""
        if not isinstance(self.model, Tree) or not isinstance(self.local, Tree):
            return []
        return differences(self.local, self.model, self.schema)

    def to_plain(self) -> Plain:
        """Everything as JSON knows it."""
        return {"run": self.run, "algorithm": self.algorithm, "where": self.where, "party": self.party,
                "rows": [row.to_plain() for row in self.rows], "rules": self.rules, "importance": self.importance,
                "agreement": self.agreement, "differences": [asdict(found) for found in self.differences]}

    def save_tree(self, path: str | Path) -> None:
        """Draw the trees: `.html` as a page to explore, `.svg` as a picture of the global one."""
        from tequio.experiments.showing.explanations import save_tree

        save_tree(self, path)

    def save_rules(self, path: str | Path) -> None:
        """Write all rules as `.txt`, `.json` or `.csv`."""
        from tequio.experiments.showing.explanations import save_rules

        save_rules(self, path)

    def __str__(self) -> str:
        from tequio.experiments.showing.explanations import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from tequio.experiments.showing.explanations import as_html

        return as_html(self)


def explain(run: Result | str | Path, row: int | Sequence[int] = (), *, party: str | int | None = None,
            data: object = None) -> Explained | PartyTrees:
    """Explain the tree, forest or boosted trees of a finished run, and its decisions on some test rows.

    `run` is a result, a run folder, a run's name, or 'last'. Rows are counted from 0 among the test rows that the
    coordinator holds out, or among those of a party, whose own model then stands beside the global one. `data` is
    needed only for a run whose dataset was handed over as an object. Of vertical trees a party sees its own splits.
    """
    result, name = found_result(run), None if party is None else str(party)
    if is_vertical(result):
        rows_asked = [int(number) for number in np.atleast_1d(np.asarray(row, dtype=np.int64))]
        return explain_vertical(result, make_scenario(result.config, given_data(result.config, data)), name, rows_asked)
    return _explained(open_run(result, data), row, name)


def _explained(source: Source, row: int | Sequence[int], name: str | None) -> Explained:
    beside, population, summary = source.party(name), source.scenario.population, source.result.summary
    own = None if beside is None else source.local.get(beside)
    test, whose = source.rows(name), "the coordinator" if name is None else f"party '{name}'"
    wanted = [int(number) for number in np.atleast_1d(np.asarray(row, dtype=np.int64))]
    if test is None and wanted:
        raise DataError(f"{whose} holds no test rows in this run", remedy="name a party that has some (--party)"
                        if name is None else "leave the party out to explain the coordinator's test rows")
    rows = tuple(_explained_row(source, own, test, number) for number in wanted) if test is not None else ()
    return Explained(summary["run"], summary["algorithm"], source.schema, f"test rows of {whose}",
                     "" if beside is None else population.name(beside), rows, source.model, own,
                     None if test is None else _agreement(source, own, test))


def compared(local: Explanation, other: Explanation) -> str:
    """How the global tree's conditions differ from the local tree's, in a sentence."""
    ours, theirs = [str(step) for step in local.conditions], [str(step) for step in other.conditions]
    shared = next((place for place, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
                  min(len(ours), len(theirs)))
    if len(ours) == len(theirs) == shared:
        return "Both trees ask the same" + ("." if local.prediction == other.prediction else
                                            ", but different rows stand behind their answers.")
    if shared == len(ours):
        return f"The global tree asks further: {', '.join(theirs[shared:])}."
    if shared == len(theirs):
        return f"The global tree does not ask: {', '.join(ours[shared:])}."
    after = f"After {shared} condition{'' if shared == 1 else 's'} in common" if shared else "From the start"
    return f"{after} the global tree asks {theirs[shared]} instead of {ours[shared]}."


def _explained_row(source: Source, own: Explainable | None, test: Dataset, number: int) -> ExplainedRow:
    if not 0 <= number < len(test):
        raise ConfigError(f"there is no test row {number}: they are numbered from 0 to {len(test) - 1}",
                          remedy="choose one of these")
    one, schema = test.take(np.array([number])), source.schema
    features, target = rows_of(one)[0], schema.target
    truth = target.names[int(one.target[0])] if target.kind == "classes" else f"{float(one.target[0]):.6g}"
    return ExplainedRow(number, truth, None if own is None else decide(own, features, schema),
                        None if source.model is None else decide(source.model, features, schema),
                        _decisions(source, features))


def decide(model: Explainable, row: NDArray[Any], schema: Schema) -> Decision:
    """How a model decides on a row."""
    return explain_row(model, row, schema) if isinstance(model, Tree) else votes_on(model, row, schema)


def _decisions(source: Source, row: NDArray[Any]) -> dict[str, int]:
    names = source.schema.target.names
    if not source.local or not names:
        return {}
    chosen = [int(model.predict(row[None, :])[0].argmax()) for model in source.local.values()]
    counts = np.bincount(chosen, minlength=len(names))
    return {names[place]: int(counts[place]) for place in np.argsort(-counts, kind="stable") if counts[place]}


def _agreement(source: Source, own: Explainable | None, test: Dataset) -> float | None:
    if own is None or source.model is None or source.schema.target.kind != "classes":
        return None
    return agreement(own, source.model, rows_of(test))
