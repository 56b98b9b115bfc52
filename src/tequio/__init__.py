"""tequio: federated learning. Many parties build one model together, and each party's data stays where it is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition
    from tequio.errors import TequioError
    from tequio.experiments.api import load, run, sweep
    from tequio.experiments.comparing.comparing import compare
    from tequio.experiments.explaining.explaining import explain
    from tequio.experiments.forgetting import forget
    from tequio.experiments.inspecting import inspect
    from tequio.experiments.predicting import predict
    from tequio.experiments.searching import search
    from tequio.federation.aggregation import Aggregator, Combined, Updates
    from tequio.federation.algorithm import Algorithm, State, part
    from tequio.federation.averaging import Averaged, Averaging, averaging_round, finish_round, select
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.selection import AllParties, Choice, SelectionContext, Selector
    from tequio.federation.stages import Stage, StageSpec
    from tequio.federation.task import Count, Reveals, Sums, TrainSettings, record, task
    from tequio.learners.learner import Arrays, GradientLearner, Learner
    from tequio.learners.trees.learner import TreeLearner
    from tequio.registry import register

__version__ = "0.2.0.dev0"

# Names are imported when first used, so that `import tequio` stays fast.
_HOMES = {
    "Aggregator": "tequio.federation.aggregation",
    "Algorithm": "tequio.federation.algorithm",
    "AllParties": "tequio.federation.selection",
    "Arrays": "tequio.learners.learner",
    "Averaged": "tequio.federation.averaging",
    "Averaging": "tequio.federation.averaging",
    "Choice": "tequio.federation.selection",
    "Combined": "tequio.federation.aggregation",
    "Count": "tequio.federation.task",
    "Dataset": "tequio.data.dataset",
    "Federation": "tequio.federation.federation",
    "GradientLearner": "tequio.learners.learner",
    "Learner": "tequio.learners.learner",
    "Partition": "tequio.data.partition",
    "Party": "tequio.federation.population",
    "Payload": "tequio.federation.payload",
    "Replies": "tequio.federation.exchange",
    "Reveals": "tequio.federation.task",
    "SelectionContext": "tequio.federation.selection",
    "Selector": "tequio.federation.selection",
    "Stage": "tequio.federation.stages",
    "StageSpec": "tequio.federation.stages",
    "State": "tequio.federation.algorithm",
    "Sums": "tequio.federation.task",
    "TequioError": "tequio.errors",
    "TrainSettings": "tequio.federation.task",
    "TreeLearner": "tequio.learners.trees.learner",
    "Updates": "tequio.federation.aggregation",
    "averaging_round": "tequio.federation.averaging",
    "compare": "tequio.experiments.comparing.comparing",
    "explain": "tequio.experiments.explaining.explaining",
    "finish_round": "tequio.federation.averaging",
    "forget": "tequio.experiments.forgetting",
    "inspect": "tequio.experiments.inspecting",
    "load": "tequio.experiments.api",
    "part": "tequio.federation.algorithm",
    "predict": "tequio.experiments.predicting",
    "record": "tequio.federation.task",
    "register": "tequio.registry",
    "run": "tequio.experiments.api",
    "search": "tequio.experiments.searching",
    "select": "tequio.federation.averaging",
    "sweep": "tequio.experiments.api",
    "task": "tequio.federation.task",
}

__all__ = ["Aggregator", "Algorithm", "AllParties", "Arrays", "Averaged", "Averaging", "Choice", "Combined", "Count",
           "Dataset", "Federation", "GradientLearner", "Learner", "Partition", "Party", "Payload", "Replies",
           "Reveals", "SelectionContext", "Selector", "Stage", "StageSpec", "State", "Sums", "TequioError",
           "TrainSettings", "TreeLearner", "Updates", "__version__", "averaging_round", "compare", "explain",
           "finish_round", "forget", "inspect", "load", "part", "predict", "record", "register", "run", "search",
           "select", "sweep", "task"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tequio' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
