"""A run with real parties: who they are comes from their greetings, and their rows stay with them."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.dataset import Dataset, schema_from_json, schema_to_json
from tequio.data.inputs import read
from tequio.data.partition import Split
from tequio.data.preprocessing import Fitted
from tequio.data.preprocessing.automatic import AUTO
from tequio.data.sharing import SharedSchema, save_schema
from tequio.engines.network.engine import NetworkEngine
from tequio.engines.network.holding import fit_everywhere
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.complete import build_named, config_hash
from tequio.experiments.deploying.holdings import population_of_columns, refuse_common_preparation
from tequio.experiments.running import store
from tequio.experiments.running.headline import headline_of
from tequio.experiments.running.limits import check_rules, privacy_warnings, with_ledger
from tequio.experiments.running.recording import ignore
from tequio.experiments.running.runner import announcement_of, run_config
from tequio.experiments.running.scenario import (
    Scenario,
    make_algorithm,
    make_scenario,
    overrides_of,
    with_steps,
)
from tequio.experiments.running.signs import imbalance, large_batches, loss_of_ignorance
from tequio.federation import payload as payloads
from tequio.federation.federation import Rules
from tequio.federation.population import elsewhere
from tequio.models.rows import Reading
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from threading import Lock

    from tequio.data.dataset import Schema
    from tequio.data.inputs.column import Missing
    from tequio.engines.network.hub import Gateway
    from tequio.engines.network.wire import Hello
    from tequio.experiments.config.tables import Config
    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.results import Result
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population


REAL_PARTIES = "parties"
_PREPARATION = "preparation"
_ROSTER = "roster"
_ONLY_SIMULATED = ("devices", "availability", "attack", "baselines")


def run_with_parties(config: Config, service: Gateway, *, listen: Listener = ignore, folder: Path | None = None,
                     turn: Lock | None = None) -> Result:
    """Run a config with the parties that dial in at a service, or go on with the run in `folder`.

    Runs that share a process also share the lock `turn`, which the caller holds.
    """
    engine = NetworkEngine(build_named("engine", config.engine), service, turn,
                           lambda awaited: listen("waiting", {"name": config.name, **awaited}))
    place = folder or store.new_folder(config.output.folder, config.name, config_hash(config))
    try:
        scenario = _real_scenario(config, engine, service, place) if config.data.name == REAL_PARTIES else \
            make_scenario(config)
    except BaseException:
        engine.close()
        raise
    return run_config(config, listen=listen, folder=place, engine=engine, scenario=scenario)


def _real_scenario(config: Config, engine: NetworkEngine, service: Gateway, place: Path) -> Scenario:
    check_real(config)
    return scenario_of(config, engine, _roster(config, engine, service, place), place)


def check_real(config: Config) -> None:
    """Refuse what no run with real parties can do, before anybody is waited for."""
    check_rules(config)
    _refuse_simulation(config)


def scenario_of(config: Config, engine: NetworkEngine, roster: Mapping[str, Hello], place: Path) -> Scenario:
    """What the parties of a roster bring together, after they have fitted the run's preparation."""
    population = population_of(config, roster)
    algorithm = make_algorithm(config)
    config = with_steps(config, population, algorithm)
    test = _test_rows(config, population)
    agreed = agreed_schema(config, roster, population)
    preparation = _preparation(config, engine, population, place, agreed, algorithm)
    reading = Reading(population.schema, "float64", missing=population.dataset.source.missing)
    if preparation:
        rows = [_no_rows(population.schema), *([test] if test is not None else [])]
        fitted = Fitted.from_payload(preparation)
        rows = [fitted.apply(dataset) for dataset in rows]
        population = elsewhere(rows[0].schema, list(roster), [hello.rows for hello in roster.values()],
                               population.split, population.seed, population.overrides)
        test = rows[1] if test is not None else None
        reading = replace(reading, preparation=fitted)
    save_schema(SharedSchema(schema_from_json(agreed)), place / store.SCHEMA)
    rules = Rules(**config.rules)
    judged = population.dataset if test is None else test
    algorithm, ledger = with_ledger(config, algorithm, population, rules, None, None, announced=True)
    return Scenario(population, test, None, algorithm, build_named("topology", config.topology), rules,
                    warnings=(*imbalance(config, test), *large_batches(config, population, algorithm),
                              *privacy_warnings(ledger)), ledger=ledger,
                    announced={"schema": agreed, **({"preparation": preparation} if preparation else {})},
                    reading=reading,
                    headline=headline_of(config.evaluation.headline, population.schema.target, test),
                    ignorance=loss_of_ignorance(judged), rows="" if ledger is None else _REAL_PARTIES)


_REAL_PARTIES = "parties"
"""The coordinator sees no rows to tell apart, so that it counts all private runs of its parties together."""


def agreed_schema(config: Config, roster: Mapping[str, Hello], population: Population) -> str:
    """What the columns mean, as parties are told: what all of them greeted with, or what they have together."""
    return schema_to_json(population.schema) if by_columns(config) else next(iter(roster.values())).schema


def _no_rows(schema: Schema) -> Dataset:
    """A dataset of that schema, by which to see what a preparation makes of the columns."""
    kind = schema.target.kind
    target = None if kind == "none" else np.zeros((0, schema.target.size) if kind == "multilabel" else 0, np.int64)
    return Dataset.of(schema, np.zeros((0, *schema.shape), np.float32), target)


def _refuse_simulation(config: Config) -> None:
    """Say which tables are about simulated parties."""
    simulated = {"devices": "instant", "availability": "always"}
    for table in _ONLY_SIMULATED:
        given = getattr(config, table)
        if given and not (table in simulated and given["name"] == simulated[table]):
            raise ConfigError(f"'{table}' is about simulated parties, and these are real", remedy=f"leave {table} out")
    if config.data.steps and config.data.prepare_scope == "local":
        raise ConfigError("data.prepare_scope = 'local' is the parties' own business here",
                          remedy="let each party join with --prepare")
    if config.data.without or config.data.without_rows:
        raise ConfigError("data.without takes simulated parties out, and these are real",
                          remedy="list the parties that take part in data.parties")
    if by_columns(config):
        refuse_common_preparation(config)
    if config.data.validation or config.aggregator.get("root_rows"):
        raise ConfigError("the coordinator holds no rows that it could keep back",
                          remedy="leave data.validation and aggregator.root_rows out")


def _roster(config: Config, engine: NetworkEngine, service: Gateway, place: Path) -> dict[str, Hello]:
    """Who takes part, in a fixed order: as the config lists them, or all that are there; a resumed run keeps it."""
    path = place / _ROSTER
    asked = build("dataset", REAL_PARTIES, config.data.parameters)
    names = path.read_text(encoding="utf-8").splitlines() if path.exists() else asked.parties
    wait = build_named("engine", config.engine).wait
    with engine.others_turn():
        there = service.hub.expect(names, wait, engine.say) if names else \
            service.hub.at_least(asked.minimum, wait, engine.say)
    names = names or list(there)
    store.write_whole(path, "\n".join(names).encode())
    return {name: there[name] for name in names}


def by_columns(config: Config) -> bool:
    """Whether parties hold different columns of the same rows."""
    return bool(build("dataset", REAL_PARTIES, config.data.parameters).columns)


def population_of(config: Config, roster: Mapping[str, Hello]) -> Population:
    """The parties of a roster as the coordinator knows them; where their tables differ, that is said."""
    split = Split(**config.data.split.model_dump())
    if by_columns(config):
        population = population_of_columns(roster, split, config.seed)
        return replace(population, overrides=overrides_of(config, population))
    schemas = {name: schema_from_json(hello.schema) for name, hello in roster.items()}
    first, *others = schemas
    for name in others:
        if schemas[name] != schemas[first]:
            raise DataError(f"party '{name}' {difference(schemas[name], schemas[first], first)}",
                            remedy="agree on one schema file (tequio data schema), and let each party join with "
                                   "--schema FILE")
    population = elsewhere(schemas[first], list(roster), [hello.rows for hello in roster.values()],
                           split, config.seed, {})
    if AUTO in config.data.steps:  # whether values are missing is known at the parties alone, so it is looked after
        whole = population.dataset
        population = replace(population, dataset=replace(whole, source=replace(whole.source, missing="keep")))
    return replace(population, overrides=overrides_of(config, population))


def difference(schema: Schema, other: Schema, holder: str) -> str:
    """Where a party's schema is not that of another one, by the names of columns, each with the nearest there is."""
    strange = [name for name in schema.names if name not in other.names]
    lacking = [name for name in other.names if name not in schema.names]
    if strange and lacking:
        near = get_close_matches(strange[0], lacking, n=1) or lacking
        return f"has a column '{strange[0]}' where party '{holder}' has '{near[0]}'"
    if strange or lacking:
        return f"has a column '{strange[0]}' that party '{holder}' lacks" if strange else \
            f"lacks the column '{lacking[0]}' of party '{holder}'"
    mine, theirs = schema.target, other.target
    if mine.name != theirs.name:
        return f"predicts '{mine.name}', party '{holder}' predicts '{theirs.name}'"
    if mine != theirs:
        return f"predicts '{mine.name}' as {mine.kind}, party '{holder}' as {theirs.kind}" if mine.kind != theirs.kind \
            else f"knows other classes of '{mine.name}' than party '{holder}'"
    known = {feature.name: feature for feature in other.features}
    for feature in schema.features:
        if feature != known[feature.name]:
            kind = known[feature.name].kind
            if feature.kind != kind:
                return f"holds '{feature.name}' as {feature.kind}, party '{holder}' as {kind}"
            return f"describes the column '{feature.name}' otherwise than party '{holder}', such as its categories"
    return f"has its columns in another order than party '{holder}'"


def _test_rows(config: Config, population: Population) -> Dataset | None:
    path = config.data.parameters.get("test_path")
    gaps: Missing = "keep" if population.dataset.has_missing else "error"
    return read(path, schema=population.schema, target=population.schema.target.name, missing=gaps) if path else None


def _preparation(config: Config, engine: NetworkEngine, population: Population, place: Path, agreed: str,
                 algorithm: Algorithm) -> Payload:
    """The steps with what the parties together fitted; a resumed run keeps what it began with."""
    steps, path = list(config.data.steps), place / _PREPARATION
    if not steps:
        return {}
    if path.exists():
        return payloads.decode(path.read_bytes())
    engine.announce(announcement_of(config, place, {"schema": agreed}, algorithm))
    engine.open(population)
    names = [population.name(party) for party in range(len(population))]
    found = {"steps": steps, "statistics": fit_everywhere(engine, names, steps)}
    store.write_whole(path, payloads.encode(found))
    return found
