"""Pages on components: one a kind, and one on the steps that prepare rows."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from reference_pages.markup import anchor, code, first_line, page, table, text
from tequio import registry
from tequio.experiments.config.complete import complete
from tequio.experiments.config.composition import learners_for, topologies_for
from tequio.federation.algorithm import Algorithm, part_types
from tequio.registry import name_of
from tequio.views.components import ON_COMMAND_LINE, about, describe, parameters

_PLURALS = {"training": "Ways to train", "topology": "Topologies", "devices": "Devices", "availability": "Availability",
            "encryption": "Encryption"}
_KINDS_OF_PARTS = {"local": "training", "stages": "stage"}


def kind_page(kind: str) -> str:
    """All components of a kind."""
    found = registry.entries(kind)
    overview = table(["name", "is", "paper"], [[anchor(entry.name), text(entry.summary), text(entry.paper)]
                                                for entry in found])
    told = f"{kind.capitalize()}: {registry.KINDS[kind]}."
    if kind != ON_COMMAND_LINE:
        place = next(line for line in describe(found[0])["example"].split("\n") if line.startswith("["))
        told += f" In a config: `{place}`."
    return page(_PLURALS.get(kind, f"{kind.capitalize()}s"), told, overview, *(_component(entry) for entry in found))


def _component(entry: registry.Entry) -> str:
    told = describe(entry)
    parts = [f"## {entry.name}", text(told["summary"])]
    if told["about"]:
        parts.append(text(told["about"]))
    if entry.paper:
        parts.append(f"Paper: {text(entry.paper)}.")
    parts += [_facts(entry), parameter_table(entry.component)]
    if entry.kind == "algorithm":
        parts += [part_table(entry.component), _circumstances(entry.component)]
    parts.append(f"```{'bash' if entry.kind == ON_COMMAND_LINE else 'toml'}\n{told['example'].rstrip()}\n```")
    return "\n\n".join(filter(None, parts))


def _facts(entry: registry.Entry) -> str:
    facts = getattr(entry.component, "facts", None)
    if entry.kind != "dataset" or facts is None:
        return ""
    told = {"rows": facts.rows, "test rows": facts.test_rows, "features": facts.features, "target": facts.target,
            "groups": facts.groups, "licence": facts.licence, "citation": facts.citation, "source": facts.source}
    listed = [f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {text(value)}"
              for name, value in told.items() if value]
    return "; ".join(listed) + "."


def parameter_table(component: Any) -> str:
    """Name, type, default and meaning of each parameter; nothing where there are none."""
    rows = [[f"`{one.name}`", text(one.type), "needed" if one.required else code(one.default), text(one.meaning)]
            for one in parameters(component)]
    return table(["parameter", "type", "default", "meaning"], rows) if rows else ""


def part_table(algorithm: Any) -> str:
    """The tables of a config that the algorithm takes; nothing where it takes none."""
    declared = {field.name: field for field in fields(algorithm)}
    rows = []
    for name in part_types(algorithm):
        kind = _KINDS_OF_PARTS.get(name, name)
        fitting = _fitting(kind, algorithm)
        listed = [f"[{one}]({kind}.md#{one})" for one in fitting] or [f"any [{kind}]({kind}.md)"]
        rows.append(["`[[stages]]`" if name == "stages" else f"`[{name}]`", ", ".join(listed),
                     _if_left_out(declared[name], fitting)])
    return table(["takes", "which", "if left out"], rows) if rows else "Takes no other component."


def _fitting(kind: str, algorithm: Any) -> list[str]:
    """Names of the components that fit, where that is not all of a kind."""
    if kind == "attack":
        return [entry.name for entry in registry.entries(kind) if entry.component.acts_on <= algorithm.attackable]
    return learners_for(algorithm) if kind == "learner" else []


def _if_left_out(part: Any, fitting: list[str]) -> str:
    if part.default is MISSING and part.default_factory is MISSING:
        usual = complete({}).learner["name"]
        return f"`{usual}`" if usual in fitting else "needed"
    value = part.default if part.default_factory is MISSING else part.default_factory()
    return f"`{name_of(type(value))}`" if value else "none"


def _circumstances(algorithm: type[Algorithm]) -> str:
    """Along which topologies it works, and what else is true of it."""
    topologies = [f"[{name}](topology.md#{name})" for name in topologies_for(algorithm)]
    facts = [f"Works along {', '.join(topologies)}."]
    if algorithm.attackable:
        facts.append(f"Hostile parties can change their {' and '.join(sorted(algorithm.attackable))}.")
    if algorithm.needs_clock:
        facts.append("Runs on the virtual clock: add a `[devices]` table.")
    if algorithm.sums_only:
        what = "weighted sums of updates" if "updates" in algorithm.sends else "sums over the parties' rows"
        facts.append(f"Needs no more than {what}, so that stages which hide single ones go with it.")
    if not algorithm.adoptable:
        facts.append("Ends with no one model that a party could adopt.")
    return " ".join(facts)


def prepare_page() -> str:
    """The steps of `data.prepare`."""
    parts = []
    for entry in registry.entries("preparation"):
        name, step = entry.name, entry.component
        told = [f"## {name}", text(first_line(step)), text(about(step.__doc__ or "")), parameter_table(step)]
        parts.append("\n\n".join(filter(None, told)))
    return page("Preparation steps", "What `data.prepare` may list: names, or tables of a name and parameters. Steps "
                 "are fitted on training rows only, by each party; with `data.prepare_scope = \"federated\"` the "
                 "parties' statistics are merged.",
                 '```toml\n[data]\nname = "wine"\nprepare = ["standardise"]\n```', *parts)
