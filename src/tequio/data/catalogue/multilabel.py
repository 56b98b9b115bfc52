"""Public multi-label sets from ARFF files; sparse ones stay sparse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tequio.data.catalogue.arff import arff_columns, arff_matrix, read_arff
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.manifest import data_file
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.inputs.encoding import encode_features, encode_target
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.data.catalogue.arff import Arff
    from tequio.data.dataset import Feature, Matrix


_MULAN = "repository tsoumakas/mulan"
_MLDR = "repository fcharte/mldr.datasets"
_MLFEDAVG = "repository daviddb11/MLFedAvg"
_LICENCE = "none stated (research)"


def _facts(rows: int, features: int, labels: int, citation: str, source: str, file: str, test_rows: int = 0) -> Facts:
    return Facts(rows, features, f"{labels} labels", _LICENCE, citation, source, test_rows=test_rows,
                 files=(f"multilabel/{file}.arff.gz",))


@register("dataset", "scene", paper="Boutell et al., 2004")
@dataclass(frozen=True)
class Scene:
    """Photos of landscapes with up to three of six labels, by colour moments.

    Parameters:
        whole: give all 2,407 rows in one part, for studies that make their own splits
    """

    facts: ClassVar[Facts] = _facts(1211, 294, 6, "Boutell et al. 2004", _MULAN, "scene", test_rows=1196)
    whole: bool = False

    def load(self) -> Loaded:
        """The official training and test rows."""
        return _load("scene", self.facts, 6, train_rows=0 if self.whole else 1211)


@register("dataset", "yeast", paper="Elisseeff and Weston, 2001")
@dataclass(frozen=True)
class Yeast:
    """Genes of yeast with their functional groups, by expression profiles."""

    facts: ClassVar[Facts] = _facts(2417, 103, 14, "Elisseeff, Weston 2001", _MULAN, "yeast")

    def load(self) -> Loaded:
        """All rows."""
        return _load("yeast", self.facts, 14)


@register("dataset", "20ng", paper="Lang, 1995")
@dataclass(frozen=True)
class TwentyNewsgroups:
    """Messages to twenty newsgroups, by the words in them."""

    facts: ClassVar[Facts] = _facts(19_300, 1006, 20, "Lang 1995", _MLDR, "20NG")

    def load(self) -> Loaded:
        """All rows, sparse."""
        return _load("20ng", self.facts, 20)


@register("dataset", "tmc2007-500", paper="Srivastava and Zane-Ulman, 2005")
@dataclass(frozen=True)
class Tmc2007:
    """Reports on flight safety with the anomalies found, by 500 chosen words."""

    facts: ClassVar[Facts] = _facts(28_596, 500, 22, "Srivastava, Zane-Ulman 2005; Tsoumakas et al. 2011", _MLDR,
                                    "tmc2007_500")

    def load(self) -> Loaded:
        """All rows, sparse."""
        return _load("tmc2007-500", self.facts, 22)


@register("dataset", "slashdot", paper="Read, 2010")
@dataclass(frozen=True)
class Slashdot:
    """Technology articles with their subjects, by the words in them."""

    facts: ClassVar[Facts] = _facts(3782, 1079, 22, "Read 2010", _MLFEDAVG, "slashdot")

    def load(self) -> Loaded:
        """All rows, sparse."""
        return _load("slashdot", self.facts, 22, labels_are="first")


@register("dataset", "yahoo-education", paper="Ueda and Saito, 2002")
@dataclass(frozen=True)
class YahooEducation:
    """Web pages on education with their categories, by the words in them."""

    facts: ClassVar[Facts] = _facts(12_030, 27_534, 33, "Ueda, Saito 2002", _MLDR, "YahooEducation")

    def load(self) -> Loaded:
        """All rows, sparse."""
        return _load("yahoo-education", self.facts, 33)


@register("dataset", "yahoo-education-brfs", paper="Ueda and Saito, 2002")
@dataclass(frozen=True)
class YahooEducationBrfs:
    """Web pages on education with their categories, by 500 chosen words."""

    facts: ClassVar[Facts] = _facts(12_030, 500, 33, "Ueda, Saito 2002", _MLFEDAVG, "YahooEducation-BRFS")

    def load(self) -> Loaded:
        """All rows, sparse."""
        return _load("yahoo-education-brfs", self.facts, 33)


@register("dataset", "reuters-k500", paper="Read, 2010")
@dataclass(frozen=True)
class ReutersK500:
    """News of Reuters with their topics, by 500 chosen words."""

    facts: ClassVar[Facts] = _facts(6000, 500, 103, "Read 2010", _MLFEDAVG, "reutersK500")

    def load(self) -> Loaded:
        """All rows, sparse."""
        return _load("reuters-k500", self.facts, 103, labels_are="first")


@register("dataset", "corel5k", paper="Duygulu et al., 2002")
@dataclass(frozen=True)
class Corel5k:
    """Photos with the words that describe them, by clusters of image regions."""

    facts: ClassVar[Facts] = _facts(5000, 499, 374, "Duygulu et al. 2002", _MULAN, "Corel5k")

    def load(self) -> Loaded:
        """All rows, sparse."""
        return _load("corel5k", self.facts, 374)


@register("dataset", "genbase", paper="Diplaris et al., 2005")
@dataclass(frozen=True)
class Genbase:
    """Proteins with their families, by motifs; the protein's identifier is the row's id, not a feature."""

    facts: ClassVar[Facts] = _facts(662, 1185, 27, "Diplaris et al. 2005", _MULAN, "genbase")

    def load(self) -> Loaded:
        """All rows."""
        return _load("genbase", self.facts, 27, has_id=True)


@register("dataset", "flags", paper="Goncalves et al., 2013")
@dataclass(frozen=True)
class Flags:
    """Flags of countries with their colours, by facts about the country and the flag."""

    facts: ClassVar[Facts] = _facts(194, 19, 7, "Goncalves et al. 2013", _MULAN, "flags")

    def load(self) -> Loaded:
        """All rows."""
        return _load("flags", self.facts, 7)


@register("dataset", "bibtex", paper="Katakis et al., 2008")
@dataclass(frozen=True)
class Bibtex:
    """Bibliography entries with their tags, by the words in them."""

    facts: ClassVar[Facts] = _facts(7395, 1836, 159, "Katakis et al. 2008", _MULAN, "bibtex")

    def load(self) -> Loaded:
        """All rows, sparse."""
        return _load("bibtex", self.facts, 159)


@register("dataset", "birds", paper="Briggs et al., 2013")
@dataclass(frozen=True)
class Birds:
    """Sound recordings with the birds that are heard in them, by audio measures."""

    facts: ClassVar[Facts] = _facts(322, 260, 19, "Briggs et al. 2013", _MULAN, "birds", test_rows=323)

    def load(self) -> Loaded:
        """The official training and test rows."""
        return _load("birds", self.facts, 19, train_rows=322)


def _load(name: str, facts: Facts, labels: int, *, labels_are: Literal["first", "last"] = "last", train_rows: int = 0,
          has_id: bool = False) -> Loaded:
    dataset = labelled_dataset(name, read_arff(data_file(facts.files[0])), labels, labels_are=labels_are, has_id=has_id)
    if not train_rows:
        return Loaded(dataset)
    return Loaded(dataset.take(np.arange(train_rows)), dataset.take(np.arange(train_rows, len(dataset))))


def labelled_dataset(name: str, arff: Arff, labels: int, *, labels_are: Literal["first", "last"] = "last",
                     has_id: bool = False) -> Dataset:
    """The rows of a file whose first or last attributes are labels."""
    width = len(arff.attributes)
    label_columns = list(range(labels) if labels_are == "first" else range(width - labels, width))
    feature_columns = [column for column in range(width) if column not in set(label_columns)][has_id:]
    features = [arff.attributes[column] for column in feature_columns]
    target = Target("multilabel", tuple(arff.attributes[column].name for column in label_columns), "labels")
    if arff.lines[0].startswith("{"):
        return _sparse_dataset(name, arff, features, feature_columns, label_columns, target)
    columns = arff_columns(arff)
    values = encode_features({columns[column].name: columns[column] for column in feature_columns}, features)
    return Dataset.of(Schema(tuple(features), target), values,
                      encode_target([columns[column] for column in label_columns], target),
                      ids=columns[0].values.astype(str) if has_id else None, name=name)


def _sparse_dataset(name: str, arff: Arff, features: Sequence[Feature], feature_columns: list[int],
                    label_columns: list[int], target: Target) -> Dataset:
    """Nominal 0/1 attributes become plain numbers, so that what is not written stays a zero that costs nothing."""
    matrix: Matrix = arff_matrix(arff)
    schema = Schema.of_numbers((feature.name for feature in features), target)
    return Dataset.of(schema, matrix[:, feature_columns], matrix[:, label_columns].toarray().astype(np.int8), name=name)


_KDIS = "https://www.uco.es/kdis/mllresources/"
_BY_HAND = f"to get by hand: {_KDIS}"


@register("dataset", "mediamill", paper="Snoek et al., 2006")
@dataclass(frozen=True)
class MediaMill:
    """Shots of television news with the concepts seen in them, by 120 visual measures; read from your own copy.

    Parameters:
        path: the ARFF file, labels last
    """

    facts: ClassVar[Facts] = Facts(None, 120, "101 labels", "none stated (research)", "Snoek et al. 2006", _BY_HAND)
    path: str

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(_checked("mediamill", self.path, features=120, labels=101))


@register("dataset", "human-pseaac", paper="Xu et al., 2016")
@dataclass(frozen=True)
class HumanPseAAC:
    """Human proteins with the places in the cell they are found in, by 440 measures; read from your own copy.

    Parameters:
        path: the ARFF file, labels last
    """

    facts: ClassVar[Facts] = Facts(None, 440, "14 labels", "none stated (research)", "Xu et al. 2016", _BY_HAND)
    path: str

    def load(self) -> Loaded:
        """All rows."""
        return Loaded(_checked("human-pseaac", self.path, features=440, labels=14))


def _checked(name: str, path: str, *, features: int, labels: int) -> Dataset:
    arff = read_arff(Path(path))
    if len(arff.attributes) != features + labels:
        raise DataError(f"'{path}' has {len(arff.attributes)} attributes, and {name} has {features} features and "
                        f"{labels} labels", remedy=f"get the file from {_KDIS}, or use the dataset 'arff'")
    return labelled_dataset(name, arff, labels)
