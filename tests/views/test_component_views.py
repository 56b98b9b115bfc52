import tomllib
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Interval

from tequio import registry
from tequio.registry import Entry
from tequio.views.components import about, describe, example, meanings, parameters, type_text


@dataclass(frozen=True)
class Example:
    """Does something.

    More about it,
    on two lines.

    Parameters:
        path: where it is
        share: how much of it,
            in hundredths
        names: who
    """

    path: str
    share: Annotated[float, Interval(gt=0, le=1)] = 0.5
    names: tuple[str, ...] = field(default_factory=tuple)


def test_a_docstring_says_what_parameters_mean():
    assert meanings(Example.__doc__) == {"path": "where it is", "names": "who",
                                         "share": "how much of it, in hundredths"}
    assert about(Example.__doc__) == "More about it,\non two lines."


def test_parameters_have_type_default_and_meaning():
    found = {one.name: one for one in parameters(Example)}
    assert found["path"].required
    assert (found["share"].type, found["share"].default) == ("float > 0 and <= 1", 0.5)
    assert found["names"].type == "list of str"
    assert found["names"].default == ()


@pytest.mark.parametrize(("hint", "text"), [
    (int, "int"), (Annotated[int, Ge(0)], "int >= 0"), (Literal["a", "b"], "'a' or 'b'"),
    (str | None, "str or nothing"), (list[int], "list of int"), (dict[str, int], "table"),
])
def test_types_as_people_say_them(hint, text):
    assert type_text(hint) == text


def test_an_example_puts_the_component_into_its_table():
    assert example(Entry("partition", "mine", Example)) == (
        '[data.partition]\nname = "mine"\nshare = 0.5\nnames = []\npath = ...  # where it is\n')
    assert example(Entry("selector", "mine", Example, example="name = 1")) == "name = 1"


@pytest.mark.parametrize("entry", registry.entries(), ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_every_example_is_toml_that_a_config_understands(entry):
    from tequio.experiments.config.complete import complete

    shown = describe(entry)
    if entry.kind == "probe":
        assert shown["example"] == f"tequio probe last --attack {entry.name}\n"
        return
    if any(one["required"] for one in shown["parameters"]) or entry.example:
        return
    config = complete(tomllib.loads(shown["example"]))
    assert entry.name in str(config)
