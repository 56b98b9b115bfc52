"""CIFAR-100, from the batches of its authors or by the users of TensorFlow Federated.

The batches are pickles, which could run code when read as usual. Here names in a pickle stand for stubs that hold what
an array of bytes is made of, and for nothing else.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from tequio.data.catalogue.by_user import check_classes, class_numbers, of_hdf5
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.images import Pictures, picture_dataset
from tequio.data.catalogue.released import TFF, Release, check, released_files
from tequio.errors import DataError, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray


@register("dataset", "cifar100", paper="Krizhevsky, 2009")
@dataclass(frozen=True)
class Cifar100:
    """A hundred kinds of things, animals and plants, 32 x 32 colour pixels; your own copy.

    `path` holds `train`, `test` and `meta`, the batches of cifar-100-python, which are compared with their published
    checksums and read without running what is in them; or `fed_cifar100_train.h5` and `fed_cifar100_test.h5` of
    TensorFlow Federated, or the archive they come in, with users as groups (500 to train on, 100 others to test on).

    Parameters:
        path: the folder, or the archive of TensorFlow Federated
        labels: the hundred classes (fine), or the twenty that they belong to (coarse)
        users: how many users are read, the first by name (0: all)
        checked: compare the batches with the published checksums
        normalise: subtract each channel's training mean and divide by its standard deviation
        flatten: rows of 3072 pixels instead of 3 x 32 x 32 images
    """

    facts: ClassVar[Facts] = Facts(
        None, 3072, "100 classes, or 20", "none stated (research)", "Krizhevsky 2009",
        f"to get by hand: https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz, or {TFF}/fed_cifar100.tar.bz2",
        groups="user")
    path: str
    labels: Literal["fine", "coarse"] = "fine"
    users: Annotated[int, Ge(0)] = 0
    checked: bool = True
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """Training and test rows."""
        count = 100 if self.labels == "fine" else 20
        if all((Path(self.path) / name).is_file() for name in _CIFAR100_MD5):
            names, train, test = self._batches()
        else:
            files = released_files(self.path, [f"fed_cifar100_{part}.h5" for part in ("train", "test")], _CIFAR100)
            column = "label" if self.labels == "fine" else "coarse_label"
            names = [str(number) for number in range(count)]
            train, test = (of_hdf5(path, "image", column, self.users, (3, 32, 32)) for path in files.values())
        if len(names) != count:
            raise DataError(f"'{self.path}' names {len(names)} {self.labels} classes instead of {count}",
                            remedy="get the batches again")
        check_classes([train, test], count, self.path)
        return picture_dataset("cifar100", train, test, names, normalise=self.normalise, flatten=self.flatten)

    def _batches(self) -> tuple[list[str], Pictures, Pictures]:
        folder = Path(self.path)
        for name, digest in _CIFAR100_MD5.items():
            if self.checked:
                check(folder / name, "md5", digest, "https://www.cs.toronto.edu/~kriz/cifar.html")
        names = _list_of(read_batch(folder / "meta"), f"{self.labels}_label_names", folder / "meta")
        return [_text(name) for name in names], self._pictures(folder / "train"), self._pictures(folder / "test")

    def _pictures(self, path: Path) -> Pictures:
        batch = read_batch(path)
        pixels, labels = batch.get("data"), _list_of(batch, f"{self.labels}_labels", path)
        if not isinstance(pixels, np.ndarray) or pixels.shape != (len(labels), 3072):
            raise DataError(f"'{path}' does not hold 3072 bytes for each of its {len(labels)} labels",
                            remedy="get it again, as it was published")
        return Pictures(pixels.reshape(-1, 3, 32, 32), class_numbers(labels, path))


_CIFAR100 = Release("fed_cifar100.tar.bz2", "sha256",
                    "e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de", f"{TFF}/fed_cifar100.tar.bz2")
_CIFAR100_MD5 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
                 "meta": "7973b15100ade9c7d40fb424638fde48"}


class _Bytes:
    """Stands for numpy's array of bytes in a pickle: what it was to be made of."""

    def __init__(self, *_: object) -> None:
        self.state: Any = ()

    def __setstate__(self, state: object) -> None:
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        """The array, if it is one of bytes in the usual order."""
        _, shape, kind, fortran, raw = self.state
        if not isinstance(kind, _Kind) or kind.name not in (b"u1", "u1") or fortran or not isinstance(raw, bytes) or \
                prod(shape) != len(raw):
            raise ValueError("an array is not one of bytes")
        return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


class _Kind:
    """Stands for a numpy type in a pickle."""

    def __init__(self, name: object, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment: one byte has neither."""


class _Encode:
    """Makes bytes, as Python 3 writes them into the pickles of Python 2. A pickle cannot set anything on it."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        return text.encode("latin1")


_STUBS = {("numpy.core.multiarray", "_reconstruct"): _Bytes, ("numpy._core.multiarray", "_reconstruct"): _Bytes,
          ("numpy", "ndarray"): _Bytes, ("numpy", "dtype"): _Kind, ("_codecs", "encode"): _Encode()}


class _Stubs(pickle.Unpickler):
    """Reads plain values and arrays of bytes; no name in the file leads to code that is not in this module."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STUBS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _STUBS[module, name]


def read_batch(path: Path) -> dict[str, Any]:
    """A batch of the CIFAR family: a dict of arrays of bytes, lists of numbers and lists of names."""
    try:
        with path.open("rb") as stream:
            content = _Stubs(stream, encoding="bytes").load()
        if not isinstance(content, dict):
            raise ValueError("it is no dict")
        return {_text(key): value.array() if isinstance(value, _Bytes) else value for key, value in content.items()}
    except Exception as cause:  # a damaged pickle fails in many ways
        raise DataError(f"'{path}' is no batch of pictures: {cause}",
                        remedy="get it again, as it was published") from cause


def _text(key: object) -> str:
    return key.decode("ascii") if isinstance(key, bytes) else str(key)


def _list_of(batch: dict[str, Any], name: str, path: Path) -> list[Any]:
    if not isinstance(batch.get(name), list):
        raise DataError(f"'{path}' has no list '{name}'", remedy=nearest(name, batch))
    return list(batch[name])
