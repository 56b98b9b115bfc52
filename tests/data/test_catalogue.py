import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tequio import registry
from tequio.data.catalogue.entry import Loaded
from tequio.data.catalogue.manifest import FILES
from tequio.data.catalogue.text import hashed_counts, hashed_tokens
from tequio.data.dataset import Feature, Target
from tequio.errors import ConfigError, DataError, MissingExtra
from tequio.registry import build
from tequio.views.components import parameters

data = pytest.mark.data

OWN = ("csv", "parquet", "sql", "image-folder", "arff", "mediamill", "human-pseaac", "parties", "xuetangx",
       "femnist", "emnist", "cifar100", "landmarks", "shakespeare", "stack-overflow")
DATASETS = [entry for entry in registry.entries("dataset") if entry.component.__module__.startswith("tequio.")]


FIRST_CLASSES = {"svhn": [1, 9, 2, 3, 2, 5, 9, 3, 3, 1], "mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]}


def load(name: str, **parameters: Any) -> Loaded:
    loaded: Loaded = build("dataset", name, parameters).load()
    return loaded


@lru_cache
def load_once(name: str) -> Loaded:
    """For tables, which several tests look at and which are small."""
    return load(name)


def class_counts(loaded: Loaded) -> dict[str, int]:
    target = loaded.whole().target
    return dict(zip(loaded.train.schema.target.names, np.bincount(target).tolist(), strict=True))


def test_every_file_of_the_manifest_belongs_to_a_dataset_and_the_other_way_round() -> None:
    named = {path for entry in DATASETS for path in entry.component.facts.files}
    assert named <= set(FILES)
    assert {path.split("/")[0] for path in set(FILES) - named} == {"cifar10_full"}


@pytest.mark.parametrize("entry", DATASETS, ids=lambda entry: entry.name)
def test_every_dataset_states_its_facts_and_describes_its_parameters(entry: registry.Entry) -> None:
    facts = entry.component.facts
    assert all((facts.target, facts.licence, facts.source))
    assert facts.citation or entry.name in (*OWN, "synthetic", "made-up-students", "made-up-patients")
    assert all(parameter.meaning for parameter in parameters(entry.component))


@pytest.mark.parametrize("entry", [pytest.param(entry, marks=[data] if entry.component.facts.files else [])
                                   for entry in DATASETS if entry.name not in OWN], ids=lambda entry: entry.name)
def test_every_dataset_holds_what_its_facts_say(entry: registry.Entry) -> None:
    facts, is_image = entry.component.facts, entry.component.__module__.endswith(".images")
    loaded = load(entry.name) if is_image else load_once(entry.name)
    train, schema = loaded.train, loaded.train.schema
    assert facts.rows in (None, len(train))
    assert facts.features in (None, len(schema.features))
    assert facts.test_rows == (0 if loaded.test is None else len(loaded.test))
    expected = {"classes": f"{schema.target.size} classes", "multilabel": f"{schema.target.size} labels",
                "number": "a number"}[schema.target.kind]
    assert facts.target in (expected, "classes")
    assert (train.source.groups is not None) == bool(facts.groups)
    assert train.target[:10].tolist() == FIRST_CLASSES.get(entry.name, train.target[:10].tolist())
    if len(schema.shape) == 3:
        assert train.source.features.dtype == np.float32
        assert (train.source.features.min(), train.source.features.max()) == (0, 1)


def test_embedded_sets_keep_their_known_rows() -> None:
    iris, digits, diabetes = load("iris").train, load("digits", flatten=True).train, load("diabetes").train
    assert iris.features[0].tolist() == [5.1, 3.5, 1.4, 0.2]
    assert iris.schema.target.names == ("setosa", "versicolor", "virginica")
    assert (digits.features[0, :4] * 16).tolist() == [0, 0, 5, 13]
    assert diabetes.target[:3].tolist() == [151, 75, 141]
    assert diabetes.features[0, 0] == 59  # age in years


def test_normalised_images_have_mean_zero_and_deviation_one() -> None:
    plain, normalised = load("digits").train.features, load("digits", normalise=True).train.features
    np.testing.assert_allclose(normalised, (plain - plain.mean()) / plain.std(), rtol=1e-4, atol=1e-5)


def test_synthetic_rows_follow_the_seed_and_are_learnable() -> None:
    first, again, other = (load("synthetic", rows=300, features=4, classes=3, spread=9, seed=seed).train
                           for seed in (1, 1, 2))
    assert np.array_equal(first.features, again.features)
    assert not np.array_equal(first.features, other.features)
    assert np.bincount(first.target).tolist() == [100, 100, 100]
    centres = np.stack([first.features[first.target == label].mean(axis=0) for label in range(3)])
    distances = np.linalg.norm(first.features[:, None] - centres, axis=2)
    assert (distances.argmin(axis=1) == first.target).mean() > 0.95
    noisy = load("synthetic", rows=300, features=4, classes=3, spread=9, seed=1, noise=1.0).train
    assert np.array_equal(noisy.features, first.features)
    assert (noisy.target == first.target).mean() < 0.5


@pytest.mark.parametrize("parameters", [{"rows": 0}, {"noise": 1.5}, {"rows": 1, "classes": 2}])
def test_impossible_synthetic_sets_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        load("synthetic", **parameters)


def test_a_csv_file_and_its_test_file_share_one_schema(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("ward,age,risk\nb,40,low\na,50,high\n")
    (tmp_path / "test.csv").write_text("ward,age,risk\na,60,low\n")
    (tmp_path / "bad.csv").write_text("ward,age,risk\nc,60,low\n")
    paths = {name: str(tmp_path / f"{name}.csv") for name in ("train", "test", "bad")}
    loaded = load("csv", path=paths["train"], target="risk", test_path=paths["test"], minimum_count=1)
    assert loaded.test is not None
    assert loaded.train.schema is loaded.test.schema
    assert loaded.test.features.tolist() == [[0, 60]]
    assert loaded.whole().features.tolist() == [[1, 40], [0, 50], [0, 60]]
    with pytest.raises(DataError, match="column 'ward' has the category 'c'"):
        load("csv", path=paths["train"], target="risk", test_path=paths["bad"], minimum_count=1)
    rare = load("csv", path=paths["train"], target="risk", test_path=paths["bad"])
    assert rare.train.schema.features[0].domain == ("(other)",)
    assert "'ward' has 2 categories with fewer than 10 rows" in rare.train.source.notes[0]
    assert rare.test.features.tolist() == [[0, 60]]
    with pytest.raises(ConfigError, match="did you mean 'target'"):
        load("csv", path=paths["train"], traget="risk")
    with pytest.raises(ConfigError, match="'path' is missing"):
        load("csv")


def test_a_parquet_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({"who": ["x", "y"], "age": [40, 50], "risk": [0.5, 1.5]})
    frame.to_parquet(tmp_path / "a.parquet")
    found = load("parquet", path=str(tmp_path / "a.parquet"), target="risk", id="who").train
    assert (found.ids.tolist(), found.target.tolist()) == (["x", "y"], [0.5, 1.5])
    assert found.schema.target == Target("number", (), "risk")


def test_hashed_words_need_no_vocabulary() -> None:
    together, alone = hashed_counts(["good good day", "bad"], 64, 1), hashed_counts(["good good day"], 64, 1)
    assert (together[0] != alone[0]).nnz == 0
    assert sorted(together[0].data) == [1, 2]
    assert hashed_counts(["good good day"], 64, 2).sum() == 5
    tokens = hashed_tokens(["Good day, good", "x", ""], 50, 3)
    assert tokens.shape == (3, 3)
    assert tokens[0, 0] == tokens[0, 2] != tokens[0, 1]
    assert tokens[1, 1:].tolist() == [0, 0]
    assert tokens[2].tolist() == [0, 0, 0]
    assert tokens[0].min() > 0


def test_a_set_that_is_not_at_hand_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEQUIO_DATA", raising=False)
    with pytest.raises(DataError, match=r"'ilpd/ilpd\.csv\.gz' is not on this machine"):
        load("ilpd")


@data
@pytest.mark.parametrize(("name", "package"), [("usps", "h5py"), ("syn-digits", "PIL")])
def test_images_without_their_reader_say_what_to_install(name: str, package: str, monkeypatch: pytest.MonkeyPatch,
                                                        tmp_path: Path) -> None:
    monkeypatch.setenv("TEQUIO_CACHE", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtra, match=r"tequio\[images\]"):
        load(name)


@data
def test_the_files_of_the_data_folder_are_the_ones_of_the_manifest() -> None:
    folder = Path(os.environ["TEQUIO_DATA"])
    present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {path for path in FILES if not path.startswith("cifar10_full/")} <= present


@data
@pytest.mark.parametrize(("name", "counts"), [
    ("adult", [37_155, 11_687]), ("nursery", [4320, 4266, 2, 4044, 328]), ("car", [384, 69, 1210, 65]),
    ("credit2", [23_364, 6636]), ("ilpd", [416, 167]), ("student-dropout", [1421, 794, 2209]),
    ("oulad", [3024, 7052, 12_361, 10_156]), ("german-credit", [700, 300]), ("syn-digits", [1200] * 10),
    ("usps", [1553, 1269, 929, 824, 852, 716, 834, 792, 708, 821]),
])
def test_published_class_counts(name: str, counts: list[int]) -> None:
    assert list(class_counts(load_once(name)).values()) == counts


@data
@pytest.mark.parametrize(("name", "cardinality", "density"), [
    ("scene", 1.074, 0.1790), ("yeast", 4.237, 0.3026), ("20ng", 1.029, 0.0514), ("tmc2007-500", 2.220, 0.1009),
    ("slashdot", 1.181, 0.0537), ("yahoo-education", 1.463, 0.0443), ("yahoo-education-brfs", 1.463, 0.0443),
    ("reuters-k500", 1.462, 0.0142), ("corel5k", 3.522, 0.0094), ("genbase", 1.252, 0.0464), ("flags", 3.392, 0.4845),
    ("bibtex", 2.402, 0.0151), ("birds", 1.014, 0.0534)])
def test_published_label_cardinalities_and_densities(name: str, cardinality: float, density: float) -> None:
    whole = load_once(name).whole()
    assert round(float(whole.target.sum(axis=1).mean()), 3) == cardinality
    assert round(float(whole.target.mean()), 4) == pytest.approx(density, abs=1.01e-4)
    assert whole.is_sparse == (name not in ("scene", "yeast", "genbase", "flags", "birds"))


@data
def test_views_of_sparse_sets_stay_sparse() -> None:
    slashdot = load_once("slashdot").train
    view = slashdot.take([3, 1]).select([0, 5])
    assert view.features.format == "csr"
    assert view.features.shape == (2, 2)
    assert slashdot.features[0].nnz == 11  # 13 pairs in the file's first line, two of them labels


@data
def test_mnist_is_mnist() -> None:
    loaded = load("mnist", normalise=True)
    assert loaded.test is not None
    assert loaded.train.schema.shape == (1, 28, 28)
    # black becomes -mean/deviation, in both parts: the well-known 0.1307 and 0.3081
    for part in (loaded.train, loaded.test):
        assert part.source.features.min() == pytest.approx(-0.1307 / 0.3081, rel=1e-3)


@data
def test_groups_of_the_image_sets() -> None:
    chunks = load("mnist-m")
    assert chunks.test is not None
    assert sorted(set(chunks.train.groups)) == [61, 62, 65, 66, 68, 70, 71, 76, 79, 80, 81, 84, 90, 97]
    assert sorted(set(chunks.test.groups)) == [88, 93]


@data
def test_adult_missing_values() -> None:
    kept, dropped = load_once("adult"), load("adult", missing="drop")
    assert "?" in (kept.train.schema.features[1].domain or ())
    assert (len(dropped.whole()), len(kept.whole())) == (45_222, 48_842)
    assert kept.whole().source is kept.train.source


@data
def test_credit2_rows_have_the_ids_that_parties_share() -> None:
    credit = load_once("credit2").train
    assert credit.ids[:3].tolist() == [1, 2, 3]
    assert "ID" not in credit.schema.names


@data
def test_learning_analytics_sets() -> None:
    kdd, by_day = load_once("kddcup2015").train, load("kddcup2015", by_day=True).train
    assert len(set(kdd.groups)) == 31
    assert kdd.target.mean() == pytest.approx(0.830, abs=5e-4)
    assert by_day.schema.names[:2] == ("access_day01", "discussion_day01")
    assert np.array_equal(by_day.features.reshape(-1, 30, 7).sum(axis=1), kdd.features)
    oulad = load_once("oulad").train
    assert len(set(oulad.groups)) == 22
    table = pd.read_csv(Path(os.environ["TEQUIO_DATA"]) / "oulad" / "student_assessment.csv.gz")
    in_time = table[(table.date_submitted <= 30) & table.score.notna()]
    marks, means = oulad.features[:, oulad.schema.column("marks")], oulad.features[:, oulad.schema.column("mean_mark")]
    assert (marks.sum(), (marks * means).sum()) == pytest.approx((len(in_time), in_time.score.sum()))
    assert oulad.features[0].tolist()[-4:] == [-159, 268, 1, 78]
    portuguese = load("student-performance", subject="por", earlier_marks=False).train
    assert (len(portuguese), len(portuguese.schema.features), set(portuguese.groups)) == (649, 30, {"GP", "MS"})


@data
def test_sentiment140_as_words_and_as_tokens() -> None:
    words, tokens = load_once("sentiment140").train, load("sentiment140", representation="tokens").train
    assert words.is_sparse
    assert np.bincount(words.target).tolist() == [50_000, 50_000]
    assert np.array_equal(words.target, tokens.target)
    assert tokens.features.shape == (100_000, 32)
    assert tokens.schema.features[0] == Feature("word_0", tuple(str(number) for number in range(10_000)))
    first = words.features[0]  # "@user Thought as much"
    assert first.sum() == 4
    assert (tokens.features[0] > 0).sum() == 4
