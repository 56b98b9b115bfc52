"""A population in memory-mapped files, so that worker processes on this machine share one copy of the data."""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset, Source
from tequio.data.partition import Partition
from tequio.data.schema import Feature, Schema, Target
from tequio.data.splits import Split
from tequio.federation import payload as payloads
from tequio.federation.population import Population

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPARSE_PARTS = ("data", "indices", "indptr")


def shared_folder() -> Path:
    """A private temporary folder, in memory where the system has such a place with room."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK)
    return Path(tempfile.mkdtemp(prefix="tequio-", dir=memory if roomy else None))


def write_population(population: Population, folder: Path) -> None:
    """Lay a population out in files."""
    dataset, partition = population.dataset, population.partition
    columns = partition.columns
    blueprint = {
        "features": [[feature.name, list(feature.domain) if feature.domain is not None else None]
                     for feature in dataset.schema.features],
        "target": [dataset.schema.target.kind, list(dataset.schema.target.names), dataset.schema.target.name],
        "shape": list(dataset.schema.shape), "name": dataset.name, "sparse": dataset.is_sparse,
        "feature_shape": list(dataset.source.features.shape), "split": asdict(population.split),
        "seed": population.seed, "overrides": [[party, dict(own)] for party, own in population.overrides.items()],
        "names": _listed(partition.names), "holds_target": _listed(partition.holds_target),
        "categories": _listed(partition.categories), "columns": None if columns is None else list(columns),
        "row_view": dataset.rows, "column_view": dataset.columns, "label_view": dataset.labels,
        "labels": _listed(partition.labels),
    }
    (folder / "blueprint").write_bytes(payloads.encode(blueprint))
    for name, values in _arrays_of(dataset, partition).items():
        np.save(folder / f"{name}.npy", values, allow_pickle=False)


def open_population(folder: Path) -> Population:
    """The population that `write_population` laid out, without copying its arrays."""
    plan = payloads.decode((folder / "blueprint").read_bytes())
    features = tuple(Feature(name, None if domain is None else tuple(domain)) for name, domain in plan["features"])
    kind, names, name = plan["target"]
    schema = Schema(features, Target(kind, tuple(names), name), tuple(plan["shape"]))
    source = Source(_open_features(folder, plan), *(_opened(folder, part) for part in ("target", "ids", "groups")))
    dataset = Dataset(schema, source, plan["row_view"], plan["column_view"], plan["name"],
                      plan["label_view"])
    partition = Partition(_required(folder, "rows"), _required(folder, "offsets"), _tupled(plan["names"]),
                          _tupled(plan["columns"]), _tupled(plan["holds_target"]), _tupled(plan["categories"]),
                          _tupled(plan["labels"]))
    return Population(dataset, partition, Split(**plan["split"]), plan["seed"],
                      dict(plan["overrides"]))


def _arrays_of(dataset: Dataset, partition: Partition) -> dict[str, NDArray[Any]]:
    source = dataset.source
    arrays: dict[str, Any] = {"rows": partition.rows, "offsets": partition.offsets, "target": source.target,
                              "ids": source.ids, "groups": source.groups}
    if dataset.is_sparse:
        arrays.update({part: getattr(source.features, part) for part in _SPARSE_PARTS})
    else:
        arrays["features"] = source.features
    return {name: _plain_strings(values) for name, values in arrays.items() if values is not None}


def _plain_strings(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(str) if values.dtype.kind == "O" else values


def _open_features(folder: Path, plan: dict[str, Any]) -> Any:
    if not plan["sparse"]:
        return _required(folder, "features")
    parts = tuple(_required(folder, part) for part in _SPARSE_PARTS)
    return sparse.csr_matrix(parts, shape=tuple(plan["feature_shape"]), copy=False)


def _opened(folder: Path, name: str) -> NDArray[Any] | None:
    path = folder / f"{name}.npy"
    # asarray drops the memmap subclass, whose indexing is slower; the pages stay shared.
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)) if path.exists() else None


def _required(folder: Path, name: str) -> NDArray[Any]:
    values = _opened(folder, name)
    assert values is not None, name
    return values


def _listed(values: tuple[Any, ...] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _tupled(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
