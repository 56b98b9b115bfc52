"""Small real sets that come with scikit-learn: nothing to download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.images import Pictures, picture_dataset
from tequio.data.dataset import Dataset, Schema, Target
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Array


_SOURCE = "scikit-learn (embedded)"
_LICENCE = "UCI, CC BY 4.0"


@register("dataset", "digits", paper="Alpaydin and Kaynak, 1998")
@dataclass(frozen=True)
class Digits:
    """Handwritten digits, 8 x 8 grey pixels.

    Parameters:
        normalise: subtract the mean and divide by the standard deviation of all pixels
        flatten: rows of 64 pixels instead of 1 x 8 x 8 images
    """

    facts: ClassVar[Facts] = Facts(1797, 64, "10 classes", _LICENCE, "Alpaydin and Kaynak 1998", _SOURCE)
    normalise: bool = False
    flatten: bool = False

    def load(self) -> Loaded:
        """All rows; the set has no test part of its own here."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        pixels = (bunch.images[:, np.newaxis] / 16).astype(np.float32)
        classes = [str(name) for name in bunch.target_names]
        return picture_dataset("digits", Pictures(pixels, bunch.target), None, classes, normalise=self.normalise,
                               flatten=self.flatten)


DIGIT_PROPERTIES = {"even": (0, 2, 4, 6, 8), "prime": (2, 3, 5, 7), "multiple of 3": (0, 3, 6, 9),
                    "square": (0, 1, 4, 9), "above 4": (5, 6, 7, 8, 9), "closed loop": (0, 6, 8, 9)}
"""Labels of a digit, and the digits that have them; 1 is the only one with a single label."""


@register("dataset", "digit-properties", paper="Alpaydin and Kaynak, 1998")
@dataclass(frozen=True)
class DigitProperties:
    """Handwritten digits by 64 pixels, with six properties of the digit as labels: derived, not annotated.

    Real images whose labels follow from the class, for trying out multi-label learning without a download.
    """

    facts: ClassVar[Facts] = Facts(1797, 64, "6 labels", _LICENCE, "Alpaydin and Kaynak 1998", _SOURCE)

    def load(self) -> Loaded:
        """All rows."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        labels = np.column_stack([np.isin(bunch.target, digits) for digits in DIGIT_PROPERTIES.values()])
        schema = Schema.of_numbers((f"pixel_{pixel}" for pixel in range(64)),
                                   Target("multilabel", tuple(DIGIT_PROPERTIES), "properties"))
        features = (bunch.data / 16).astype(np.float32)
        return Loaded(Dataset.of(schema, features, labels.astype(np.int8), name="digit-properties"))


@register("dataset", "breast-cancer", paper="Wolberg et al., 1995")
@dataclass(frozen=True)
class BreastCancer:
    """Breast tumours, malignant or benign, by measures of cell nuclei."""

    facts: ClassVar[Facts] = Facts(569, 30, "2 classes", _LICENCE, "Wolberg, Street, Mangasarian 1995", _SOURCE)

    def load(self) -> Loaded:
        """All rows."""
        from sklearn.datasets import load_breast_cancer

        return _classes("breast-cancer", load_breast_cancer())


@register("dataset", "wine", paper="Aeberhard et al., 1992")
@dataclass(frozen=True)
class Wine:
    """Wines of three growers, by chemical measures."""

    facts: ClassVar[Facts] = Facts(178, 13, "3 classes", _LICENCE, "Aeberhard, Coomans, de Vel 1992", _SOURCE)

    def load(self) -> Loaded:
        """All rows."""
        from sklearn.datasets import load_wine

        return _classes("wine", load_wine())


@register("dataset", "iris", paper="Fisher, 1936")
@dataclass(frozen=True)
class Iris:
    """Three kinds of iris flowers, by the size of their leaves."""

    facts: ClassVar[Facts] = Facts(150, 4, "3 classes", _LICENCE, "Fisher 1936", _SOURCE)

    def load(self) -> Loaded:
        """All rows."""
        from sklearn.datasets import load_iris

        return _classes("iris", load_iris())


@register("dataset", "diabetes", paper="Efron et al., 2004")
@dataclass(frozen=True)
class Diabetes:
    """Progress of diabetes after a year, by ten measures at its start (a number to predict)."""

    facts: ClassVar[Facts] = Facts(442, 10, "a number", "none stated", "Efron, Hastie, Johnstone, Tibshirani 2004",
                                   _SOURCE)

    def load(self) -> Loaded:
        """All rows, features in their original units."""
        from sklearn.datasets import load_diabetes

        bunch = load_diabetes(scaled=False)
        schema = Schema.of_numbers(bunch.feature_names, Target("number", (), "progression"))
        return Loaded(Dataset.of(schema, bunch.data, bunch.target, name="diabetes"))


def _classes(name: str, bunch: Any) -> Loaded:
    target = Target("classes", tuple(str(label) for label in bunch.target_names), "class")
    features: Array = bunch.data
    schema = Schema.of_numbers((str(column) for column in bunch.feature_names), target)
    return Loaded(Dataset.of(schema, features, bunch.target, name=name))
