"""What ends or bounds a run: its stop rules and its privacy budget, and what its rows have cost over all runs.

Stop rules look at validation metrics only, never at test rows. The privacy budget comes with warnings about what
else in the config reveals more than the noise hides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.attacks.attack import Attack
from tequio.data.preprocessing import preparations
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, nearest
from tequio.experiments.config.complete import config_hash
from tequio.experiments.config.composition import objections_to_hiding
from tequio.experiments.running.headline import check_headline, main_metric
from tequio.experiments.running.signs import TOO_LARGE
from tequio.federation.federation import Federation
from tequio.learners.metrics import higher_is_better
from tequio.privacy.dataset_ledger import DatasetLedger, bill_to_plain
from tequio.privacy.ledger import Terms, costliest_bill, odds
from tequio.privacy.opening import open_ledger
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tequio.attacks.hostility import Hostility
    from tequio.experiments.config.tables import Config, Stop
    from tequio.experiments.running.store import Plain
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.clock import Clock
    from tequio.federation.federation import Rules
    from tequio.federation.population import Population
    from tequio.privacy.ledger import Ledger


PREFIX = "validation."


@dataclass(frozen=True)
class Progress:
    """What the rules remember from round to round: `loss` is the last one, `reason` is empty while the run goes on."""

    metric: str = ""
    best: float | None = None
    best_round: int = 0
    reason: str = ""
    loss: float | None = None


@dataclass(frozen=True)
class StopRules:
    """The rules of a config. `headline` is what they look at unless they name another metric, and `ignorance` the loss
    by which they see that training has diverged (0: they do not look).
    """

    rules: Stop
    rounds: int
    headline: str = ""
    ignorance: float = 0.0

    def judge(self, progress: Progress, round: int, row: Plain, seconds: float) -> Progress:
        """The memory after a round; its `reason` says why the run ends here, if it does."""
        found = {name.removeprefix(PREFIX): value for name, value in row.items() if name.startswith(PREFIX)}
        progress = replace(progress, metric=progress.metric or self._metric(found))
        value = found.get(progress.metric)
        if value is not None and value == value and _better(progress.metric, value, progress.best):
            progress = replace(progress, best=value, best_round=round)
        loss = row.get("train.loss", row.get(f"{PREFIX}loss"))
        if self._diverged(progress.loss, loss, round):
            return replace(progress, loss=loss, reason="diverged")
        return replace(progress, loss=progress.loss if loss is None else loss,
                       reason=self._reason(progress, round, value, row, seconds))

    def _diverged(self, before: float | None, loss: float | None, round: int) -> bool:
        """Whether the loss is absurd and does not fall; a first loss may be, where columns have large numbers."""
        if loss is None or not self.ignorance or loss <= TOO_LARGE * self.ignorance:
            return False
        return not isfinite(loss) or round >= self.rounds or (before is not None and loss >= before)

    def _metric(self, found: Mapping[str, float]) -> str:
        """The metric the rules look at, known from the first evaluation on."""
        wanted = self.rules.metric
        if found and wanted and wanted not in found:
            raise ConfigError(f"[stop] the metric '{wanted}' does not exist for this data and learner",
                              remedy=nearest(wanted, found))
        return (wanted or main_metric(found, self.headline)) if found else ""

    def _reason(self, progress: Progress, round: int, value: float | None, row: Plain,
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
    check_headline(config.evaluation.headline)
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


def with_ledger(config: Config, algorithm: Algorithm, population: Population, rules: Rules, clock: Clock | None,
                hostility: Hostility | None, *, announced: bool = False) -> tuple[Algorithm, Ledger | None]:
    """The algorithm with its privacy mechanism ready for work, and the ledger of the run, if it is to be private.

    Where a run is `announced` to real parties, each of them knows its seed.
    """
    told = config.privacy
    federation = Federation(population, InlineEngine(), config.seed, rules, clock=clock)
    terms = Terms(told.epsilon, told.delta, told.accountant)
    impossible = objections_to_hiding(config)
    algorithm, ledger = open_ledger(algorithm, federation, terms, config.rounds,
                                    voids=(*impossible, *_chosen_by_rows(config), *_conspiracy(hostility),
                                           *(_known_noise(algorithm) if announced else ())),
                                    caveats=tuple(_told_exactly(config)),
                                    allow_void=told.when_void == "warn" and not impossible)
    return algorithm, ledger


LEDGERS = "ledgers"
"""The folder, among run folders, of what was spent on each set of rows."""


class Spending:
    """What a simulated run notes in the ledger of its rows, and what all runs on them have spent together."""

    def __init__(self, config: Config, ledger: Ledger, fingerprint: str, folder: Path, *, resumed: bool) -> None:
        self._ledger, self._config = ledger, config
        self.rows = DatasetLedger(Path(config.output.folder) / LEDGERS, fingerprint)
        self._run, self._digest = self._name(folder, resumed), ""

    def note(self, model_sha256: str = "") -> None:
        """Write down what was spent so far. A finished run whose noise follows from its seed released the same as
        another with the same config and the same model."""
        ledger, mechanism = self._ledger, self._ledger.mechanism
        if model_sha256 and not mechanism.secret:
            self._digest = sha256(f"{config_hash(self._config)} {model_sha256}".encode()).hexdigest()
        if ledger.entries:
            self.rows.record(costliest_bill(ledger), run=self._run, digest=self._digest, unit=self._unit,
                             mechanism=f"{name_of(type(mechanism))} (noise {mechanism.noise or 0.0:.4g})")

    def statement(self) -> Plain:
        """What all runs on these rows come to, and the bill of this one."""
        return {**over_runs(self.rows, self._unit, self._ledger.terms.delta),
                "bill": bill_to_plain(costliest_bill(self._ledger))}

    @property
    def _unit(self) -> str:
        """Whom the mechanism protects; under another relation between neighbours it is counted apart."""
        return f"{'replaced ' if self._ledger.context.sampling == 'fixed-size' else ''}{self._ledger.mechanism.unit}"

    def _name(self, folder: Path, resumed: bool) -> str:
        """That of the run's folder. A run that begins where an earlier one lay is another one."""
        whole, parent = folder.resolve(), Path(self._config.output.folder).resolve()
        name = str(whole.relative_to(parent)) if whole.is_relative_to(parent) else whole.name
        number, known = 1, self.rows.by_run()
        while f"{name}#{number + 1}" in known:
            number += 1
        number += name in known and not resumed
        return name if number == 1 else f"{name}#{number}"


_TIGHT = 8
"""With more kinds of noise than this, Renyi divergences count: privacy loss distributions would take seconds."""


def over_runs(rows: DatasetLedger, unit: str, delta: float) -> Plain:
    """What the ledger of some rows says of a unit: runs, epsilon, and the same in words."""
    runs, (since, before) = rows.by_run(unit), rows.anew
    spent = rows.spent(unit)
    epsilon = rows.epsilon(delta, "pld" if len(spent) <= _TIGHT else "rdp", unit)
    others = {other: len(rows.by_run(other)) for other in dict.fromkeys(entry.unit for entry in rows.entries())
              if other != unit}
    number = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    void = [run for run, bill in runs.items() if any(release.noise <= 0 for release in bill)]
    said = f"epsilon {epsilon:.3g} at delta {delta:g} for any one {unit} (odds change {odds(epsilon)})" \
        if isfinite(epsilon) else \
        f"no guarantee, because {', '.join(void[:3])}{', ...' if len(void) > 3 else ''} had none"
    words = ["The ledger of these rows knows of no other run." if len(runs) == 1 and isfinite(epsilon) else
             f"Over {number} on these rows: {said}."]
    words += [f"{count} more protected a {other} instead, and {_is(count)} counted apart."
              for other, count in others.items()]
    if since:
        words.append(f"The ledger was started anew on {since[:19].replace('T', ' ')} UTC, and the {before} "
                     f"run{'s' if before != 1 else ''} before that {_is(before)} not counted, although what "
                     f"{'they' if before != 1 else 'it'} released is still known.")
    return {"fingerprint": rows.path.stem, "unit": unit, "runs": len(runs),
            "epsilon": epsilon if isfinite(epsilon) else None, "delta": delta, "apart": others,
            "since": since, "not_counted": before, "words": " ".join(words)}


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


_VOID, _CAVEAT = "this run is not private", "privacy does not cover this"


def privacy_warnings(ledger: Ledger | None) -> list[str]:
    """What somebody who relies on the ledger should be told before the run."""
    if ledger is None:
        return []
    return [f"{_VOID}: {reason}" for reason in ledger.voids] or [f"{_CAVEAT}: {caveat}" for caveat in ledger.caveats]


def is_about_privacy(warning: str) -> bool:
    """Whether a warning of a run says what its privacy does not cover."""
    return warning.startswith((_VOID, _CAVEAT))


def _chosen_by_rows(config: Config) -> Iterator[str]:
    """Choices that look at the parties' rows and shape the model or its inputs."""
    stop, how = config.stop, config.data
    if (stop.target is not None or stop.patience) and how.split.validation and "parties" in config.evaluation.at:
        yield ("stop.target and stop.patience look at the parties' own validation rows: judge models on rows of the "
               "coordinator, set data.validation = 0.1 and set data.split.validation = 0 and set evaluation.at = "
               "['coordinator']")
    fitted = [step for step in preparations(how.steps) if step.looks_at_rows()]
    if fitted and how.prepare_scope == "federated":
        yield ("data.prepare shares exact statistics of the parties' rows: set data.prepare_scope = 'local', or "
               "prepare the data beforehand and set data.prepare = []")


def _known_noise(algorithm: Algorithm) -> Iterator[str]:
    """Noise of the coordinator that every party could compute; that of parties follows from secrets of their own."""
    for stage in algorithm.components.stages:
        if stage.mechanism is not None and stage.mechanism.place == "coordinator" and not stage.mechanism.secret:
            name = name_of(type(stage.mechanism))
            yield (f"the noise of '{name}' and the draw of parties follow from the run's seed, which every party "
                   f"learns: set secret = true in [[stages]] name = '{name}'")


def _conspiracy(hostility: Hostility | None) -> Iterator[str]:
    if hostility is not None and type(hostility.what).conspire is not Attack.conspire:
        yield (f"the attack '{hostility.attack}' is made by parties that see everybody's updates before they are "
               "summed: set attack.name = 'sign-flip', or another that does not")


def _told_exactly(config: Config) -> Iterator[str]:
    """What the run's record holds besides the model."""
    if "parties" in config.evaluation.at and (config.data.split.validation or config.data.split.test):
        yield ("metrics on the parties' own rows are exact: keep the run folder to yourself, or set evaluation.at = "
               "['coordinator']")
    if config.adoption.if_better or config.adoption.fine_tune_epochs:
        yield "what parties do with the final model ([adoption]) is reported exactly"
