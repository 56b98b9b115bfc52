"""The privacy of a run: its budget and noise by the config, and what else in it lets out more than the noise hides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.attacks.attack import Attack
from tequio.data.preprocessing import preparations
from tequio.data.preprocessing.categories import OneHot, Ordinal
from tequio.data.preprocessing.columns import Drop, Regroup
from tequio.data.preprocessing.scaling import Log1p
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError
from tequio.federation.federation import Federation
from tequio.privacy.ledger import Terms
from tequio.privacy.opening import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.attacks.hostility import Hostility
    from tequio.experiments.tables import Config
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.clock import Clock
    from tequio.federation.federation import Rules
    from tequio.federation.population import Population
    from tequio.privacy.ledger import Ledger

_LOOK_AT_NO_ROWS = (Drop, Log1p, OneHot, Ordinal, Regroup)


def with_ledger(config: Config, algorithm: Algorithm, population: Population, rules: Rules, clock: Clock | None,
                hostility: Hostility | None) -> tuple[Algorithm, Ledger | None]:
    """The algorithm with its privacy mechanism ready for work, and the ledger of the run, if it is to be private."""
    told = config.privacy
    federation = Federation(population, InlineEngine(), config.seed, rules, clock=clock)
    terms = Terms(told.epsilon, told.delta, told.accountant)
    algorithm, ledger = open_ledger(algorithm, federation, terms, config.rounds,
                                    voids=(*_chosen_by_rows(config), *_conspiracy(hostility)),
                                    caveats=tuple(_told_exactly(config)), allow_void=told.when_void == "warn")
    if ledger is not None and not ledger.affords_more():
        raise ConfigError(f"privacy.epsilon = {told.epsilon:g} does not pay for a single round with this noise",
                          remedy="add more noise (or leave `noise` out, and it is calibrated), or raise the budget")
    return algorithm, ledger


def privacy_warnings(ledger: Ledger | None) -> list[str]:
    """What somebody who relies on the ledger should be told before the run."""
    if ledger is None:
        return []
    return [f"this run is not private: {reason}" for reason in ledger.voids] or \
        [f"privacy does not cover this: {caveat}" for caveat in ledger.caveats]


def _chosen_by_rows(config: Config) -> Iterator[str]:
    """Choices that look at the parties' rows and shape the model or its inputs."""
    stop, how = config.stop, config.data
    if (stop.target is not None or stop.patience) and how.split.validation and "parties" in config.evaluation.at:
        yield ("stop.target and stop.patience look at the parties' own validation rows: judge models on rows of the "
               "coordinator (data.validation = 0.1, data.split.validation = 0)")
    fitted = [step for step in preparations(how.prepare) if not isinstance(step, _LOOK_AT_NO_ROWS)]
    if fitted and how.prepare_scope == "federated":
        yield ("data.prepare shares exact statistics of the parties' rows: set data.prepare_scope = 'local', or "
               "prepare the data beforehand")


def _conspiracy(hostility: Hostility | None) -> Iterator[str]:
    if hostility is not None and type(hostility.what).conspire is not Attack.conspire:
        yield (f"the attack '{hostility.attack}' is made by parties that see everybody's updates before they are "
               "summed: choose one that does not")


def _told_exactly(config: Config) -> Iterator[str]:
    """What the run's record holds besides the model."""
    if "parties" in config.evaluation.at and (config.data.split.validation or config.data.split.test):
        yield ("metrics on the parties' own rows are exact: keep the run folder to yourself, or set evaluation.at = "
               "['coordinator']")
    if config.adoption.if_better or config.adoption.fine_tune_epochs:
        yield "what parties do with the final model ([adoption]) is reported exactly"
