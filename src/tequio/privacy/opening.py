"""Opening the ledger of a run: find its mechanism, refuse what would void it, calibrate the noise, and wire it in."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from math import ceil, isfinite
from typing import TYPE_CHECKING

from tequio.errors import ConfigError
from tequio.federation.aggregation import Mean
from tequio.federation.algorithm import Disclosure
from tequio.federation.selection import AllParties
from tequio.federation.selectors.drawn import InTurn
from tequio.federation.stages import summing_stage
from tequio.learners.descent import steps_of_epochs
from tequio.learners.learner import buffers_of
from tequio.learners.private_training import PrivateTraining, batch_chance
from tequio.learners.torch_learner import TorchLearner
from tequio.privacy.accounting import Spent, noise_for
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.ledger import Context, Ledger, Terms, round_up
from tequio.privacy.rows import SilentTraining
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tequio.data.dataset import Schema
    from tequio.federation.aggregation import Aggregator
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.federation import Federation, Rules
    from tequio.federation.stages import Stage
    from tequio.privacy.mechanism import Mechanism


def open_ledger(algorithm: Algorithm, federation: Federation, terms: Terms, rounds: int, *,
                voids: Sequence[str] = (), caveats: Sequence[str] = (),
                allow_void: bool = False) -> tuple[Algorithm, Ledger | None]:
    """The algorithm with its mechanism ready for work, and the ledger that it writes to; none without a mechanism.

    `voids` and `caveats` are what the caller knows of the run besides.
    """
    parts = algorithm.components
    stages, local = parts.stages, parts.local
    if isinstance(local, PrivateTraining):  # the stage that keeps its ledger
        stages = (SilentTraining(noise=local.noise, secret=local.secret), *stages)
    mechanisms = [stage.mechanism for stage in stages if stage.mechanism is not None]
    if not mechanisms:
        if terms.epsilon:
            raise ConfigError(f"privacy.epsilon = {terms.epsilon:g} is a budget, and nothing in this run is private",
                              remedy='add a stage that adds noise, such as: [[stages]] name = "central-dp"')
        return algorithm, None
    mechanism = mechanisms[0]
    context = context_of(algorithm, federation, rounds, mechanism)
    found = [*_about_several(mechanisms), *objections(mechanism, algorithm, context, federation.rules,
                                                      federation.schema), *voids]
    caveats = (*caveats, *_too_large(terms, context), *_told_on_the_way(mechanism, stages, context))
    terms = replace(terms, accountant=mechanism.accountant or terms.accountant)
    noise, problem = _noise_of(mechanism, terms, context)
    found += [problem] if problem else mechanism.opened(noise, context).objections(context)
    found = list(dict.fromkeys(found))
    if problem and allow_void:  # without noise it is not worth a warning
        raise ConfigError(problem)
    ledger = Ledger(terms, mechanism, context, (), caveats)
    ledger.mechanism = mechanism.opened(noise, context, ledger)
    if not allow_void:
        _refuse([*found, *_about_budget(ledger, problem)])
    ledger.voids = tuple(found)
    stages = tuple(stage if stage.mechanism is None else ledger.mechanism for stage in stages)
    trained = {"local": replace(local, noise=noise)} if isinstance(local, PrivateTraining) else {}
    return replace(algorithm, stages=stages, **trained), ledger  # type: ignore[call-arg]


def _refuse(found: Sequence[str]) -> None:
    """Refuse with all reasons at once, and with what to set for each."""
    if found:
        reasons = f": {found[0]}" if len(found) == 1 else f", for {len(found)} reasons:" + "".join(
            f"\n{number}. {reason}" for number, reason in enumerate(found, 1))
        raise ConfigError(f"this run would not be private{reasons}",
                          remedy="or set privacy.when_void = 'warn' to run it without any guarantee")


def _about_several(mechanisms: Sequence[Mechanism]) -> list[str]:
    first, *rest = (name_of(type(mechanism)) for mechanism in mechanisms)
    return [f"'{other}' adds noise for privacy like '{first}', and what the two promise does not add up to one "
            f"promise: leave '{other}' out" for other in rest]


def _about_budget(ledger: Ledger, problem: str) -> list[str]:
    """A budget that ends the run before it begins."""
    costs = 0.0 if problem or not ledger.terms.epsilon else ledger.after_another()
    if costs <= ledger.terms.epsilon:
        return []
    if not isfinite(costs):
        return [f"privacy.epsilon = {ledger.terms.epsilon:g} is a budget, and this noise protects nothing: leave "
                "`noise` out, and it is calibrated"]
    enough = ceil(100 * costs) / 100
    return [f"privacy.epsilon = {ledger.terms.epsilon:g} does not pay for a single round with this noise, which costs "
            f"{costs:.4g}: set privacy.epsilon = {enough:g}, or leave `noise` out, and it is calibrated"]


def _noise_of(mechanism: Mechanism, terms: Terms, context: Context) -> tuple[float, str]:
    """How much noise is added, or why that cannot be known."""
    if mechanism.noise is not None:
        return mechanism.noise, ""
    try:
        return _calibrated(mechanism, terms, context), ""
    except ConfigError as cause:
        return 0.0, f"{cause.message}: {cause.remedy}"


def context_of(algorithm: Algorithm, federation: Federation, rounds: int, mechanism: Mechanism) -> Context:
    """How parties are drawn and what they send. Who can be reached on a virtual clock is not left to chance alone, so
    that there nothing is hidden by drawing."""
    parts, parties = algorithm.components, len(federation.eligible())
    selector = parts.selector or AllParties()
    disclosure = algorithm.disclosure(federation.schema) or Disclosure()
    cohort = selector.expected(parties)
    descent, everybody = _descent(algorithm, federation, mechanism)
    context = Context(
        parties, cohort, selector.sampling or "none" if federation.clock is None else "none",
        min(rounds, disclosure.rounds or rounds),
        disclosure.arrays, disclosure.by_rows,
        turns=-(-parties // round_up(cohort)) if isinstance(selector, InTurn) else 0, descent=descent,
        everybody=everybody, releases=disclosure.releases, moves=disclosure.moves,
        buffers=buffers_of(parts.learner, federation.schema))
    stage = summing_stage(parts.stages)
    if stage is None or stage.ring is None:
        return context
    ring = Ring.of(*stage.ring, context.most)
    return replace(context, hidden=name_of(type(stage)), largest=ring.largest, scale=ring.scale)


def _descent(algorithm: Algorithm, federation: Federation,
             mechanism: Mechanism) -> tuple[Callable[[int], tuple[float, int]] | None, tuple[int, ...]]:
    """What the rows of a party go through in a round: by their number, and by its own settings."""
    if mechanism.protects != "training":
        return None, ()
    disclosure, population = algorithm.disclosure(federation.schema), federation.population
    common = disclosure.local if disclosure and disclosure.local else algorithm.components.local
    assert common is not None

    @cache
    def descent(party: int) -> tuple[float, int]:
        own = population.overrides.get(party, {}).get("local", {})
        if "noise" in own:
            raise ConfigError(f"party '{population.name(party)}' has a noise of its own, and one account is kept for "
                              "the noise of all", remedy=f"leave overrides.{population.name(party)}.local.noise out")
        local = replace(common, **own)
        rows = len(population.view(party).train)
        return batch_chance(rows, local), sum(steps_of_epochs(rows, local))

    return descent, tuple(int(party) for party in federation.eligible())


def _calibrated(mechanism: Mechanism, terms: Terms, context: Context) -> float:
    """Just enough noise for the budget to last for all rounds."""
    if not terms.epsilon:
        raise ConfigError("nothing says how much noise the run's privacy stage adds",
                          remedy="set privacy.epsilon = 4 or another budget, or the stage's `noise`")
    bills = len(mechanism.spent(mechanism.planned(1.0, context), context))
    return max(noise_for(terms.epsilon, terms.delta, partial(_bill, mechanism, context, index), terms.accountant)
               for index in range(bills))


def _bill(mechanism: Mechanism, context: Context, index: int, noise: float) -> Spent:
    return mechanism.spent(mechanism.planned(noise, context), context)[index]


def _too_large(terms: Terms, context: Context) -> list[str]:
    """A delta of one party in all would allow to publish that party's data."""
    if terms.delta * context.parties < 1:
        return []
    return [f"delta = {terms.delta:g} is not below one in {context.parties} parties, and so promises little"]


def _told_on_the_way(mechanism: Mechanism, stages: Sequence[Stage], context: Context) -> list[str]:
    """What stages let out besides the noised sum."""
    if mechanism.place == "party":
        return []
    found = ["how many bytes packed updates take follows from them, and is recorded exactly"] if any(
        stage.spec.gives == "bytes" for stage in stages) else []
    if context.hidden and context.sampling == "poisson":
        found.append(f"where too few parties are drawn for '{context.hidden}', the run stops, which tells so")
    return found


def objections(mechanism: Mechanism, algorithm: Algorithm, context: Context, rules: Rules,
               schema: Schema) -> Iterator[str]:
    """Every reason why the guarantee would not hold."""
    parts, disclosure = algorithm.components, algorithm.disclosure(schema)
    yield from _about_algorithm(mechanism, algorithm, context, disclosure)
    if parts.selector is not None and parts.selector.sampling is None:
        yield (f"the selector '{name_of(type(parts.selector))}' chooses by what it learns of the parties, and that "
               "choice is not noised: set selector = 'all' (or 'poisson', 'random', 'in-turn')")
    if mechanism.place != "party":
        yield from _about_the_sum(parts.aggregator, rules)
    if parts.contribution is not None:
        yield "contributions are computed from the parties' own updates and published: set contribution = {}"
    if mechanism.protects == "training":
        yield from _about_training(algorithm, context, disclosure)
    yield from mechanism.objections(context)


def _about_algorithm(mechanism: Mechanism, algorithm: Algorithm, context: Context,
                     disclosure: Disclosure | None) -> Iterator[str]:
    name = name_of(type(algorithm))
    if disclosure is None and "updates" not in algorithm.sends:
        yield (f"with these settings the algorithm '{name}' lets more cross than clipping and noise bound: set "
               "algorithm.minimum_count = 1 and what bounds its sums (bounds of 'statistics', scales of 'ask', "
               f"centroids and radius of 'kmeans', low and high of 'histogram-gbdt'), or see: tequio show {name}")
    elif disclosure is None:
        yield (f"with these settings the algorithm '{name}' lets more cross than clipping and noise bound: set "
               f"algorithm = 'fedavg' (or 'fedprox', 'fedadam'), or see: tequio show {name}")
    elif bool(disclosure.moves) != (mechanism.protects == "sums"):
        sends, fitting = ("sums over rows", "'dp-sums'") if disclosure.moves else ("updates", "'central-dp'")
        yield (f"the stage '{name_of(type(mechanism))}' does not protect what the algorithm '{name}' sends, which are "
               f"{sends}: set [[stages]] name = {fitting}")
    elif disclosure.counts_answers and context.sampling == "poisson":
        yield (f"the algorithm '{name}' uses how many parties answered, which under Poisson sampling tells whether one "
               "was there: set selector.name = 'random'")


def _about_the_sum(aggregator: Aggregator | None, rules: Rules) -> Iterator[str]:
    if aggregator is not None and not isinstance(aggregator, Mean):
        yield (f"the aggregator '{name_of(type(aggregator))}' is not a mean, so that one party may move it by more "
               "than its clipped update: set aggregator = 'mean'")
    if rules.largest_update:
        yield ("rules.largest_update leaves parties out by comparing them with others, so that one changes what the "
               "rest add: set rules.largest_update = 0")


def _about_training(algorithm: Algorithm, context: Context, disclosure: Disclosure | None) -> Iterator[str]:
    if disclosure is not None and disclosure.besides_training:
        yield (f"the algorithm '{name_of(type(algorithm))}' also sends gradients that its private training has not "
               "noised: set algorithm.control_from = 'path'")
    if not isinstance(algorithm.components.learner, TorchLearner):
        yield ("only torch learners can be trained by 'dp-sgd', which needs the gradients of single rows: take "
               "another: set learner = 'logistic' (or 'mlp')")
    if context.buffers:
        yield (f"'dp-sgd' noises gradients, and '{min(context.buffers)}' follows from the rows without them: choose a "
               "learner without batch norm, or set learner = 'mlp'")
