"""Embedded digits in five looks, so that methods for domain shift can be tried without a download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Len

from tequio.data.catalogue.digit_five import Domain, joined, resized
from tequio.data.catalogue.embedded import Digits
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Images = NDArray[np.float32]

_ORDER: tuple[Domain, ...] = ("mnist", "mnist_m", "svhn", "syn", "usps")


@register("dataset", "digit_worlds")
@dataclass(frozen=True)
class DigitWorlds:
    """The embedded digits in five looks that imitate those of `digit_five`: a stand-in to try things on.

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
        return Loaded(joined(train, self.domains, "digit_worlds"), joined(test, self.domains, "digit_worlds"))


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
