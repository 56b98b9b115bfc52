"""`tequio data`: which datasets there are, getting them, what is in them, and how they are dealt to parties."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tequio.cli.errors import as_options

if TYPE_CHECKING:
    from tequio.data.catalogue.entry import Facts
    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition
    from tequio.data.skew import Skew
    from tequio.experiments.running.store import Plain
    from tequio.registry import Entry

app = typer.Typer(help="Datasets: list, fetch, describe, and who holds what.", no_args_is_help=True)

ConfigFile = Annotated[Path, typer.Argument(help="A config with [data] and [data.partition].")]
Figure = Annotated[Path | None, typer.Option("--out", help="Draw the heat map into this PNG or SVG file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Name = Annotated[str, typer.Argument(help="A dataset's name; see: tequio data list")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Change a key, such as --set seed=1.")]

_NUMBERS = ("rows", "features", "share")
_LONG = ("columns", "values")


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """Show every dataset: rows, features, target, and whether it is at hand."""
    from tequio import registry

    found = [_listed(entry) for entry in registry.entries("dataset")]
    if as_json:
        return _print_json({"datasets": found})
    rows = [[one["name"], _count(one["rows"]), _count(one["features"]), one["target"], one["where"]] for one in found]
    return _print_table("name", "rows", "features", "target", "where", rows=rows)


@app.command()
def fetch(name: Name, as_json: Json = False) -> None:
    """Get a dataset's files into the cache, and check them."""
    from tequio import registry
    from tequio.data.catalogue.manifest import data_file
    from tequio.views.components import facts_of

    facts = facts_of(registry.find("dataset", name))
    paths = [str(data_file(file)) for file in (facts.files if facts else ())]
    if as_json:
        return _print_json({"name": name, "files": paths})
    return typer.echo("\n".join(paths) or f"'{name}' needs no files")


@app.command()
def describe(name: Name, settings: Settings = None, as_json: Json = False) -> None:
    """Show a dataset's schema, class counts, licence and citation."""
    from tequio import registry
    from tequio.experiments.config.toml import parse_setting
    from tequio.registry import build
    from tequio.views.components import NOT_HERE, facts_of

    entry = registry.find("dataset", name)
    described = _listed(entry) | _card(facts_of(entry))
    if described["where"] not in NOT_HERE:
        described |= _contents(build("dataset", name, dict(map(parse_setting, settings or []))).load())
    return _print_json(described) if as_json else _show_description(described)


@app.command()
def partition(
    file: ConfigFile,
    out: Figure = None,
    ordered: Annotated[bool, typer.Option(help="The classes have an order: count steps in earth mover.")] = False,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Deal a dataset as a run of this config would, and show who holds what and how skewed it is."""
    from tequio.data.skew import measure_skew
    from tequio.experiments.config.complete import load_config
    from tequio.experiments.running.scenario import make_scenario
    from tequio.views.heatmap import heatmap_of, save_heatmap

    # A run would refuse parties of one class; here is where to see them.
    config = load_config(file, [*(settings or []), "data.one_class=allow"])
    population = make_scenario(config).population
    dealt, dataset = population.partition, population.dataset
    title = f"{dataset.name} dealt to {len(dealt):,} parties: {config.data.partition['name']}"
    if out is not None:
        save_heatmap(heatmap_of(dataset, dealt, title=title), out)
    skew = measure_skew(dataset, dealt, ordered=ordered)
    if as_json:
        return _print_json(_partition_document(dataset, dealt, skew) | {"figure": str(out) if out else None})
    return _show_partition(dataset, dealt, skew, title, out)


@app.command()
def schema(
    file: Annotated[Path, typer.Argument(help="A table of your own (CSV or Parquet), or a config that names one.")],
    target: Annotated[list[str] | None, typer.Option(help="The column to predict (several: multi-label).")] = None,
    minimum_count: Annotated[int | None, typer.Option(min=1, help="Name no category or class of fewer rows "
                                                      "(default: 10).")] = None,
    unit: Annotated[list[str] | None, typer.Option(metavar="COLUMN=UNIT", help="What a column is measured in.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Leave a column out.")] = None,
    kind: Annotated[list[str] | None, typer.Option(metavar="COLUMN=KIND", help="What a column holds where it is not "
                                                   "what it looks like: number, category, date, text ...")] = None,
    missing: Annotated[str | None, typer.Option(help="Of missing values: error, drop, keep, median or category "
                                                "(default: keep).")] = None,
    others: Annotated[bool, typer.Option("--others", help="Leave room for categories that only other tables have: they "
                                         "become '(other)'.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the schema to this file.")] = None,
) -> None:
    """Write down what a table's columns and target mean, safe to share with others who have such a table.

    The file holds names, kinds, units, ranges rounded outward, and categories that enough rows have: no counts, ids,
    texts or rare values.
    """
    from tequio.data.inputs.kinds import MINIMUM_COUNT
    from tequio.data.sharing import save_schema, shareable, shared_to_json

    said = {"target": target if target is None or len(target) > 1 else target[0], "minimum_count": minimum_count,
            "ignore": ignore, "columns": dict(pairs("kind", kind)) or None, "missing": missing}
    rows, minimum = _table_of(file, {key: value for key, value in said.items() if value is not None})
    shared = shareable(rows, minimum or MINIMUM_COUNT, dict(pairs("unit", unit)), others=others)
    for note in rows.source.notes:
        typer.echo(note if file.suffix == ".toml" else as_options(note), err=True)
    if out is None:
        return typer.echo(shared_to_json(shared))
    save_schema(shared, out)
    names, outcome = {feature.column for feature in shared.schema.features}, shared.schema.target
    return typer.echo(f"{len(names)} columns, target '{outcome.name}' ({outcome.kind}): {out}")


def _table_of(file: Path, said: Plain) -> tuple[Dataset, int | None]:
    """The table and its minimum count, from a file or as a config reads it."""
    from tequio.experiments.config.complete import load_config
    from tequio.registry import build

    if file.suffix != ".toml":
        kind = "parquet" if file.suffix == ".parquet" else "csv"
        return (build("dataset", kind, {"path": str(file), "missing": "keep"} | said).load().train,
                said.get("minimum_count"))
    data = load_config(file).data
    parameters = dict(data.parameters) | said
    return build("dataset", data.name, parameters).load().train, parameters.get("minimum_count")


def pairs(option: str, given: list[str] | None) -> list[tuple[str, str]]:
    """Columns and what is said of them, as they are typed: --unit weight=kg."""
    from tequio.errors import ConfigError

    said = [(name, value) for name, _, value in (text.rpartition("=") for text in given or [])]
    for (name, value), text in zip(said, given or [], strict=True):
        if not name or not value:
            raise ConfigError(f"--{option} {text} names no column", remedy=f"type it as --{option} COLUMN={value}")
    return said


def _listed(entry: Entry) -> Plain:
    from tequio.views.components import facts_of, where_is

    facts = facts_of(entry)
    return {"name": entry.name, "rows": facts.rows if facts else None, "features": facts.features if facts else None,
            "target": facts.target if facts else "", "where": where_is(facts), "summary": entry.summary}


def _card(facts: Facts | None) -> Plain:
    if facts is None:
        return {}
    return {"test_rows": facts.test_rows, "groups": facts.groups, "licence": facts.licence, "citation": facts.citation,
            "source": facts.source}


def _contents(loaded: Any) -> Plain:
    from tequio.data.partition import strata

    dataset: Dataset = loaded.train
    schema = dataset.schema
    found: Plain = {"rows": len(dataset), "features": len(schema.features), "shape": list(schema.shape),
                             "target_kind": schema.target.kind, "target_name": schema.target.name}
    if len(schema.shape) == 1:
        found["columns"] = [{"name": feature.name, "domain": feature.domain} for feature in schema.features]
    if schema.target.kind in ("classes", "multilabel"):
        found["class_counts"] = _class_counts(dataset)
        if schema.target.kind == "multilabel":
            cardinality = sum(found["class_counts"].values()) / len(dataset)
            found |= {"cardinality": cardinality, "density": cardinality / schema.target.size}
    elif schema.target.kind == "number":
        found["target_range"] = [float(dataset.target.min()), float(dataset.target.max())]
        found["target_deciles"] = list(strata(dataset).names)
    return found


def _class_counts(dataset: Dataset) -> dict[str, int]:
    import numpy as np

    from tequio.data.partition import Partition
    from tequio.data.skew import label_counts

    counts, names = label_counts(dataset, Partition.of([np.arange(len(dataset))]))
    return dict(zip(names, counts[0].tolist(), strict=True))


def _partition_document(dataset: Dataset, dealt: Partition, skew: Skew) -> Plain:
    from tequio.data.skew import label_counts

    counts, classes = label_counts(dataset, dealt)
    return {"dataset": dataset.name, "skew": skew.summary(), "classes": list(classes),
            "parties": [{"name": dealt.name(party), "rows": int(dealt.sizes[party]), "counts": counts[party].tolist(),
                         "entropy": skew.entropy[party], "total_variation": skew.total_variation[party],
                         "earth_mover": skew.earth_mover[party], **_held(dataset, dealt, party)}
                        for party in range(len(dealt))]}


def _held(dataset: Dataset, dealt: Partition, party: int) -> Plain:
    """What only partitions by column have to say."""
    if dealt.columns is None:
        return {}
    names = dataset.schema.names
    return {"columns": [names[column] for column in dealt.columns[party]],
            "holds_target": dealt.holds_target is None or dealt.holds_target[party]}


def _show_description(described: Plain) -> None:
    typer.echo(f"{described['name']}: {described['summary']}")
    typer.echo(f"  {_count(described['rows'])} rows, {_count(described['features'])} features"
               + (f" (a row has shape {tuple(described['shape'])})" if len(described.get("shape", [])) > 1 else "")
               + f", target: {described['target']}")
    for key in ("where", "source", "licence", "citation", "test_rows", "groups"):
        if described.get(key):
            typer.echo(f"  {key.replace('_', ' ')}: {described[key]}")
    if "target_kind" not in described:
        typer.echo(f"  type: tequio data fetch {described['name']}")
        return
    if "columns" in described:
        _print_table("column", "values", rows=[[column["name"], ", ".join(column["domain"] or ["number"])]
                                               for column in described["columns"]])
    if "cardinality" in described:
        typer.echo("  {cardinality:.4g} labels a row (cardinality), density {density:.4g}".format(**described))
    if "class_counts" in described:
        counts = described["class_counts"]
        _print_table("class", "rows", "share", rows=[
            [name, f"{count:,}", f"{count / described['rows']:.1%}"] for name, count in counts.items()])
    elif "target_range" in described:
        typer.echo("  {}: from {:g} to {:g}".format(described["target_name"], *described["target_range"]))


def _show_partition(dataset: Dataset, dealt: Partition, skew: Skew, title: str, out: Path | None) -> None:
    from rich.console import Console

    from tequio.views.heatmap import TABLE_PARTIES, heatmap_of, heatmap_table

    console = Console()
    console.print(heatmap_table(heatmap_of(dataset, dealt, most=TABLE_PARTIES, title=title), width=console.width))
    if dealt.columns is not None:
        _print_table("party", "columns", "target", rows=[
            [dealt.name(party), ", ".join(held["columns"]), "yes" if held["holds_target"] else ""]
            for party in range(len(dealt)) for held in [_held(dataset, dealt, party)]])
    console.print()
    for line in _skew_lines(skew.summary()):
        console.print(line, highlight=False)
    if out is not None:
        console.print(f"drawn: {out}", highlight=False)


def _skew_lines(summary: dict[str, float]) -> list[str]:
    sizes = (f"sizes           {summary['smallest']:,.0f} to {summary['largest']:,.0f}, median {summary['median']:,g}, "
             f"Gini {summary['gini']:.3f}")
    if isnan(summary["entropy_mean"]):
        return [sizes]
    return [sizes,
            f"classes         {summary['classes_mean']:.2f} a party; "
            f"{summary['one_class_share']:.1%} of parties have one class only",
            f"label entropy   {summary['entropy_mean']:.3f} bits a party on average",
            f"total variation {summary['total_variation_mean']:.3f} on average (0: all alike, 1: nothing in common)",
            f"earth mover     {summary['earth_mover_mean']:.4g} on average"]


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _print_table(*columns: str, rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", no_wrap=column not in _LONG)
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print()
    console.print(table)


def _print_json(document: Plain) -> None:
    typer.echo(json.dumps(_plain(document), allow_nan=False))


def _plain(value: Any) -> Any:
    """JSON has no NaN: what is unknown is null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if value != value else value
