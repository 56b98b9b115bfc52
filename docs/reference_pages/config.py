"""The page on the config file, from the models that check it."""

from __future__ import annotations

from inspect import cleandoc
from typing import Annotated, Any

from reference_pages.components import parameter_table
from reference_pages.markup import code, first_line, page, table, text
from tequio import registry
from tequio.experiments.config.complete import complete
from tequio.experiments.config.tables import Config, Override
from tequio.federation.federation import Rules
from tequio.views.components import meanings, type_text


def config_page() -> str:
    """Every key of a config file, from the models that check it."""
    defaults = complete({})
    rows, sections = [], []
    for key, field in Config.model_fields.items():
        kind = {"local": "training", "stages": "stage"}.get(key, key)
        if kind in registry.KINDS and key != "data":
            rows.append([f"`{key}`", _table_of(kind), _chosen(getattr(defaults, key)),
                         text(meanings(Config.__doc__ or "").get(key, ""))])
        elif hasattr(field.annotation, "model_fields"):
            rows.append([f"`{key}`", f"table, see [below](#{key})", "", text(first_line(field.annotation))])
            sections += _model_sections(field.annotation, key)
        elif key == "rules":
            rows.append(["`rules`", "table, see [below](#rules)", "", text(first_line(Rules))])
            sections.append(f"## rules\n\n{text(first_line(Rules))}\n\n{parameter_table(Rules)}")
        else:
            rows.append(_field_row(Config, key))
    sections += _model_sections(Override, "overrides", title="overrides.PARTY")
    return page("Config file", "A config is a TOML file. Every key has a default, so an empty file is a config too; "
                 "an unknown key is an error that names the nearest right one. `--set table.key=value` changes a key "
                 "for one run. Components are tables with a `name` and the component's own parameters; "
                 '`learner = "mlp"` is short for `learner = {name = "mlp"}`. A table that the algorithm has no part '
                 "for is [refused](../how-to/what-a-config-may-contain.md).",
                 table(["key", "type", "default", "meaning"], rows), *sections)


def _model_sections(model: Any, key: str, title: str = "") -> list[str]:
    rows, inner = [], []
    for name, field in model.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            rows.append([f"`{name}`", f"table, see [below](#{key}{name})", "", text(first_line(field.annotation))])
            inner += _model_sections(field.annotation, f"{key}{name}", title=f"{key}.{name}")
        elif name in registry.KINDS and field.annotation is not str:
            rows.append([f"`{name}`", _table_of(name), _chosen(getattr(complete({}).data, name)),
                         text(meanings(model.__doc__ or "").get(name, ""))])
        else:
            rows.append(_field_row(model, name))
    told = text(cleandoc(model.__doc__ or "").partition("\n\n")[0])
    keys = table(["key", "type", "default", "meaning"], rows)
    return [f"## {title or key} {{ #{key} }}\n\n{told}\n\n{keys}", *inner]


def _table_of(kind: str) -> str:
    if not registry.entries(kind):
        return f"list of tables, one a {kind}"
    return f"table of {'an' if kind[0] in 'aeiou' else 'a'} [{kind}]({kind}.md)"


def _field_row(model: Any, key: str) -> list[str]:
    field = model.model_fields[key]
    hint = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    default = field.get_default(call_default_factory=True)
    return [f"`{key}`", text(type_text(hint)), "" if default is None else code(default),
            text(meanings(model.__doc__ or "").get(key, ""))]


def _chosen(component: Any) -> str:
    if not component:
        return ""
    return f"`{component['name']}`" if isinstance(component, dict) else code(component)
