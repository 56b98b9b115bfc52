"""Photos of landmarks, by the people who took them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from tequio.data.catalogue.by_user import class_numbers
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.folders import read_pictures
from tequio.data.catalogue.images import Pictures, picture_dataset
from tequio.data.catalogue.released import TFF, check
from tequio.data.inputs.tables import columns_from_file
from tequio.errors import DataError, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Array


@register("dataset", "landmarks", paper="Hsu et al., 2020")
@dataclass(frozen=True)
class Landmarks:
    """Photos of landmarks by the people who took them (Google Landmarks v2, federated); your own copy.

    The folder holds `mini_gld_train_split.csv` and `mini_gld_test.csv` (23 thousand photos by 233 people), whose
    checksums are compared, or `federated_train.csv` and `test.csv` (160 thousand by 1,262), and a folder with the
    photos, `IMAGE.jpg` there or `I/M/A/IMAGE.jpg` by the first letters of their names. Photos are resized.

    Parameters:
        path: the folder with the tables
        photos: the folder with the photos, below `path`
        size: pixels of the resized photos on either side
        users: how many people are read, the first by number (0: all); tests keep the classes that they have
        checked: compare the small tables with the published checksums
    """

    facts: ClassVar[Facts] = Facts(None, None, "203 or 2,028 classes", "of each photo: Creative Commons, public domain",
                                   "Weyand et al. 2020; Hsu, Qi, Brown 2020",
                                   f"to get by hand: {TFF}/mini_gld_train_split.csv and the photos of "
                                   "github.com/cvdfoundation/google-landmark", groups="person")
    path: str
    photos: str = "images"
    size: Annotated[int, Ge(1)] = 64
    users: Annotated[int, Ge(0)] = 0
    checked: bool = True

    def load(self) -> Loaded:
        """Training photos, whose groups are people, and test photos, which are nobody's."""
        folder = Path(self.path)
        tables = next((pair for pair in _TABLES if (folder / pair[0]).is_file()), None)
        if tables is None:
            raise DataError(f"there is no file '{folder / _TABLES[0][0]}'",
                            remedy=f"set data.path to the folder with {_TABLES[0][0]} or {_TABLES[1][0]}")
        train = self._table(folder / tables[0], ("user_id", "image_id", "class"))
        test = self._table(folder / tables[1], ("image_id", "class"))
        people = np.unique(train["user_id"])[:self.users or None]
        train = {name: values[np.isin(train["user_id"], people)] for name, values in train.items()}
        classes = np.unique(train["class"])
        test = {name: values[np.isin(test["class"], classes)] for name, values in test.items()}
        photos, names = folder / self.photos, [str(number) for number in classes]
        return picture_dataset("landmarks", self._pictures(photos, train, classes),
                               self._pictures(photos, test, classes), names, normalise=False, flatten=False)

    def _table(self, path: Path, wanted: tuple[str, ...]) -> dict[str, Array]:
        if not path.is_file():
            raise DataError(f"there is no file '{path}'", remedy="put both tables into the folder data.path")
        if self.checked and path.name in _TABLE_MD5:
            check(path, "md5", _TABLE_MD5[path.name], f"{TFF}/{path.name}")
        columns = columns_from_file(path)
        for name in wanted:
            if name not in columns:
                raise DataError(f"'{path}' has no column '{name}'", remedy=nearest(name, columns))
        texts = {name: columns[name].texts().astype(str) for name in wanted}
        return {name: values if name == "image_id" else class_numbers(values.tolist(), path)
                for name, values in texts.items()}

    def _pictures(self, root: Path, rows: dict[str, Array], classes: Array) -> Pictures:
        files = [_photo(root, str(name)) for name in rows["image_id"]]
        return Pictures(read_pictures(root, files, (3, self.size, self.size)), np.searchsorted(classes, rows["class"]),
                        rows.get("user_id"))


_TABLES = (("mini_gld_train_split.csv", "mini_gld_test.csv"), ("federated_train.csv", "test.csv"))
_TABLE_MD5 = {"mini_gld_train_split.csv": "9fd62cf79a67046fdd673d3a0ac52841",
              "mini_gld_test.csv": "298e9d19d66357236f66fe8e22920933"}


def _photo(root: Path, name: str) -> str:
    """Where a photo is below the folder; the name comes from a table and may not lead out of it."""
    if not name.isalnum():
        raise DataError(f"'{name}' is no name of a photo", remedy="the column image_id holds letters and digits only")
    nested = "/".join([*name[:3], f"{name}.jpg"])
    found = next((file for file in (f"{name}.jpg", nested) if (root / file).is_file()), None)
    if found is None:
        raise DataError(f"there is no photo '{root / nested}'", remedy="set data.photos to the folder with the photos")
    return found
