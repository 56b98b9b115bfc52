"""Sets released for federated learning, read from small files of the formats in which they were published."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tequio.data.catalogue import by_user_text, cifar100, emnist, landmarks
from tequio.data.partitions.groups import Natural
from tequio.errors import DataError
from tequio.registry import build

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.data.catalogue.entry import Loaded

h5py = pytest.importorskip("h5py")
DRAW = np.random.default_rng(0)


def load(name: str, **parameters: Any) -> Loaded:
    loaded: Loaded = build("dataset", name, {key: str(value) if key == "path" else value
                                             for key, value in parameters.items()}).load()
    return loaded


def write_users(path: Path, users: dict[str, dict[str, Any]]) -> None:
    """As TensorFlow Federated does: examples/USER/COLUMN."""
    with h5py.File(path, "w") as file:
        for user, columns in users.items():
            for name, values in columns.items():
                file[f"examples/{user}/{name}"] = values


def texts(*values: str) -> Any:
    return np.array([value.encode() for value in values], dtype=h5py.string_dtype())


# --- EMNIST and FEMNIST ----------------------------------------------------------------------------------------------

def writers(counts: dict[str, int], classes: int = 62) -> dict[str, dict[str, Any]]:
    return {name: {"pixels": DRAW.random((rows, 28, 28)).astype(np.float32),
                   "label": DRAW.integers(0, classes, rows).astype(np.int32)} for name, rows in counts.items()}


@pytest.fixture
def tff(tmp_path: Path) -> tuple[Path, dict[str, dict[str, Any]]]:
    train = writers({"f0002_01": 3, "f0001_41": 2})
    write_users(tmp_path / "fed_emnist_train.h5", train)
    write_users(tmp_path / "fed_emnist_test.h5", writers({"f0001_41": 1, "f0002_01": 1}))
    return tmp_path, train


def test_femnist_keeps_its_writers(tff: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder, users = tff
    loaded = load("femnist", path=folder)
    assert loaded.train.groups.tolist() == ["f0001_41"] * 2 + ["f0002_01"] * 3
    np.testing.assert_array_equal(loaded.train.features[2:, 0], users["f0002_01"]["pixels"])
    np.testing.assert_array_equal(loaded.train.target[:2], users["f0001_41"]["label"])
    assert loaded.train.schema.target.names[10:12] == ("A", "B")
    assert loaded.train.schema.target.names[-1] == "z"
    assert loaded.test is not None
    assert len(loaded.test) == 2
    partition = Natural().deal(loaded.train, np.random.default_rng(0))
    assert partition.sizes.tolist() == [2, 3]
    assert len(load("femnist", path=folder, users=1, flatten=True).train) == 2


def test_femnist_of_leaf_says_the_same_of_the_same_rows(tff: tuple[Path, dict[str, dict[str, Any]]],
                                                        tmp_path: Path) -> None:
    folder, users = tff
    for part in ("train", "test"):
        (tmp_path / "leaf" / part).mkdir(parents=True)
        data = {name: {"x": user["pixels"].reshape(-1, 784).tolist(), "y": user["label"].tolist()}
                for name, user in users.items()}
        content = {"users": list(users), "num_samples": [len(user["y"]) for user in data.values()], "user_data": data}
        (tmp_path / "leaf" / part / "all_data_0.json").write_text(json.dumps(content))
    one, other = load("femnist", path=folder).train, load("femnist", path=tmp_path / "leaf").train
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_array_equal(one.target, other.target)
    assert one.groups.tolist() == other.groups.tolist()
    digits = load("femnist", path=tmp_path / "leaf", digits=True).train
    assert len(digits) == (one.target < 10).sum()


def test_the_published_archive_is_checked_and_read(tff: tuple[Path, dict[str, dict[str, Any]]], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = tff
    archive = tmp_path / "there" / "fed_emnist.tar.bz2"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:bz2") as members:
        for part in ("train", "test"):
            members.add(folder / f"fed_emnist_{part}.h5", f"./data/fed_emnist_{part}.h5")
    with pytest.raises(DataError, match=r"is not the file that was published: its sha256 is .*, expected fe1ed5a5"):
        load("femnist", path=archive)
    known = replace(emnist._EMNIST["fed_emnist"], digest=hashlib.sha256(archive.read_bytes()).hexdigest())
    monkeypatch.setitem(emnist._EMNIST, "fed_emnist", known)
    expected = load("femnist", path=folder).train
    for place in (archive, archive.parent):
        np.testing.assert_array_equal(load("femnist", path=place).train.features, expected.features)


def test_an_archive_without_the_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content, complaint in ((b"no archive", "cannot be unpacked"),
                               (tar_of({"x": b""}), r"holds no file 'fed_emnist_train\.h5'")):
        archive = tmp_path / "fed_emnist.tar.bz2"
        archive.write_bytes(bz2.compress(content))
        known = replace(emnist._EMNIST["fed_emnist"], digest=hashlib.sha256(archive.read_bytes()).hexdigest())
        monkeypatch.setitem(emnist._EMNIST, "fed_emnist", known)
        with pytest.raises(DataError, match=complaint):
            load("femnist", path=tmp_path)


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as members:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            members.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize(("spoil", "complaint"), [
    (lambda file: file.__delitem__("examples"), "has no '/examples'"),
    (lambda file: file["examples/f0001_41"].__delitem__("label"), "has no '/examples/f0001_41/label'"),
    (lambda file: file["examples"].__setitem__("f0001_41", h5py.ExternalLink("/etc/passwd", "/")), "is a link"),
    (lambda file: file["examples"].__setitem__("a", h5py.SoftLink("/examples/f0002_01")), "is a link"),
])
def test_a_file_that_is_not_whole_or_points_elsewhere_is_refused(tff: tuple[Path, dict[str, dict[str, Any]]],
                                                                 spoil: Any, complaint: str) -> None:
    folder, _ = tff
    with h5py.File(folder / "fed_emnist_train.h5", "a") as file:
        if "link" in complaint and "f0001_41" in file["examples"]:
            del file["examples/f0001_41"]
        spoil(file)
    with pytest.raises(DataError, match=complaint):
        load("femnist", path=folder)


@pytest.mark.parametrize(("columns", "complaint"), [
    ({"pixels": np.zeros((2, 28, 28), np.float32), "label": np.zeros(3, int)}, "user 'w' are not equally long"),
    ({"pixels": np.zeros((2, 28, 27), np.float32), "label": np.zeros(2, int)}, "user 'w' have the shape"),
    ({"pixels": np.zeros((2, 28, 28), np.float32), "label": np.array([0, -1])}, "no class numbers"),
    ({"pixels": np.zeros((2, 28, 28), np.float32), "label": np.array([0, 62])}, "has the class 62, and there are 62"),
])
def test_rows_that_cannot_be_are_refused_by_user(tmp_path: Path, columns: dict[str, Any], complaint: str) -> None:
    for part in ("train", "test"):
        write_users(tmp_path / f"fed_emnist_{part}.h5", {"w": columns})
    with pytest.raises(DataError, match=complaint):
        load("femnist", path=tmp_path)


def test_what_is_no_hdf5_file_and_a_folder_without_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file '.*fed_emnist_train\.h5'; set data\.path to"):
        load("femnist", path=tmp_path)
    for part in ("train", "test"):
        (tmp_path / f"fed_emnist_{part}.h5").write_text("hello")
    with pytest.raises(DataError, match="is no HDF5 file"):
        load("femnist", path=tmp_path)


@pytest.mark.parametrize(("content", "complaint"), [
    ("{", "is no file of LEAF"), ('{"users": ["a"], "num_samples": [1], "user_data": {}}', "KeyError"),
    ('{"users": ["a"], "num_samples": [2], "user_data": {"a": {"x": [[0]], "y": [0]}}}', "should have 2"),
    ('{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[0, 1]], "y": [0]}}}',
     "user 'a' are not 28 x 28"),
])
def test_a_damaged_file_of_leaf_is_named(tmp_path: Path, content: str, complaint: str) -> None:
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "data.json").write_text(content)
    with pytest.raises(DataError, match=complaint):
        load("femnist", path=tmp_path)


def idx(array: Any) -> bytes:
    array = np.asarray(array, dtype=np.uint8)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes())


def write_emnist(folder: Path, labels: list[int], mapping: str = "1 65 97\n2 66 98\n") -> Any:
    pixels = DRAW.integers(0, 256, (2, 28, 28), dtype=np.uint8)
    for part in ("train", "test"):
        (folder / f"emnist-letters-{part}-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (folder / f"emnist-letters-{part}-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    (folder / "emnist-letters-mapping.txt").write_text(mapping)
    return pixels


def test_emnist_is_put_upright_and_named(tmp_path: Path) -> None:
    pixels = write_emnist(tmp_path, [2, 1])
    train = load("emnist", path=tmp_path, part="letters").train
    assert train.schema.target.names == ("A/a", "B/b")
    assert train.target.tolist() == [1, 0]
    np.testing.assert_array_equal(train.features[0, 0], pixels[0].T.astype(np.float32) / np.float32(255))


@pytest.mark.parametrize(("labels", "mapping", "complaint"), [
    ([2, 3], "1 65 97\n2 66 98\n", "labels that its mapping does not name"),
    ([2, 1, 1], "1 65 97\n2 66 98\n", "3 labels for pictures"), ([2, 1], "1 A\n", "is no mapping of labels")])
def test_emnist_that_does_not_fit_together_is_refused(tmp_path: Path, labels: list[int], mapping: str,
                                                      complaint: str) -> None:
    write_emnist(tmp_path, labels, mapping)
    with pytest.raises(DataError, match=complaint):
        load("emnist", path=tmp_path, part="letters")


def test_damaged_idx_files_and_missing_ones_are_named(tmp_path: Path) -> None:
    write_emnist(tmp_path, [1, 2])
    path = tmp_path / "emnist-letters-train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for content in (whole[:40], gzip.compress(gzip.decompress(whole)[:100]), b"text"):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not a gzipped idx file"):
            load("emnist", path=tmp_path, part="letters")
    with pytest.raises(DataError, match=r"there is no file '.*emnist-balanced-mapping\.txt'"):
        load("emnist", path=tmp_path, part="balanced")


# --- CIFAR-100 -------------------------------------------------------------------------------------------------------

def text_of_python_2(value: bytes) -> bytes:
    return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value


def batch_of_python_2(pixels: Any, **lists: list[Any]) -> bytes:
    """Opcode by opcode what cPickle wrote of a dict with an array of bytes, and lists, in protocol 2."""
    def whole(number: int) -> bytes:
        return b"J" + struct.pack("<i", number)

    kind = b"cnumpy\ndtype\n" + text_of_python_2(b"u1") + whole(0) + whole(1) + b"\x87R(" + whole(3) + \
        text_of_python_2(b"|") + b"NNN" + whole(-1) + whole(-1) + whole(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + whole(0) + b"\x85" + text_of_python_2(b"b") + \
        b"\x87R(" + whole(1) + whole(pixels.shape[0]) + whole(pixels.shape[1]) + b"\x86" + kind + b"\x89" + \
        text_of_python_2(pixels.tobytes()) + b"tb"
    content = text_of_python_2(b"data") + array
    for name, values in lists.items():
        content += text_of_python_2(name.encode()) + b"](" + \
            b"".join(whole(value) if isinstance(value, int) else text_of_python_2(value.encode())
                     for value in values) + b"e"
    return b"\x80\x02}(" + content + b"u."


@pytest.fixture
def batches(tmp_path: Path) -> tuple[Path, Any]:
    pixels = DRAW.integers(0, 256, (4, 3072), dtype=np.uint8)
    for part in ("train", "test"):
        (tmp_path / part).write_bytes(batch_of_python_2(pixels, fine_labels=[99, 0, 1, 2], coarse_labels=[19, 0, 0, 1],
                                                        filenames=["a.png", "b.png", "c.png", "d.png"]))
    meta = {b"fine_label_names": [f"fine {place}".encode() for place in range(100)],
            b"coarse_label_names": [f"coarse {place}".encode() for place in range(20)]}
    (tmp_path / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return tmp_path, pixels


def test_batches_written_by_python_2_are_read(batches: tuple[Path, Any]) -> None:
    folder, pixels = batches
    as_usual = pickle.loads((folder / "train").read_bytes(), encoding="bytes")  # noqa: S301 - written above
    assert as_usual[b"data"].tolist() == pixels.tolist()
    train = load("cifar100", path=folder, checked=False).train
    np.testing.assert_array_equal(train.features, pixels.reshape(4, 3, 32, 32).astype(np.float32) / np.float32(255))
    assert train.target.tolist() == [99, 0, 1, 2]
    assert train.schema.target.names[99] == "fine 99"
    assert load("cifar100", path=folder, checked=False, labels="coarse").train.target.tolist() == [19, 0, 0, 1]


def test_batches_that_python_3_wrote_again_are_read(batches: tuple[Path, Any]) -> None:
    folder, pixels = batches
    for part in ("train", "test"):
        again = {b"data": pixels, b"fine_labels": [99, 0, 1, 2]}
        (folder / part).write_bytes(pickle.dumps(again, protocol=2))
    np.testing.assert_array_equal(load("cifar100", path=folder, checked=False).train.target, [99, 0, 1, 2])


def test_batches_are_compared_with_what_was_published(batches: tuple[Path, Any],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = batches
    with pytest.raises(DataError, match=r"its md5 is .*, expected 16019d7e"):
        load("cifar100", path=folder)
    for name in cifar100._CIFAR100_MD5:
        digest = hashlib.md5((folder / name).read_bytes()).hexdigest()
        monkeypatch.setitem(cifar100._CIFAR100_MD5, name, digest)
    assert len(load("cifar100", path=folder).train) == 4


class Runs:
    """Runs a command when it is read as pickles usually are."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return (exec, (f"open({str(self.place)!r}, 'w').write('x')",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_code_in_a_batch_is_run(batches: tuple[Path, Any], tmp_path: Path, protocol: int) -> None:
    folder, _ = batches
    (folder / "train").write_bytes(pickle.dumps({b"data": Runs(tmp_path / "ran")}, protocol=protocol))
    with pytest.raises(DataError, match=r"it asks for .*exec"):
        load("cifar100", path=folder, checked=False)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("content", "complaint"), [
    (b"", "no batch of pictures"), (pickle.dumps([1]), "no dict"),
    (pickle.dumps({b"data": np.zeros((4, 3072))}, protocol=2), "not one of bytes"),
    (pickle.dumps({b"data": np.array([{}], dtype=object)}, protocol=2), "not one of bytes"),
    (pickle.dumps({b"data": np.zeros((4, 3071), np.uint8), b"fine_labels": [0] * 4}, protocol=2), "3072 bytes"),
    (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [100]}, protocol=2), "has the class 100"),
    (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": ["x"]}, protocol=2), "no class numbers"),
    (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8)}, protocol=2), "no list 'fine_labels'"),
    # BUILD on the stub for bytes: nothing can be set on it
    (b"\x80\x02c_codecs\nencode\n}U\x01aK\x01sb.", "no batch of pictures")])
def test_a_batch_of_another_structure_is_refused(batches: tuple[Path, Any], content: bytes, complaint: str) -> None:
    folder, _ = batches
    (folder / "train").write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        load("cifar100", path=folder, checked=False)


def test_cifar_by_user(tmp_path: Path) -> None:
    images = DRAW.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    user = {"image": images, "label": np.array([5, 6, 99]), "coarse_label": np.array([1, 1, 19])}
    write_users(tmp_path / "fed_cifar100_train.h5", {"7": user, "12": user})
    write_users(tmp_path / "fed_cifar100_test.h5", {"0": user})
    loaded = load("cifar100", path=tmp_path)
    assert loaded.train.groups.tolist() == ["12"] * 3 + ["7"] * 3
    np.testing.assert_array_equal(loaded.train.features[0], images[0].transpose(2, 0, 1).astype(np.float32) / 255)
    assert load("cifar100", path=tmp_path, labels="coarse").train.target[:3].tolist() == [1, 1, 19]


# --- landmarks -------------------------------------------------------------------------------------------------------

@pytest.fixture
def gld(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "images" / "b" / "2" / "c").mkdir(parents=True)
    for file, level in (("a1.jpg", 0), ("b/2/c/b2c9.jpg", 255), ("c3.jpg", 128)):
        image.fromarray(np.full((20, 30, 3), level, dtype=np.uint8)).save(tmp_path / "images" / file)
    (tmp_path / "mini_gld_train_split.csv").write_text("user_id,image_id,class\n10,a1,7\n9,b2c9,3\n10,c3,3\n")
    (tmp_path / "mini_gld_test.csv").write_text("image_id,class\na1,7\nc3,3\n")
    return tmp_path


def test_landmarks_belong_to_people(gld: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"its md5 is .*, expected 9fd62cf7"):
        load("landmarks", path=gld)
    for name in landmarks._TABLE_MD5:
        monkeypatch.setitem(landmarks._TABLE_MD5, name, hashlib.md5((gld / name).read_bytes()).hexdigest())
    loaded = load("landmarks", path=gld, size=8)
    assert loaded.train.groups.tolist() == [10, 9, 10]
    assert loaded.train.target.tolist() == [1, 0, 0]
    assert loaded.train.schema.target.names == ("3", "7")
    assert loaded.train.features.shape == (3, 3, 8, 8)
    assert loaded.train.features.mean(axis=(1, 2, 3)) == pytest.approx([0, 1, 128 / 255], abs=0.01)
    one = load("landmarks", path=gld, size=8, users=1)
    assert one.train.groups.tolist() == [9]
    assert one.test is not None
    assert len(one.test) == 1  # the class of the others is not known to anybody


@pytest.mark.parametrize(("table", "complaint"), [
    ("user_id,image_id,class\n1,zz,3\n", r"there is no photo '.*z/z/zz\.jpg'"),
    ("user_id,image_id,class\n1,../secret,3\n", "'../secret' is no name of a photo"),
    ("user_id,image,class\n1,a1,3\n", "no column 'image_id'"),
    ("user_id,image_id,class\n1,a1,x\n", "no class numbers")])
def test_a_table_that_leads_nowhere_is_refused(gld: Path, table: str, complaint: str) -> None:
    (gld / "mini_gld_train_split.csv").write_text(table)
    with pytest.raises(DataError, match=complaint):
        load("landmarks", path=gld, checked=False)


# --- texts -----------------------------------------------------------------------------------------------------------

def spoken(dataset: Any, row: int) -> str:
    return "".join(by_user_text.LETTERS[code - 1] for code in dataset.features[row].astype(int)
                   if 0 < code <= len(by_user_text.LETTERS))


def test_shakespeare_is_cut_into_pieces_with_what_follows(tmp_path: Path) -> None:
    write_users(tmp_path / "shakespeare_train.h5", {"HAMLET": {"snippets": texts("To be, or not", "I")},
                                                    "GHOST": {"snippets": texts("Swear\u00e9")}})
    write_users(tmp_path / "shakespeare_test.h5", {"GHOST": {"snippets": texts("Adieu")}})
    loaded = load("shakespeare", path=tmp_path, length=5)
    train, names = loaded.train, loaded.train.schema.target.names
    assert train.groups.tolist() == ["GHOST"] + ["HAMLET"] * 3
    assert [spoken(train, row) for row in range(4)] == ["Swear", "To be", ", or ", " or no"[1:]]
    assert [names[code] for code in train.target] == ["other", ",", "n", "t"]
    assert loaded.test is not None
    assert spoken(loaded.test, 0) == "Adie"
    assert loaded.test.features[0, 0] == 0  # filled up before its beginning


def test_shakespeare_of_leaf(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        data = {"ROMEO": {"x": ["a" * 80, "b" * 79 + "c"], "y": ["!", "\n"]}}
        content = {"users": ["ROMEO"], "num_samples": [2], "user_data": data}
        (tmp_path / part / "data.json").write_text(json.dumps(content))
    train = load("shakespeare", path=tmp_path).train
    assert [train.schema.target.names[code] for code in train.target] == ["!", "\\n"]
    assert spoken(train, 1) == "b" * 79 + "c"
    assert spoken(load("shakespeare", path=tmp_path, length=2).train, 1) == "bc"
    (tmp_path / "train" / "data.json").write_text(json.dumps(
        {"users": ["A"], "num_samples": [1], "user_data": {"A": {"x": ["a"], "y": ["ab"]}}}))
    with pytest.raises(DataError, match="speaker 'A' has something else"):
        load("shakespeare", path=tmp_path)


def write_posts(folder: Path) -> None:
    train = {"00002": {"tokens": texts("how to sort a list", "use sort"), "title": texts("sort a list", ""),
                       "tags": texts("python|list", "python")},
             "00001": {"tokens": texts("what is a monad"), "title": texts("monad"), "tags": texts("haskell")}}
    write_users(folder / "stackoverflow_train.h5", train)
    write_users(folder / "stackoverflow_test.h5", {"3": {"tokens": texts("sort this"), "title": texts("x"),
                                                         "tags": texts("python|rust")}})


def test_posts_have_counts_of_words_and_tags(tmp_path: Path) -> None:
    write_posts(tmp_path)
    loaded = load("stack-overflow", path=tmp_path, words=3, tags=2)
    assert tuple(loaded.train.schema.names) == ("a", "sort", "list")
    assert loaded.train.features.toarray().tolist() == [[1, 0, 0], [2, 2, 2], [0, 1, 0]]
    assert loaded.train.schema.target.names == ("python", "haskell")
    assert loaded.train.target.tolist() == [[0, 1], [1, 0], [1, 0]]
    assert loaded.train.groups.tolist() == ["00001", "00002", "00002"]
    assert loaded.test is not None
    assert loaded.test.features.toarray().tolist() == [[0, 1, 0]]
    assert loaded.test.target.tolist() == [[1, 0]]
    assert len(load("stack-overflow", path=tmp_path, users=1).train) == 1


def test_published_counts_say_which_words_and_tags(tmp_path: Path) -> None:
    write_posts(tmp_path)
    (tmp_path / "stackoverflow.word_count").write_text("use 900\nmonad 5\n")
    (tmp_path / "stackoverflow.tag_count").write_text(json.dumps({"list": 1, "rust": 7}))
    loaded = load("stack-overflow", path=tmp_path)
    assert tuple(loaded.train.schema.names) == ("use", "monad")
    assert loaded.train.schema.target.names == ("rust", "list")
    (tmp_path / "stackoverflow.tag_count").write_text("[1]")
    with pytest.raises(DataError, match="is no count of tags"):
        load("stack-overflow", path=tmp_path)
