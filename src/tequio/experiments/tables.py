"""The tables of a config: their keys, types, bounds and defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Interval
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Share = Annotated[float, Interval(ge=0, lt=1)]
Place = Literal["coordinator", "parties"]
Count = Annotated[int, Ge(0)]


def _as_table(value: Any) -> Any:
    """`learner = "mlp"` is short for `learner = {name = "mlp"}`."""
    return {"name": value} if isinstance(value, str) else value


Component = Annotated[dict[str, Any], BeforeValidator(_as_table)]
"""`name` and the component's own parameters."""


class Table(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Split(Table):
    """Shares of each party's rows that it keeps to choose models by and to report on."""

    validation: Share = 0.1
    test: Share = 0.1
    stratify: bool = True


class Data(BaseModel):
    """What to learn from and how it is dealt. Further keys are parameters of the dataset."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "digits"
    test: Share = 0.2
    one_class: Literal["error", "allow"] = "error"
    prepare: list[Any] = Field(default_factory=list)
    prepare_scope: Literal["federated", "local"] = "federated"
    partition: Component = Field(default_factory=dict)
    split: Split = Field(default_factory=Split)

    @property
    def parameters(self) -> dict[str, Any]:
        """The dataset's own parameters."""
        return dict(self.model_extra or {})


class Evaluation(Table):
    """How often the model is evaluated, where, and by how many parties (0: all)."""

    every: Annotated[int, Ge(1)] = 1
    at: list[Place] = Field(default_factory=lambda: list[Place](get_args(Place)))
    parties: Count = 100


class Stop(Table):
    """When to stop before the last round. Rules look at validation rows only; 0 (or no target) turns a rule off."""

    metric: str = ""
    target: float | None = None
    patience: Count = 0
    tolerance: Annotated[float, Ge(0)] = 0.0
    seconds: Annotated[float, Ge(0)] = 0.0


class Output(Table):
    """Where the run folder goes, how often a checkpoint is written (0: as often as is cheap), and who else listens."""

    folder: str = "runs"
    checkpoint_every: Count = 0
    track: list[Literal["mlflow", "tensorboard"]] = Field(default_factory=list)


class Override(Table):
    """What one party does differently."""

    local: dict[str, Any] = Field(default_factory=dict)
    share_rows: bool = False


class Config(Table):
    """One experiment, complete. Tables of components hold `name` and every parameter."""

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
    stages: list[Component] = Field(default_factory=list)
    rules: dict[str, Any] = Field(default_factory=dict)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    stop: Stop = Field(default_factory=Stop)
    engine: Component = Field(default_factory=dict)
    output: Output = Field(default_factory=Output)
    overrides: dict[str, Override] = Field(default_factory=dict)
    sweep: dict[str, Any] = Field(default_factory=dict)
