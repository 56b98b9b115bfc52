"""Pages on components: one a kind, and one on the steps that prepare rows."""

from __future__ import annotations

from typing import Any

from reference_pages.markup import anchor, code, first_line, page, table, text
from tequio import registry
from tequio.data.preprocessing import PREPARATIONS
from tequio.views.components import about, describe, parameters

_PLURALS = {"training": "Ways to train", "topology": "Topologies", "devices": "Devices", "availability": "Availability",
            "encryption": "Encryption"}


def kind_page(kind: str) -> str:
    """All components of a kind."""
    found = registry.entries(kind)
    overview = table(["name", "is", "paper"], [[anchor(entry.name), text(entry.summary), text(entry.paper)]
                                                for entry in found])
    place = next(line for line in describe(found[0])["example"].split("\n") if line.startswith("["))
    told = f"{kind.capitalize()}: {registry.KINDS[kind]}. In a config: `{place}`."
    return page(_PLURALS.get(kind, f"{kind.capitalize()}s"), told, overview, *(_component(entry) for entry in found))


def _component(entry: registry.Entry) -> str:
    told = describe(entry)
    parts = [f"## {entry.name}", text(told["summary"])]
    if told["about"]:
        parts.append(text(told["about"]))
    if entry.paper:
        parts.append(f"Paper: {text(entry.paper)}.")
    parts += [_facts(entry), parameter_table(entry.component), f"```toml\n{told['example'].rstrip()}\n```"]
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


def prepare_page() -> str:
    """The steps of `data.prepare`."""
    parts = []
    for name, step in PREPARATIONS.items():
        told = [f"## {name}", text(first_line(step)), text(about(step.__doc__ or "")), parameter_table(step)]
        parts.append("\n\n".join(filter(None, told)))
    return page("Preparation steps", "What `data.prepare` may list: names, or tables of a name and parameters. Steps "
                 "are fitted on training rows only, by each party; with `data.prepare_scope = \"federated\"` the "
                 "parties' statistics are merged.",
                 '```toml\n[data]\nname = "wine"\nprepare = ["standardise"]\n```', *parts)
