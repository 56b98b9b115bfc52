"""The heat map shows every party's counts, says what it leaves out, and saves the same bytes for the same data."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition
from tequio.errors import ConfigError
from tequio.views.heatmap import draw_heatmap, heatmap_of, heatmap_table, save_heatmap


def table(labels, target=None) -> Dataset:
    labels = np.asarray(labels)
    target = target or Target("classes", ("cat", "dog", "eel"))
    return Dataset.of(Schema.of_numbers(["x"], target), np.zeros((len(labels), 1)), labels, name="pets")


PETS = table([0, 0, 0, 1, 2, 2])
TWO = Partition.of([np.array([0, 1, 3]), np.array([2, 4, 5])], names=("ana", "bea"))


def many(parties: int) -> tuple[Dataset, Partition]:
    return table(np.arange(parties) % 3), Partition.of(list(np.arange(parties)[:, None]))


def printed(heatmap, width=100, colours=None) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=bool(colours), color_system=colours)
    console.print(heatmap_table(heatmap, width=width))
    return console.file.getvalue()


def test_the_table_has_a_line_a_party_with_counts_and_rows():
    lines = [line.split() for line in printed(heatmap_of(PETS, TWO)).splitlines()]
    assert lines == [["pets:", "who", "holds", "what"], ["party", "cat", "dog", "eel", "rows"],
                     ["ana", "2", "1", "·", "3"], ["bea", "1", "·", "2", "3"]]


def test_full_cells_are_lighter_than_poor_ones_and_empty_ones_have_no_colour():
    text = printed(heatmap_of(PETS, TWO), colours="truecolor")
    assert text.count("48;2;253;231;37") == 2
    assert text.count("48;2;") == 4


def test_more_parties_than_fit_are_thinned_at_even_distances_and_it_says_so():
    heatmap = heatmap_of(*many(300), most=4)
    assert heatmap.parties == ("0", "100", "199", "299")
    assert heatmap.counts.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert "4 of 300 parties, at even distances" in " ".join(printed(heatmap).split())


def test_a_narrow_terminal_gets_the_commonest_classes_and_the_sum_of_the_others():
    names = tuple(f"c{number}" for number in range(30))
    labels = np.repeat(np.arange(30), np.arange(1, 31))
    dataset = table(labels, Target("classes", names))
    lines = printed(heatmap_of(dataset, Partition.of([np.arange(len(labels))])), width=50).splitlines()
    assert lines[1].split() == ["party", "c25", "c26", "c27", "c28", "c29", "25", "more", "rows"]
    assert lines[2].split() == ["0", "26", "27", "28", "29", "30", "325", "465"]
    assert max(map(len, lines)) <= 50


def test_the_figure_shows_the_counts_with_parties_across_and_their_sizes_above():
    cells, above, right, *_ = draw_heatmap(heatmap_of(PETS, TWO)).axes
    assert cells.images[0].get_array().filled(0).tolist() == [[2, 1], [1, 0], [0, 2]]
    assert [text.get_text() for text in cells.texts] == ["2", "1", "1", "2"]
    assert [label.get_text() for label in cells.get_xticklabels()] == ["ana", "bea"]
    assert [label.get_text() for label in cells.get_yticklabels()] == ["cat", "dog", "eel"]
    assert [bar.get_height() for bar in above.patches] == [3, 3]
    assert [bar.get_width() for bar in right.patches] == [3, 1, 2]


def test_a_multilabel_party_has_its_rows_and_not_its_labels_as_size():
    dataset = table([[1, 1], [1, 1], [0, 1]], Target("multilabel", ("p", "q")))
    heatmap = heatmap_of(dataset, Partition.of([np.array([0, 1]), np.array([2])]))
    assert [line.split()[1:] for line in printed(heatmap).splitlines()[2:]] == [["2", "2", "2"], ["·", "1", "1"]]
    assert [bar.get_height() for bar in draw_heatmap(heatmap).axes[1].patches] == [2, 1]


@pytest.mark.parametrize(("parties", "ticks"), [(5, 5), (40, 40), (41, 21), (300, 30)])
def test_party_labels_are_thinned_to_round_steps(parties, ticks):
    cells = draw_heatmap(heatmap_of(*many(parties))).axes[0]
    assert len(cells.get_xticks()) == ticks
    assert bool(cells.texts) == (parties <= 20)


def test_numbers_and_rows_without_a_target_are_labelled_as_what_they_are():
    numbers = table(np.arange(6.0), Target("number", name="price"))
    assert draw_heatmap(heatmap_of(numbers, TWO)).axes[0].get_ylabel() == "price"
    bare = Dataset.of(Schema.of_numbers(["x"], Target("none")), np.zeros((6, 1)))
    assert heatmap_of(bare, TWO).counts.tolist() == [[3], [3]]
    assert draw_heatmap(heatmap_of(bare, TWO)).axes[0].get_ylabel() == ""


@pytest.mark.parametrize(("name", "start"), [("who.png", b"\x89PNG"), ("deep/er/who.svg", b"<?xml")])
def test_the_same_partition_gives_the_same_file(tmp_path, name, start):
    save_heatmap(heatmap_of(PETS, TWO), tmp_path / name)
    first = (tmp_path / name).read_bytes()
    save_heatmap(heatmap_of(PETS, TWO), tmp_path / name)
    assert first.startswith(start)
    assert first == (tmp_path / name).read_bytes()


def test_an_unknown_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be saved as 'who.docx'; end the name in .png or .svg"):
        save_heatmap(heatmap_of(PETS, TWO), tmp_path / "who.docx")
