"""Baselines beside a run: the same config with every party alone, and with all rows in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments.config import build_named, complete, resolved
from tequio.learners.learner import GradientLearner
from tequio.learners.trees.learner import TreeLearner

if TYPE_CHECKING:
    from tequio.experiments.tables import Config

_CHANGES: dict[str, dict[str, Any]] = {
    "alone": {"algorithm": {"name": "alone"}, "topology": {}, "stages": [], "aggregator": {}, "adoption": {}},
    "centralised": {"algorithm": {"name": "centralised"}, "topology": {}, "stages": [], "aggregator": {},
                    "adoption": {}, "selector": {}, "rules": {}, "overrides": {}},
}


def baseline_config(config: Config, baseline: str) -> Config:
    """The config of a baseline: what the baseline has no use for falls back to its default."""
    given = resolved(config) | _CHANGES[baseline] | {"name": f"{config.name}-{baseline}", "baselines": []}
    if baseline == "centralised":
        given["data"] = given["data"] | {"partition": {"name": "pooled"}}
        # A learner that is trained on without gradients (k-means) may depend on how its algorithm starts it; one party
        # that holds all rows is its centralised form.
        if not isinstance(build_named("learner", config.learner), GradientLearner | TreeLearner):
            given["algorithm"] = config.algorithm
    return complete(given, source=given["name"])
