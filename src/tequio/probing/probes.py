"""Attacks on a final model: rows that it was trained on, and what its classes look like."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

import numpy as np
from annotated_types import Ge, MultipleOf

from tequio import registry
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.attacks.privacy.inference import is_recognised, structural_similarity
from tequio.attacks.privacy.inversion import representatives
from tequio.attacks.privacy.membership import lira_offline, lira_online, measured, rmia, rmia_offline
from tequio.federation.algorithm import part_types
from tequio.probing.probe import Probe, interval
from tequio.probing.shadows import shadows_of, train_shadows
from tequio.probing.target import ProbeOfAveraging, probed
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.attacks.privacy.membership import Floats, Shadows
    from tequio.experiments.config.tables import Config
    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.results import Result
    from tequio.learners.learner import Arrays
    from tequio.probing.probe import View


@dataclass(frozen=True)
class ByShadows(Probe):
    """Membership of rows, told beside shadow models. `success` is the area under the ROC curve."""

    assumes: ClassVar[str] = ("the rows in question (half of them members), which party has or would have each, the "
                              "rest of the training rows, and how the run was made, but not its seed")
    shadows: Annotated[int, Ge(4), MultipleOf(2)] = 16
    offline: bool = False

    def suits(self, config: Config) -> bool:
        """Whether parties that hold whole rows train a model together."""
        algorithm = cast("type", registry.find("algorithm", config.algorithm["name"]).component)
        return "learner" in part_types(algorithm) and not issubclass(algorithm, VerticalAlgorithm)

    def get_ready(self, result: Result, workers: int, listen: Listener) -> None:
        """Train the shadows that are missing."""
        train_shadows(result, self.shadows, workers, listen)

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """All views see the same model."""
        shadows, is_member = shadows_of(result, self.shadows)
        return measured(self.scores(shadows), is_member)

    @abstractmethod
    def scores(self, shadows: Shadows) -> Floats:
        """Of each row, the higher the surer it is a member."""


@register("probe", "lira", paper="Carlini et al., 2022")
@dataclass(frozen=True)
class LiRA(ByShadows):
    """Rows that the parties trained on, told by how likely the model's answer is from models with a row and without it.

    Parameters:
        shadows: models to train like the run, each on another half of the rows; an even number
        offline: compare with models without the row only, as one can who hears of the row afterwards
    """

    def scores(self, shadows: Shadows) -> Floats:
        """Ratios of likelihoods."""
        return lira_offline(shadows) if self.offline else lira_online(shadows)


@register("probe", "rmia", paper="Zarifzadeh et al., 2024")
@dataclass(frozen=True)
class RMIA(ByShadows):
    """Rows that the parties trained on, told by how many rows they outdo in gain of probability; good with few shadows.

    Parameters:
        shadows: models to train like the run, each on another half of the rows; an even number
        offline: compare with models without the row only, as one can who hears of the row afterwards
    """

    def scores(self, shadows: Shadows) -> Floats:
        """Shares of rows that are outdone."""
        return rmia_offline(shadows) if self.offline else rmia(shadows)


@register("probe", "class-reconstruction", paper="Fredrikson et al., 2015")
@dataclass(frozen=True)
class ClassReconstruction(ProbeOfAveraging):
    """What the model takes for the best example of each class: is the mean of that class the most like it?"""

    assumes: ClassVar[str] = "the range of entries of rows"

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """All views see the same model."""
        run = probed(result)
        rows, schema = run.scenario.population.dataset, run.scenario.population.schema
        low, high = run.bounds
        made = representatives(run.algorithm.learner, schema, cast("Arrays", run.result.model), (low, high))
        features, target = np.asarray(rows.features), np.asarray(rows.target)
        present = np.unique(target)
        means = np.stack([features[target == label].mean(0) for label in present])
        hits = [is_recognised(mean, made[label], np.delete(means, place, 0))
                for place, (label, mean) in enumerate(zip(present, means, strict=True))]
        likeness = [structural_similarity(mean, made[label], high - low)
                    for label, mean in zip(present, means, strict=True)]
        return {**interval(sum(hits), len(hits)), "guess": 1 / len(present), "ssim": float(np.mean(likeness))}
