"""How sets that were released for federated learning list their rows: by user, in HDF5 files or in JSON files of LEAF.

Users become the rows' groups, so that the partition 'natural' gives each one a party. An HDF5 file may point to other
files of this machine; that is refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.catalogue.images import Pictures, channels_first
from tequio.errors import DataError, MissingExtra, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tequio.data.dataset import Array

_WHOLE = 2**53  # numbers as large as this are not told apart


def hdf5_users(path: Path, columns: Sequence[str], most: int = 0) -> Iterator[tuple[str, dict[str, Array]]]:
    """Users in the order of their names, each with these columns, from a file with `examples/USER/COLUMN`."""
    try:
        from h5py import File
    except ImportError as cause:
        raise MissingExtra("h5py", "images", f"reading '{path.name}'") from cause
    try:
        file = File(path, "r")
    except OSError as cause:
        raise DataError(f"'{path}' is no HDF5 file: {cause}", remedy="get it again") from cause
    with file:
        examples = _member(file, "examples", path, "Group")
        names = sorted(examples)[:most or None]
        if not names:
            raise DataError(f"'{path}' has no users below 'examples'", remedy="get it again")
        for name in names:
            user = _member(examples, name, path, "Group")
            yield name, _columns(user, name, columns, path)


def _columns(user: Any, name: str, columns: Sequence[str], path: Path) -> dict[str, Array]:
    found = {}
    for column in columns:
        stored = _member(user, column, path, "Dataset")
        if stored.external or stored.is_virtual:
            raise DataError(f"'{path}' keeps '{stored.name}' in another file", remedy="get it again")
        found[column] = np.asarray(stored[()])
    rows = {len(values) if values.ndim else -1 for values in found.values()}
    if len(rows) != 1 or -1 in rows:
        raise DataError(f"'{path}': the columns {', '.join(columns)} of user '{name}' are not equally long",
                        remedy="get it again")
    return found


def _member(group: Any, name: str, path: Path, kind: str) -> Any:
    """A group or dataset that really lies in this file and not behind a link."""
    import h5py

    if name not in group:
        raise DataError(f"'{path}' has no '{group.name.rstrip('/')}/{name}'", remedy=nearest(name, list(group)[:20]))
    if not isinstance(group.get(name, getlink=True), h5py.HardLink) or not isinstance(group[name], getattr(h5py, kind)):
        raise DataError(f"'{path}': '{group.name.rstrip('/')}/{name}' is a link or no {kind.lower()}",
                        remedy="get it again")
    return group[name]


def leaf_users(folder: Path, most: int = 0) -> list[tuple[str, list[Any], list[Any]]]:
    """Users with their inputs and targets from the JSON files of a folder, as LEAF writes them."""
    found: list[tuple[str, list[Any], list[Any]]] = []
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"there are no JSON files in '{folder}'",
                        remedy="set data.path to the folder with train and test that LEAF's preprocess.sh makes")
    for path in files:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            users, counts, data = content["users"], content["num_samples"], content["user_data"]
            for user, count in zip(users, counts, strict=True):
                x, y = data[user]["x"], data[user]["y"]
                if not len(x) == len(y) == count:
                    raise ValueError(f"user '{user}' has {len(x)} inputs and {len(y)} targets, and should have {count}")
                found.append((str(user), list(x), list(y)))
        except (ValueError, KeyError, TypeError) as cause:
            raise DataError(f"'{path}' is no file of LEAF: {cause!r}",
                            remedy="it should hold users, num_samples and user_data") from cause
    return sorted(found, key=lambda user: user[0])[:most or None]


def of_hdf5(path: Path, images: str, labels: str, users: int, shape: tuple[int, int, int]) -> Pictures:
    """All users' rows of a file, one user after the other; pictures are (rows, height, width[, channels])."""
    found = [(name, _shaped(columns[images], shape, path, name), columns[labels])
             for name, columns in hdf5_users(path, (images, labels), users)]
    return _together(found, path)


def of_leaf(folder: Path, users: int, shape: tuple[int, int, int], classes: int) -> Pictures:
    """All users' rows of the files in a folder, of the first classes; pictures are lists of numbers."""
    found = []
    for name, x, y in leaf_users(folder, users):
        try:
            pixels = np.asarray(x, dtype=np.float32).reshape(-1, *shape[1:])
        except ValueError as cause:
            raise DataError(f"'{folder}': the pictures of user '{name}' are not {shape[1]} x {shape[2]} numbers each",
                            remedy="make the files again with LEAF's preprocess.sh") from cause
        labels = class_numbers(y, folder)
        found.append((name, _shaped(pixels, shape, folder, name)[labels < classes], labels[labels < classes]))
    return _together(found, folder)


def _shaped(images: Array, shape: tuple[int, int, int], path: Path, user: str) -> Array:
    channels, *sides = shape
    if images.shape[1:] != ((*sides, channels) if channels > 1 else tuple(sides)) or images.dtype.kind not in "fu":
        raise DataError(f"'{path}': the pictures of user '{user}' have the shape {images.shape[1:]}",
                        remedy="get the file again")
    images = images if images.dtype == np.uint8 else images.astype(np.float32)
    return channels_first(images) if channels > 1 else images[:, np.newaxis]


def _together(found: Sequence[tuple[str, Array, Array]], path: Path) -> Pictures:
    names = np.array([name for name, *_ in found])
    classes = np.concatenate([class_numbers(labels.tolist(), path) for *_, labels in found])
    return Pictures(np.concatenate([images for _, images, _ in found]), classes,
                    np.repeat(names, [len(labels) for *_, labels in found]))


def class_numbers(labels: Sequence[Any], path: Path) -> Array:
    """Class numbers, whole and not negative."""
    try:
        values = np.asarray(labels, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        values = np.full(1, np.nan)
    if values.ndim != 1 or not ((values >= 0) & (values % 1 == 0) & (values < _WHOLE)).all():
        raise DataError(f"'{path}' has labels that are no class numbers", remedy="get the file again")
    return values.astype(np.int64)


def check_classes(parts: Sequence[Pictures], count: int, path: str) -> None:
    """Refuse class numbers that go with other settings."""
    largest = max((int(part.classes.max()) for part in parts if len(part.classes)), default=0)
    if largest >= count:
        raise DataError(f"'{path}' has the class {largest}, and there are {count}",
                        remedy="name the folder that goes with the other settings of [data]")
