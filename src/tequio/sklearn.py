"""Federated training as scikit-learn estimators, for pipelines, grid searches and cross-validation.

    model = FederatedClassifier("scaffold", "mlp", rounds=30).fit(X, y, groups=hospital)
    model.predict(X)

`groups` says whose each row is: every group is a party. Without it the rows are dealt to simulated parties. Any
algorithm and any learner will do, and what `tequio.run` refuses is refused here by the same error. A fit is a run in a
temporary folder, which is removed; the estimator keeps the trained model, the summary and the metrics of each round.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from tequio import registry
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.inputs import has_text, read
from tequio.data.inputs.column import columns_of
from tequio.errors import ConfigError
from tequio.experiments.api import run
from tequio.experiments.config.composition import parts_taken
from tequio.experiments.running.limits import is_about_privacy
from tequio.models.model import COORDINATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from numpy.typing import ArrayLike, NDArray
    from sklearn.utils import Tags

    from tequio.data.dataset import Array, Matrix
    from tequio.experiments.config.toml import Given
    from tequio.models.model import Model
    from tequio.models.rows import Unseen

    Component = str | Mapping[str, object] | None

_PARTIES = 10
_LOCAL = {"epochs": 5}
_MEMORY, _ROOM = Path("/dev/shm"), 2**30


class Federated(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share: their settings, the run, and who answers which row.

    After a fit there are `model_`, `summary_` (rounds, seconds, bytes, privacy), `history_` (one dict per round), and
    scikit-learn's `n_features_in_` and `feature_names_in_`.
    """

    model_: Model
    n_features_in_: int

    def __init__(self, algorithm: Component = "fedavg", learner: Component = None, *, rounds: int = 20,
                 local: Mapping[str, object] | None = None, parties: int | None = None, partition: Component = None,
                 prepare: str | Sequence[object] | None = "standardise", selector: Component = None,
                 aggregator: Component = None, stages: Sequence[object] | None = None,
                 privacy: Mapping[str, object] | None = None, config: Given | None = None, unseen: Unseen = "error",
                 random_state: int | np.random.RandomState | None = 0, n_jobs: int | None = None) -> None:
        """What `tequio.run` takes, under the same names.

        Parameters:
            algorithm: what happens in a round: a name (`tequio list algorithm`), or a dict with `name` and parameters
            learner: the model, likewise; logistic or linear regression when left out
            rounds: how many rounds are trained
            local: how a party trains, as in {"epochs": 2, "learning_rate": 0.01} (None: 5 epochs a round)
            parties: how many parties the rows are dealt to where no groups are given (None: 10, or one for each row
                where there are fewer)
            partition: how they are dealt: a name or a dict, as in {"name": "dirichlet", "alpha": 0.3} (None: at random)
            prepare: steps that the rows go through, fitted by all parties together; a name or a list (None: no step)
            selector: which parties take part in a round
            aggregator: how updates become one
            stages: what is done to updates on their way, as in [{"name": "secure-sum"}]
            privacy: the budget of a private run, as in {"epsilon": 3.0}
            config: whatever else `tequio.run` takes, as in {"stop": {"patience": 3}, "data": {"validation": 0.1}}; a
                run whose {"output": {"folder": ...}} is set stays in that folder
            unseen: categories that the training rows did not have are an error, or the column's usual value ('fill')
            random_state: an int is the seed of the run; None draws a new one for every fit
            n_jobs: worker processes (None: none but this one; -1: one per core)
        """
        self.algorithm = algorithm
        self.learner = learner
        self.rounds = rounds
        self.local = local
        self.parties = parties
        self.partition = partition
        self.prepare = prepare
        self.selector = selector
        self.aggregator = aggregator
        self.stages = stages
        self.privacy = privacy
        self.config = config
        self.unseen = unseen
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        return tags

    def _checked(self, X: Matrix, **how: object) -> Matrix:
        """Rows as scikit-learn wants them checked; data frames with text are read by tequio instead."""
        if has_text(X):
            checked = validate_data(self, X, skip_check_array=True, **how)
            if "y" in how:
                check_consistent_length(X, how["y"])
                return X, check_array(how["y"], accept_sparse="csr", ensure_2d=False, dtype=None, input_name="y")
            return checked
        return validate_data(self, X, accept_sparse="csr", allow_nd=True, **how)

    def _train(self, X: Matrix, target: Target, truth: Array, groups: ArrayLike | None) -> None:
        """Run the experiment on checked rows and keep what came of it."""
        given, data = self._experiment(X, groups)
        whose = None if groups is None else _party_names(groups, X.shape[0])
        if has_text(X):
            own = {key: data.pop(key) for key in ("missing", "categorical") if key in data}
            table = read(X, target_kind="none", **own)
            dataset = Dataset.of(replace(table.schema, target=target), table.source.features, truth, groups=whose,
                                 usual=table.source.usual)
        else:
            names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(np.prod(X.shape[1:]))])
            schema = Schema(tuple(Feature(str(name)) for name in names), target, tuple(X.shape[1:]))
            dataset = Dataset.of(schema, X if X.dtype.kind == "f" else X.astype(np.float64), truth, groups=whose)
        with _run_folder(given) as output:
            result = run({**given, "output": output}, data={**data, "name": dataset})
            model = result.trained
            if model.clusters or (model.common is None and not model.own):
                raise ConfigError(f"a run of '{result.summary['algorithm']}' makes no model that predicts a target",
                                  remedy="set algorithm='fedavg', or use tequio.run")
            self.model_ = replace(model, own=dict(model.own))
            self.summary_, self.history_ = result.summary, [dict(row) for row in result.metrics.rows]
        for message in filter(is_about_privacy, result.warnings):
            warnings.warn(message, stacklevel=3)

    def _experiment(self, X: Matrix, groups: ArrayLike | None) -> tuple[Given, Given]:
        """The config of the run without its rows, and the rest of its table [data]."""
        if not isinstance(self.config, Mapping | None):
            raise ConfigError("config is a dict here", remedy="read the file yourself, or give it to tequio.run")
        given = dict(self.config or {})
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        own = {"algorithm": self.algorithm, "learner": self.learner, "local": self.local, "rounds": self.rounds,
               "selector": self.selector, "aggregator": self.aggregator, "stages": self.stages,
               "privacy": self.privacy, "seed": int(seed)}
        data = dict(given.pop("data", {}))
        for key, table in [*((key, given) for key in own), ("partition", data), ("prepare", data)]:
            if key in table:
                raise ConfigError(f"'{key}' is a parameter of {type(self).__name__}, and config says it once more",
                                  remedy=f"leave it out of config: {type(self).__name__}"
                                  f"({'random_state' if key == 'seed' else key}=...)")
        if "name" in data:
            raise ConfigError("the rows are those that fit is given", remedy="leave data.name out of config")
        if "engine" in given and self.n_jobs is not None:
            raise ConfigError("the engine of config says how many workers there are", remedy="set n_jobs=None")
        given |= {key: value for key, value in own.items() if value is not None}
        registry.load_plugins(given.get("plugins", ()))
        algorithm = _table(self.algorithm)
        if self.local is None and _is_known("algorithm", algorithm) and "local" in parts_taken(algorithm):
            given["local"] = _LOCAL
        given.setdefault("engine", {"workers": effective_n_jobs(self.n_jobs)})
        # Nobody sees the rounds while they run, so the last one is evaluated only, unless a stop rule looks at them.
        given.setdefault("evaluation", {"every": 1 if "stop" in given else self.rounds})
        prepare = [self.prepare] if isinstance(self.prepare, str) else list(self.prepare or ())
        return given, {"test": 0.0, "one_class": "allow", **data, "prepare": prepare,
                       "split": {"validation": 0.0, "test": 0.0, **data.get("split", {})},
                       "partition": self._partition(X.shape[0], groups)}

    def _partition(self, rows: int, groups: ArrayLike | None) -> Given:
        table = _table(self.partition)
        if groups is not None:
            if self.parties is not None:
                raise ConfigError("the groups are the parties, so 'parties' would do nothing",
                                  remedy="set parties=None, or fit without groups")
            table = {"name": "natural", **table}
            if _is_known("partition", table) and "column" not in _parameters("partition", table["name"]):
                raise ConfigError(f"the partition '{table['name']}' does not look at groups",
                                  remedy="set partition=None or 'natural', or fit without groups")
            return table
        if not table:
            return {"name": "iid", "parties": min(_PARTIES, rows) if self.parties is None else self.parties}
        return table if self.parties is None else {**table, "parties": self.parties}

    def _asked(self, X: Matrix, groups: ArrayLike | None, ask: Callable[[Model, Matrix], Array]) -> Array:
        """What the model says of each row; where parties have models of their own, that of the row's party."""
        check_is_fitted(self)
        if self.unseen == "skip":
            raise ConfigError("every row has to have an answer here", remedy="set unseen='fill' or 'error'")
        rows = self._checked(X, reset=False)
        model, whose = self.model_, None if groups is None else _party_names(groups, rows.shape[0])
        own = model.own if model.speaks == "own" else model.reading.own
        if whose is None or not own:
            return ask(self._common(), rows)
        parts = [(np.flatnonzero(whose == name), model.of(name) if name in own else self._common(name))
                 for name in np.unique(whose)]
        answers = np.concatenate([ask(mine, _safe_indexing(rows, places)) for places, mine in parts])
        return np.asarray(answers[np.argsort(np.concatenate([places for places, _ in parts]))])

    def _common(self, party: str = "") -> Model:
        """The model for rows of no party that trained, if the parties share one."""
        model = self.model_
        if model.speaks != "own" and not model.reading.own:
            return model
        if model.common is None or model.reading.own:
            why = "prepare rows each in its own way" if model.reading.own else "answer with models of their own only"
            whose = f"'{party}' is none of them" if party else "nobody said whose these rows are"
            some = ", ".join(f"'{name}'" for name in [*(model.parties or model.reading.own)][:3])
            raise ConfigError(f"the parties of '{self.summary_['algorithm']}' {why}, and {whose}",
                              remedy=f"name a party that trained for each row, as in groups=[{some}, ...]")
        return model.of(COORDINATOR)


class FederatedClassifier(ClassifierMixin, Federated):  # type: ignore[misc]
    """Classes, or several labels per row, learnt by many parties of which each keeps its rows."""

    classes_: Array

    def fit(self, X: Matrix, y: Matrix, groups: ArrayLike | None = None) -> Self:
        """Train on rows whose classes are known; a matrix of 0 and 1 has one column per label.

        `groups` names the party of each row. Parties may hold rows of one class only.
        """
        X, y = self._checked(X, y=y, multi_output=True)
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            truth = (y.toarray() if sparse.issparse(y) else np.asarray(y)).astype(np.int64)
            self.classes_ = np.arange(truth.shape[1])
            target = Target("multilabel", tuple(f"label{label}" for label in self.classes_))
        else:
            y = column_or_1d(y, warn=True)
            check_classification_targets(y)
            self.classes_, truth = np.unique(y, return_inverse=True)
            target = Target("classes", tuple(str(name) for name in self.classes_))
            if len(self.classes_) < 2:
                raise ValueError(f"all rows are of one class ({self.classes_[0]!r}): there is nothing to learn")
        self._train(X, target, truth, groups)
        return self

    def predict(self, X: Matrix, groups: ArrayLike | None = None) -> Array:
        """The class of each row, or 0 or 1 for each label."""
        scores = self.predict_proba(X, groups)
        if self.model_.target.kind == "multilabel":
            return (scores > 0.5).astype(np.int64)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, X: Matrix, groups: ArrayLike | None = None) -> NDArray[np.float64]:
        """Probabilities in the order of `classes_`.

        Where parties have models of their own, `groups` says whose model answers a row. Rows of no party that trained,
        and all rows where no groups are given, are answered by the model that the parties share; where they share
        none, that is an error.
        """
        return self._asked(X, groups, lambda model, rows:
                           model.predict_proba(rows, unseen=self.unseen).astype(np.float64))

    def score(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None,
              groups: ArrayLike | None = None) -> float:
        """The share of rows (with several labels: of rows that are right in all of them) that are predicted right."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class FederatedRegressor(RegressorMixin, Federated):  # type: ignore[misc]
    """A number learnt by many parties of which each keeps its rows."""

    def fit(self, X: Matrix, y: Matrix, groups: ArrayLike | None = None) -> Self:
        """Train on rows whose numbers are known; `groups` names the party of each row."""
        X, y = self._checked(X, y=y, y_numeric=True)
        self._train(X, Target("number"), np.asarray(column_or_1d(y, dtype=np.float64)), groups)
        return self

    def predict(self, X: Matrix, groups: ArrayLike | None = None) -> NDArray[np.float64]:
        """The number of each row; `groups` says whose model answers it, where parties have models of their own.

        Rows of no party that trained, and all rows where no groups are given, are answered by the model that the
        parties share; where they share none, that is an error.
        """
        return self._asked(X, groups, lambda model, rows: model.predict(rows, unseen=self.unseen))

    def score(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None,
              groups: ArrayLike | None = None) -> float:
        """The coefficient of determination R²."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))


def _party_names(groups: ArrayLike, rows: int) -> NDArray[np.str_]:
    """The party of each row, by name; a number names the same party whether it is whole by type or by value."""
    column = columns_of({"groups": np.asarray(groups)})["groups"]
    check_consistent_length(column.values, np.empty(rows))
    if column.missing.any():
        raise ValueError(f"groups has no value for row {int(np.flatnonzero(column.missing)[0])}")
    names = column.texts().astype(str)
    if COORDINATOR in names:
        raise ValueError(f"a group cannot be called '{COORDINATOR}', which is no party; call it something else")
    return names


def _table(component: Component) -> Given:
    return {"name": component} if isinstance(component, str) else dict(component or {})


def _is_known(kind: str, table: Given) -> bool:
    """Whether there is such a component; what there is not, the config refuses by its own error."""
    return table.get("name") in registry.names(kind)


def _parameters(kind: str, name: str) -> list[str]:
    return [field.name for field in registry.parameters_of(registry.find(kind, name).component)]


@contextmanager
def _run_folder(given: Given) -> Iterator[Given]:
    """Where the run goes: where the config says, or to a temporary folder, in memory where there is room."""
    output = dict(given.pop("output", {}))
    if "folder" in output:
        yield output
        return
    if given.get("baselines"):
        raise ConfigError("baselines are kept in the run folder, and a fit keeps none",
                          remedy="leave them out, or name a folder: config={'output': {'folder': 'runs'}, ...}")
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    with tempfile.TemporaryDirectory(prefix="tequio-", dir=_MEMORY if roomy else None) as folder:
        yield {"checkpoint_every": 10**9, **output, "folder": folder}
