"""Multi-label ARFF files of your own, as Mulan and Meka write them, and two public sets that have to be got by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge

from tequio.data.catalogue.arff import read_arff
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.multilabel import labelled_dataset
from tequio.errors import ConfigError, DataError
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.catalogue.arff import Arff
    from tequio.data.dataset import Dataset

_MEKA = re.compile(r"-C\s+(-?\d+)")
_KDIS = "https://www.uco.es/kdis/mllresources/"
_BY_HAND = f"to get by hand: {_KDIS}"


@register("dataset", "arff", example='[data]\nname = "arff"\npath = "birds.arff"\nlabels = 19\n')
@dataclass(frozen=True)
class ArffFile:
    """A multi-label ARFF file of your own, dense or sparse, gzipped or not.

    Meka writes how many labels there are into the relation's name (`-C 19`: the first 19 attributes, `-C -19`: the last
    19). Mulan writes it into an XML file, so say it here; its labels are the last attributes.

    Parameters:
        path: the file
        labels: how many attributes are labels (0: as the relation's name says)
        labels_are: whether labels are the first or the last attributes
    """

    facts: ClassVar[Facts] = Facts(None, None, "labels", "yours", "", "an ARFF file")
    path: str
    labels: Annotated[int, Ge(0)] = 0
    labels_are: Literal["first", "last"] = "last"

    def load(self) -> Loaded:
        """All rows."""
        arff = read_arff(Path(self.path))
        labels, place = (self.labels, self.labels_are) if self.labels else _meka_labels(arff, self.path)
        if labels >= len(arff.attributes):
            raise DataError(f"'{self.path}' has {len(arff.attributes)} attributes, which cannot hold {labels} labels "
                            "and a feature", remedy="check data.labels")
        return Loaded(labelled_dataset(Path(self.path).stem, arff, labels, labels_are=place))


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


@register("dataset", "human_pseaac", paper="Xu et al., 2016")
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
        return Loaded(_checked("human_pseaac", self.path, features=440, labels=14))


def _checked(name: str, path: str, *, features: int, labels: int) -> Dataset:
    arff = read_arff(Path(path))
    if len(arff.attributes) != features + labels:
        raise DataError(f"'{path}' has {len(arff.attributes)} attributes, and {name} has {features} features and "
                        f"{labels} labels", remedy=f"get the file from {_KDIS}, or use the dataset 'arff'")
    return labelled_dataset(name, arff, labels)


def _meka_labels(arff: Arff, path: str) -> tuple[int, Literal["first", "last"]]:
    found = _MEKA.search(arff.relation)
    if found is None or not int(found[1]):
        raise ConfigError(f"'{path}' does not say how many of its attributes are labels",
                          remedy="set data.labels, and data.labels_are = 'first' if they come first")
    count = int(found[1])
    return (count, "first") if count > 0 else (-count, "last")
