"""The Python API: `tequio.run` and `tequio.sweep`, and the baselines beside a run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from scipy import sparse

from tequio.data.catalogue.entry import Loaded
from tequio.data.inputs.handed import SHORT, as_keys, handed_over, has_parties, holds_rows, is_read
from tequio.data.mapped import row_blocks
from tequio.errors import ConfigError
from tequio.experiments.config.complete import (
    GIVEN_DATA,
    build_named,
    complete,
    config_hash,
    copied,
    load_config,
    read_given,
    resolved,
    with_key,
)
from tequio.experiments.config.composition import PARTS, parts_taken
from tequio.experiments.config.tables import Config, Data
from tequio.experiments.running.recording import ignore
from tequio.experiments.running.results import Result, is_finished
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.scenario import make_algorithm
from tequio.experiments.running.store import BASELINES, CONFIG, explained, find_folder
from tequio.experiments.sweep import SweepResult, run_sweep
from tequio.learners.handed_modules import as_learner, is_at_hand_only, remember
from tequio.learners.learner import GradientLearner, LocalTraining
from tequio.learners.trees.learner import TreeLearner
from tequio.models import folder as model_folder
from tequio.registry import name_of, to_spec

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tequio.data.catalogue.entry import Rows
    from tequio.experiments.config.keys import RunKeys
    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.recording import Listener
    from tequio.models.model import Model

    ConfigLike = str | Path | Mapping[str, object] | Config | object | None


_FINGERPRINT = "sha256"
_MAY_CHANGE = ("name", "plugins", "engine", "output", "rounds", "stop", "baselines", "sweep", "search")


def run(config: ConfigLike = None, *, resume: str | Path | None = None, listen: Listener = ignore,
        progress: bool = False, **keys: Unpack[RunKeys]) -> Result:
    """Run an experiment to its end and give back what came of it.

    `config` is a TOML file, a dict or a `Config`; keywords go on top of it: `rounds=20`, `learner="mlp"`,
    `local={"epochs": 5}` (a dict with a `name` replaces the table, one without adds to it). `data` may also be rows:
    a data frame, arrays `(features, target)`, a CSV or Parquet file, a dataset object, or one such table per party in a
    dict or a list. Rows may come first too: `tequio.run(frame, target="y")`. `resume` goes on with a stopped run
    instead: its folder, its name, or 'last'.
    """
    with shown_while(progress, listen) as heard:
        if resume is not None:
            return resume_run(resume, config, dict(keys), listen=heard)
        given, dataset = gather(config, dict(keys))
        if given.get("sweep"):
            raise ConfigError("this config has a [sweep] table", remedy="use tequio.sweep(...)")
        if given.get("search"):
            raise ConfigError("this config has a [search] table", remedy="use tequio.search(...)")
        return run_with_baselines(complete(given, source=source_of(config)), dataset=dataset, listen=heard)


def sweep(config: ConfigLike = None, *, listen: Listener = ignore, progress: bool = False,
          **keys: Unpack[RunKeys]) -> SweepResult:
    """Run every combination of the values in `sweep={"local.learning_rate": [0.1, 0.01], "seeds": [0, 1, 2]}`."""
    given, dataset = gather(config, dict(keys))
    with shown_while(progress, listen) as heard:
        return run_sweep(given, source=source_of(config), dataset=dataset, listen=heard)


def load(place: str | Path, *, party: str = "", authority: str | Path | None = None,
         learner: object = None) -> Model:
    """A trained model: from its own folder, or from a run by its folder, its name under runs/, or 'last'.

    Its files have to be, bit for bit, what was written. `party` asks for one party's own model. With an `authority`
    (a party's folder, or the certificate in it) the coordinator of that federation has to have signed the model. The
    model of a torch module that was handed over needs that module again, as `learner`.
    """
    if learner is not None:
        remember(learner)
    try:
        found = model_folder.find(Path(place))
    except ConfigError:
        found = model_folder.find(find_folder(place))
    model = model_folder.load(found)
    if authority is not None:
        from tequio.models.publishing import authority_of, check_signature

        check_signature(found, model.facts["sha256"], authority_of(authority))
    return model.of(party) if party else model


def resume_run(run: str | Path, config: ConfigLike, keys: Given, *, listen: Listener = ignore) -> Result:
    """Go on with a run from its last checkpoint, to the same numbers as if it had never stopped.

    The config is the one in the run's folder unless it is given again. Only what does not change earlier numbers may
    differ: the engine, the output, the rounds and the stop rules.
    """
    parent = Config.model_fields["output"].get_default(call_default_factory=True).folder
    if config is not None:
        parent = complete(gather(config, keys)[0], source=source_of(config)).output.folder
    place = find_folder(run, keys.get("output.folder", parent))
    given, dataset = gather(place / CONFIG if config is None else config, keys)
    now = complete(given, source=source_of(config or CONFIG))
    refuse_changes(load_config(place / CONFIG), now)
    return run_with_baselines(now, dataset=dataset, listen=listen, folder=place)


def run_with_baselines(config: Config, *, dataset: Rows | None = None, listen: Listener = ignore,
                       folder: Path | None = None) -> Result:
    """The run itself, then its baselines in folders inside its own; what is finished in `folder` is kept."""
    main = _run_unless_finished(config, dataset, listen, folder)
    for baseline in config.baselines:
        place = main.folder / BASELINES / baseline
        with explained(place):
            place.mkdir(parents=True, exist_ok=True)
        _run_unless_finished(baseline_config(config, baseline, main.summary["rounds"]), dataset, listen, place)
    return main


def _run_unless_finished(config: Config, dataset: Rows | None, listen: Listener, folder: Path | None) -> Result:
    if folder is not None and is_finished(folder) and Result(folder).summary["config_hash"] == config_hash(config):
        return Result(folder)
    return run_config(config, dataset=dataset, listen=listen, folder=folder)


def gather(config: ConfigLike, keys: Given) -> tuple[Given, Rows | None]:
    """A config with keywords on top, and the rows where they were handed over as an object."""
    if holds_rows(config, Config.model_fields):
        more = as_keys(keys.get("data", {}), Data.model_fields)
        if "name" in more:
            raise ConfigError("data is given twice", remedy="give it first, or as data=...")
        config, keys = None, {**keys, "data": {**more, "name": config}}
    if isinstance(config, str | Path):
        given = read_given(config)
    elif isinstance(config, Config):
        given = resolved(config)
    elif config is None or isinstance(config, Mapping):
        given = copied(config or {})
    else:
        raise ConfigError(f"a {type(config).__name__} of this kind is neither a config nor a table",
                          remedy="give rows as a data frame, such as pandas.DataFrame(rows), as a dict of columns, or "
                                 "as a path")
    keys = {f"data.{key}" if key in SHORT else key: value for key, value in keys.items()}
    for key, value in sorted(keys.items(), key=lambda item: item[0] != "data"):
        given = with_key(given, key, _merged(key, given.get(key), value))
    return _without_objects(_with_plain_learner(given))


def _with_plain_learner(given: Given) -> Given:
    """Replace a torch module or its factory by a table, and keep one that no other process has in this one."""
    if "learner" not in given:
        return given
    given = {**given, "learner": as_learner(given["learner"])}
    if not is_at_hand_only(given["learner"]):
        return given
    engine = given.get("engine", {})
    engine = {"name": engine} if isinstance(engine, str) else dict(engine)
    if engine.get("name", "local") != "local" or engine.setdefault("workers", 1) != 1:
        raise ConfigError("a torch module that is handed over is in this process only", remedy="set engine = "
                          "{\"workers\": 1}, or put its class where Python can import it and name it: learner = "
                          "{\"name\": \"torch\", \"module\": \"my_models:Net\"}")
    return {**given, "engine": engine}


def _merged(key: str, old: Any, new: Any) -> Any:
    table = {"name": old} if isinstance(old, str) else old or {}
    if key == "data":
        return {**table, **as_keys(new, Data.model_fields, is_new="name" not in table)}
    return {**table, **new} if isinstance(new, Mapping) and "name" not in new else new


def _without_objects(given: Given) -> tuple[Given, Rows | None]:
    """Replace a dataset object by its fingerprint, so that the config stays plain data."""
    table = as_keys(given.get("data", {}), Data.model_fields)
    if isinstance(table.get("name", ""), str):
        return ({**given, "data": table} if table else given), None
    own = {key: table.pop(key) for key in list(table) if key not in (*Data.model_fields, _FINGERPRINT)}
    if has_parties(table["name"]):
        table.setdefault("partition", "natural")
    if is_read(table["name"]):
        table.setdefault("prepare", [])  # somebody has prepared it, or means it to be as it is
    loaded = handed_over(table["name"], own)
    facts = {**table, "name": GIVEN_DATA, _FINGERPRINT: fingerprint(loaded)}
    return {**given, "data": facts}, loaded.train if loaded.test is None else loaded


def fingerprint(rows: Rows) -> str:
    """Tells datasets apart by their rows."""
    train, test = (rows.train, rows.test) if isinstance(rows, Loaded) else (rows, None)
    digest = hashlib.sha256(repr(train.schema).encode())
    for dataset in (train, test) if test is not None else (train,):
        features = dataset.features
        arrays = [features.data, features.indices, features.indptr] if sparse.issparse(features) else [features]
        if dataset.schema.target.kind != "none":
            arrays.append(dataset.target)
        if dataset.source.groups is not None:
            arrays.append(dataset.groups.astype(str))
        for array in arrays:
            for _, block in row_blocks(array):
                digest.update(np.ascontiguousarray(block).tobytes())
    return digest.hexdigest()


def refuse_changes(stored: Config, config: Config) -> None:
    """Refuse a config that would change the numbers of the run that it resumes."""
    before, after = resolved(stored), resolved(config)
    changed = [key for key in before if before[key] != after[key] and key not in _MAY_CHANGE]
    if changed:
        raise ConfigError(f"a resumed run keeps its settings, but '{changed[0]}' is changed",
                          remedy="start a new run, or leave it as it was; engine, output, rounds and stop may change")


def shown_while(progress: bool, listen: Listener) -> AbstractContextManager[Listener]:
    """A listener that also shows a progress bar, if that is wanted."""
    if not progress:
        return nullcontext(listen)
    from tequio.experiments.showing.progress import shown

    return shown(listen)


def source_of(config: ConfigLike) -> str:
    """What errors call a config."""
    return Path(config).name if isinstance(config, str | Path) else "config"


MULTILABEL = "mlfedavg"
"""What the names of algorithms begin with whose parties know different labels."""

_WITHOUT: Given = {"topology": {}, "privacy": {}, "adoption": {}, "aggregator": {}, "stages": [], "attack": {},
                   "contribution": {}}
_CHANGES: dict[str, Given] = {
    "alone": {"algorithm": {"name": "alone"}, **_WITHOUT},
    "centralised": {"algorithm": {"name": "centralised"}, **_WITHOUT, "selector": {}, "rules": {}, "overrides": {}},
}


def baseline_config(config: Config, baseline: str, rounds: int = 0) -> Config:
    """The config of a baseline: without the parts that it has no use for, without an attack, and without a policy.

    `rounds` is how many the run itself had; where parties know different labels, a party alone is as patient.
    """
    given = resolved(config) | _CHANGES[baseline] | {"name": f"{config.name}-{baseline}", "baselines": [], "policy": {}}
    if config.local.get("name") == "dp-sgd":  # what is compared is the same training without protection
        given["local"] = {key: config.local[key] for key in LocalTraining.__dataclass_fields__}
    if baseline == "alone" and config.algorithm["name"].startswith(MULTILABEL):
        given["algorithm"] = {"name": f"{MULTILABEL}-alone", "patience": rounds}
    learner = _learner(config)
    if baseline == "centralised":
        given["data"] = given["data"] | {"partition": {"name": "pooled"}}
        # A learner that is trained without gradients (k-means) may depend on how its algorithm starts it; one party
        # that holds all rows is its centralised form.
        if learner is not None and not isinstance(learner, GradientLearner | TreeLearner):
            given["algorithm"] = config.algorithm
    if learner is not None and not config.learner:
        given["learner"] = {"name": name_of(type(learner)), **to_spec(learner)["parameters"]}
    taken = parts_taken(given["algorithm"])
    return complete({table: value for table, value in given.items() if table in taken or table not in PARTS},
                    source=given["name"])


def _learner(config: Config) -> object | None:
    """What the run trains: the learner of its config, or the one that its algorithm has by itself."""
    if config.learner:
        learner: object = build_named("learner", config.learner)
        return learner
    try:
        return make_algorithm(config).scorer
    except ConfigError:
        return None
