"""ARFF files of one's own: Mulan's and Meka's ways to say what is a label, dense and sparse, and bad files."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

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
    with pytest.raises(ConfigError, match=r"does not say how many.*set data.labels"):
        load(written(tmp_path, SPARSE))
    with pytest.raises(DataError, match="3 attributes, which cannot hold 3 labels"):
        load(written(tmp_path, SPARSE), labels=3)
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path / "missing.arff", labels=1)
    with pytest.raises(DataError, match="has no data lines"):
        load(written(tmp_path, "@relation toy\n@attribute x numeric\n"), labels=1)


@pytest.mark.parametrize(("name", "features", "labels"), [("mediamill", 120, 101), ("human-pseaac", 440, 14)])
def test_sets_to_get_by_hand_are_checked_by_their_size(name, features, labels, tmp_path):
    names = [*(f"x{column} numeric" for column in range(features)), *(f"l{label} {{0,1}}" for label in range(labels))]
    text = "@relation r\n" + "".join(f"@attribute {each}\n" for each in names) + "@data\n"
    row = ",".join(["0.5"] * features + ["1"] * labels)
    data = build("dataset", name, {"path": str(written(tmp_path, f"{text}{row}\n"))}).load().train
    assert (len(data.schema.features), data.schema.target.size) == (features, labels)
    with pytest.raises(DataError, match=f"{name} has {features} features and {labels} labels"):
        build("dataset", name, {"path": str(written(tmp_path, SPARSE))}).load()
