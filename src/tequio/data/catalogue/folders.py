"""Pictures of your own: a folder per class, or one folder with a table of labels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.dataset import Dataset, Feature, Schema
from tequio.data.inputs.column import column_of
from tequio.data.inputs.encoding import encode_target, infer_target
from tequio.data.inputs.tables import columns_from_file
from tequio.errors import DataError, MissingExtra, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array


ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
_DEEP = 65_535 / 255
"""How many steps of a picture with 16 bits make one of a picture with 8."""


@dataclass(frozen=True)
class Listing:
    """Files of pictures below a folder, with a label each and, where a table says so, whose each is."""

    root: Path
    files: tuple[str, ...]
    labels: Array
    parties: Array | None = None
    notes: tuple[str, ...] = ()


@register("dataset", "image-folder", example='[data]\nname = "image-folder"\npath = "x-rays"\nsize = 64\n'
                                             'colour = "grey"\n')
@dataclass(frozen=True)
class ImageFolder:
    """Pictures of your own, in one folder per class, or listed in a table with their labels and parties.

    `path/cat/1.png` is a picture of the class `cat`. If the folder has two folders `train` and `test` with the classes
    below them, the latter are the test rows. Pictures are turned upright, resized and kept as float32 in [0, 1]; one
    file is open at a time.

    Parameters:
        path: the folder
        labels_path: a CSV file with the columns file (below the folder), label and, for natural partitions, party;
            without it the folders name the classes
        size: pixels of the resized pictures, one number for squares or [height, width]
        colour: three channels (colour), or one (grey)
        target_kind: classes or number; auto decides by the labels
        flatten: rows of pixels instead of channels x height x width, for learners that take tables
    """

    facts: ClassVar[Facts] = Facts(None, None, "as you say", "yours", "", "pictures")
    path: str
    labels_path: str | None = None
    size: Annotated[int, Ge(1)] | list[Annotated[int, Ge(1)]] = 32
    colour: Literal["colour", "grey"] = "colour"
    target_kind: Literal["auto", "classes", "number"] = "auto"
    flatten: bool = False

    def load(self) -> Loaded:
        """The pictures, in the order of their names or of the table."""
        root = Path(self.path)
        if not root.is_dir():
            raise DataError(f"there is no folder '{root}'", remedy="set data.path to the folder of pictures")
        if self.labels_path is not None:
            return Loaded(self._read(_listed_in(root, Path(self.labels_path))))
        parts = {part.name for part in root.iterdir() if part.is_dir()}
        if parts != {"train", "test"}:
            return Loaded(self._read(_by_folder(root)))
        train = self._read(_by_folder(root / "train"))
        return Loaded(train, self._read(_by_folder(root / "test"), train.schema))

    def _read(self, listing: Listing, schema: Schema | None = None) -> Dataset:
        pictures = read_pictures(listing.root, listing.files, self._shape())
        column = column_of("label", listing.labels, parse=True)
        if column.missing.any():
            raise DataError(f"'{listing.files[int(np.argmax(column.missing))]}' has no label",
                            remedy="add its label, or leave it out of the table")
        if self.flatten:
            pictures = pictures.reshape(len(pictures), -1)
        if schema is None:
            pixels = tuple(Feature(f"pixel_{number}") for number in range(prod(self._shape())))
            schema = Schema(pixels, infer_target([column], self.target_kind, "label"), tuple(pictures.shape[1:]))
        return Dataset.of(schema, pictures, encode_target([column], schema.target), ids=np.array(listing.files),
                          groups=listing.parties, name=Path(self.path).name, notes=listing.notes)

    def _shape(self) -> tuple[int, int, int]:
        sides = [self.size, self.size] if isinstance(self.size, int) else self.size
        if len(sides) != 2:
            raise DataError(f"pictures have two sides, and data.size names {len(sides)}",
                            remedy="write data.size = 64, or data.size = [48, 64] for height and width")
        return (3 if self.colour == "colour" else 1, sides[0], sides[1])


def read_pictures(root: Path, files: Sequence[str], shape: tuple[int, int, int]) -> NDArray[np.float32]:
    """All pictures in one array (files, *shape); files that are no pictures are named together."""
    pictures, bad = np.empty((len(files), *shape), np.float32), []
    for row, (file, picture) in enumerate(zip(files, _opened(root, files, shape), strict=True)):
        if picture is None:
            bad.append(file)
        else:
            pictures[row] = picture
    if bad:
        shown = ", ".join(f"'{file}'" for file in bad[:5]) + (", ..." if len(bad) > 5 else "")
        raise DataError(f"{len(bad)} of {len(files)} files in '{root}' cannot be read as pictures: {shown}",
                        remedy="replace them or take them out of the folder")
    return pictures


def _opened(root: Path, files: Sequence[str], shape: tuple[int, int, int]) -> Iterator[NDArray[np.float32] | None]:
    try:
        from PIL import Image, ImageOps
    except ImportError as cause:
        raise MissingExtra("pillow", "images", f"reading pictures in '{root}'") from cause

    for file in files:
        try:
            with warnings.catch_warnings(), Image.open(root / file) as image:
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                yield _resized(ImageOps.exif_transpose(image), shape)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombWarning, Image.DecompressionBombError):
            yield None


def _resized(image: Any, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    """One picture as float32 in [0, 1], (channels, height, width)."""
    from PIL import Image

    channels, height, width = shape
    if image.mode.startswith("I"):  # 16 bits of grey, which Pillow would cut off at 255
        image = Image.fromarray(np.asarray(image, dtype=np.float32) / np.float32(_DEEP))
    else:
        image = image.convert("RGB" if channels == 3 else "L")
    values = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), dtype=np.float32) / np.float32(255)
    return np.moveaxis(values, -1, 0) if values.ndim == 3 else np.broadcast_to(values, shape)


def _by_folder(root: Path) -> Listing:
    """Every file below a folder that is called after its class."""
    classes = sorted(part.name for part in root.iterdir() if part.is_dir() and not part.name.startswith("."))
    found = [(name, path.relative_to(root).as_posix()) for name in classes for path in sorted((root / name).rglob("*"))
             if path.is_file() and not path.name.startswith(".")]
    pictures = [(name, file) for name, file in found if Path(file).suffix.lower() in ENDINGS]
    if len({name for name, _ in pictures}) < 2:
        raise DataError(f"'{root}' has no two folders with pictures, one per class", remedy="make a folder for each "
                        "class, or list the files in a table: data.labels_path = \"labels.csv\"")
    others = [file for _, file in found if Path(file).suffix.lower() not in ENDINGS]
    note = f"{len(others)} files are left out, which are no pictures by their names, such as '{others[0]}'" \
        if others else ""
    return Listing(root, tuple(file for _, file in pictures), np.array([name for name, _ in pictures], dtype=object),
                   notes=(note,) if note else ())


def _listed_in(root: Path, table: Path) -> Listing:
    """The files that a table lists."""
    columns = columns_from_file(table)
    for name in ("file", "label"):
        if name not in columns:
            raise DataError(f"'{table}' has no column '{name}'", remedy="it needs the columns file and label, and may "
                            f"have party; {nearest(name, columns)}")
    files = tuple(str(file) for file in columns["file"].texts())
    missing = [file for file in files if not (root / file).is_file()]
    if missing:
        raise DataError(f"{len(missing)} files of '{table}' are not in '{root}', such as '{missing[0]}'",
                        remedy="write their paths as they are below data.path")
    party = columns.get("party")
    if party is not None and party.missing.any():
        raise DataError(f"'{files[int(np.argmax(party.missing))]}' has no party", remedy=f"add it in '{table}'")
    return Listing(root, files, columns["label"].texts(),
                   None if party is None else party.texts().astype(str))
