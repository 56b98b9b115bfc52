"""Writes docs/reference from what the code says about itself: components, config keys, commands, errors, metrics.

Run it by hand (`python docs/generate.py`) or let mkdocs do it: it is also a hook that puts the pages into the
navigation. Nothing that the registry knows is listed by hand anywhere.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import tequio
from tequio import errors, registry
from tequio.cli import errors as cli_errors
from tequio.cli.main import make_app
from tequio.data.preprocessing import PREPARATIONS
from tequio.experiments.config import complete
from tequio.experiments.tables import Config, Override
from tequio.federation.federation import Rules
from tequio.learners.metrics import METRICS
from tequio.views.components import about, describe, meanings, parameters, type_text

FOLDER = Path(__file__).parent / "reference"
README = Path(__file__).parents[1] / "README.md"
_README_PART = re.compile(r"(<!-- components: [^\n]*-->\n).*?(<!-- end of components -->)", re.DOTALL)
_MOST_NAMES = 40
_PLURALS = {"training": "Ways to train", "topology": "Topologies"}
_API = {
    "What a run gives back": ("tequio.experiments.results.Result", "tequio.experiments.sweep.SweepResult",
                              "tequio.experiments.table.Table"),
    "What an algorithm sees": ("tequio.federation.federation.Federation", "tequio.federation.replies.Replies",
                               "tequio.federation.algorithm.Parts"),
    "What a task sees": ("tequio.federation.party.Party", "tequio.federation.population.PartyData",
                         "tequio.data.schema.Schema"),
    "Contracts of components": ("tequio.learners.learner.Learner", "tequio.federation.selection.Selector",
                                "tequio.federation.aggregation.Aggregator", "tequio.federation.stages.Stage",
                                "tequio.federation.topology.Topology", "tequio.data.partition.Partitioner",
                                "tequio.data.partition.Partition"),
}


def documents() -> dict[str, str]:
    """Every page by file name, in the order of the navigation."""
    registry.load_everything()
    kinds = {f"{kind}.md": kind_page(kind) for kind in registry.KINDS if registry.entries(kind)}
    return {"index.md": index_page(), "config.md": config_page(), "cli.md": cli_page(), "python.md": python_page(),
            **kinds, "prepare.md": prepare_page(), "metrics.md": metrics_page(), "errors.md": errors_page()}


def write(folder: Path = FOLDER) -> list[str]:
    """Write all pages, touching only those that changed; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = documents()
    for stale in {path.name for path in folder.glob("*.md")} - set(pages):
        (folder / stale).unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return list(pages)


def readme() -> str:
    """README with its table of components brought up to date."""
    rows = []
    for kind, meaning in registry.KINDS.items():
        names = registry.names(kind)
        listed = ", ".join(f"`{name}`" for name in names) if len(names) <= _MOST_NAMES else f"{len(names)} of them"
        rows += [[kind, meaning, listed]] if names else []
    table = _table(["kind", "is", "which"], rows)
    return _README_PART.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", README.read_text(encoding="utf-8"))


def on_config(config: Any) -> Any:
    """Hook of mkdocs: the reference in the navigation is whatever was written."""
    for entry in config.nav:
        if "Reference" in entry:
            entry["Reference"] = [f"reference/{name}" for name in write()]
    return config


def index_page() -> str:
    """What there is, by kind."""
    rows = [[f"[{kind}]({kind}.md)", meaning, str(len(found)), ", ".join(_link(entry) for entry in found)]
            for kind, meaning in registry.KINDS.items() if (found := registry.entries(kind))]
    return _page("Reference", "Written from the code of tequio " + tequio.__version__ + ": what you read here is what "
                 "runs. `tequio list` and `tequio show NAME` say the same in a terminal.",
                 _table(["kind", "is", "how many", "which"], rows),
                 "Besides components: the [config file](config.md), the [command line](cli.md), the "
                 "[Python API](python.md), [preparation steps](prepare.md), [metrics](metrics.md) and "
                 "[errors](errors.md).")


def kind_page(kind: str) -> str:
    """All components of a kind."""
    found = registry.entries(kind)
    overview = _table(["name", "is", "paper"], [[_anchor(entry.name), _text(entry.summary), _text(entry.paper)]
                                                for entry in found])
    place = next(line for line in describe(found[0])["example"].split("\n") if line.startswith("["))
    told = f"{kind.capitalize()}: {registry.KINDS[kind]}. In a config: `{place}`."
    return _page(_PLURALS.get(kind, f"{kind.capitalize()}s"), told, overview, *(_component(entry) for entry in found))


def _component(entry: registry.Entry) -> str:
    told = describe(entry)
    parts = [f"## {entry.name}", _text(told["summary"])]
    if told["about"]:
        parts.append(_text(told["about"]))
    if entry.paper:
        parts.append(f"Paper: {_text(entry.paper)}.")
    parts += [_facts(entry), _parameter_table(entry.component), f"```toml\n{told['example'].rstrip()}\n```"]
    return "\n\n".join(filter(None, parts))


def _facts(entry: registry.Entry) -> str:
    facts = getattr(entry.component, "facts", None)
    if entry.kind != "dataset" or facts is None:
        return ""
    told = {"rows": facts.rows, "test rows": facts.test_rows, "features": facts.features, "target": facts.target,
            "groups": facts.groups, "licence": facts.licence, "citation": facts.citation, "source": facts.source}
    listed = [f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {_text(value)}"
              for name, value in told.items() if value]
    return "; ".join(listed) + "."


def _parameter_table(component: Any) -> str:
    rows = [[f"`{one.name}`", _text(one.type), "needed" if one.required else _code(one.default), _text(one.meaning)]
            for one in parameters(component)]
    return _table(["parameter", "type", "default", "meaning"], rows) if rows else ""


def config_page() -> str:
    """Every key of a config file, from the models that check it."""
    defaults = complete({})
    rows, sections = [], []
    for key, field in Config.model_fields.items():
        kind = {"local": "training", "stages": "stage"}.get(key, key)
        if kind in registry.KINDS and key != "data":
            rows.append([f"`{key}`", _table_of(kind), _chosen(getattr(defaults, key)),
                         _text(meanings(Config.__doc__ or "").get(key, ""))])
        elif hasattr(field.annotation, "model_fields"):
            rows.append([f"`{key}`", f"table, see [below](#{key})", "", _text(_first_line(field.annotation))])
            sections += _model_sections(field.annotation, key)
        elif key == "rules":
            rows.append(["`rules`", "table, see [below](#rules)", "", _text(_first_line(Rules))])
            sections.append(f"## rules\n\n{_text(_first_line(Rules))}\n\n{_parameter_table(Rules)}")
        else:
            rows.append(_field_row(Config, key))
    sections += _model_sections(Override, "overrides", title="overrides.PARTY")
    return _page("Config file", "A config is a TOML file. Every key has a default, so an empty file is a config too; "
                 "an unknown key is an error that names the nearest right one. `--set table.key=value` changes a key "
                 "for one run. Components are tables with a `name` and the component's own parameters; "
                 '`learner = "mlp"` is short for `learner = {name = "mlp"}`.',
                 _table(["key", "type", "default", "meaning"], rows), *sections)


def _model_sections(model: Any, key: str, title: str = "") -> list[str]:
    rows, inner = [], []
    for name, field in model.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            rows.append([f"`{name}`", f"table, see [below](#{key}{name})", "", _text(_first_line(field.annotation))])
            inner += _model_sections(field.annotation, f"{key}{name}", title=f"{key}.{name}")
        elif name in registry.KINDS and field.annotation is not str:
            rows.append([f"`{name}`", _table_of(name), _chosen(getattr(complete({}).data, name)),
                         _text(meanings(model.__doc__ or "").get(name, ""))])
        else:
            rows.append(_field_row(model, name))
    told = _text(cleandoc(model.__doc__ or "").partition("\n\n")[0])
    table = _table(["key", "type", "default", "meaning"], rows)
    return [f"## {title or key} {{ #{key} }}\n\n{told}\n\n{table}", *inner]


def _table_of(kind: str) -> str:
    if not registry.entries(kind):
        return f"list of tables, one a {kind}"
    return f"table of {'an' if kind[0] in 'aeiou' else 'a'} [{kind}]({kind}.md)"


def _field_row(model: Any, key: str) -> list[str]:
    field = model.model_fields[key]
    hint = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    default = field.get_default(call_default_factory=True)
    return [f"`{key}`", _text(type_text(hint)), "" if default is None else _code(default),
            _text(meanings(model.__doc__ or "").get(key, ""))]


def _chosen(table: Any) -> str:
    if not table:
        return ""
    return f"`{table['name']}`" if isinstance(table, dict) else _code(table)


def cli_page() -> str:
    """Every command with its arguments and options."""
    import typer

    command = typer.main.get_command(make_app())
    return _page("Command line", f"{command.help} Every command takes `--help`. What a command prints for people "
                 "goes to stdout, progress to stderr; with `--json` stdout holds one JSON document and nothing else.",
                 _options(command), *_commands(command, "tequio"))


def _commands(group: Any, path: str) -> list[str]:
    parts = []
    for name, command in group.commands.items():
        line = " ".join([path, name, *(_usage(one) for one in command.params if one.param_type_name == "argument")])
        parts.append(f"## {path} {name}\n\n{_text(command.help or '')}")
        if hasattr(command, "commands"):
            parts += _commands(command, f"{path} {name}")
        else:
            parts += [f"```text\n{line} [OPTIONS]\n```", _options(command)]
    return parts


def _usage(argument: Any) -> str:
    return argument.name.upper() if argument.required else f"[{argument.name.upper()}]"


def _options(command: Any) -> str:
    rows = []
    for one in command.params:
        if one.param_type_name == "argument":
            name = f"`{one.name.upper()}`"
        else:
            word = "" if one.is_flag else f" {one.metavar or one.name.upper()}"
            name = ", ".join(f"`{option}{word}`" for option in one.opts)
        default = "" if one.default in (None, False, "") or callable(one.default) else f"`{one.default}`"
        rows.append([name, default, _text(one.help or "")])
    return _table(["argument or option", "default", "meaning"], rows) if rows else ""


def python_page() -> str:
    """The public names, and what they hand to you."""
    homes = {name: f"{getattr(tequio, name).__module__}.{name}" for name in tequio.__all__ if not name.startswith("_")}
    parts = ["## tequio\n\n" + "\n\n".join(f"::: {place}" for place in homes.values())]
    parts += [f"## {title}\n\n" + "\n\n".join(f"::: {place}" for place in places) for title, places in _API.items()]
    for places in _API.values():
        for place in places:
            module, _, name = place.rpartition(".")
            getattr(importlib.import_module(module), name)
    return _page("Python API", "`import tequio` brings the names of the first section; the others are what they hand "
                 "to you or ask of you.", *parts)


def prepare_page() -> str:
    """The steps of `data.prepare`."""
    parts = []
    for name, step in PREPARATIONS.items():
        told = [f"## {name}", _text(_first_line(step)), _text(about(step.__doc__ or "")), _parameter_table(step)]
        parts.append("\n\n".join(filter(None, told)))
    return _page("Preparation steps", "What `data.prepare` may list: names, or tables of a name and parameters. Steps "
                 "are fitted on training rows only, by each party; with `data.prepare_scope = \"federated\"` the "
                 "parties' statistics are merged.",
                 '```toml\n[data]\nname = "wine"\nprepare = ["standardise"]\n```', *parts)


def metrics_page() -> str:
    """Every metric."""
    rows = [[f"`{name}`", _text(metric.meaning), "higher" if metric.higher_is_better else "lower",
             ", ".join(metric.kinds)] for name, metric in METRICS.items()]
    return _page("Metrics", "Parties send additive counts, never predictions; metrics follow from the sum. In a run's "
                 "tables a metric's name has a prefix: `test.` on the coordinator's test rows, `validation.` on the "
                 "parties' pooled validation rows, `parties.NAME.` how the parties' own test rows differ (`pooled`, "
                 "`mean`, `sd`, `min`, `max`, `worst_decile`), `train.` as reported while training.",
                 _table(["metric", "meaning", "better", "kinds of target"], rows))


def errors_page() -> str:
    """Every error: id, exit code, and what its messages say to do, found in the code that raises them."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.TequioError)]
    raised = raised_errors({one.__name__ for one in classes})
    overview = [[_anchor(one.id), f"`{one.__name__}`", str(one.exit_code), _text(_first_line(one))] for one in classes]
    overview += [["", "wrong command line", "2", "A command, argument or option is wrong."],
                 ["", "any other exception", str(cli_errors.UNEXPECTED), "A mistake in tequio or in a plugin."],
                 ["", "Ctrl-C", str(cli_errors.INTERRUPTED), "Stopped; the message says how to go on."]]
    sections = [f"## {one.id}\n\n{_text(_first_line(one))} Exit code {one.exit_code}.\n\n"
                + _table(["message", "what to do"], sorted(raised.get(one.__name__, []))) for one in classes]
    return _page("Errors", "An error names the place, the cause and what to do, and ends the command with its exit "
                 "code. `--debug` adds the trace. All are `tequio.TequioError`; in the messages below `…` stands for "
                 "the names and numbers of your case.",
                 _table(["id", "error", "exit code", "means"], overview), *sections)


def raised_errors(names: set[str]) -> dict[str, list[list[str]]]:
    """Messages and remedies by error, from every place in the package that makes one."""
    found: dict[str, list[list[str]]] = {}
    for path in sorted(Path(tequio.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
                message = _spelt(node.args[0])
                remedy = next((_remedy(one.value) for one in node.keywords if one.arg == "remedy"), "")
                if message.strip("… "):
                    found.setdefault(node.func.id, []).append([_text(message), _text(remedy)])
    found["MissingExtra"] = [["… needs the package '…', which is not installed", "type: pip install 'tequio[…]'"]]
    return {name: [list(row) for row in {tuple(row) for row in rows}] for name, rows in found.items()}


def _remedy(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "nearest":
        return "the message names the nearest one that there is"
    return _spelt(node) if _spelt(node).strip("… ") else ""


def _spelt(node: ast.expr) -> str:
    """A string as it is written, with `…` for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_spelt(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _spelt(node.left) + _spelt(node.right)
    return "…"


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", *filter(None, parts)]) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _link(entry: registry.Entry) -> str:
    return f"[{entry.name}]({entry.kind}.md#{entry.name})"


def _anchor(name: str) -> str:
    return f"[{name}](#{name})"


def _text(text: str) -> str:
    """Prose for a table cell: one line, with nothing that Markdown would take for markup outside of code."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(piece if piece.startswith("`") else re.sub(r"([|*_<\[\]])", r"\\\1", piece) for piece in pieces)


def _code(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return f"`{json.dumps(plain, default=str)}`"


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().split("\n")[0]


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
    print(f"{len(write())} pages in {FOLDER}")
