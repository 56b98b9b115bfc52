"""Stop rules: when a run ends before its last round. They look at validation metrics only, never at test rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError
from tequio.learners.metrics import higher_is_better

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.tables import Stop


@dataclass(frozen=True)
class Progress:
    """What the rules remember from round to round. `reason` is empty while the run goes on."""

    best: float | None = None
    best_round: int = 0
    reason: str = ""

    def to_plain(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"best": self.best, "best_round": self.best_round, "reason": self.reason}


@dataclass(frozen=True)
class StopRules:
    """The rules of a config, ready to judge rounds by `metric`."""

    rules: Stop
    rounds: int
    metric: str = ""
    at_start: Progress = field(default_factory=Progress)

    @property
    def key(self) -> str:
        """The metric's name in a row of metrics."""
        return f"validation.{self.metric}"

    def judge(self, progress: Progress, round: int, row: Mapping[str, float], seconds: float) -> Progress:
        """The memory after a round; its `reason` says why the run ends here, if it does."""
        after = self._improved(progress, round, row.get(self.key))
        return replace(after, reason=self._reason(after, round, row, seconds))

    def _improved(self, progress: Progress, round: int, value: float | None) -> Progress:
        if value is None or value != value:
            return progress
        better = progress.best is None or (value > progress.best if higher_is_better(self.metric)
                                           else value < progress.best)
        return Progress(value, round) if better else progress

    def _reason(self, progress: Progress, round: int, row: Mapping[str, float], seconds: float) -> str:
        rules, value = self.rules, row.get(self.key)
        if rules.target is not None and value is not None and self._reached(value, rules.target):
            return "target"
        if rules.patience and value is not None and round - progress.best_round >= rules.patience:
            return "patience"
        if rules.tolerance and row.get("update_norm", rules.tolerance) < rules.tolerance:
            return "convergence"
        if rules.seconds and seconds >= rules.seconds:
            return "seconds"
        return "rounds" if round >= self.rounds else ""

    def _reached(self, value: float, target: float) -> bool:
        return value >= target if higher_is_better(self.metric) else value <= target


def check_rules(stop: Stop, metrics: list[str], validation_share: float) -> str:
    """The metric the rules look at; refuses rules that nothing could ever satisfy."""
    metric = stop.metric or next((name for name in metrics if name != "loss"), "loss")
    if metric not in metrics:
        raise ConfigError(f"[stop] metric '{metric}' does not exist for this data", remedy=f"there is: {', '.join(metrics)}")
    if (stop.target is not None or stop.patience) and not validation_share:
        raise ConfigError("[stop] target and patience look at validation rows, but the parties keep none",
                          remedy="set data.split.validation = 0.1")
    return metric
