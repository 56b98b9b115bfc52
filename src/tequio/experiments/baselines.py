"""Baselines beside a run: the same config with every party alone, and with all rows in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments.config import build_named, complete, resolved
from tequio.learners.learner import GradientLearner, LocalTraining
from tequio.learners.trees.learner import TreeLearner

if TYPE_CHECKING:
    from tequio.experiments.tables import Config

MULTILABEL = "mlfedavg"
"""What the names of algorithms begin with whose parties know different labels."""

_CHANGES: dict[str, dict[str, Any]] = {
    "alone": {"algorithm": {"name": "alone"}, "topology": {}, "stages": [], "privacy": {}, "aggregator": {},
              "adoption": {}},
    "centralised": {"algorithm": {"name": "centralised"}, "topology": {}, "stages": [], "privacy": {},
                    "aggregator": {}, "adoption": {}, "selector": {}, "rules": {}, "overrides": {}},
}


def baseline_config(config: Config, baseline: str, rounds: int = 0) -> Config:
    """The config of a baseline: what the baseline has no use for falls back to its default.

    `rounds` is how many the run itself had; where parties know different labels, a party alone is as patient.
    """
    given = resolved(config) | _CHANGES[baseline] | {"name": f"{config.name}-{baseline}", "baselines": []}
    if config.local["name"] == "dp-sgd":  # what is compared is the same training without protection
        given["local"] = {key: config.local[key] for key in LocalTraining.__dataclass_fields__}
    if baseline == "alone" and config.algorithm["name"].startswith(MULTILABEL):
        given["algorithm"] = {"name": f"{MULTILABEL}-alone", "patience": rounds}
    if baseline == "centralised":
        given["data"] = given["data"] | {"partition": {"name": "pooled"}}
        # A learner that is trained on without gradients (k-means) may depend on how its algorithm starts it; one party
        # that holds all rows is its centralised form.
        if not isinstance(build_named("learner", config.learner), GradientLearner | TreeLearner):
            given["algorithm"] = config.algorithm
    return complete(given, source=given["name"])
