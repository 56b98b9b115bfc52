"""The loop: start, rounds, evaluations, checkpoints, until a stop rule says enough."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tequio.errors import RunError
from tequio.experiments import store
from tequio.experiments.checkpoint import Checkpoint, Pace, read_checkpoint, write_checkpoint
from tequio.experiments.config import config_hash, resolved_toml
from tequio.experiments.environment import describe_environment
from tequio.experiments.measuring import Measured, measure
from tequio.experiments.models import model_sha256, write_model
from tequio.experiments.results import Result
from tequio.experiments.scenario import make_engine, make_scenario
from tequio.experiments.stopping import Progress, StopRules, check_rules
from tequio.experiments.table import Table, read_csv
from tequio.federation.federation import Federation, Traffic
from tequio.federation.models import difference, squared_norm

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.data.dataset import Dataset
    from tequio.experiments.scenario import Scenario
    from tequio.experiments.tables import Config
    from tequio.federation.algorithm import State

Listener = Callable[[str, dict[str, Any]], None]
"""Hears every event of a run: its kind and its facts."""


def ignore(kind: str, facts: dict[str, Any]) -> None:
    """A listener for those who do not want to hear."""


@dataclass
class Situation:
    """Where a run stands after a round."""

    state: State
    progress: Progress
    seconds: float = 0.0
    evaluation: Traffic = field(default_factory=Traffic)
