"""Torch modules, classes and factories as `learner=`: the same numbers as by name, and a sentence where that ends."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import tequio
from tequio import registry
from tequio.errors import ConfigError
from tequio.experiments.api import gather
from tequio.learners import handed_modules
from tequio.learners.handed_modules import as_learner
from tequio.learners.own_modules import FromFactory

DATA = {"name": "iris", "partition": {"name": "iid", "parties": 3}}


def small(width=5):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))


def of_schema(schema):
    return nn.Linear(len(schema.features), schema.target.size)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, rows):
        return self.layer(rows)


def closing_over(width):
    return lambda: small(width)


def local_class():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, rows):
            return self.layer(rows)

    return Net


def run(folder, learner, **keys):
    return tequio.run(data=DATA, learner=learner, output={"folder": str(folder / "runs")}, **{"rounds": 2, **keys})


@pytest.fixture
def forget(monkeypatch):
    """Makes this process one that was handed nothing yet."""
    monkeypatch.setattr(handed_modules, "_at_hand", {})

    def call():
        handed_modules._at_hand.clear()
        registry._component_of.cache_clear()

    return call


def test_classes_and_factories_that_can_be_imported_are_named(tmp_path):
    named = {"name": "torch", "module": f"{__name__}:small", "arguments": {}, "device": ""}
    assert as_learner(small) == named
    assert as_learner({"name": small, "arguments": {"width": 7}}) == {**named, "arguments": {"width": 7}}
    assert as_learner(Net)["module"] == f"{__name__}:Net"
    given, _ = gather(None, {"learner": small, "engine": {"workers": 2}})
    assert given["engine"] == {"workers": 2}


@pytest.mark.parametrize("learner", [lambda: small(), lambda schema: small(), partial(small, width=5),
                                     FromFactory(lambda schema: small())],
                         ids=["plain", "schema", "partial", "learner"])
def test_a_factory_gives_the_numbers_of_one_that_is_named(learner, tmp_path):
    result = run(tmp_path, learner)
    assert result.config.learner["name"] == "given"
    assert result.config.engine["workers"] == 1
    expected = run(tmp_path, {"name": "torch", "module": f"{__name__}:small"}, engine={"workers": 1})
    assert result.summary["model_sha256"] == expected.summary["model_sha256"]


def test_a_factory_may_ask_for_the_schema(tmp_path):
    assert run(tmp_path, of_schema).model["weight"].shape == (3, 4)


def test_learners_of_our_own_may_be_objects():
    from tequio.learners.zoo import MLP

    assert as_learner(MLP(hidden=(7,)))["name"] == "mlp"
    assert list(as_learner(MLP(hidden=(7,)))["hidden"]) == [7]


def test_a_module_starts_from_its_own_weights_and_is_left_as_it_was(tmp_path):
    torch.manual_seed(3)
    module = small()
    before = deepcopy(module.state_dict())
    still = run(tmp_path, module, rounds=1, **{"local.learning_rate": 1e-12})
    for name, values in before.items():
        np.testing.assert_allclose(still.model[name], values.numpy(), atol=1e-6)
        assert torch.equal(module.state_dict()[name], values)
    first, again = run(tmp_path, module), run(tmp_path, deepcopy(module))
    assert first.summary["model_sha256"] == again.summary["model_sha256"]
    assert first.summary["config_hash"] == again.summary["config_hash"]
    with torch.no_grad():
        module[0].weight += 1
    other = run(tmp_path, module)
    assert other.summary["config_hash"] != first.summary["config_hash"]
    assert other.summary["model_sha256"] != first.summary["model_sha256"]


def test_what_tells_modules_apart():
    def key(learner):
        return as_learner(learner)["module"]

    assert key(local_class()) == key(local_class())
    assert key(lambda: small(6)) != key(lambda: small(5))
    widths = [key(lambda schema, width=width: small(width)) for width in (5, 6, 5)]
    closed = [key(closing_over(width)) for width in (5, 6, 5)]
    for keys in (widths, closed):
        assert keys[0] == keys[2] != keys[1]
    frozen, other = small(), small()
    other.load_state_dict(frozen.state_dict())
    assert key(frozen) == key(other)
    for module in (frozen, other):
        module[0].weight.requires_grad_(False)
    assert key(frozen) == key(other) != key(small())
    with torch.no_grad():
        other[0].weight += 1
    assert key(frozen) != key(other)


def test_a_stopped_run_goes_on_when_the_module_is_handed_over_again(tmp_path, forget):
    whole = run(tmp_path, local_class(), rounds=3)
    short = run(tmp_path, local_class(), rounds=1)
    forget()
    with pytest.raises(ConfigError, match=r"handed over when it was made; hand .*tequio.run\(resume=..., learner=Net"):
        tequio.run(resume=short.folder, rounds=3)
    with pytest.raises(ConfigError, match="another one was handed over here"):
        tequio.run(resume=short.folder, learner=lambda: small(), rounds=3)
    resumed = tequio.run(resume=short.folder, learner=local_class(), rounds=3)
    assert resumed.summary["model_sha256"] == whole.summary["model_sha256"]


@pytest.mark.parametrize("learner", [local_class, lambda: local_class()()], ids=["class", "module"])
def test_a_model_is_loaded_with_its_module_and_refused_without(learner, tmp_path, forget):
    rows = {"sepal_length": [5.1], "sepal_width": [3.5], "petal_length": [1.4], "petal_width": [0.2]}
    result = run(tmp_path, learner())
    columns = list(result.trained.reading.schema.names)
    rows = dict(zip(columns, rows.values(), strict=True))
    expected = tequio.predict(result, rows, proba=True).rows
    forget()
    with pytest.raises(ConfigError, match=r"tequio.load\(..., learner=Net"):
        tequio.load(result.folder)
    with pytest.raises(ConfigError, match="another one was handed over here"):
        tequio.load(result.folder, learner=lambda: small())
    forget()
    model = tequio.load(result.folder, learner=learner())  # other weights to begin with: they are not looked at
    assert tequio.predict(model, rows, proba=True).rows == expected


def test_another_process_says_what_to_type(tmp_path):
    result = run(tmp_path, local_class())
    (tmp_path / "rows.csv").write_text(",".join(result.trained.reading.schema.names) + "\n5.1,3.5,1.4,0.2\n")
    said = subprocess.run([sys.executable, "-m", "tequio", "predict", str(result.folder), "--data",
                           str(tmp_path / "rows.csv")],
                          capture_output=True, text=True, check=False)
    assert said.returncode == ConfigError.exit_code
    assert "this needs the torch module that was handed over" in said.stderr
    assert "learner = {name = \"torch\"" in said.stderr


@pytest.mark.parametrize(("keys", "message"), [
    ({"engine": {"workers": 2}}, r"in this process only; set engine = \{\"workers\": 1\}"),
    ({"engine": "ray"}, "in this process only"),
    ({"engine": {"name": "network"}}, "in this process only"),
])
def test_other_processes_cannot_have_it(keys, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, lambda: small(), **keys)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("learner", "message"), [
    (lambda rows, columns: None, "needs 'rows', 'columns'; hand over one that needs the schema at most"),
    (5, "a learner cannot be made from a int"),
    ({"name": lambda: small(), "width": 3}, r"\[learner\] has no key 'width'.*name, arguments and device"),
    (lambda: "no module", "gave a str and not a torch module"),
])
def test_what_is_no_factory_is_refused(learner, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, learner)


def test_a_sweep_runs_a_module_in_this_process(tmp_path):
    swept = tequio.sweep(data=DATA, learner=lambda: small(), rounds=1, sweep={"seeds": [0, 1]},
                         output={"folder": str(tmp_path)})
    assert len({result.summary["model_sha256"] for result in swept.results}) == 2
