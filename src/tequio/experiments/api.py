"""The Python API: `tequio.run` and `tequio.sweep`, and the baselines beside a run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset
from tequio.data.inputs import read
from tequio.errors import ConfigError, nearest
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
from tequio.learners.learner import GradientLearner, LocalTraining
from tequio.learners.trees.learner import TreeLearner
from tequio.models import folder as model_folder
from tequio.registry import name_of, to_spec

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tequio.experiments.config.keys import Keys
    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.recording import Listener
    from tequio.models.model import Model

    ConfigLike = str | Path | Mapping[str, object] | Config | None


_FINGERPRINT = "sha256"
_MAY_CHANGE = ("name", "plugins", "engine", "output", "rounds", "stop", "baselines", "sweep", "search")


def run(config: ConfigLike = None, *, resume: str | Path | None = None, listen: Listener = ignore,
        progress: bool = False, **keys: Unpack[Keys]) -> Result:
    """Run an experiment to its end and give back what came of it.

    `config` is a TOML file, a dict or a `Config`; keywords go on top of it: `rounds=20`, `learner="mlp"`,
    `local={"epochs": 5}` (a dict with a `name` replaces the table, one without adds to it). `data` may also be a
    dataset object, arrays `(features, target)` or a data frame; with further keys as `{"name": frame, "target": "y"}`.
    `resume` goes on with a stopped run instead: its folder, its name, or 'last'.
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
          **keys: Unpack[Keys]) -> SweepResult:
    """Run every combination of the values in `sweep={"local.learning_rate": [0.1, 0.01], "seeds": [0, 1, 2]}`."""
    given, dataset = gather(config, dict(keys))
    with shown_while(progress, listen) as heard:
        return run_sweep(given, source=source_of(config), dataset=dataset, listen=heard)


def load(place: str | Path, *, party: str = "", authority: str | Path | None = None) -> Model:
    """A trained model: from its own folder, or from a run by its folder, its name under runs/, or 'last'.

    Its files have to be, bit for bit, what was written. `party` asks for one party's own model. With an `authority`
    (a party's folder, or the certificate in it) the coordinator of that federation has to have signed the model.
    """
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


def run_with_baselines(config: Config, *, dataset: Dataset | None = None, listen: Listener = ignore,
                       folder: Path | None = None) -> Result:
    """The run itself, then its baselines in folders inside its own; what is finished in `folder` is kept."""
    main = _run_unless_finished(config, dataset, listen, folder)
    for baseline in config.baselines:
        place = main.folder / BASELINES / baseline
        with explained(place):
            place.mkdir(parents=True, exist_ok=True)
        _run_unless_finished(baseline_config(config, baseline, main.summary["rounds"]), dataset, listen, place)
    return main


def _run_unless_finished(config: Config, dataset: Dataset | None, listen: Listener, folder: Path | None) -> Result:
    if folder is not None and is_finished(folder) and Result(folder).summary["config_hash"] == config_hash(config):
        return Result(folder)
    return run_config(config, dataset=dataset, listen=listen, folder=folder)


def gather(config: ConfigLike, keys: Given) -> tuple[Given, Dataset | None]:
    """A config with keywords on top, and the dataset where one was handed over as an object."""
    if isinstance(config, str | Path):
        given = read_given(config)
    else:
        given = resolved(config) if isinstance(config, Config) else copied(config or {})
    for key, value in keys.items():
        given = with_key(given, key, _merged(key, given.get(key), value))
    return _without_objects(given)


def _merged(key: str, old: Any, new: Any) -> Any:
    table = {"name": old} if isinstance(old, str) else old or {}
    if key == "data":
        return {**table, **(new if isinstance(new, Mapping) else {"name": new})}
    return {**table, **new} if isinstance(new, Mapping) and "name" not in new else new


def _without_objects(given: Given) -> tuple[Given, Dataset | None]:
    """Replace a dataset object by its fingerprint, so that the config stays plain data."""
    data = given.get("data", {})
    table = dict(data) if isinstance(data, Mapping) else {"name": data}
    if isinstance(table.get("name", ""), str):
        return ({**given, "data": table} if table else given), None
    own = {key: table.pop(key) for key in list(table) if key not in (*Data.model_fields, _FINGERPRINT)}
    known = () if isinstance(table["name"], Dataset) else tuple(signature(read).parameters)[1:]
    for key in own:
        if key not in known:
            raise ConfigError(f"[data] has no key '{key}' for a dataset that is handed over",
                              remedy=nearest(key, [*known, *Data.model_fields]))
    dataset = table["name"] if isinstance(table["name"], Dataset) else read(table["name"], **own)
    return {**given, "data": {**table, "name": GIVEN_DATA, _FINGERPRINT: fingerprint(dataset)}}, dataset


def fingerprint(dataset: Dataset) -> str:
    """Tells datasets apart by their rows."""
    digest = hashlib.sha256(repr(dataset.schema).encode())
    features = dataset.features
    arrays = [features.data, features.indices, features.indptr] if sparse.issparse(features) else [features]
    if dataset.schema.target.kind != "none":
        arrays.append(dataset.target)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
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
    """The config of a baseline: without the parts that it has no use for, and without an attack.

    `rounds` is how many the run itself had; where parties know different labels, a party alone is as patient.
    """
    given = resolved(config) | _CHANGES[baseline] | {"name": f"{config.name}-{baseline}", "baselines": []}
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
