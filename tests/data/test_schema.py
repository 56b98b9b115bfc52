from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.data.dataset import Feature, Schema, Target, load_schema, save_schema, schema_from_json, schema_to_json
from tequio.errors import DataError

texts = st.text(max_size=8)
domains = st.none() | st.lists(texts, max_size=3).map(tuple)
schemas = st.builds(
    Schema,
    st.lists(st.builds(Feature, texts, domains), min_size=1, max_size=5).map(tuple),
    st.builds(Target, st.sampled_from(["classes", "multilabel", "number", "none"]),
              st.lists(texts, max_size=3).map(tuple), texts))


@given(schemas)
def test_a_schema_comes_back_from_json_as_it_was(schema: Schema) -> None:
    assert schema_from_json(schema_to_json(schema)) == schema


def test_a_schema_file_keeps_the_shape_of_images(tmp_path: Path) -> None:
    schema = Schema.of_images((3, 2, 2), ["cat", "dog"])
    save_schema(schema, tmp_path / "schema.json")
    assert load_schema(tmp_path / "schema.json") == schema


@pytest.mark.parametrize(("text", "says"), [
    ("{", "not a schema"),
    ("[]", "not a schema"),
    ('{"features": [{"domain": []}], "target": {}, "shape": [1]}', "name"),
    ('{"features": [{"name": "a"}], "target": {"kind": "class", "names": [], "name": "y"}, "shape": [1]}',
     "did you mean 'classes'"),
    ('{"features": [{"name": "a"}], "target": {"kind": "none", "names": [], "name": "y"}, "shape": [2]}', "2 values"),
])
def test_what_is_not_a_whole_schema_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(DataError, match=says) as caught:
        load_schema(path)
    assert str(path) in caught.value.message


def test_a_schema_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.json"):
        load_schema(tmp_path / "nothing.json")


def test_an_unknown_column_gets_the_nearest_name() -> None:
    schema = Schema.of_numbers(["height", "weight"], Target("none"))
    with pytest.raises(DataError, match="did you mean 'height'"):
        schema.column("hieght")
