"""Image files to arrays, and arrays of images to datasets."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.catalogue.entry import Loaded
from tequio.data.catalogue.manifest import FILES, data_file
from tequio.data.dataset import Dataset
from tequio.data.decoded import decoded
from tequio.data.schema import Schema
from tequio.errors import DataError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_SHEET_COLUMNS = 100
_IDX_BYTES = 0x08
_CHUNK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images as (rows, channels, height, width), bytes or floats in [0, 1]; their class numbers; whose they are."""

    images: NDArray[Any]
    classes: NDArray[Any]
    groups: NDArray[Any] | None = None


def picture_dataset(name: str, train: Pictures, test: Pictures | None, class_names: Sequence[str], *, normalise: bool,
                    flatten: bool) -> Loaded:
    """Datasets of float32 images in [0, 1]; `normalise` applies the training part's mean and deviation to both."""
    parts = [train] if test is None else [train, test]
    pixels = [_unit_range(part.images) for part in parts]
    if normalise:
        _normalise(pixels)
    if flatten:
        pixels = [values.reshape(len(values), -1) for values in pixels]
    schema = Schema.of_images(tuple(pixels[0].shape[1:]), class_names)
    datasets = [Dataset.of(schema, values, part.classes.astype(np.int64), groups=part.groups, name=name)
                for values, part in zip(pixels, parts, strict=True)]
    return Loaded(*datasets)


def read_idx(path: str) -> NDArray[np.uint8]:
    """An array from a gzipped file of the MNIST family."""
    content = gzip.decompress(data_file(path).read_bytes())
    if content[:3] != bytes([0, 0, _IDX_BYTES]):
        raise DataError(f"'{path}' is not an idx file of bytes")
    dimensions = content[3]
    shape = np.frombuffer(content, dtype=">i4", count=dimensions, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def read_sheet(path: str, side: int) -> NDArray[np.uint8]:
    """Images (rows, 3, side, side) from a contact sheet of 100 images a line."""
    name = path.replace("/", "_").rsplit(".", 1)[0]
    return np.asarray(decoded(name, FILES[path].sha256, lambda: {"images": _cut_sheet(path, side)})["images"])


def open_picture(path: Path) -> NDArray[np.uint8]:
    """A picture file as (height, width, 3) bytes."""
    try:
        from PIL import Image
    except ImportError as cause:
        raise MissingExtra("pillow", "images", f"reading '{path.name}'") from cause
    allowed, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # our own checked files, larger than Pillow expects
    try:
        return np.asarray(Image.open(path).convert("RGB"))
    finally:
        Image.MAX_IMAGE_PIXELS = allowed


def read_arrays(path: str) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file."""
    with np.load(data_file(path), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def channels_first(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(rows, height, width, channels) to (rows, channels, height, width)."""
    return np.ascontiguousarray(np.moveaxis(images, -1, 1))


def _cut_sheet(path: str, side: int) -> NDArray[np.uint8]:
    sheet = open_picture(data_file(path))
    lines = sheet.reshape(-1, side, _SHEET_COLUMNS, side, 3).swapaxes(1, 2)
    return channels_first(lines.reshape(-1, side, side, 3))


def _unit_range(pixels: NDArray[Any]) -> NDArray[np.float32]:
    scale = np.float32(255 if pixels.dtype == np.uint8 else 1)
    scaled: NDArray[np.float32] = np.divide(pixels, scale, dtype=np.float32)
    return scaled


def _normalise(parts: list[NDArray[np.float32]]) -> None:
    """In place: one mean and one deviation a channel, taken from the first part."""
    sums, pixels = np.zeros((2, parts[0].shape[1])), parts[0].size / parts[0].shape[1]
    for start in range(0, len(parts[0]), _CHUNK_ROWS):
        chunk = parts[0][start:start + _CHUNK_ROWS].astype(np.float64)
        sums += [np.einsum("rchw->c", chunk), np.einsum("rchw,rchw->c", chunk, chunk)]
    mean, square = sums / pixels
    by_channel = np.array([mean, np.sqrt(square - mean**2)], dtype=np.float32)[:, :, np.newaxis, np.newaxis]
    for part in parts:
        part -= by_channel[0]
        part /= by_channel[1]
