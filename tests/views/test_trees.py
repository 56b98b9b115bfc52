import json
import re
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.experiments.showing.trees import ShownTree, nodes_of, opened_nodes, tree_page, tree_svg
from tequio.learners.trees.explain import explain
from tequio.learners.trees.id3 import ID3

UGLY = ("</script><script>alert(1)</script>", "$x ${title}", "a & b < c \" ' \x07")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def schema():
    features = tuple(Feature(f"<b>{name}", tuple(f"{name}{code}" for code in range(4))) for name in "abcdef")
    return Schema(features, Target("classes", UGLY, "mood"))


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).integers(0, 4, (900, 6)).astype(float)


@pytest.fixture(scope="module")
def tree(schema, rows):
    labels = np.random.default_rng(1).integers(0, 3, len(rows))
    return ID3(depth=4).fit(Dataset.of(schema, rows, labels), np.random.default_rng(0))


def _data_in(page):
    return json.loads(re.search(r"^const data = (.*);$", page, re.MULTILINE)[1])


def test_names_from_data_cannot_break_out_of_the_page(tree, schema):
    page = tree_page([ShownTree("<i>$tree", tree)], schema, title="</title><script>alert(2)</script> $data")
    assert page.count("</script>") == page.count("<script>") == 1
    assert "alert(1)" in page
    assert "alert(2)</script>" not in page
    assert unescape(re.search("<h1>(.*)</h1>", page)[1]) == "</title><script>alert(2)</script> $data"
    assert _data_in(page)["classes"] == list(UGLY)
    assert _data_in(page)["trees"][0]["name"] == "<i>$tree"
    assert not re.search(r"(src|href)=|url\(|https?://(?!www\.w3\.org)", page), "the page asks nobody for anything"


def test_the_page_knows_every_node_and_the_paths_of_rows(tree, schema, rows):
    why = explain(tree, rows[5], schema)
    (shown,) = _data_in(tree_page([ShownTree("global tree", tree, {"row 5": why})], schema))["trees"]
    assert len(shown["nodes"]) == len(tree) > 250
    assert shown["rows"] == [{"name": "row 5", "nodes": list(why.nodes), "text": f"row 5: {why}"}]
    for parent, child, step in zip(why.nodes, why.nodes[1:], why.conditions, strict=False):
        node = shown["nodes"][parent]
        assert node["title"] == step.feature
        assert node["branches"][node["children"].index(child)] == step.value


def test_a_node_tells_its_class_its_rows_and_what_is_below(tree, schema):
    nodes = nodes_of(tree, schema)
    assert nodes[0]["below"] == len(tree) - 1
    assert nodes[0]["support"] == "900"
    assert nodes[0]["label"] == f"mostly {UGLY[tree.counts[0].argmax()]}"
    leaf = nodes[int(tree.leaves[0])]
    assert (leaf["label"], leaf["below"], leaf["children"]) == ("leaf", 0, [])
    assert all(sum(node["shares"]) == pytest.approx(1, abs=1e-3) for node in nodes)


@pytest.mark.parametrize("most", [1, 5, 21, 60, 10_000])
def test_as_much_is_open_as_there_is_room_for(tree, most):
    opened = opened_nodes(tree, most)
    shown = 1 + sum(int((tree.children[node] >= 0).sum()) for node in opened)
    assert shown <= max(most, 5)
    assert all(node == 0 or tree.parents[node] in opened for node in opened)
    assert len(opened) == {1: 1, 5: 1, 21: 5, 60: 14, 10_000: len(tree) - len(tree.leaves)}[most]


def test_a_path_is_always_open(tree, schema, rows):
    path = explain(tree, rows[0], schema).nodes
    assert set(path[:-1]) <= opened_nodes(tree, 1, path)


def test_the_picture_folds_what_it_does_not_show(tree, schema, rows):
    why = explain(tree, rows[0], schema)
    picture = ElementTree.fromstring(tree_svg(tree, schema, title="</text> & $x", explained=why))
    boxes = [box for box in picture.iter(f"{SVG}rect") if box.get("class", "").startswith("box")]
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    folded = [int(text) for text in texts if re.fullmatch(r"\+\d+", text)]
    assert len(boxes) <= 60
    assert len(boxes) + sum(folded) == len(tree)
    assert sum(box.get("class") == "box lit" for box in boxes) == len(why.nodes)
    assert texts[0] == "</text> & $x"
    assert UGLY[1] in texts
    assert 'a & b < c " \' �' in texts


def test_boxes_of_a_picture_do_not_overlap_and_stay_inside(tree, schema):
    picture = ElementTree.fromstring(tree_svg(tree, schema))
    places = [tuple(map(float, re.findall(r"[\d.]+", group.get("transform")))) for group in picture.iter(f"{SVG}g")]
    assert len(set(places)) == len(places)
    for x in {x for x, _ in places}:
        tops = sorted(top for left, top in places if left == x)
        assert min(np.diff(tops), default=99) >= 58
    assert max(x for x, _ in places) + 172 <= float(picture.get("width"))
    assert max(y for _, y in places) + 58 <= float(picture.get("height"))


def test_a_tree_that_never_asks_can_be_drawn(schema):
    data = Dataset.of(schema, np.zeros((3, 6)), np.zeros(3, dtype=int))
    alone = ID3().fit(data, np.random.default_rng(0))
    assert tree_svg(alone, schema).count('class="box"') == 1
    assert len(_data_in(tree_page([ShownTree("t", alone)], schema))["trees"][0]["nodes"]) == 1
