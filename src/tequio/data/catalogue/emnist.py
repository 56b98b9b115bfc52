"""Handwritten digits and letters of NIST: by writer (FEMNIST), and without their writers (EMNIST)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from tequio.data.catalogue.by_user import check_classes, of_hdf5, of_leaf
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.images import Pictures, idx_array, picture_dataset
from tequio.data.catalogue.released import TFF, Release, released_files
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Array

_GLYPHS = digits + ascii_uppercase + ascii_lowercase


@register("dataset", "femnist", paper="Caldas et al., 2018")
@dataclass(frozen=True)
class Femnist:
    """Handwritten digits and letters, 28 x 28 grey pixels, by writer (FEMNIST, federated EMNIST); your own copy.

    `path` holds `fed_emnist_train.h5` and `fed_emnist_test.h5` (with `digits`, `fed_emnist_digitsonly_*`) of TensorFlow
    Federated or is the archive they come in, whose checksum is compared; or it holds `train` and `test` with the JSON
    files of LEAF. Paper is 1 and ink 0, as in both. Groups are writers, who have test rows of their own.

    Parameters:
        path: the folder, or the archive
        digits: the digits only
        users: how many writers are read, the first by name (0: all)
        normalise: subtract the mean and divide by the standard deviation of all training pixels
        flatten: rows of 784 pixels instead of 1 x 28 x 28 images
    """

    facts: ClassVar[Facts] = Facts(None, 784, "62 classes, or 10", "CC0 (NIST Special Database 19)",
                                   "Cohen et al. 2017; Caldas et al. 2018",
                                   f"to get by hand: {TFF}/fed_emnist.tar.bz2, or LEAF's data/femnist",
                                   groups="writer")
    path: str
    digits: bool = False
    users: Annotated[int, Ge(0)] = 0
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """Training and test rows of every writer."""
        folder, names = Path(self.path), _GLYPHS[:10] if self.digits else _GLYPHS
        if (folder / "train").is_dir():
            train, test = (of_leaf(folder / part, self.users, (1, 28, 28), len(names)) for part in ("train", "test"))
        else:
            start = "fed_emnist_digitsonly" if self.digits else "fed_emnist"
            files = released_files(self.path, [f"{start}_{part}.h5" for part in ("train", "test")], _EMNIST[start])
            train, test = (of_hdf5(path, "pixels", "label", self.users, (1, 28, 28)) for path in files.values())
        check_classes([train, test], len(names), self.path)
        return picture_dataset("femnist", train, test, names, normalise=self.normalise, flatten=self.flatten)


_EMNIST = {
    "fed_emnist": Release("fed_emnist.tar.bz2", "sha256",
                          "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
                          f"{TFF}/fed_emnist.tar.bz2"),
    "fed_emnist_digitsonly": Release("fed_emnist_digitsonly.tar.bz2", "sha256",
                                     "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b",
                                     f"{TFF}/fed_emnist_digitsonly.tar.bz2")}


@register("dataset", "emnist", paper="Cohen et al., 2017")
@dataclass(frozen=True)
class Emnist:
    """Handwritten digits and letters, 28 x 28 grey pixels, without their writers; your own copy of the idx files.

    The folder holds `emnist-PART-train-images-idx3-ubyte.gz` and its labels, the same for test, and
    `emnist-PART-mapping.txt`, as in NIST's gzip.zip. Pictures lie on their side there and are put upright.

    Parameters:
        path: the folder with the files
        part: which of the six sets
        normalise: subtract the mean and divide by the standard deviation of all training pixels
        flatten: rows of 784 pixels instead of 1 x 28 x 28 images
    """

    facts: ClassVar[Facts] = Facts(None, 784, "10 to 62 classes", "CC0 (NIST Special Database 19)", "Cohen et al. 2017",
                                   "to get by hand: https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip")
    path: str
    part: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "digits"
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """The official training and test rows."""
        start = Path(self.path) / f"emnist-{self.part}"
        names = self._names(Path(f"{start}-mapping.txt"))
        train, test = (self._pictures(f"{start}-{part}", names) for part in ("train", "test"))
        return picture_dataset("emnist", train, test, list(names.values()), normalise=self.normalise,
                               flatten=self.flatten)

    def _names(self, path: Path) -> dict[int, str]:
        """By label, the character that it is; both cases of a letter where they are one class."""
        try:
            lines = [[int(number) for number in line.split()] for line in self._text(path).splitlines() if line.strip()]
            return {label: "/".join(map(chr, codes)) for label, *codes in sorted(lines)}
        except ValueError as cause:
            raise DataError(f"'{path}' is no mapping of labels: {cause}", remedy=self._remedy()) from cause

    def _pictures(self, start: str, names: dict[int, str]) -> Pictures:
        images, labels = (self._array(Path(f"{start}-{kind}-ubyte.gz")) for kind in ("images-idx3", "labels-idx1"))
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise DataError(f"'{start}' has {len(labels)} labels for pictures of the shape {images.shape}",
                            remedy=self._remedy())
        places = np.searchsorted(list(names), labels).clip(max=len(names) - 1)
        if (np.array(list(names))[places] != labels).any():
            raise DataError(f"'{start}' has labels that its mapping does not name", remedy=self._remedy())
        return Pictures(images.swapaxes(1, 2)[:, np.newaxis], places)

    def _array(self, path: Path) -> Array:
        self._present(path)
        return idx_array(path)

    def _text(self, path: Path) -> str:
        self._present(path)
        return path.read_text(encoding="ascii")

    def _present(self, path: Path) -> None:
        if not path.is_file():
            raise DataError(f"there is no file '{path}'", remedy=self._remedy())

    def _remedy(self) -> str:
        return f"set data.path to the folder with emnist-{self.part}-*.gz and its mapping, as in NIST's gzip.zip"
