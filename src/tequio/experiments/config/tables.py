"""The tables of a config: their keys, types, bounds and defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Interval
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tequio.experiments.config.toml import Given

Share = Annotated[float, Interval(ge=0, lt=1)]
Place = Literal["coordinator", "parties"]
Count = Annotated[int, Ge(0)]


def _as_table(value: object) -> object:
    """`learner = "mlp"` is short for `learner = {name = "mlp"}`."""
    return {"name": value} if isinstance(value, str) else value


Component = Annotated[Given, BeforeValidator(_as_table)]
"""`name` and the component's own parameters."""


class Table(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Split(Table):
    """Shares of each party's rows that it keeps to choose models by and to report on.

    Parameters:
        validation: share that stop rules and the choice of a model look at
        test: share that is only reported on
        stratify: keep the mix of labels in all parts
    """

    validation: Share = 0.1
    test: Share = 0.1
    stratify: bool = True


class Noise(Table):
    """Gaussian noise on the parties' features: a simulation of unlike instruments, not a protection.

    Parameters:
        largest: each party draws its standard deviation between 0 and this (0: no noise)
        sign: signed noise, or its absolute value, which shifts the features too
        entries: noise on all entries, which makes sparse data dense, or on stored entries only
    """

    largest: Annotated[float, Ge(0)] = 0.0
    sign: Literal["signed", "absolute"] = "signed"
    entries: Literal["all", "stored"] = "all"


class Data(BaseModel):
    """What to learn from and how it is dealt. Further keys are parameters of the dataset.

    Parameters:
        name: a dataset of the catalogue, or `csv` or `parquet` for a file of your own
        test: share of the rows that the coordinator holds out to report on; sets with a test part of their own keep it
        validation: share of the remaining rows that the coordinator keeps to judge models by; no party gets them
        one_class: whether a party that holds rows of one class only is an error or allowed
        prepare: steps that the rows go through, by name or as tables with a name and parameters; left out, tables of
            your own get what the learner needs (auto), and other datasets stay as they are
        prepare_scope: parties share the statistics that the steps need (federated), or each uses its own (local)
        feature_noise: noise that each party's features carry; the coordinator's test rows stay clean
        partition: how the rows are dealt to parties
        without: parties that the run never has: rows are dealt to all, and theirs are then taken out, so that all
            others keep their rows, splits, names and random streams
        without_rows: by a party's name, ids of rows that it never has
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "digits"
    test: Share = 0.2
    validation: Share = 0.0
    one_class: Literal["error", "allow"] = "error"
    prepare: list[Any] | None = None
    prepare_scope: Literal["federated", "local"] = "federated"
    feature_noise: Noise = Field(default_factory=Noise)
    partition: Component = Field(default_factory=dict)
    split: Split = Field(default_factory=Split)
    without: list[str] = Field(default_factory=list)
    without_rows: dict[str, list[int | str]] = Field(default_factory=dict)

    @property
    def steps(self) -> list[Any]:
        """The steps of the preparation."""
        return self.prepare or []

    @property
    def parameters(self) -> Given:
        """The dataset's own parameters."""
        return dict(self.model_extra or {})


class Evaluation(Table):
    """How often the model is evaluated, where, and by how many parties.

    Parameters:
        every: rounds from one evaluation to the next; the last round is always evaluated
        at: on the coordinator's test rows, on the parties' own rows, or on both
        parties: how many parties evaluate, the same ones in every round (0: all)
        headline: the metric that stands for the run in tables, curves, searches and stop rules (empty: accuracy, or
            balanced accuracy where one class has more than 80 % of the rows; rmse for numbers, f1_macro for labels)
        by_domain: also report on the coordinator's rows domain by domain, for the parties of each domain: `local.*` on
            rows of their own domain, `global.*` on all rows, and where their routers send rows; for parties with two
            models also the same with either alone (`own.*`, `common.*`)
    """

    every: Annotated[int, Ge(1)] = 1
    at: list[Place] = Field(default_factory=lambda: list[Place](get_args(Place)))
    parties: Count = 100
    headline: str = ""
    by_domain: bool = False


class Stop(Table):
    """When to stop before the last round. Rules look at validation rows only; 0 (or no target) turns a rule off.

    Parameters:
        metric: what target and patience look at (empty: the main metric of the data, such as accuracy)
        target: stop as soon as the metric is this good
        patience: stop after so many rounds without a better value
        tolerance: stop when the model moves less than this in a round
        seconds: stop after so much time
        virtual_seconds: stop after the round in which the virtual clock passes this; needs [devices]
    """

    metric: str = ""
    target: float | None = None
    patience: Count = 0
    tolerance: Annotated[float, Ge(0)] = 0.0
    seconds: Annotated[float, Ge(0)] = 0.0
    virtual_seconds: Annotated[float, Ge(0)] = 0.0


class Adoption(Table):
    """What the parties do with the final model; reported beside the evaluation of the model itself.

    Parameters:
        if_better: each party keeps a model of its own unless the global one beats it on the party's validation rows
        metric: what the two are compared by
        fine_tune_epochs: also report the global model after so many epochs on each party's own rows (0: no)
    """

    if_better: bool = False
    metric: str = "loss"
    fine_tune_epochs: Count = 0


class Privacy(Table):
    """The budget of a run whose stages (or local training) add noise for privacy, and who counts what was spent.

    Parameters:
        epsilon: stop before more than this is spent, and calibrate noise that was left out (0: no budget)
        delta: the chance that epsilon says nothing; well below one in the number of parties
        accountant: privacy loss distributions (pld: tight), or Renyi divergences (rdp: quick)
        when_void: refuse a run in which another component voids the guarantee, or run it, warned, without any
    """

    epsilon: Annotated[float, Ge(0)] = 0.0
    delta: Annotated[float, Interval(gt=0, lt=1)] = 1e-5
    accountant: Literal["pld", "rdp"] = "pld"
    when_void: Literal["refuse", "warn"] = "refuse"


class Output(Table):
    """Where the run folder goes, how often a checkpoint is written, and who else listens.

    Parameters:
        folder: where run folders are made
        checkpoint_every: rounds from one checkpoint to the next (0: as often as is cheap)
        models_every: rounds from one kept model to the next, to see later how it came about (0: the last one only)
        keep_every: rounds from one kept checkpoint to the next, to start again from it without a party that joined
            later (0: the last one only)
        track: also write metrics to these trackers
    """

    folder: str = "runs"
    checkpoint_every: Count = 0
    models_every: Count = 0
    keep_every: Count = 0
    track: list[Literal["mlflow", "tensorboard"]] = Field(default_factory=list)


class Override(Table):
    """What one party does differently.

    Parameters:
        local: its own values of the keys of `local`
        learner: name of its own learner, for algorithms that offer several (empty: no choice of its own)
        share_rows: whether it lets methods whose idea it is take rows away
    """

    local: Given = Field(default_factory=dict)
    learner: str = ""
    share_rows: bool = False


class Config(Table):
    """One experiment, complete. Tables of components hold `name` and every parameter.

    Parameters:
        name: what the run is called; the run folder's name starts with it
        seed: all randomness follows from it
        rounds: the run ends after so many, if no stop rule ends it before
        plugins: modules, or .py files beside the config, that register components
        baselines: what to run beside it, to compare: every party alone, and all rows in one place
        learner: the model
        local: how a party trains
        algorithm: what happens in a round
        selector: which parties take part in a round
        aggregator: how updates become one
        topology: who talks to whom
        contribution: how what a round gained is divided among its parties (none: it is not)
        stages: what is done to updates on their way, in this order
        devices: how fast parties compute and send, which starts a virtual clock
        availability: when parties can be reached on the virtual clock
        privacy: how much may be told about any one party or row, where stages add noise for that
        attack: what hostile parties do, which parties these are, and in which rounds
        engine: what carries the tasks
        overrides: by a party's name, what it does differently
        policy: what every simulated party allows: a policy that comes with tequio (open, hospital, strict), a file, or
            a table; real parties have policies of their own
        sweep: dotted keys with lists of values, and `seeds`; every combination is a run
        search: what `tequio search` looks for the best values of, and by which validation metric
    """

    name: str = "run"
    seed: Count = 0
    rounds: Annotated[int, Ge(1)] = 10
    plugins: list[str] = Field(default_factory=list)
    baselines: list[Literal["alone", "centralised"]] = Field(default_factory=list)
    data: Data = Field(default_factory=Data)
    learner: Component = Field(default_factory=dict)
    local: Component = Field(default_factory=dict)
    algorithm: Component = Field(default_factory=dict)
    selector: Component = Field(default_factory=dict)
    aggregator: Component = Field(default_factory=dict)
    topology: Component = Field(default_factory=dict)
    contribution: Component = Field(default_factory=dict)
    stages: list[Component] = Field(default_factory=list)
    attack: Component = Field(default_factory=dict)
    privacy: Privacy = Field(default_factory=Privacy)
    rules: Given = Field(default_factory=dict)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    stop: Stop = Field(default_factory=Stop)
    adoption: Adoption = Field(default_factory=Adoption)
    devices: Component = Field(default_factory=dict)
    availability: Component = Field(default_factory=dict)
    engine: Component = Field(default_factory=dict)
    output: Output = Field(default_factory=Output)
    overrides: dict[str, Override] = Field(default_factory=dict)
    policy: str | Given = Field(default_factory=dict)
    sweep: Given = Field(default_factory=dict)
    search: Given = Field(default_factory=dict)
