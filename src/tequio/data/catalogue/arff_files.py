"""ARFF files of your own: Weka's with one target, and the multi-label ones of Mulan and Meka."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from xml.etree import ElementTree

import numpy as np
from annotated_types import Ge

from tequio.data.catalogue.arff import arff_columns, arff_matrix, read_arff
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.own import OwnTable
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.inputs.column import id_columns
from tequio.errors import ConfigError, DataError, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.data.catalogue.arff import Arff
    from tequio.data.dataset import Feature


_MEKA = re.compile(r"-C\s+(-?\d+)")


@register("dataset", "arff", example='[data]\nname = "arff"\npath = "birds.arff"\nxml_path = "birds.xml"\n')
@dataclass(frozen=True)
class ArffFile(OwnTable):
    """An ARFF file of your own, dense or sparse, gzipped or not, with one target or many labels.

    Which attributes are labels is taken from the first of these that there is: `target`; Mulan's XML file, also one of
    the same name beside the file; `labels`; and Meka's `-C 19` in the relation's name (the first 19 attributes; with
    -19 the last). Meka's is refused where the attributes at the other end could be labels as well.

    Parameters:
        path: the file
        xml_path: Mulan's XML file with the names of the labels
        labels: how many attributes are labels (0: as another of the ways says)
        labels_are: whether labels are the first or the last attributes
    """

    facts: ClassVar[Facts] = Facts(None, None, "as you say", "yours", "", "an ARFF file")
    path: str = field(kw_only=True)
    xml_path: str | None = field(default=None, kw_only=True)
    labels: Annotated[int, Ge(0)] = field(default=0, kw_only=True)
    labels_are: Literal["first", "last"] = field(default="last", kw_only=True)

    def load(self) -> Loaded:
        """All rows."""
        arff = read_arff(Path(self.path))
        names = [attribute.name for attribute in arff.attributes]
        twice, times = Counter(names).most_common(1)[0]
        if times > 1:
            raise DataError(f"'{self.path}' has {times} attributes called '{twice}'", remedy="rename all but one")
        labels = self._labels(arff, names)
        if len(labels) >= len(names):
            raise DataError(f"'{self.path}' has {len(names)} attributes, which cannot hold {len(labels)} labels "
                            "and a feature", remedy="set data.labels to a smaller number")
        read = self._sparse if arff.lines[0].startswith("{") else self._dense
        return Loaded(read(arff, labels))

    def _labels(self, arff: Arff, names: list[str]) -> list[str]:
        """The names of the labels, or of the one target."""
        if self.target is not None:
            return [self.target] if isinstance(self.target, str) else list(self.target)
        if self.target_kind == "none":
            return []
        beside = Path(self.path.removesuffix(".gz")).with_suffix(".xml")
        if self.xml_path or (beside.is_file() and not self.labels):
            return _labels_of(Path(self.xml_path or beside), names)
        count, place = (self.labels, self.labels_are) if self.labels else _meka_labels(arff, self.path)
        return names[:count] if place == "first" else names[max(len(names) - count, 0):]

    def _dense(self, arff: Arff, labels: Sequence[str]) -> Dataset:
        content = {column.name: column for column in arff_columns(arff)}
        own = replace(self, target=self.target or list(labels) or None)
        guessed = any(not attribute.categorical and content[attribute.name].is_text for attribute in arff.attributes)
        name = Path(self.path).name.split(".")[0]
        if guessed or self.schema_path or self.categorical or isinstance(self.columns, dict):
            return own.read(content, name=name)
        kept = self._features(arff, labels)
        roles = (*id_columns(self.id, content), *filter(None, (self.group,)))
        wanted = {*(attribute.name for attribute in kept), *labels, *roles}
        schema = Schema(kept, _target_of(arff, labels, isinstance(self.target, str)))
        return replace(own, ignore=[]).read({key: column for key, column in content.items() if key in wanted},
                                            schema=schema, name=name)

    def _sparse(self, arff: Arff, labels: Sequence[str]) -> Dataset:
        """Attributes of 0 and 1 become plain numbers, so that what is not written stays a zero that costs nothing."""
        plain = ArffFile(path=self.path)
        for key in ("id", "group", "missing", "categorical", "schema_path"):
            if getattr(self, key) != getattr(plain, key):
                raise ConfigError(f"a sparse ARFF file holds numbers only, so that data.{key} has no meaning for it",
                                  remedy=f"leave data.{key} out")
        kept = [attribute.name for attribute in self._features(arff, labels)]
        places = {attribute.name: place for place, attribute in enumerate(arff.attributes)}
        matrix = arff_matrix(arff)
        outputs = matrix[:, [places[name] for name in labels]].toarray().astype(np.int8) if labels else None
        schema = Schema.of_numbers(kept, Target("multilabel", tuple(labels), "labels") if labels else Target("none"))
        return Dataset.of(schema, matrix[:, [places[name] for name in kept]], outputs,
                          name=Path(self.path).name.split(".")[0])

    def _features(self, arff: Arff, labels: Sequence[str]) -> tuple[Feature, ...]:
        """The attributes to learn from."""
        _check_names([*labels, *self.ignore, *(self.columns or ())], [one.name for one in arff.attributes])
        identifying = id_columns(self.id, [one.name for one in arff.attributes])
        others, only = {*labels, *self.ignore, *identifying, self.group}, self.columns
        return tuple(one for one in arff.attributes if one.name not in others and (only is None or one.name in only))


def _check_names(wanted: Sequence[str], names: Sequence[str]) -> None:
    known = set(names)
    for name in wanted:
        if name not in known:
            raise DataError(f"there is no attribute '{name}'", remedy=nearest(name, names))


def _target_of(arff: Arff, labels: Sequence[str], is_one: bool) -> Target:
    """What the named attributes are as a target; classes come in the order of the file."""
    if not labels:
        return Target("none")
    if not is_one:
        return Target("multilabel", tuple(labels), "labels")
    attribute = next(one for one in arff.attributes if one.name == labels[0])
    return Target("number", (), attribute.name) if attribute.domain is None else \
        Target("classes", attribute.domain, attribute.name)


def _labels_of(path: Path, names: Sequence[str]) -> list[str]:
    """The labels that Mulan's XML file names, also those below others, in the order of the file of rows."""
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except OSError as cause:
        raise DataError(f"'{path}' cannot be read: {cause.strerror}", remedy="check data.xml_path") from cause
    except ElementTree.ParseError as cause:
        raise DataError(f"'{path}' is no XML file: {cause}", remedy="give Mulan's file of labels in data.xml_path"
                        ) from cause
    found = [element.get("name", "") for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    if not found:
        raise DataError(f"'{path}' names no labels", remedy="give Mulan's file of labels in data.xml_path")
    _check_names(found, names)
    return [name for name in names if name in set(found)]


def _meka_labels(arff: Arff, path: str) -> tuple[int, Literal["first", "last"]]:
    """How many labels the relation's name says there are and where, if only that end can hold labels."""
    found = _MEKA.search(arff.relation)
    if found is None or not int(found[1]):
        raise ConfigError(f"'{path}' does not say which of its attributes are labels",
                          remedy="set data.xml_path to Mulan's XML file, data.target to one attribute, or data.labels "
                                 "to how many there are, with data.labels_are = 'first' if they come first")
    count = abs(int(found[1]))
    ends = {"first": arff.attributes[:count], "last": arff.attributes[-count:]}
    place: Literal["first", "last"] = "first" if int(found[1]) > 0 else "last"
    other = "last" if place == "first" else "first"
    if all(map(_is_binary, ends[other])):
        raise ConfigError(f"'{path}' says {found[0]}, the {place} {count} attributes ('{ends[place][0].name}', ...), "
                          f"but the {other} {count} ('{ends[other][0].name}', ...) hold 0 and 1 as well",
                          remedy=f"say which are labels: data.labels = {count} with data.labels_are = '{place}' or "
                                 f"'{other}', or data.xml_path")
    return count, place


def _is_binary(attribute: Feature) -> bool:
    return attribute.domain is not None and set(attribute.domain) <= {"0", "1"}
