"""What in a config does not go together, said before any work is done.

An algorithm's fields are its parts. A table that the algorithm has no field for would do nothing, so it is refused,
with the reason and with the algorithms that would take it; so is a component of the wrong kind.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tequio import registry
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.attacks.attack import Attack
from tequio.errors import ConfigError
from tequio.federation.aggregation import Mean
from tequio.federation.algorithm import Algorithm, part_types
from tequio.federation.composition import check_stages
from tequio.learners.learner import GradientLearner, Learner
from tequio.privacy.mechanism import Mechanism
from tequio.registry import build, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tequio.experiments.config.tables import Config
    from tequio.experiments.config.toml import Given
    from tequio.federation.aggregation import Aggregator
    from tequio.federation.selection import Selector
    from tequio.federation.stages import Stage

BASELINES = ("alone", "centralised", "mlfedavg-alone", "timing")
"""What a run is compared with. They are never suggested as a way to learn together."""

PARTS = {"learner": "it brings a model of its own, or has none", "local": "its parties do not train step by step",
         "selector": "it asks the same parties in every round", "aggregator": "it does not aggregate updates",
         "stages": "it sends no updates or sums that they could work on",
         "contribution": "it has no updates to a common model",
         "attack": "its parties send nothing that hostile ones could change"}
"""Tables that fill a part of the algorithm, and why one without that part has none."""


def parts_taken(algorithm: Mapping[str, object]) -> frozenset[str]:
    """The tables among `PARTS` that the algorithm of a config takes."""
    component: type[Algorithm] = _component("algorithm", algorithm)
    return (frozenset(part_types(component)) & PARTS.keys()) - component.unused_parts(algorithm)


def check_parts(given: Mapping[str, object], config: Config, source: str) -> None:
    """Refuse every table that would do nothing, and components of the wrong kind."""
    name, algorithm = str(config.algorithm["name"]), _algorithm(config)
    types = part_types(algorithm)
    unused = algorithm.unused_parts(config.algorithm)
    for table in unused:
        if given.get(table):
            raise ConfigError(f"{source}: [{table}] would do nothing under these settings of the algorithm '{name}'",
                              remedy=f"leave [{table}] out")
    for table, why in PARTS.items():
        if given.get(table) and table not in types:
            raise ConfigError(f"{source}: [{table}] would do nothing: the algorithm '{name}' has no such part, because "
                              f"{why}", remedy=f"leave [{table}] out, or set algorithm.name to "
                              f"{_either(algorithms_that(partial(_has_part, table)))}")
    if "learner" in types and "learner" not in unused:
        _check_learner(name, algorithm, config, source, asked=bool(given.get("learner")))
    _check_selector(name, algorithm, types, config, source)
    _check_aggregator(name, algorithm, types, config, source)
    _check_attack(name, algorithm, config, source)
    _check_surroundings(name, algorithm, types, config, source)


def _check_learner(name: str, algorithm: type[Algorithm], config: Config, source: str, *, asked: bool) -> None:
    learner, wanted = _built("learner", config.learner), part_types(algorithm)["learner"]
    if isinstance(learner, wanted):
        return
    fitting = learners_for(algorithm)
    fit = "logistic" if "logistic" in fitting else fitting[0]
    does = _LEARNING.get(wanted) or f"works with the learner {_either([repr(one) for one in fitting])}"
    vertical = issubclass(algorithm, VerticalAlgorithm)
    others = algorithms_that(lambda other: issubclass(other, VerticalAlgorithm) == vertical
                             and isinstance(learner, part_types(other).get("learner", ())))
    if asked and others:
        raise ConfigError(f"{source}: {name} {does}; for '{config.learner['name']}' use {_either(others)}",
                          remedy=f"set algorithm.name = '{others[0]}', or learner.name = '{fit}'")
    raise ConfigError(f"{source}: {name} {does}, and '{config.learner['name']}' does not fit",
                      remedy=f"set learner.name = '{fit}'")


_LEARNING: dict[Any, str] = {Learner: "trains models that can be averaged", GradientLearner: "works on gradients"}


def _check_selector(name: str, algorithm: type[Algorithm], types: Mapping[str, Any], config: Config,
                    source: str) -> None:
    if "selector" not in types or algorithm.shows_replies:
        return
    selector: Selector = _built("selector", config.selector)
    if selector.observes:
        raise ConfigError(f"{source}: the selector '{config.selector['name']}' learns from what parties send, and the "
                          f"algorithm '{name}' has nothing to show it",
                          remedy="set selector.name = 'random'")


def _check_aggregator(name: str, algorithm: type[Algorithm], types: Mapping[str, Any], config: Config,
                      source: str) -> None:
    if "aggregator" not in types or algorithm.coordinator_trains:
        return
    aggregator: Aggregator = _built("aggregator", config.aggregator)
    if aggregator.coordinator_rows:
        raise ConfigError(f"{source}: the aggregator '{config.aggregator['name']}' compares updates with one of the "
                          f"coordinator's own, and '{name}' makes none", remedy="set aggregator.name = 'median'")


def _check_attack(name: str, algorithm: type[Algorithm], config: Config, source: str) -> None:
    if not config.attack:
        return
    if config.attack["first_round"] > config.rounds:
        raise ConfigError(f"{source}: the attack begins in round {config.attack['first_round']}, and the run ends "
                          f"after {config.rounds}", remedy=f"set attack.first_round = {config.rounds} or less")
    attack: type[Attack] = _component("attack", config.attack)
    missing = sorted(attack.acts_on - algorithm.attackable)
    if missing:
        raise ConfigError(f"{source}: the attack '{config.attack['name']}' changes {_ATTACKED[missing[0]]}, and "
                          f"'{name}' has none that hostile parties could change",
                          remedy=f"set attack.name to {_either(_attacks_on(algorithm))}, or algorithm.name to "
                          f"{_either(algorithms_that(lambda other: attack.acts_on <= other.attackable))}")


_ATTACKED = {"rows": "training rows", "updates": "updates", "cohort": "updates of parties that answer together"}


def _attacks_on(algorithm: type[Algorithm]) -> list[str]:
    attacks: dict[str, type[Attack]] = {entry.name: cast("type[Attack]", entry.component)
                                        for entry in registry.entries("attack")}
    return [name for name, attack in attacks.items() if attack.acts_on <= algorithm.attackable]


def _check_surroundings(name: str, algorithm: type[Algorithm], types: Mapping[str, Any], config: Config,
                        source: str) -> None:
    """Topology, clock, adoption, and what single parties do differently."""
    if not isinstance(_built("topology", config.topology), algorithm.topologies):
        raise ConfigError(f"{source}: the algorithm '{name}' does not work along the topology "
                          f"'{config.topology['name']}'",
                          remedy=f"set topology.name to {_either(topologies_for(algorithm))}")
    if algorithm.needs_clock and config.devices["name"] == "instant":
        raise ConfigError(f"{source}: the algorithm '{name}' runs on the virtual clock, and this run has none",
                          remedy="add a [devices] table, such as: devices = \"mobile\"")
    adoption = config.adoption
    if (adoption.if_better or adoption.fine_tune_epochs) and not algorithm.adoptable:
        raise ConfigError(f"{source}: [adoption] compares one common model with each party's own, and '{name}' ends "
                          "with no such model", remedy="leave [adoption] out, or set algorithm.name to "
                          f"{_either(algorithms_that(lambda other: other.adoptable))}")
    if adoption.fine_tune_epochs and "local" not in types:
        raise ConfigError(f"{source}: adoption.fine_tune_epochs trains the model on, and the models of '{name}' are "
                          "not trained step by step", remedy="leave adoption.fine_tune_epochs out")
    for party, own in config.overrides.items():
        if own.local and not ("local" in types and algorithm.own_training):
            raise ConfigError(f"{source}: [overrides.{party}.local] would do nothing: the parties of '{name}' do not "
                              f"{'train differently' if 'local' in types else 'train step by step'}",
                              remedy=f"leave [overrides.{party}.local] out, or set algorithm.name to "
                              f"{_either(algorithms_that(partial(_has_part, 'local')))}")
        if own.learner and not algorithm.offers_learners:
            raise ConfigError(f"{source}: overrides.{party}.learner would do nothing: in '{name}' all parties train "
                              "the same learner",
                              remedy=f"leave overrides.{party}.learner out, or set algorithm.name to "
                              f"{_either(algorithms_that(lambda other: other.offers_learners))}")


def _has_part(table: str, algorithm: type[Algorithm]) -> bool:
    return table in part_types(algorithm)


def algorithms_that(fits: Callable[[type[Algorithm]], bool]) -> list[str]:
    """Algorithms for which something holds; those that people start with come first, those that take anything last."""
    found = {entry.name: cast("type[Algorithm]", entry.component) for entry in registry.entries("algorithm")
             if entry.name not in BASELINES}
    names = [name for name, algorithm in found.items() if fits(algorithm)]
    return sorted(names, key=lambda name: (name not in ("fedavg", "fedprox", "scaffold"), found[name].offers_learners))


def learners_for(algorithm: type[Algorithm]) -> list[str]:
    """Learners that an algorithm works with."""
    wanted = part_types(algorithm)["learner"]
    return [entry.name for entry in registry.entries("learner") if _is_of(entry.component, wanted)]


def topologies_for(algorithm: type[Algorithm]) -> list[str]:
    """Topologies along which an algorithm works."""
    return [entry.name for entry in registry.entries("topology") if _is_of(entry.component, algorithm.topologies)]


def _is_of(component: object, wanted: Any) -> bool:
    """Whether a class gives what is wanted; protocols are looked for by their methods."""
    try:
        return isinstance(component, type) and issubclass(component, wanted)
    except TypeError:  # a protocol with fields
        return False


def _either(names: list[str], most: int = 8) -> str:
    """Names to choose from: the first few, if there are many."""
    if len(names) > most:
        return f"{', '.join(names[:most])}, ..."
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)


def check_composition(config: Config) -> None:
    """Refuse stages that do not compose, and whatever needs single updates where a stage hides them."""
    if not config.stages:
        return
    stages: list[Stage] = [_built("stage", stage) for stage in config.stages]
    attack = [build("stage", "attack", {"attack": config.attack["name"]})] if config.attack else []
    check_stages([*attack, *stages])
    remembering = next((name_of(type(stage)) for stage in stages if stage.spec.remembers), "")
    if remembering and "updates" not in _algorithm(config).sends:
        raise ConfigError(f"the stage '{remembering}' adds what it left out to the party's next update, and what "
                          f"'{config.algorithm['name']}' sends next are other sums",
                          remedy=f"set error_feedback = false in [[stages]] name = '{remembering}'")
    proving = next((name_of(type(stage)) for stage in stages if stage.spec.proves), "")
    aggregator: Aggregator | None = _built("aggregator", config.aggregator) if config.aggregator else None
    linear = aggregator is None or aggregator.linear
    sums = _algorithm(config).sums_only and "updates" in _algorithm(config).sends and linear
    if proving and not sums:
        raise ConfigError(f"the stage '{proving}' proves weighted sums, and the algorithm '{config.algorithm['name']}' "
                          f"with the aggregator '{config.aggregator.get('name')}' looks at single updates",
                          remedy="set algorithm.name = 'fedavg' and aggregator.name = 'mean'")
    found = hidden_from(config)
    if found and not is_private(config):  # what is private is refused with all reasons, when its ledger is opened
        (what, why, remedy), name = found[0], _hiding(config)
        if len(found) == 1:
            raise ConfigError(f"{what} does not go with the stage '{name}', which shows the coordinator a sum and no "
                              f"single update: {why}", remedy=f"{remedy}, or leave the stage '{name}' out")
        reasons = "".join(f"\n{number}. {what} does not go with it: {why}: {remedy}"
                          for number, (what, why, remedy) in enumerate(found, 1))
        raise ConfigError(f"the stage '{name}' shows the coordinator a sum and no single update, and {len(found)} "
                          f"settings need single ones:{reasons}", remedy=f"or leave the stage '{name}' out")


def is_private(config: Config) -> bool:
    """Whether something in a run adds noise for privacy."""
    return config.local.get("name") == "dp-sgd" or any(
        issubclass(_component("stage", stage), Mechanism) for stage in config.stages)


def objections_to_hiding(config: Config) -> list[str]:
    """What needs single updates where a stage hides them, each with what to set instead."""
    return [f"{what} does not go with the stage '{_hiding(config)}', which shows the coordinator a sum and no single "
            f"update: {why}: {remedy}" for what, why, remedy in hidden_from(config)]


def hidden_from(config: Config) -> list[tuple[str, str, str]]:
    """What looks at single updates though a stage hides them."""
    hiding = next((stage for table in config.stages if (stage := _built("stage", table)).spec.hides), None)
    aggregator: Aggregator | None = _built("aggregator", config.aggregator) if config.aggregator else None
    return [] if hiding is None else list(_needs_single_updates(config, hiding, aggregator))


def _hiding(config: Config) -> str:
    """The name of the stage that hides single updates."""
    return next(str(table["name"]) for table in config.stages if _built("stage", table).spec.hides)


def _needs_single_updates(config: Config, hiding: Stage,
                          aggregator: Aggregator | None) -> Iterator[tuple[str, str, str]]:
    """What looks at the update of one party, why, and what to set instead."""
    if aggregator is not None and not aggregator.linear:
        yield (f"the aggregator '{config.aggregator['name']}'", "it compares updates with each other",
               "set aggregator.name = 'mean'")
    if isinstance(aggregator, Mean) and aggregator.variance == "pooled":
        yield ("aggregator.variance = 'pooled'", "it compares the batch-norm statistics of single parties",
               "set aggregator.variance = 'mean'")
    if not _algorithm(config).sums_only:
        yield (f"the algorithm '{config.algorithm['name']}'",
               "it looks at what each party sent, not only at their weighted mean", "set algorithm.name = 'fedavg'")
    elif "updates" not in _algorithm(config).sends:
        yield from _cannot_hide_sums(config, hiding)
    in_groups = config.topology["name"] == "hierarchical" and hiding.spec.sums_in_groups
    if config.topology["name"] != "client-server" and not in_groups:
        yield (f"the topology '{config.topology['name']}'", "the sum is made between the parties and one coordinator",
               "set topology.name = 'client-server'")
    if config.contribution:
        yield (f"the contribution '{config.contribution['name']}'", "it tries cohorts with and without a party",
               "leave [contribution] out")
    selector: type[Selector] | None = _component("selector", config.selector) if config.selector else None
    if selector is not None and selector.looks_at_updates:
        yield (f"the selector '{config.selector['name']}'", "it values parties by what their updates add",
               "set selector.name = 'random'")
    if config.rules["largest_update"]:
        yield "rules.largest_update", "it measures each update", "set rules.largest_update = 0"
    if config.rules["replays"] == "refuse":
        yield "rules.replays", "it compares each update with earlier ones", "set rules.replays = 'allow'"
    if config.attack and _component("attack", config.attack).conspire is not Attack.conspire:
        yield (f"the attack '{config.attack['name']}'", "its parties would have to know all updates",
               "set attack.name = 'sign-flip'")


def _cannot_hide_sums(config: Config, hiding: Stage) -> Iterator[tuple[str, str, str]]:
    """What is made for updates of a model, and not for sums over rows."""
    name = config.algorithm["name"]
    if hiding.spec.sums_in_groups:
        yield (f"the algorithm '{name}'", "it asks for whole sums over rows, and groups make means of updates",
               "set [[stages]] name = 'secure-sum'")
    for changing in (stage for table in config.stages if (stage := _built("stage", table)).spec.gives):
        if not changing.spec.hides:
            yield (f"the stage '{name_of(type(changing))}'", f"the sums over rows of '{name}' are hidden as they are",
                   f"leave the stage '{name_of(type(changing))}' out")


def _algorithm(config: Config) -> type[Algorithm]:
    algorithm: type[Algorithm] = _component("algorithm", config.algorithm)
    return algorithm


def _component(kind: str, table: Mapping[str, object]) -> Any:
    return registry.find(kind, str(table["name"])).component


def _built(kind: str, table: Given) -> Any:
    return build(kind, str(table["name"]), {key: value for key, value in table.items() if key != "name"})
