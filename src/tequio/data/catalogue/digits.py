"""Digits in several looks, for methods for domain shift: the five public sets, and embedded ones without a download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Len

from tequio.data.catalogue.embedded import Digits
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.images import Mnist, MnistM, Svhn, SynDigits, Usps
from tequio.data.catalogue.manifest import FILES
from tequio.data.dataset import Dataset, Schema
from tequio.data.fetch import decoded
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


@register("dataset", "digit-five", paper="Peng et al., 2019",
          example='[data]\nname = "digit-five"\npartition = {name = "domain", rows = 7000}\n')
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
        return Loaded(joined([train for train, _ in parts], self.domains, "digit-five"),
                      joined([test for _, test in parts], self.domains, "digit-five"))

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


_ORDER: tuple[Domain, ...] = ("mnist", "mnist_m", "svhn", "syn", "usps")


@register("dataset", "digit-worlds")
@dataclass(frozen=True)
class DigitWorlds:
    """The embedded digits in five looks that imitate those of `digit-five`: a stand-in to try things on.

    Every digit is in one domain only. Nothing measured here says anything about the real domains.

    Parameters:
        domains: which domains, in this order
        test_rows: test rows of each domain
    """

    facts: ClassVar[Facts] = Facts(1497, 768, "10 classes", "UCI, CC BY 4.0", "Alpaydin and Kaynak 1998",
                                   "scikit-learn (embedded)", test_rows=300, groups="domain")
    domains: Annotated[tuple[Domain, ...], Len(1)] = _ORDER
    test_rows: Annotated[int, Ge(1)] = 60

    def load(self) -> Loaded:
        """Training and test rows, domain after domain."""
        digits = Digits().load().train
        images, target = resized(digits.features), digits.target
        train, test = [], []
        for domain in self.domains:
            # All digits where there is one domain; where there are several, each has its own fifth of them.
            mine = np.arange(_ORDER.index(domain), len(images), 5) if len(self.domains) > 2 else \
                np.arange(self.domains.index(domain), len(images), len(self.domains))
            if len(mine) <= self.test_rows:
                raise DataError(f"the domain '{domain}' has {len(mine)} rows, and all would be test rows",
                                remedy=f"set data.test_rows below {len(mine)}")
            looks = _looks(domain, images[mine])
            train.append((looks[self.test_rows:], target[mine][self.test_rows:]))
            test.append((looks[:self.test_rows], target[mine][:self.test_rows]))
        return Loaded(joined(train, self.domains, "digit-worlds"), joined(test, self.domains, "digit-worlds"))


def _looks(domain: str, images: Images) -> Images:
    """Plain digits, over a texture, soft and low in contrast, in colour over noise, or bold."""
    draw = np.random.Generator(np.random.PCG64(_ORDER.index(domain)))
    noise = draw.random(images.shape, dtype=np.float32)
    tint = draw.random((len(images), 3, 1, 1), dtype=np.float32)
    if domain == "mnist_m":
        return np.abs(images - (0.6 * noise + 0.4 * tint)).astype(np.float32)
    if domain == "svhn":
        soft = (images + np.roll(images, 1, axis=2) + np.roll(images, 1, axis=3)) / 3
        return (0.3 + 0.4 * tint * (1 - soft) + 0.2 * soft).astype(np.float32)
    if domain == "syn":
        return np.where(images > 0.4, tint, noise).astype(np.float32)
    return np.minimum(1.0, 1.6 * images).astype(np.float32) if domain == "usps" else images
