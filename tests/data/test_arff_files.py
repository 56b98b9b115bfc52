"""ARFF files of one's own: Mulan's and Meka's ways to say what is a label, dense and sparse, and bad files."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from tequio.data.catalogue.manifest import data_file
from tequio.data.dataset import Target
from tequio.errors import ConfigError, DataError
from tequio.registry import build

DENSE = """@relation 'toy: -C {count}'
@attribute x numeric
@attribute colour {{red,green}}
@attribute a {{0,1}}
@attribute b {{0,1}}
@data
1.5,red,0,1
2.5,green,1,1
"""
SPARSE = """% a comment
@relation toy
@attribute a {0,1}
@attribute x numeric
@attribute y numeric
@data
{0 1, 2 3.5}
{1 2}
{}
"""


def load(path, **parameters):
    return build("dataset", "arff", {"path": str(path), **parameters}).load().train


def written(tmp_path, text):
    path = tmp_path / "toy.arff"
    path.write_text(text)
    return path


def test_meka_says_in_the_name_how_many_labels_come_last(tmp_path):
    data = load(written(tmp_path, DENSE.format(count=-2)))
    assert data.schema.target.names == ("a", "b")
    assert data.schema.names == ("x", "colour")
    assert data.target.tolist() == [[0, 1], [1, 1]]
    assert data.features.tolist() == [[1.5, 0.0], [2.5, 1.0]]


def test_sparse_files_stay_sparse_and_labels_may_come_first(tmp_path):
    data = load(written(tmp_path, SPARSE), labels=1, labels_are="first")
    assert data.is_sparse
    assert data.target.tolist() == [[1], [0], [0]]
    np.testing.assert_array_equal(data.features.toarray(), [[0, 3.5], [2, 0], [0, 0]])


def test_gzipped_files_are_read_too(tmp_path):
    path = tmp_path / "toy.arff.gz"
    path.write_bytes(gzip.compress(SPARSE.encode()))
    assert len(load(path, labels=1, labels_are="first")) == 3


def test_what_cannot_be_read_says_why(tmp_path):
    with pytest.raises(ConfigError, match=r"does not say which of its attributes are labels; set data.xml_path"):
        load(written(tmp_path, SPARSE))
    with pytest.raises(DataError, match="3 attributes, which cannot hold 3 labels"):
        load(written(tmp_path, SPARSE), labels=3)
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path / "missing.arff", labels=1)
    with pytest.raises(DataError, match="has no data lines"):
        load(written(tmp_path, "@relation toy\n@attribute x numeric\n"), labels=1)


XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="b"><label name="colour is red"></label></label>
</labels>
"""
MIDDLE = """@relation toy
@attribute x numeric
@attribute 'colour is red' {0,1}
@attribute y {0,1}
@attribute b {0,1}
@data
1.5,0,1,1
2.5,1,0,0
"""


@pytest.mark.parametrize("keys", [{"xml_path": "toy.xml"}, {}], ids=["named", "beside"])
def test_mulan_names_the_labels_in_an_xml_file_wherever_they_are(keys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.xml").write_text(XML)
    data = load(written(tmp_path, MIDDLE), **keys)
    assert data.schema.target.names == ("colour is red", "b")
    assert data.schema.names == ("x", "y")
    assert data.target.tolist() == [[0, 1], [1, 0]]
    assert data.features.tolist() == [[1.5, 1.0], [2.5, 0.0]]
    sparse = MIDDLE.partition("@data")[0] + "@data\n{0 1.5, 2 1, 3 1}\n{0 2.5, 1 1}\n"
    same = load(written(tmp_path, sparse), **keys)
    assert same.is_sparse
    np.testing.assert_array_equal(same.target, data.target)
    np.testing.assert_array_equal(same.features.toarray(), data.features)


def test_an_xml_file_that_does_not_fit_is_refused(tmp_path):
    path = written(tmp_path, MIDDLE)
    for text, message in ((XML.replace('"b"', '"bb"'), "there is no attribute 'bb'"), ("<labels/>", "names no labels"),
                          ("no XML", "is no XML file")):
        (tmp_path / "other.xml").write_text(text)
        with pytest.raises(DataError, match=message):
            load(path, xml_path=str(tmp_path / "other.xml"))
    with pytest.raises(DataError, match=r"missing\.xml' cannot be read.*data\.xml_path"):
        load(path, xml_path=str(tmp_path / "missing.xml"))


WORDS = "".join(f"@attribute word{number} {{0,1}}\n" for number in range(4))
TOPICS = "".join(f"@attribute topic{number} {{0,1}}\n" for number in range(2))


@pytest.mark.parametrize("sign", ["", "-"])
def test_mekas_count_is_refused_where_both_ends_could_be_labels(sign, tmp_path):
    text = f"@relation 'medical: -C {sign}2'\n{WORDS}{TOPICS}@data\n0,1,1,0,1,0\n1,0,1,1,0,1\n"
    with pytest.raises(ConfigError, match=rf"says -C {sign}2, .*hold 0 and 1 as well; .*data.labels = 2 with"):
        load(written(tmp_path, text))
    for place, names in (("last", ("topic0", "topic1")), ("first", ("word0", "word1"))):
        assert load(tmp_path / "toy.arff", labels=2, labels_are=place).schema.target.names == names
    (tmp_path / "toy.xml").write_text('<labels><label name="topic0"/><label name="topic1"/></labels>')
    assert load(tmp_path / "toy.arff").schema.target.names == ("topic0", "topic1")


WEKA = """@relation weather
@attribute day string
@attribute outlook {sunny, rainy}
@attribute humidity numeric
@attribute play {yes, no}
@data
mon,rainy,80,no
tue,sunny,?,yes
wed,sunny,60,yes
"""


def test_a_file_of_weka_has_one_target_and_takes_the_keys_of_a_table(tmp_path):
    path = written(tmp_path, WEKA)
    data = load(path, target="play", ignore=["day"], missing="drop", minimum_count=1)
    assert data.schema.target == Target("classes", ("no", "yes"), "play")
    assert data.features.tolist() == [[0, 80], [1, 60]]
    numbers = load(written(tmp_path, WEKA.replace("@attribute day string\n", "").replace("mon,", "").replace("tue,", "")
                           .replace("wed,", "")), target="play", missing="keep")
    assert numbers.schema.features[0].domain == ("sunny", "rainy")  # in the order of the file
    assert numbers.schema.target.names == ("yes", "no")
    np.testing.assert_array_equal(numbers.features, [[1, 80], [0, np.nan], [0, 60]])
    assert load(path, target="humidity", missing="drop", columns=["outlook"], minimum_count=1
                ).schema.target.kind == "number"
    with pytest.raises(DataError, match="did you mean 'play'"):
        load(tmp_path / "toy.arff", target="plays")


def test_columns_of_a_sparse_file_can_be_left_out_and_other_keys_are_refused(tmp_path):
    path = written(tmp_path, SPARSE)
    assert load(path, target=["a"], ignore=["x"]).schema.names == ("y",)
    assert load(path, target=["a"], columns=["x"]).schema.names == ("x",)
    assert load(path, target_kind="none").schema.target.kind == "none"
    with pytest.raises(ConfigError, match=r"data\.group has no meaning for it; leave data\.group out"):
        load(path, target=["a"], group="x")
    with pytest.raises(DataError, match="there is no attribute 'z'"):
        load(path, target=["a"], ignore=["z"])


def test_two_attributes_of_one_name_are_refused(tmp_path):
    with pytest.raises(DataError, match="has 2 attributes called 'a'"):
        load(written(tmp_path, DENSE.replace("@attribute b", "@attribute a").format(count=-2)))


@pytest.mark.data
@pytest.mark.parametrize(("name", "labels"), [("flags", 7), ("yeast", 14), ("bibtex", 159)])
def test_real_files_give_what_the_catalogue_gives(name, labels):
    own = load(data_file(f"multilabel/{name}.arff.gz"), labels=labels)
    listed = build("dataset", name, {}).load().train
    assert own.schema == listed.schema
    np.testing.assert_array_equal(own.target, listed.target)
    left, right = ((data.features.toarray() if data.is_sparse else data.features) for data in (own, listed))
    np.testing.assert_array_equal(left, right)


@pytest.mark.data
@pytest.mark.parametrize(("file", "count"), [("slashdot", 22), ("reutersK500", 103)])
def test_real_files_of_meka_name_their_labels_or_are_refused(file, count):
    path = data_file(f"multilabel/{file}.arff.gz")
    try:
        found = load(path)
    except ConfigError as cause:
        assert f"data.labels = {count}" in cause.remedy
        found = load(path, labels=count, labels_are="first")
    assert found.schema.target.size == count


@pytest.mark.parametrize(("name", "features", "labels"), [("mediamill", 120, 101), ("human-pseaac", 440, 14)])
def test_sets_to_get_by_hand_are_checked_by_their_size(name, features, labels, tmp_path):
    names = [*(f"x{column} numeric" for column in range(features)), *(f"l{label} {{0,1}}" for label in range(labels))]
    text = "@relation r\n" + "".join(f"@attribute {each}\n" for each in names) + "@data\n"
    row = ",".join(["0.5"] * features + ["1"] * labels)
    data = build("dataset", name, {"path": str(written(tmp_path, f"{text}{row}\n"))}).load().train
    assert (len(data.schema.features), data.schema.target.size) == (features, labels)
    with pytest.raises(DataError, match=f"{name} has {features} features and {labels} labels"):
        build("dataset", name, {"path": str(written(tmp_path, SPARSE))}).load()
