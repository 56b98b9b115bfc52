"""The Python API: `tequio.run` and `tequio.sweep`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset
from tequio.data.inputs.read import read
from tequio.errors import ConfigError
from tequio.experiments.baselines import baseline_config
from tequio.experiments.config import GIVEN_DATA, complete, copied, load_config, read_given, resolved, with_key
from tequio.experiments.recording import ignore
from tequio.experiments.results import Result
from tequio.experiments.runner import run_config
from tequio.experiments.store import CONFIG, find_folder
from tequio.experiments.sweep import SweepResult, is_finished, run_sweep
from tequio.experiments.tables import Config, Data

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from tequio.experiments.config import Given
    from tequio.experiments.recording import Listener

    ConfigLike = str | Path | Mapping[str, Any] | Config | None


def run(config: ConfigLike = None, *, listen: Listener = ignore, progress: bool = False, **keys: Any) -> Result:
    """Run an experiment to its end and give back what came of it.

    `config` is a TOML file, a dict or a `Config`; keywords go on top of it: `rounds=20`, `learner="mlp"`,
    `local={"epochs": 5}` (a dict with a `name` replaces the table, one without adds to it). `data` may also be a
    dataset object, arrays `(features, target)` or a data frame; with further keys as `{"name": frame, "target": "y"}`.
    """
    given, dataset = gather(config, keys)
    if given.get("sweep"):
        raise ConfigError("this config has a [sweep] table", remedy="use tequio.sweep(...)")
    checked = complete(given, source=_source(config))
    with _shown(progress, listen) as heard:
        return run_with_baselines(checked, dataset=dataset, listen=heard)


def sweep(config: ConfigLike = None, *, listen: Listener = ignore, progress: bool = False, **keys: Any) -> SweepResult:
    """Run every combination of the values in `sweep={"local.learning_rate": [0.1, 0.01], "seeds": [0, 1, 2]}`."""
    given, dataset = gather(config, keys)
    with _shown(progress, listen) as heard:
        return run_sweep(given, source=_source(config), dataset=dataset, listen=heard)


def resume(run: str | Path, *, listen: Listener = ignore, progress: bool = False, data: Any = None,
           overrides: Iterable[str] = (), parent: str | Path = "runs") -> Result:
    """Go on with a run from its last checkpoint, to the same numbers as if it had never stopped.

    Only what does not change numbers may be set anew: the engine, the output, and the number of rounds or stop rules.
    """
    folder = find_folder(run, parent)
    stored, config = load_config(folder / CONFIG), load_config(folder / CONFIG, overrides)
    _refuse_changes(stored, config)
    if is_finished(folder) and config.rounds <= Result(folder).summary["rounds"]:
        return Result(folder)
    dataset = None if data is None else _as_dataset(data, {})
    with _shown(progress, listen) as heard:
        return run_config(config, dataset=dataset, listen=heard, folder=folder)


def run_with_baselines(config: Config, *, dataset: Dataset | None = None, listen: Listener = ignore) -> Result:
    """The run itself first, then its baselines."""
    main = run_config(config, dataset=dataset, listen=listen)
    beside = {baseline: run_config(baseline_config(config, baseline), dataset=dataset, listen=listen)
              for baseline in config.baselines}
    return Result(main.folder, beside)


def gather(config: ConfigLike, keys: Mapping[str, Any]) -> tuple[Given, Dataset | None]:
    """A config with keywords on top, and the dataset where one was handed over as an object."""
    if isinstance(config, str | Path):
        given = read_given(config)
    else:
        given = resolved(config) if isinstance(config, Config) else copied(config or {})
    for key, value in keys.items():
        given = with_key(given, key, _merged(given.get(key), value))
    return _without_objects(given)


def _merged(old: Any, new: Any) -> Any:
    adds = isinstance(new, Mapping) and "name" not in new
    return {**({"name": old} if isinstance(old, str) else old or {}), **new} if adds else new


def _without_objects(given: Given) -> tuple[Given, Dataset | None]:
    """Replace a dataset object by its fingerprint, so that the config stays plain data."""
    data = given.get("data", {})
    table = dict(data) if isinstance(data, Mapping) else {"name": data}
    if isinstance(table.get("name", ""), str):
        return ({**given, "data": table} if table else given), None
    own = {key: table.pop(key) for key in list(table) if key not in Data.model_fields}
    dataset = _as_dataset(table["name"], own)
    return {**given, "data": {**table, "name": GIVEN_DATA, "sha256": fingerprint(dataset)}}, dataset


def _as_dataset(data: Any, keys: Mapping[str, Any]) -> Dataset:
    return data if isinstance(data, Dataset) else read(data, **keys)


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


def _refuse_changes(stored: Config, config: Config) -> None:
    before, after = resolved(stored), resolved(config)
    changed = [key for key in before if before[key] != after[key] and key not in ("engine", "output", "rounds", "stop")]
    if changed:
        raise ConfigError(f"a resumed run keeps its settings, but '{changed[0]}' is changed",
                          remedy="start a new run, or leave it as it was; engine, output, rounds and stop may change")


def _shown(progress: bool, listen: Listener) -> AbstractContextManager[Listener]:
    return import_module("tequio.views.progress").shown(listen) if progress else nullcontext(listen)


def _source(config: ConfigLike) -> str:
    return Path(config).name if isinstance(config, str | Path) else "config"
