"""Stop rules: when a run ends before its last round. They look at validation metrics only, never at test rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, nearest
from tequio.experiments.measuring import main_metric
from tequio.learners.metrics import higher_is_better

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.tables import Config, Stop

PREFIX = "validation."


@dataclass(frozen=True)
class Progress:
    """What the rules remember from round to round. `reason` is empty while the run goes on."""

    metric: str = ""
    best: float | None = None
    best_round: int = 0
    reason: str = ""


@dataclass(frozen=True)
class StopRules:
    """The rules of a config."""

    rules: Stop
    rounds: int

    def judge(self, progress: Progress, round: int, row: Mapping[str, Any], seconds: float) -> Progress:
        """The memory after a round; its `reason` says why the run ends here, if it does."""
        found = {name.removeprefix(PREFIX): value for name, value in row.items() if name.startswith(PREFIX)}
        progress = replace(progress, metric=progress.metric or self._metric(found))
        value = found.get(progress.metric)
        if value is not None and value == value and _better(progress.metric, value, progress.best):
            progress = replace(progress, best=value, best_round=round)
        return replace(progress, reason=self._reason(progress, round, value, row, seconds))

    def _metric(self, found: Mapping[str, float]) -> str:
        """The metric the rules look at, known from the first evaluation on."""
        wanted = self.rules.metric
        if found and wanted and wanted not in found:
            raise ConfigError(f"[stop] the metric '{wanted}' does not exist for this data and learner",
                              remedy=nearest(wanted, found))
        return (wanted or main_metric(found)) if found else ""

    def _reason(self, progress: Progress, round: int, value: float | None, row: Mapping[str, Any],
                seconds: float) -> str:
        rules = self.rules
        if rules.target is not None and value is not None and not _better(progress.metric, rules.target, value):
            return "target"
        if rules.patience and value is not None and round - progress.best_round >= rules.patience:
            return "patience"
        if rules.tolerance and row.get("update_norm", rules.tolerance) < rules.tolerance:
            return "convergence"
        if rules.seconds and seconds >= rules.seconds:
            return "seconds"
        if rules.virtual_seconds and row.get("clock.seconds", 0.0) >= rules.virtual_seconds:
            return "virtual_seconds"
        return "rounds" if round >= self.rounds else ""


def check_rules(config: Config) -> None:
    """Refuse rules that nothing could ever satisfy, before work starts."""
    stop = config.stop
    if stop.virtual_seconds and config.devices["name"] == "instant":
        raise ConfigError("[stop] virtual_seconds looks at the virtual clock, and this run has none",
                          remedy="add a [devices] table, such as: devices = \"mobile\"")
    if stop.metric:
        higher_is_better(stop.metric)
    if stop.target is None and not stop.patience:
        return
    at_parties = config.data.split.validation and "parties" in config.evaluation.at
    at_coordinator = (config.data.validation and not config.data.split.validation
                      and "coordinator" in config.evaluation.at)
    if not at_parties and not at_coordinator:
        raise ConfigError("[stop] target and patience look at the parties' validation rows, and there are none",
                          remedy="set data.split.validation = 0.1 and evaluation.at = ['parties']")


def _better(metric: str, value: float, than: float | None) -> bool:
    if than is None:
        return True
    return value > than if higher_is_better(metric) else value < than
