"""What voids a guarantee: components that let out more than the mechanism bounds. Each reason says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.components import name_of
from tequio.federation.aggregation import Mean
from tequio.learners.torch_learner import TorchLearner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.data.schema import Schema
    from tequio.federation.algorithm import Algorithm, Crossing
    from tequio.federation.federation import Rules
    from tequio.privacy.ledger import Context, Mechanism


def objections(mechanism: Mechanism, algorithm: Algorithm, context: Context, rules: Rules,
               schema: Schema) -> Iterator[str]:
    """Every reason why the guarantee would not hold."""
    yield from _about_algorithm(mechanism, algorithm, context, algorithm.crossing(schema))
    yield from _about_selector(algorithm)
    if mechanism.place != "party":
        yield from _about_the_sum(algorithm, rules)
    if algorithm.parts.contribution is not None:
        yield ("contributions are computed from the parties' own updates and published: leave [contribution] out")
    if mechanism.protects == "training":
        yield from _about_training(algorithm, algorithm.crossing(schema))
    yield from mechanism.objections(context)


def _about_algorithm(mechanism: Mechanism, algorithm: Algorithm, context: Context,
                     crossing: Crossing | None) -> Iterator[str]:
    name = name_of(type(algorithm))
    if crossing is None:
        yield (f"with these settings the algorithm '{name}' lets more cross than clipping and noise bound: use one "
               f"such as 'fedavg', 'fedprox' or 'fedadam', or see: tequio show {name}")
    elif bool(crossing.moves) != (mechanism.protects == "sums"):
        sends, fitting = ("sums over rows", "'dp-sums'") if crossing.moves else ("updates", "'central-dp'")
        yield (f"the stage '{name_of(type(mechanism))}' does not protect what the algorithm '{name}' sends, which are "
               f"{sends}: use {fitting}")
    elif crossing.counts_answers and context.sampling == "poisson":
        yield (f"the algorithm '{name}' uses how many parties answered, which under Poisson sampling tells whether one "
               "was there: use the selector 'random'")


def _about_selector(algorithm: Algorithm) -> Iterator[str]:
    selector = type(algorithm.parts.selector)
    if not hasattr(selector, "sampling"):
        yield (f"the selector '{name_of(selector)}' chooses by what it learns of the parties, and that choice is not "
               "noised: use 'poisson', 'random', 'in-turn' or 'all'")


def _about_the_sum(algorithm: Algorithm, rules: Rules) -> Iterator[str]:
    aggregator = algorithm.parts.aggregator
    if not isinstance(aggregator, Mean):
        yield (f"the aggregator '{name_of(type(aggregator))}' is not a mean, so that one party may move it by more "
               "than its clipped update: use 'mean'")
    if rules.largest_update:
        yield ("rules.largest_update leaves parties out by comparing them with others, so that one changes what the "
               "rest add: set it to 0")


def _about_training(algorithm: Algorithm, crossing: Crossing | None) -> Iterator[str]:
    if crossing is not None and crossing.besides_training:
        yield (f"the algorithm '{name_of(type(algorithm))}' also sends gradients that its private training has not "
               "noised: set algorithm.control_from = 'path'")
    if not isinstance(algorithm.parts.learner, TorchLearner):
        yield ("only torch learners can be trained by 'dp-sgd', which needs the gradients of single rows: choose "
               "'logistic' or 'mlp'")
