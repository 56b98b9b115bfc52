"""Five worlds of digits in one form: 16 x 16 colour pixels, each row's domain as its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Len

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.images import Mnist, MnistM, Svhn, SynDigits, Usps
from tequio.data.catalogue.manifest import FILES
from tequio.data.dataset import Dataset
from tequio.data.decoded import decoded
from tequio.data.schema import Schema
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Images = NDArray[np.float32]

Domain = Literal["mnist", "mnist_m", "svhn", "syn", "usps"]
DOMAINS: dict[str, Callable[[], Any]] = {"mnist": Mnist, "mnist_m": MnistM, "svhn": Svhn, "syn": SynDigits,
                                         "usps": Usps}
SIDE = 16


@register("dataset", "digit_five", paper="Peng et al., 2019",
          example='[data]\nname = "digit_five"\npartition = {name = "domain", rows = 7000}\n')
@dataclass(frozen=True)
class DigitFive:
    """Digits of five domains (MNIST, MNIST-M, SVHN, SYN, USPS) as 3 x 16 x 16 images; groups are the domains.

    Each domain keeps its own test rows; SYN, which has none, gives up its last ones.

    Parameters:
        domains: which domains, in this order
        test_rows: test rows of each domain
    """

    facts: ClassVar[Facts] = Facts(
        126_291, 768, "10 classes", "those of its parts", "Peng et al. 2019", "the five sets of the catalogue",
        test_rows=10_000, groups="domain", files=tuple(
            file for entry in (Mnist, MnistM, Svhn, SynDigits, Usps) for file in entry.facts.files))
    domains: Annotated[tuple[Domain, ...], Len(1)] = ("mnist", "mnist_m", "svhn", "syn", "usps")
    test_rows: Annotated[int, Ge(1)] = 2000

    def load(self) -> Loaded:
        """Training and test rows, domain after domain."""
        parts = [self._domain(domain) for domain in self.domains]
        return Loaded(joined([train for train, _ in parts], self.domains, "digit_five"),
                      joined([test for _, test in parts], self.domains, "digit_five"))

    def _domain(self, domain: str) -> tuple[tuple[Images, Any], tuple[Images, Any]]:
        kept = _resized_domain(domain)
        images, target = kept["images"], kept["target"]
        if "test_images" not in kept:
            cut = len(images) - self.test_rows
            train, test = (images[:cut], target[:cut]), (images[cut:], target[cut:])
        else:
            train = images, target
            test = kept["test_images"][:self.test_rows], kept["test_target"][:self.test_rows]
        if len(test[0]) < self.test_rows or not len(train[0]):
            raise DataError(f"the domain '{domain}' has fewer than {self.test_rows} test rows",
                            remedy=f"set data.test_rows to at most {len(test[0])}")
        return train, test


def _resized_domain(domain: str) -> dict[str, Any]:
    """All rows of a domain at the common size; kept in the cache, because making them takes long."""
    entry = DOMAINS[domain]()

    def make() -> dict[str, Any]:
        loaded: Loaded = entry.load()
        made = {"images": resized(loaded.train.features), "target": loaded.train.target}
        if loaded.test is not None:
            made |= {"test_images": resized(loaded.test.features), "test_target": loaded.test.target}
        return made

    return decoded(f"digit_five_{domain}_rows", FILES[entry.facts.files[-1]].sha256, make)


def joined(parts: list[tuple[Images, Any]], domains: tuple[str, ...], name: str) -> Dataset:
    """One dataset of several domains, with the domains as groups."""
    groups = np.repeat(np.array(domains), [len(images) for images, _ in parts])
    return Dataset.of(Schema.of_images((3, SIDE, SIDE), tuple("0123456789")),
                      np.concatenate([images for images, _ in parts]),
                      np.concatenate([target for _, target in parts]), groups=groups, name=name)


def resized(images: Images, side: int = SIDE) -> Images:
    """Square images at another size by linear interpolation (over an area where they shrink), grey ones tripled."""
    weights = _interpolation(images.shape[-1], side)
    if images.shape[-1] != side:
        images = np.einsum("hi,rcij,wj->rchw", weights, images, weights, optimize=True)
    # In memory row after row: rows are gathered one by one in training.
    small = np.ascontiguousarray(images, dtype=np.float32)
    return np.repeat(small, 3, axis=1) if small.shape[1] == 1 else small


def _interpolation(before: int, after: int) -> Images:
    """One row a new pixel: weights of the old ones, a triangle as wide as the pixels shrink."""
    scale = before / after
    reach = max(scale, 1.0)
    centres = (np.arange(after) + 0.5) * scale - 0.5
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(before)[None, :] - centres[:, None]) / reach)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)
