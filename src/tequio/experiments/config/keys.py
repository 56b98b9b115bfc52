"""The keys of a config as types, so that an editor completes them in `tequio.run(...)` and a type checker knows them.

They repeat `tables.py` in the types of Python; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Component = str | Mapping[str, Any]
"""The name of a component, or a table of `name` and its parameters."""


class SplitKeys(TypedDict, total=False):
    """Shares of each party's rows that it keeps apart."""

    validation: float
    test: float
    stratify: bool


class NoiseKeys(TypedDict, total=False):
    """Noise on the parties' features."""

    largest: float
    sign: Literal["signed", "absolute"]
    entries: Literal["all", "stored"]


class DataKeys(TypedDict, total=False):
    """What to learn from and how it is dealt; parameters of the dataset come beside these."""

    name: Any
    test: float
    validation: float
    one_class: Literal["error", "allow"]
    prepare: Sequence[Component] | None
    prepare_scope: Literal["federated", "local"]
    feature_noise: NoiseKeys
    partition: Component
    split: SplitKeys
    without: Sequence[str]
    without_rows: Mapping[str, Sequence[int | str]]


class EvaluationKeys(TypedDict, total=False):
    """How often the model is evaluated, where, and by how many parties."""

    every: int
    at: Sequence[Literal["coordinator", "parties"]]
    parties: int
    headline: str
    by_domain: bool


class StopKeys(TypedDict, total=False):
    """When to stop before the last round."""

    metric: str
    target: float | None
    patience: int
    tolerance: float
    seconds: float
    virtual_seconds: float


class AdoptionKeys(TypedDict, total=False):
    """What the parties do with the final model."""

    if_better: bool
    metric: str
    fine_tune_epochs: int


class PrivacyKeys(TypedDict, total=False):
    """The privacy budget of a run."""

    epsilon: float
    delta: float
    accountant: Literal["pld", "rdp"]
    when_void: Literal["refuse", "warn"]


class OutputKeys(TypedDict, total=False):
    """Where the run folder goes, and what is kept."""

    folder: str
    checkpoint_every: int
    models_every: int
    keep_every: int
    track: Sequence[Literal["mlflow", "tensorboard"]]


class OverrideKeys(TypedDict, total=False):
    """What one party does differently."""

    local: Mapping[str, Any]
    learner: str
    share_rows: bool


class Keys(TypedDict, total=False):
    """All keys of a config. `data` may also be a dataset, arrays or a data frame."""

    name: str
    seed: int
    rounds: int
    plugins: Sequence[str]
    baselines: Sequence[Literal["alone", "centralised"]]
    data: DataKeys | object
    learner: Component | object
    local: Component
    algorithm: Component
    selector: Component
    aggregator: Component
    topology: Component
    contribution: Component
    stages: Sequence[Component]
    attack: Component
    privacy: PrivacyKeys
    rules: Mapping[str, Any]
    evaluation: EvaluationKeys
    stop: StopKeys
    adoption: AdoptionKeys
    devices: Component
    availability: Component
    engine: Component
    output: OutputKeys
    overrides: Mapping[str, OverrideKeys]
    policy: str | dict[str, Any]
    sweep: Mapping[str, Any]
    search: Mapping[str, Any]


class RunKeys(Keys, total=False):
    """Those, and the keys of [data] for rows of your own, which need no `data` before them."""

    target: str | Sequence[str]
    target_kind: Literal["auto", "classes", "multilabel", "number", "none"]
    id: str
    group: str
    columns: Sequence[str] | Mapping[str, Any]
    ignore: Sequence[str]
    missing: Literal["error", "drop", "keep", "median", "category"]
    categorical: Sequence[str]
