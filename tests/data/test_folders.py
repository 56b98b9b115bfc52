"""Folders of pictures: what is read from them, exactly, and which files are named where it cannot be."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from PIL import Image

import tequio
from tequio.data.catalogue import folders
from tequio.errors import DataError
from tequio.registry import build


def picture(seed, side=8):
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def load(path, **own):
    return build("dataset", "image-folder", {"path": str(path), "size": 8, **own}).load()


@pytest.fixture
def zoo(tmp_path):
    """Two classes of two pictures each, with what does not belong there."""
    for number, name in enumerate(("dog/b.png", "cat/2.png", "cat/1.png", "dog/deep/a.PNG")):
        save(tmp_path / "zoo" / name, picture(number))
    (tmp_path / "zoo" / ".DS_Store").write_text("x")
    (tmp_path / "zoo" / "cat" / ".hidden.png").write_text("x")
    return tmp_path / "zoo"


def test_folders_are_classes_and_pixels_are_exact(zoo):
    data = load(zoo).train
    assert data.ids.tolist() == ["cat/1.png", "cat/2.png", "dog/b.png", "dog/deep/a.PNG"]
    assert data.schema.target.names == ("cat", "dog")
    assert data.target.tolist() == [0, 0, 1, 1]
    assert (data.schema.shape, data.features.dtype) == ((3, 8, 8), np.float32)
    expected = np.stack([np.moveaxis(picture(seed), -1, 0) for seed in (2, 1, 0, 3)]).astype(np.float32) / 255
    np.testing.assert_array_equal(data.features, expected)
    flat = load(zoo, flatten=True).train
    np.testing.assert_array_equal(flat.features, expected.reshape(4, -1))
    assert data.source.notes == ()


def test_pictures_are_resized_as_pillow_does_and_may_be_grey(zoo):
    data = load(zoo, size=[4, 6], colour="grey").train
    assert data.schema.shape == (1, 4, 6)
    expected = Image.fromarray(picture(2)).convert("L").resize((6, 4), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(data.features[0, 0], np.asarray(expected, dtype=np.float32) / np.float32(255))


def test_16_bits_of_grey_are_not_cut_off(tmp_path):
    deep = np.linspace(0, 65_535, 64).reshape(8, 8).astype(np.uint16)
    save(tmp_path / "a" / "deep.png", deep)
    save(tmp_path / "b" / "flat.png", np.full((8, 8), 128, np.uint8))
    for colour in ("grey", "colour"):
        found = load(tmp_path, colour=colour).train.features
        for channel in found[0]:
            np.testing.assert_allclose(channel, deep / 65_535, atol=1e-6)
        np.testing.assert_allclose(found[1], 128 / 255, atol=1e-6)


def test_a_picture_that_was_taken_sideways_is_turned_upright(tmp_path):
    upright = picture(1)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter to the left
    save(tmp_path / "a" / "x.png", np.rot90(upright).copy(), exif=exif)
    save(tmp_path / "b" / "x.png", upright)
    first, second = load(tmp_path).train.features
    np.testing.assert_array_equal(first, second)


def test_a_folder_with_train_and_test_has_test_rows(tmp_path):
    for part in ("train", "test"):
        for number, name in enumerate(("cat", "dog")):
            save(tmp_path / part / name / "1.png", picture(number))
    loaded = load(tmp_path)
    assert (len(loaded.train), len(loaded.test)) == (2, 2)
    np.testing.assert_array_equal(loaded.train.features, loaded.test.features)


def test_a_table_lists_files_labels_and_parties(zoo, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("file,label,party,more\ndog/b.png,7,north,x\ncat/1.png,8,south,y\ncat/2.png,7,north,z\n")
    data = load(zoo, labels_path=str(table)).train
    assert data.ids.tolist() == ["dog/b.png", "cat/1.png", "cat/2.png"]
    assert (data.schema.target.kind, data.schema.target.names) == ("classes", ("7", "8"))
    assert data.target.tolist() == [0, 1, 0]
    assert data.groups.tolist() == ["north", "south", "north"]
    number = load(zoo, labels_path=str(table), target_kind="number").train
    assert number.target.tolist() == [7, 8, 7]


def test_files_that_are_no_pictures_are_all_named(zoo):
    (zoo / "cat" / "0.jpg").write_bytes(b"no picture")
    whole = (zoo / "dog" / "b.png").read_bytes()
    (zoo / "dog" / "b.png").write_bytes(whole[:60])
    (zoo / "cat" / "notes.txt").write_text("not read")
    with pytest.raises(DataError, match=r"2 of 5 files in '.*zoo' cannot be read as pictures: 'cat/0.jpg', 'dog"):
        load(zoo)
    (zoo / "cat" / "0.jpg").unlink()
    (zoo / "dog" / "b.png").write_bytes(whole)
    assert "1 files are left out" in load(zoo).train.source.notes[0]
    assert "cat/notes.txt" in load(zoo).train.source.notes[0]


def test_a_picture_of_more_pixels_than_are_safe_is_named(zoo, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.raises(DataError, match="4 of 4 files"):
        load(zoo)


@pytest.mark.parametrize(("text", "message"), [
    ("files,label\ndog/b.png,1\n", r"has no column 'file'; it needs the columns file and label.*did you mean 'files'"),
    ("file,label\ndog/b.png,1\ndog/c.png,2\n", "1 files of .* are not in .*, such as 'dog/c.png'"),
    ("file,label\ndog/b.png,1\ncat/1.png,\n", "'cat/1.png' has no label"),
    ("file,label,party\ndog/b.png,1,\ncat/1.png,2,north\n", "'dog/b.png' has no party"),
])
def test_a_table_that_does_not_fit_is_refused(zoo, tmp_path, text, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        load(zoo, labels_path=str(tmp_path / "labels.csv"))


def test_what_is_no_such_folder_is_refused(zoo, tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        load(tmp_path / "missing")
    with pytest.raises(DataError, match=r"no two folders with pictures.*data\.labels_path"):
        load(zoo / "cat")
    with pytest.raises(DataError, match=r"names 3; write data\.size = 64"):
        load(zoo, size=[1, 2, 3])


def test_pictures_are_decoded_one_at_a_time(zoo, monkeypatch):
    decoded, alive, resized = [], [], folders._resized

    def watched(image, shape):
        alive.append(sum(one() is not None for one in decoded))
        decoded.append(weakref.ref(image))
        return resized(image, shape)

    monkeypatch.setattr(folders, "_resized", watched)
    assert len(load(zoo).train) == 4
    assert len(alive) == 4
    assert max(alive) == 0


def test_a_run_on_a_folder_is_that_on_its_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(40):
        pixels = picture(number, 4) // 2 + (100 if number % 2 else 0)
        save(tmp_path / "zoo" / ("dog" if number % 2 else "cat") / f"{number:02}.png", pixels.astype(np.uint8))
    found = load("zoo", size=4).train
    arrays = (found.features, np.array(["cat", "dog"])[found.target])
    keys = {"rounds": 2, "engine": {"workers": 1}, "learner": {"name": "mlp", "hidden": [4]}}
    dealt = {"partition": {"name": "iid", "parties": 2}}
    results = [tequio.run(data={"name": "image-folder", "path": "zoo", "size": 4, **dealt}, **keys),
               tequio.run(tmp_path / "zoo", data={"size": 4, **dealt}, **keys),
               tequio.run(arrays, data=dealt, **keys)]
    assert len({result.summary["model_sha256"] for result in results}) == 1
    assert results[1].config.data.name == "image-folder"
