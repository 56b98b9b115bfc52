"""From a config to what a run works on: parties with their prepared rows, the coordinator's test rows, the algorithm.

Preparation is fitted on training rows only, never on rows that a model is judged by.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from tequio import registry
from tequio.attacks.hostility import Hostility, Schedule
from tequio.data.catalogue.entry import Loaded, facts_of
from tequio.data.dataset import Dataset, Source
from tequio.data.noise import FeatureNoise, with_noise
from tequio.data.partition import Partition, Split, hold_out
from tequio.data.preprocessing import Fitted, fit_and_prepare, preparations, settled
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.complete import GIVEN_DATA, build_named
from tequio.experiments.running.headline import headline_of
from tequio.experiments.running.leaving import without
from tequio.experiments.running.limits import LEDGERS, check_rules, privacy_warnings, with_ledger
from tequio.experiments.running.signs import loss_of_ignorance, signs_in_data
from tequio.federation.algorithm import part_types, with_parts
from tequio.federation.averaging import check_pooling
from tequio.federation.clock import Clock
from tequio.federation.devices import Always, Instant, consenting
from tequio.federation.federation import Rules
from tequio.federation.population import Population
from tequio.federation.rng import stream
from tequio.learners.learner import takes_of
from tequio.models.rows import Reading
from tequio.privacy.dataset_ledger import DatasetLedger, fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.catalogue.entry import CatalogueDataset, Rows
    from tequio.data.preprocessing import Preparation
    from tequio.experiments.config.tables import Config, Data
    from tequio.experiments.config.toml import Given
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.exchange import Engine
    from tequio.federation.topology import Topology
    from tequio.privacy.ledger import Ledger

    Kept = tuple[Dataset | None, ...]
    Dealt = Callable[[Population, Dataset | None], Population]
    Applied = tuple[Fitted, dict[str, Fitted]]


@dataclass(frozen=True)
class Scenario:
    """All that a run needs besides the engine. `warnings` are for the record and the screen, and so are `notes` on what
    columns were taken for; `facts` are for the record.

    `test` and `validation` are rows of the coordinator's own: to report on, and to judge models by; `root` are those
    that it trains on itself, if any. `hostility` is who attacks and how, `ledger` what a private run has spent.
    `announced` is what real parties have to be told of their data in this run, and `reading` says how rows become what
    the model is asked about. `headline` is the metric that stands for the run, and `ignorance` the loss by which to see
    that it diverges (0: there is none, or the run is attacked and may end in any way). `rows` is the name of the
    ledger that a private run is counted in: the fingerprint of all rows of simulated parties.
    """

    population: Population
    test: Dataset | None
    validation: Dataset | None
    algorithm: Algorithm
    topology: Topology
    rules: Rules
    clock: Clock | None = None
    warnings: tuple[str, ...] = ()
    root: Dataset | None = None
    hostility: Hostility | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    ledger: Ledger | None = None
    announced: Mapping[str, object] = field(default_factory=dict)
    reading: Reading | None = None
    headline: str = ""
    notes: tuple[str, ...] = ()
    ignorance: float = 0.0
    rows: str = ""


def make_scenario(config: Config, dataset: Rows | None = None, *, dealt: Dealt | None = None) -> Scenario:
    """Load, hold out, deal, check; anything wrong with the data is said before work starts.

    `dealt` may deal other rows to the parties, before rows are prepared, given the coordinator's own.
    """
    check_rules(config)
    train, test = _coordinator_data(config, dataset)
    whole = train
    algorithm = make_algorithm(config)
    raw = train
    train, validation = _kept_back(config, train)
    train, root = _root_rows(config, train)
    partition = build_named("partition", config.data.partition).deal(train, stream(config.seed, "partition"))
    partition.check()
    partition, (raw, train), left_out = without(config.data, partition, (raw, train))
    partition, (raw, train), (test, validation, root) = _held_columns(partition, (raw, train), (test, validation, root))
    train, partition, facts = _with_noise(config, train, partition)
    population = Population(train, partition, Split(**config.data.split.model_dump()), config.seed, left_out=left_out)
    warnings = _check_classes(population, config.data.one_class)
    population = replace(population, overrides=overrides_of(config, population))
    config = with_steps(config, population, algorithm)
    population = dealt(population, test) if dealt is not None else population
    population, (test, validation, root), fitted = prepared(population, (test, validation, root), config.data)
    hostility, rules, clock = make_hostility(config, population), Rules(**config.rules), make_clock(config, population)
    check_pooling(algorithm.components, population.schema)
    if hostility is not None:
        algorithm = with_parts(algorithm, attack=hostility)
    algorithm, ledger = with_ledger(config, algorithm, population, rules, clock, hostility)
    reading = Reading.of(raw, *fitted)
    if config.data.steps:
        facts["prepare"] = config.data.steps
    if ledger is not None:  # no budget pays for what the most frequent categories say of the rows
        reading = replace(reading, usual=raw.source.usual)
    return Scenario(population, test, validation, algorithm, build_named("topology", config.topology), rules, clock,
                    (*warnings, *signs_in_data(config, population, raw, algorithm), *privacy_warnings(ledger)), root,
                    hostility, facts, ledger, reading=reading,
                    headline=headline_of(config.evaluation.headline, train.schema.target, train),
                    ignorance=0.0 if hostility is not None else loss_of_ignorance(raw), notes=raw.source.notes,
                    rows="" if ledger is None else fingerprint_of(whole))


def check_columns(population: Population, algorithm: Algorithm) -> None:
    """Refuse an algorithm that needs the same columns at all parties, where they hold different ones."""
    columns = population.partition.columns
    if columns is None or algorithm.across_columns or all(np.array_equal(columns[0], mine) for mine in columns):
        return
    name = registry.name_of(type(algorithm))
    raise ConfigError(f"the parties hold different columns, and the algorithm '{name}' needs the same ones at all of "
                      "them", remedy="set algorithm.name = 'transfer' or 'split-nn', or data.partition.name = 'iid'")


def with_steps(config: Config, population: Population, algorithm: Algorithm) -> Config:
    """The config with the steps that `auto` stands for, now that the table and the learner are known."""
    learner = algorithm.components.learner
    takes = takes_of(learner, algorithm)
    steps = settled(config.data.steps, population.dataset, takes, may_widen=population.partition.columns is None,
                    flags=config.data.prepare_scope == "federated")  # apart, parties would not flag the same columns
    return config.model_copy(update={"data": config.data.model_copy(update={"prepare": steps})})


def make_algorithm(config: Config) -> Algorithm:
    """The algorithm with the parts that it has fields for."""
    wanted = part_types(registry.find("algorithm", config.algorithm["name"]).component)
    tables = {"learner": ("learner", config.learner), "local": ("training", config.local),
              "selector": ("selector", config.selector), "aggregator": ("aggregator", config.aggregator),
              "contribution": ("contribution", config.contribution)}
    parts: dict[str, object] = {name: build_named(kind, table) for name, (kind, table) in tables.items()
                                if name in wanted and table}
    if "stages" in wanted:
        parts["stages"] = tuple(build_named("stage", stage) for stage in config.stages)
    algorithm: Algorithm = build_named("algorithm", config.algorithm, parts=parts)
    return algorithm


def make_clock(config: Config, population: Population) -> Clock | None:
    """The virtual clock, where the config says how fast devices are."""
    devices, availability = build_named("devices", config.devices), build_named("availability", config.availability)
    if isinstance(devices, Instant):
        if not isinstance(availability, Always):
            raise ConfigError("[availability] looks at the virtual clock, and this run has none",
                              remedy="add a [devices] table, such as: devices = \"mobile\"")
        return None
    training = population.sizes * (1.0 - population.split.validation - population.split.test)
    return Clock(devices, training, availability.schedule(population, config.seed), config.seed)


def make_hostility(config: Config, population: Population) -> Hostility | None:
    """Who attacks and how, if anybody does."""
    if not config.attack:
        return None
    when = {key: value for key, value in config.attack.items() if key in Schedule.__dataclass_fields__}
    attack = build_named("attack", {key: value for key, value in config.attack.items() if key not in when})
    return Hostility.of(attack, Schedule(**when), population)


def make_engine(config: Config) -> Engine:
    """The engine, not yet opened."""
    engine: Engine = build_named("engine", config.engine).create()
    return engine


def training_rows(config: Config) -> Dataset:
    """The raw rows of all simulated parties together, as a run with this config deals them out."""
    return _coordinator_data(config, None)[0]


def start_ledgers_anew(configs: Iterable[Config]) -> None:
    """Count what private runs spend on the rows of these configs from here on only."""
    distinct = {f"{config.output.folder} {config.data.name} {config.data.parameters}": config for config in configs}
    for config in distinct.values():
        DatasetLedger(Path(config.output.folder) / LEDGERS, fingerprint_of(training_rows(config))).start_anew()


def _coordinator_data(config: Config, dataset: Rows | None) -> tuple[Dataset, Dataset | None]:
    """Rows for the parties and rows that the coordinator keeps: the official test part, or a held-out share."""
    if config.data.name == GIVEN_DATA and dataset is None:
        raise ConfigError("this config was made for a dataset that was handed over as an object",
                          remedy="hand it over again: tequio.run(config, data=...)")
    own = {"name": config.data.name, **config.data.parameters}
    loaded = _loaded(own) if dataset is None else dataset if isinstance(dataset, Loaded) else Loaded(dataset)
    if loaded.test is not None or not config.data.test:
        return loaded.train, loaded.test
    return hold_out(loaded.train, config.data.test, stream(config.seed, "hold out"))


def _held_columns(partition: Partition, dealt: tuple[Dataset, Dataset],
                  kept: Kept) -> tuple[Partition, tuple[Dataset, Dataset], Kept]:
    """Leave out the columns that the partition gives to nobody: no party could answer for them."""
    held = None if partition.columns is None else np.unique(np.concatenate(partition.columns))
    if held is None or len(held) == len(dealt[0].schema.features):
        return partition, dealt, kept
    names = {dealt[0].schema.names[column] for column in held}
    sources: dict[int, Source] = {}

    def narrowed(rows: Dataset) -> Dataset:
        whole = rows.source
        source = sources.setdefault(id(whole), replace(
            whole, features=whole.features[:, held],
            usual={name: value for name, value in whole.usual.items() if name in names}))
        return replace(rows, schema=rows.schema.select(held.tolist()), source=source)

    columns = tuple(np.searchsorted(held, own) for own in partition.columns or ())
    return replace(partition, columns=columns), (narrowed(dealt[0]), narrowed(dealt[1])), tuple(
        None if rows is None else narrowed(rows) for rows in kept)


def _with_noise(config: Config, train: Dataset,
                partition: Partition) -> tuple[Dataset, Partition, dict[str, object]]:
    """Put each party's noise on its rows, and note which parties know which labels and how noisy they are."""
    facts: dict[str, object] = {}
    if partition.labels is not None:
        names = train.schema.target.names
        facts["labels"] = {partition.name(party): [names[label] for label in own]
                           for party, own in enumerate(partition.labels)}
    how = FeatureNoise(**config.data.feature_noise.model_dump())
    if how.largest:
        train, partition, deviations = with_noise(train, partition, how,
                                                  lambda party: stream(config.seed, "noise", party=party))
        facts["noise"] = {partition.name(party): float(sigma) for party, sigma in enumerate(deviations)}
    return train, partition, facts


def _kept_back(config: Config, train: Dataset) -> tuple[Dataset, Dataset | None]:
    """Rows for the parties, and rows that the coordinator judges models by."""
    share = config.data.validation
    return hold_out(train, share, stream(config.seed, "coordinator validation")) if share else (train, None)


def _root_rows(config: Config, train: Dataset) -> tuple[Dataset, Dataset | None]:
    """Rows for the parties and rows that the coordinator trains on itself, where its aggregator asks for some."""
    wanted = config.aggregator.get("root_rows", 0)
    if not wanted:
        return train, None
    if wanted >= len(train):
        raise ConfigError(f"aggregator.root_rows = {wanted} leaves no rows for the parties: there are {len(train)}",
                          remedy="set a smaller aggregator.root_rows")
    return hold_out(train, wanted / len(train), stream(config.seed, "root rows"))


def _loaded(own: Given) -> Loaded:
    """The dataset's parts. Files of the catalogue cannot change under their checksums, so the last set is remembered:
    baselines, sweeps and studies use it again and again."""
    component = build_named("dataset", own)
    facts = facts_of(component)
    return _last_loaded(component) if facts and facts.files else _last_loaded.__wrapped__(component)


@lru_cache(maxsize=1)
def _last_loaded(component: CatalogueDataset) -> Loaded:
    return component.load()


def overrides_of(config: Config, population: Population) -> dict[int, Given]:
    """Settings of single parties: what the config says of them, and which lend rows by chance."""
    devices, own = build_named("devices", config.devices), {}
    if not isinstance(devices, Instant):
        own = {int(party): {"share_rows": True} for party in consenting(devices, config.seed, len(population))}
    for name, override in config.overrides.items():
        party = population.index(name)
        said = override.model_dump(exclude=None if "share_rows" in override.model_fields_set else {"share_rows"})
        own[party] = {**own.get(party, {}), **said}
    return own


def _check_classes(population: Population, policy: str) -> tuple[str, ...]:
    """Refuse parties that have never seen more than one class, or warn of them where the config allows them."""
    lonely = one_class_parties(population)
    if not len(lonely):
        return ()
    target, codes = population.schema.target, np.unique(population.dataset.target)
    if len(codes) == 1 and policy == "error":
        raise DataError(f"there is nothing to learn: '{target.name}' is '{target.names[codes[0]]}' in every row",
                        remedy="name the column to predict: data.target = \"COLUMN\"")
    listed = ", ".join(f"'{population.name(int(party))}'" for party in lonely[:5])
    message = (f"{len(lonely)} of {len(population)} parties have rows of one class only: party {listed}"
               f"{', ...' if len(lonely) > 5 else ''}")
    if policy == "error":
        raise DataError(message, remedy="deal the rows with less skew or to fewer parties ([data.partition]), or set "
                                        "data.one_class = 'allow' if this is what you want to study")
    return (f"{message}; to give them others deal the rows with less skew ([data.partition])",)


def one_class_parties(population: Population) -> NDArray[np.int64]:
    """Parties whose rows all have the same class."""
    dataset, partition = population.dataset, population.partition
    if dataset.schema.target.kind != "classes" or partition.holds_target is not None:
        return np.empty(0, dtype=np.int64)
    held = np.flatnonzero(partition.sizes)
    labels, starts = dataset.target[partition.rows], partition.offsets[:-1][held]
    alike: NDArray[np.bool_] = np.minimum.reduceat(labels, starts) == np.maximum.reduceat(labels, starts)
    return held[alike]


def prepared(population: Population, kept: Kept, how: Data) -> tuple[Population, Kept, Applied]:
    """The population and the coordinator's own rows, where it has such, after the config's steps; and what these were
    fitted to, for the coordinator's rows and for each party's where that differs.

    Federated: each party fits its own training rows and the merged statistics are used by all. Local: everyone uses
    statistics of its own rows only, the coordinator those of each of its own sets (it has no others).
    """
    steps = preparations(how.steps)
    if not steps:
        return population, kept, (Fitted(), {})
    if population.partition.columns is not None:
        return _by_column(population, kept, steps)
    if how.prepare_scope == "federated":
        return _together(population, kept, steps, [population.view(party).train for party in _holding(population)])
    apart = [None if rows is None else fit_and_prepare(steps, [rows], [rows]) for rows in kept]
    population, own = _apart(population, steps)
    first = next((done[0] for done in apart if done is not None), Fitted())
    return population, tuple(None if done is None else done[1][0] for done in apart), (first, own)


def _together(population: Population, kept: Kept, steps: Sequence[Preparation],
              fit_on: Sequence[Dataset]) -> tuple[Population, Kept, Applied]:
    fitted, (dataset, *rest) = fit_and_prepare(
        steps, fit_on, [population.dataset, *(rows for rows in kept if rows is not None)])
    changed = iter(rest)
    return _with(population, dataset, population.partition), tuple(
        None if rows is None else next(changed) for rows in kept), (fitted, {})


def _apart(population: Population, steps: Sequence[Preparation]) -> tuple[Population, dict[str, Fitted]]:
    dealt, holding = replace(population.partition, labels=None), _holding(population)
    done = [fit_and_prepare(steps, [population.view(party).train], [dealt.view(population.dataset, party)])
            for party in holding]
    parts = [changed[0] for _, changed in done]
    if any(part.schema != parts[0].schema for part in parts):
        raise DataError("parties that prepare their rows apart end up with different columns",
                        remedy="set data.prepare_scope = 'federated'")
    dealt = replace(population.partition, rows=np.arange(sum(map(len, parts))))
    own = {population.name(party): fitted for party, (fitted, _) in zip(holding, done, strict=True)}
    return _with(population, _stacked(parts), dealt), own


def _holding(population: Population) -> list[int]:
    """The parties that hold rows: all but those that the run is without."""
    return np.flatnonzero(population.sizes).tolist()


def _by_column(population: Population, kept: Kept, steps: Sequence[Preparation]) -> tuple[Population, Kept, Applied]:
    """Where a party holds some columns, statistics of a column are its holder's own either way."""
    held = population.dataset.take(np.unique(population.partition.rows))
    changed = _together(population, kept, steps, [held])
    if changed[0].schema.names != population.schema.names:
        raise ConfigError("data.prepare changes the columns, which parties that each hold some of them cannot do",
                          remedy="use steps that keep the columns, such as 'standardise'")
    return changed


def _with(population: Population, dataset: Dataset, partition: Partition) -> Population:
    return replace(population, dataset=dataset, partition=partition, _views=type(population._views)())


def _stacked(parts: Sequence[Dataset]) -> Dataset:
    """The rows of all parts, one part after the other."""
    first = parts[0]
    features = [part.features for part in parts]
    joined = sparse.vstack(features, format="csr") if first.is_sparse else np.concatenate(features)
    return Dataset.of(first.schema, joined, np.concatenate([part.target for part in parts])
                      if first.schema.target.kind != "none" else None, name=first.name,
                      ids=np.concatenate([part.ids for part in parts]),
                      groups=np.concatenate([part.groups for part in parts])
                      if first.source.groups is not None else None, missing=first.source.missing)
