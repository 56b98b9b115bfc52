"""Every algorithm with every kind of part, through `tequio.run`: the part acts, or the config is refused by name."""

from __future__ import annotations

import tempfile
import tomllib
from functools import cache
from pathlib import Path

import pytest

import tequio
from tequio import registry
from tequio.cli.main import call
from tequio.errors import ConfigError

from .runs import LEARNERS, TOPOLOGIES, config_of, digest, learner, rows, seen

EXAMPLES = Path(__file__).parents[2] / "examples"
TREES = {"boosted-trees", "cart", "id3", "random-forest", "xgboost"}


def other_learner(name):
    """A learner of another kind than the one that an algorithm works with."""
    return learner("mlp" if LEARNERS.get(name) in TREES else "kmeans" if name in ("alone", "centralised") else "cart")


def own_learner(name):
    """A learner that one party might want instead of everybody's."""
    return "logistic" if name == "voting" or LEARNERS.get(name, "logistic") != "logistic" else "mlp"


def first(name):
    """The name of the first party."""
    return "all" if name == "centralised" else "0"


STEADY = {"vertical-poisson": 0.02}
"""Learning rates that do not diverge, where others do."""

# What a kind of part is set to: strong enough to change the result wherever it acts. The words name the part in errors.
KINDS = {
    "learner": (("learner",), lambda name: {"learner": other_learner(name)}),
    "local": (("local",), lambda name: {"local": {"epochs": 4, "batch": 4, "learning_rate": STEADY.get(name, 0.2)}}),
    "selector": (("selector", "random"), lambda name: {"selector": {"name": "random", "count": 2}}),
    "aggregator": (("aggregator", "median"), lambda name: {"aggregator": "median"}),
    "stages": (("stage", "top-k"), lambda name: {"stages": [{"name": "top-k", "fraction": 0.3}]}),
    "contribution": (("contribution", "leave-one-out"), lambda name: {"contribution": "leave-one-out"}),
    "attack-on-updates": (("attack", "sign-flip"),
                          lambda name: {"attack": {"name": "sign-flip", "scale": 3.0, "fraction": 0.5}}),
    "attack-on-rows": (("attack", "label-flip"), lambda name: {"attack": {"name": "label-flip", "fraction": 0.5}}),
    "topology-hierarchical": (("topology", "hierarchical"), lambda name: {"topology": "hierarchical"}),
    "topology-of-all-peers": (("topology", "parallel"), lambda name: {"topology": mesh(name)}),
    "topology-of-some-peers": (("topology", "random"), lambda name: {"topology": {"name": "random", "neighbours": 1}}),
    "adoption-if-better": (("adoption", "if_better"), lambda name: {"adoption": {"if_better": True}}),
    "adoption-fine-tuned": (("adoption", "fine_tune_epochs"), lambda name: {"adoption": {"fine_tune_epochs": 2}}),
    "override-of-local": (("overrides", "local"),
                          lambda name: {"overrides": {first(name): {"local": {"epochs": 4, "learning_rate": 0.5}}}}),
    "override-of-learner": (("overrides", "learner"),
                            lambda name: {"overrides": {first(name): {"learner": own_learner(name)}}}),
}


def mesh(name):
    """Peers that are linked otherwise than in the plain run."""
    return "cyclic" if TOPOLOGIES.get(name) == "parallel" else "parallel"


@pytest.fixture(autouse=True, scope="module")
def _quick_files():
    """Thousands of files are written here, and none must survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", registry.names("algorithm"))
def test_a_part_acts_or_is_refused(name, kind, tmp_path):
    assert verdict(name, kind, tmp_path) in ("acts", "refused")


def verdict(name, kind, folder):
    """What comes of a part: 'acts', 'refused', or what is wrong."""
    words, change = KINDS[kind]
    try:
        after = outcome({**base(name, kind), **change(name)}, folder)
    except ConfigError as error:
        return flaw_of_refusal(error, name, words, folder) or "refused"
    except Exception as error:
        return f"crashes: {type(error).__name__}: {error}"
    return "acts" if differs(plain(name, kind), after, kind) else "is ignored"


def flaw_of_refusal(error, name, words, folder):
    text = str(error)
    if any(folder.iterdir()):
        return f"refused after work had begun: {text}"
    if name not in text:
        return f"the refusal does not name the algorithm: {text}"
    return "" if any(word in text for word in words) else f"the refusal does not name the part: {text}"


def base(name, kind):
    """The plain run; contributions are judged on rows of the coordinator, and who votes may choose among learners."""
    config = config_of(name)
    if kind == "contribution":
        config["data"] = {**config["data"], "validation": 0.2}
    if kind == "override-of-learner" and name == "voting":
        del config["learner"]
        config["algorithm"] = {"name": name, "learners": ["cart", "logistic"]}
    return config


def plain(name, kind=""):
    special = kind == "contribution" or (kind == "override-of-learner" and name == "voting")
    return _plain(name, kind if special else "")


@cache
def _plain(name, kind):
    with tempfile.TemporaryDirectory() as folder:
        return outcome(base(name, kind), folder)


def outcome(config, folder):
    """All that a user can see of a run, and which way its updates went."""
    result = tequio.run(**config, output={"folder": str(folder), "checkpoint_every": 1000})
    ways = [{key: value for key, value in event.items() if key != "time"}
            for event in result.events if event["event"] == "aggregation"]
    return {**seen(result), "ways": ways}


def differs(before, after, kind):
    """Whether a part made a difference where it should.

    An attack must reach those who are not hostile: the common model, or their own metrics. All other metrics change
    anyway, because hostile parties are not evaluated. A topology may give the same mean by another way.
    """
    if kind.startswith("attack"):
        return digest(_reached(before, after)) != digest(_reached(after, before))
    ignored = () if kind.startswith("topology") else ("ways",)
    return any(digest(before[key]) != digest(after[key]) for key in before if key not in ignored)


def _reached(one, other):
    common = {row["party"] for row in one["parties"]} & {row["party"] for row in other["parties"]}
    return one["model"], [row for table in ("parties", "labels") for row in one[table] if row["party"] in common]


# --- the cases that were found by hand ---


@pytest.mark.parametrize("parts", [
    {"attack": {"name": "sign-flip", "fraction": 0.5}}, {"aggregator": "krum"}, {"stages": ["top-k"]},
    {"local": {"learning_rate": 0.5}}, {"topology": "parallel"}, {"topology": "random"}, {"topology": "cyclic"}],
    ids=["attack", "aggregator", "stages", "local", "parallel", "random", "cyclic"])
def test_icdta4fl_does_not_ignore(parts, tmp_path):
    try:
        after = outcome({**config_of("icdta4fl"), **parts}, tmp_path)
    except ConfigError as error:
        assert "icdta4fl" in str(error)
        assert not any(tmp_path.iterdir())
    else:
        assert "topology" not in parts
        assert after["model"] != plain("icdta4fl")["model"]


@pytest.mark.parametrize("name", sorted(TREES))
def test_fedavg_refuses_models_that_cannot_be_averaged(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text(f'algorithm = "fedavg"\nlearner = "{name}"\nrounds = 1\n[data]\nname = "iris"\n')
    assert call(["run", "config.toml"]) == 2
    said = " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert f"fedavg trains models that can be averaged; for '{name}' use " in said
    if name == "xgboost":
        assert "for 'xgboost' use xgboost-bagging, xgboost-cyclic or voting" in said
    assert not Path("runs").exists()


FAINT = {"name": "alie", "deviations": 1e-12}
"""The attack without any strength: hostile parties send the mean of what the honest ones send."""


@pytest.mark.parametrize(("hostile", "parties"), [(2, 10), (1, 5), (2, 12)])
def test_a_little_is_enough_for_small_cohorts(hostile, parties, tmp_path):
    config = config_of("fedavg")
    config["data"] = {**config["data"], "name": rows(300), "partition": {"name": "iid", "parties": parties}}
    who = {"parties": [str(party) for party in range(hostile)]}
    try:
        after = outcome({**config, "attack": {"name": "alie", **who}}, tmp_path / "attacked")
    except ConfigError as error:
        assert {str(hostile), str(parties)} <= set(str(error).replace(",", " ").split())
        assert not (tmp_path / "attacked").exists()
    else:
        assert after["model"] != outcome({**config, "attack": {**FAINT, **who}}, tmp_path / "faint")["model"]


def test_every_line_of_the_attack_grid_has_an_effect(tmp_path):
    grid = tomllib.loads((EXAMPLES / "attack-grid.toml").read_text(encoding="utf-8"))
    attacks = grid.pop("sweep")["attack"]
    models = {}
    for number, attack in enumerate([*attacks, FAINT]):
        models[number] = outcome({**grid, "rounds": 2, "attack": attack}, tmp_path / str(number))["model"]
    without = {models[attacks.index({})], models[len(attacks)]}
    assert [attack for number, attack in enumerate(attacks) if attack and models[number] in without] == []


def test_ditto_gives_the_model_that_its_parties_use():
    assert plain("ditto")["model"] != plain("fedavg")["model"]
