"""Which parts of a config do not go together, said before any work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio import registry
from tequio.attacks.attack import Attack
from tequio.components import build, name_of
from tequio.errors import ConfigError
from tequio.federation.composition import check_stages
from tequio.federation.stages import StageSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.experiments.config.tables import Config
    from tequio.experiments.config.toml import Given
    from tequio.federation.stages import Stage


def check_composition(config: Config) -> None:
    """Refuse stages that do not compose, and whatever needs single updates where a stage hides them."""
    if not config.stages:
        return
    stages = [build("stage", stage["name"], {key: value for key, value in stage.items() if key != "name"})
              for stage in config.stages]
    attack = [build("stage", "attack", {"attack": config.attack["name"]})] if config.attack else []
    check_stages([*attack, *stages])
    proving = next((stage["name"] for stage, made in zip(config.stages, stages, strict=True)
                    if getattr(made, "trait", StageSpec()).proves), "")
    if proving and not _sums(config):
        raise ConfigError(f"the stage '{proving}' proves weighted sums, and the algorithm '{config.algorithm['name']}' "
                          f"with the aggregator '{config.aggregator['name']}' is not only made of such",
                          remedy="use an algorithm such as 'fedavg' with the aggregator 'mean'")
    hiding = next((made for made in stages if getattr(made, "trait", StageSpec()).hides), None)
    for what, why in _needs_single_updates(config, hiding) if hiding is not None else ():
        raise ConfigError(f"{what} does not go with the stage '{name_of(type(hiding))}', which shows the coordinator a "
                          f"sum and no single update: {why}",
                          remedy="leave one of the two out (docs: Secure aggregation)")


def _needs_single_updates(config: Config, hiding: Stage) -> Iterator[tuple[str, str]]:
    """What looks at the update of one party, and why."""
    aggregator, algorithm = (_component(kind, getattr(config, kind)) for kind in ("aggregator", "algorithm"))
    if not getattr(aggregator, "linear", False):
        yield f"the aggregator '{config.aggregator['name']}'", "it compares updates with each other"
    if not getattr(algorithm, "sums_only", False):
        yield (f"the algorithm '{config.algorithm['name']}'",
               "it looks at what each party sent, not only at their weighted mean")
    in_groups = config.topology["name"] == "hierarchical" and getattr(hiding, "sums_in_groups", False)
    if config.topology["name"] != "client-server" and not in_groups:
        yield f"the topology '{config.topology['name']}'", "the sum is made between the parties and one coordinator"
    if config.contribution:
        yield f"the contribution '{config.contribution['name']}'", "it tries cohorts with and without a party"
    if getattr(_component("selector", config.selector), "looks_at_updates", False):
        yield f"the selector '{config.selector['name']}'", "it values parties by what their updates add"
    if config.rules["largest_update"]:
        yield "rules.largest_update", "it measures each update"
    if config.rules["replays"] == "refuse":
        yield "rules.replays", "it compares each update with earlier ones"
    if config.attack and _component("attack", config.attack).conspire is not Attack.conspire:
        yield f"the attack '{config.attack['name']}'", "its parties are said to know all updates, which nobody does"


def _sums(config: Config) -> bool:
    """Whether an aggregate is nothing but a weighted sum of updates."""
    return bool(getattr(_component("aggregator", config.aggregator), "linear", False)
                and getattr(_component("algorithm", config.algorithm), "sums_only", False))


def _component(kind: str, table: Given) -> Any:
    return registry.find(kind, table["name"]).component
