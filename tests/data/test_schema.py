import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.data.dataset import Feature, Schema, Target, schema_from_json, schema_to_json
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


@pytest.mark.parametrize(("text", "says"), [
    ("{", "not a schema"),
    ("[]", "not a schema"),
    ('{"features": [{"domain": []}], "target": {}, "shape": [1]}', "name"),
    ('{"features": [{"name": "a"}], "target": {"kind": "class", "names": [], "name": "y"}, "shape": [1]}',
     "did you mean 'classes'"),
    ('{"features": [{"name": "a"}], "target": {"kind": "none", "names": [], "name": "y"}, "shape": [2]}', "2 values"),
])
def test_what_is_not_a_whole_schema_is_refused(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        schema_from_json(text)


def test_an_unknown_column_gets_the_nearest_name() -> None:
    schema = Schema.of_numbers(["height", "weight"], Target("none"))
    with pytest.raises(DataError, match="did you mean 'height'"):
        schema.column("hieght")
