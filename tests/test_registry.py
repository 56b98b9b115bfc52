"""Names of components: hyphens everywhere, and an underscore is answered with the name to type."""

import pytest

from tequio import registry
from tequio.errors import ConfigError
from tequio.registry import entries, find


def test_names_have_hyphens():
    ours = [entry for entry in entries() if entry.component.__module__.startswith("tequio.")]
    assert [(entry.kind, entry.name) for entry in ours if "_" in entry.name] == []


@pytest.mark.parametrize(("kind", "old", "new"), [
    ("learner", "random_forest", "random-forest"), ("dataset", "breast_cancer", "breast-cancer"),
    ("partition", "label_sets", "label-sets"), ("aggregator", "geometric_median", "geometric-median")])
def test_a_name_with_underscores_is_refused_with_the_one_to_type(kind, old, new):
    with pytest.raises(ConfigError, match=f"there is no {kind} called '{old}'") as caught:
        find(kind, old)
    assert caught.value.remedy == f"its name is '{new}'"
    assert find(kind, new).name == new


def test_other_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ConfigError) as caught:
        find("learner", "random-forrest")
    assert "'random-forest'" in caught.value.remedy


def test_a_component_without_its_contract_is_refused_by_name(monkeypatch):
    class Loose:
        """Chooses without being a selector."""

    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    registry.register("selector", "loose")(Loose)
    with pytest.raises(ConfigError, match=r"'loose' .* is no subclass of Selector; write: from tequio\.federation"):
        registry.find("selector", "loose")
