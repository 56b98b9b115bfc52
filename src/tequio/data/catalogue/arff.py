"""Attribute-relation files (ARFF), dense or sparse."""

from __future__ import annotations

import csv
import gzip
import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np
from scipy import sparse

from tequio.data.dataset import Feature
from tequio.data.inputs.column import Column, column_of
from tequio.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


_ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"[^\"]*\"|\S+)\s+(.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Arff:
    """The attributes of a file (nominal ones with their values, in the file's order) and its data lines."""

    attributes: tuple[Feature, ...]
    lines: tuple[str, ...]
    relation: str = ""


def read_arff(path: Path) -> Arff:
    """The attributes and data lines of a file, gzipped or plain."""
    attributes: list[Feature] = []
    relation = ""
    with _opened(path) as stream:
        for line in stream:
            if line.lower().startswith("@relation"):
                relation = line.split(maxsplit=1)[1].strip()
            elif line.lower().startswith("@attribute"):
                attributes.append(_attribute(line.strip(), path))
            elif line.lower().startswith("@data"):
                break
        lines = tuple(line.strip() for line in stream if line.strip() and not line.startswith("%"))
    if not lines:
        raise DataError(f"'{path.name}' has no data lines", remedy="give an ARFF file with an @data section")
    return Arff(tuple(attributes), lines, relation)


def _opened(path: Path) -> IO[str]:
    try:
        with path.open("rb") as probe:
            is_gzipped = probe.read(2) == b"\x1f\x8b"
    except OSError as cause:
        raise DataError(f"'{path}' cannot be read: {cause.strerror}", remedy="check data.path") from cause
    return gzip.open(path, "rt", encoding="utf-8", errors="replace") if is_gzipped else \
        path.open(encoding="utf-8", errors="replace")


def arff_columns(arff: Arff) -> list[Column]:
    """The columns of a dense file: text for nominal attributes, numbers for the others."""
    rows = list(csv.reader(arff.lines, quotechar="'", escapechar="\\", doublequote=False, skipinitialspace=True))
    if any(len(row) != len(arff.attributes) for row in rows):
        raise DataError(f"a data line does not hold {len(arff.attributes)} values")
    values = (np.array(column, dtype=object) for column in zip(*rows, strict=True))
    return [column_of(attribute.name, column, parse=not attribute.categorical)
            for attribute, column in zip(arff.attributes, values, strict=True)]


def arff_matrix(arff: Arff) -> sparse.csr_matrix:
    """The values of a sparse file `{column value, ...}`; nominal attributes have to be 0 and 1."""
    for attribute in arff.attributes:
        if attribute.domain is not None and attribute.domain[0] != "0":
            raise DataError(f"sparse attribute '{attribute.name}' has the values {attribute.domain}, not numbers")
    lengths = [line.count(",") + 1 if line.strip("{} ") else 0 for line in arff.lines]
    text = " ".join(arff.lines).translate(str.maketrans("{},", "   "))
    pairs = np.array(text.split(), dtype=np.float64).reshape(-1, 2)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    shape = (len(arff.lines), len(arff.attributes))
    matrix = sparse.csr_matrix((pairs[:, 1].astype(np.float32), pairs[:, 0].astype(np.int32), starts), shape=shape)
    matrix.sort_indices()
    return matrix


def _attribute(line: str, path: Path) -> Feature:
    found = _ATTRIBUTE.match(line)
    if found is None:
        raise DataError(f"'{path.name}' has an attribute that cannot be read: {line}")
    name, kind = found.groups()
    if not kind.startswith("{"):
        return Feature(_unquoted(name))
    values = next(csv.reader([kind.strip("{} ")], quotechar="'", escapechar="\\", doublequote=False,
                             skipinitialspace=True))
    return Feature(_unquoted(name), tuple(value.strip() for value in values))


def _unquoted(name: str) -> str:
    return name[1:-1].replace("\\", "") if name[:1] in ("'", '"') else name
