"""A population as a blueprint and arrays, also in mapped files, so that worker processes share one copy of the data."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset, Feature, Schema, Source, Target
from tequio.data.mapped import Mapped, mapped_rows
from tequio.data.partition import Partition, Split
from tequio.errors import EngineError
from tequio.federation import payload as payloads
from tequio.federation.population import PartyData, Population, Roster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.dataset import Array
    from tequio.federation.payload import Payload

_Item = TypeVar("_Item")


def shared_folder() -> Path:
    """A private temporary folder, in memory where the system has such a place with room."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK)
    return Path(tempfile.mkdtemp(prefix="tequio-", dir=memory if roomy else None))


def lay_out(population: Population, *, here: bool = True,
            split: Sequence[int] = ()) -> tuple[bytes, dict[str, Array]]:
    """A population as plain bytes that say how it is built, and the arrays it is built of.

    Features that lie in a mapped file are not among these arrays if it is built `here`, on this machine: the others map
    the same file. Parties in `split` keep the split that they have here; that of all others follows from the seed.
    """
    dataset, partition = population.dataset, population.partition
    features, mapped = dataset.source.features, None
    if here and isinstance(features, Mapped) and features.path is not None:
        mapped = [str(features.path), features.dtype.str]
    columns = partition.columns
    blueprint = {
        "features": [[feature.name, list(feature.domain) if feature.domain is not None else None, feature.kind,
                      feature.source, feature.format] for feature in dataset.schema.features],
        "target": [dataset.schema.target.kind, list(dataset.schema.target.names), dataset.schema.target.name],
        "shape": list(dataset.schema.shape), "name": dataset.name, "sparse": dataset.is_sparse,
        "missing": dataset.source.missing,
        "feature_shape": list(features.shape), "mapped": mapped, "split": asdict(population.split),
        "seed": str(population.seed),
        "split_seed": None if population.split_seed is None else str(population.split_seed),
        "overrides": [[party, dict(own)] for party, own in population.overrides.items()],
        "names": _listed(partition.names), "holds_target": _listed(partition.holds_target),
        "categories": _listed(partition.categories), "columns": None if columns is None else list(columns),
        "row_view": dataset.rows, "column_view": dataset.columns, "label_view": dataset.labels,
        "pinned": None if population.pinned is None else list(astuple(population.pinned)),
        "key_holder": partition.key_holder,
        "labels": _listed(partition.labels), "views": [[party, _rows_of_parts(population, party)] for party in split],
    }
    arrays = _arrays_of(dataset, partition)
    return payloads.encode(blueprint), {name: values for name, values in arrays.items()
                                        if mapped is None or name != "features"}


def build_population(blueprint: bytes, arrays: Mapping[str, Array]) -> Population:
    """The population that `lay_out` took apart, without copying its arrays."""
    plan = payloads.decode(blueprint)
    features = tuple(Feature(name, None if domain is None else tuple(domain), *facts)
                     for name, domain, *facts in plan["features"])
    kind, names, name = plan["target"]
    schema = Schema(features, Target(kind, tuple(names), name), tuple(plan["shape"]))
    source = Source(_features(arrays, plan), arrays.get("target"), arrays.get("ids"), arrays.get("groups"),
                    missing=plan["missing"])
    dataset = Dataset(schema, source, plan["row_view"], plan["column_view"], plan["name"],
                      plan["label_view"])
    partition = Partition(arrays["rows"], arrays["offsets"], _tupled(plan["names"]),
                          _tupled(plan["columns"]), _tupled(plan["holds_target"]), _tupled(plan["categories"]),
                          _tupled(plan["labels"]), plan["key_holder"])
    views = OrderedDict((party, PartyData(*(replace(partition.view(dataset, party), rows=rows) for rows in parts)))
                        for party, parts in plan["views"])
    return Population(dataset, partition, Split(**plan["split"]), int(plan["seed"]),
                      dict(plan["overrides"]), views, None if plan["pinned"] is None else _roster(*plan["pinned"]),
                      None if plan["split_seed"] is None else int(plan["split_seed"]))


def _roster(agreed: bytes, parties: int, keys: Sequence[bytes], own: bytes, folder: str,
            holders: Sequence[int]) -> Roster:
    return Roster(agreed, parties, tuple(keys), own, folder, tuple(holders))


def write_population(population: Population, folder: Path, split: Sequence[int] = ()) -> None:
    """Lay a population out in files."""
    blueprint, arrays = lay_out(population, split=split)
    (folder / "blueprint").write_bytes(blueprint)
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values, allow_pickle=False)


def open_population(folder: Path) -> Population:
    """The population that `write_population` laid out, without copying its arrays."""
    # asarray drops the memmap subclass, whose indexing is slower; the pages stay shared.
    arrays = {path.stem: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)) for path in folder.glob("*.npy")}
    return build_population((folder / "blueprint").read_bytes(), arrays)


def _rows_of_parts(population: Population, party: int) -> list[Array | None]:
    """Which rows a party trains on, validates with and tests on."""
    view, source = population.view(party), population.dataset.source
    parts = (view.train, view.validation, view.test)
    if any(part.source is not source for part in parts):
        raise EngineError(f"party '{population.name(party)}' uses rows that are not of its table",
                          remedy="split the rows of the table itself")
    return [part.rows for part in parts]


def _arrays_of(dataset: Dataset, partition: Partition) -> dict[str, Array]:
    source = dataset.source
    arrays: dict[str, Array | None] = {"rows": partition.rows, "offsets": partition.offsets, "target": source.target,
                                       "ids": source.ids, "groups": source.groups}
    if dataset.is_sparse:
        matrix = source.features
        arrays |= {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    else:
        arrays["features"] = np.asarray(source.features)
    # Strings that lie in memory as objects cannot be mapped.
    return {name: values.astype(str) if values.dtype.kind == "O" else values
            for name, values in arrays.items() if values is not None}


def _features(arrays: Mapping[str, Array], plan: Payload) -> Array | sparse.csr_matrix:
    if plan["mapped"] is not None:
        path, dtype = plan["mapped"]
        return mapped_rows(Path(path), plan["feature_shape"], dtype)
    if not plan["sparse"]:
        return arrays["features"]
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    return sparse.csr_matrix(parts, shape=tuple(plan["feature_shape"]), copy=False)


def _listed(values: tuple[_Item, ...] | None) -> list[_Item] | None:
    return None if values is None else list(values)


def _tupled(values: list[_Item] | None) -> tuple[_Item, ...] | None:
    return None if values is None else tuple(values)
