"""Every registered component says what it is, takes only what it declares, and survives as plain data."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tequio import registry
from tequio.errors import ConfigError
from tequio.registry import build, from_plain, parameter_model, parameters_of, to_plain, validate

from .subjects import EXAMPLES, make, parts_of

COMPONENTS = [(entry.kind, entry.name) for entry in registry.entries()]
every_component = pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids=[" ".join(pair) for pair in COMPONENTS])


@every_component
def test_it_is_a_frozen_dataclass(kind, name):
    component = registry.find(kind, name).component
    assert dataclasses.is_dataclass(component)
    assert component.__dataclass_params__.frozen


@every_component
def test_it_says_in_one_line_what_it_is(kind, name):
    summary = registry.find(kind, name).summary
    assert 10 < len(summary) <= 118
    assert not summary.startswith(component_name(kind, name) + "(")  # not the signature dataclass would write


def component_name(kind, name):
    return registry.find(kind, name).component.__name__


@every_component
def test_its_docstring_describes_exactly_its_parameters(kind, name):
    component = registry.find(kind, name).component
    own, *bases = [re.findall(r"^ {8}(\w+): \S", (base.__doc__ or "").partition("Parameters:")[2], flags=re.MULTILINE)
                   for base in getattr(component, "__mro__", [component])]
    names = [parameter.name for parameter in parameters_of(component)]
    assert len(own) == len(set(own) & set(names))
    assert set(names) <= {*own, *(name for base in bases for name in base)}


@every_component
def test_an_unknown_parameter_is_refused_with_the_nearest_one(kind, name):
    component = registry.find(kind, name).component
    with pytest.raises(ConfigError, match="has no parameter 'no_such_thing'"):
        validate(component, {"no_such_thing": 1}, name)


@every_component
def test_its_parameters_have_a_json_schema(kind, name):
    properties = parameter_model(registry.find(kind, name).component).model_json_schema().get("properties", {})
    assert set(properties) == {parameter.name for parameter in parameters_of(registry.find(kind, name).component)}


@every_component
def test_it_survives_as_plain_data(kind, name):
    component = registry.find(kind, name).component
    required = [parameter for parameter in parameters_of(component)
                if parameter.default is dataclasses.MISSING and parameter.default_factory is dataclasses.MISSING]
    if required and (kind, name) not in EXAMPLES:
        pytest.skip("cannot be made without knowing more")
    made = make(kind, name)
    if kind == "algorithm":  # its parts are components of their own
        spec = to_plain(made)
        assert build(kind, name, from_plain(spec["parameters"]), parts=parts_of(name)) == made
    else:
        assert from_plain(to_plain(made)) == made
