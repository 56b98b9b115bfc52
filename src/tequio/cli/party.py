"""`tequio party`: a federation between machines, seen from one that holds data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tequio.cli.errors import as_options
from tequio.errors import ConfigError, DataError, MissingExtra

if TYPE_CHECKING:
    from tequio.engines.network.holding import Holding
    from tequio.engines.network.homes import PartyHome
    from tequio.experiments.running.store import Plain

app = typer.Typer(help="Take part in a federation between machines: your rows stay here.", no_args_is_help=True)

Home = Annotated[Path, typer.Option(help="The party's folder: its key, its policy, its audit log, its states.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Run = Annotated[str, typer.Argument(help="The run; see: tequio party runs")]
Data = Annotated[str, typer.Option(help="Your table (CSV or Parquet), a database (sqlite:///FILE, duckdb:///FILE or "
                                        "postgresql://USER@HOST/NAME, with --query), catalogue:NAME for a simulated "
                                        "share, or none to keep a key only.")]
Query = Annotated[str, typer.Option(metavar="SELECT", help="Of a database, the query that finds your rows.")]
Target = Annotated[str, typer.Option(help="The column to predict.")]
Id = Annotated[str, typer.Option(help="The column that says which row is which, to match it with others'; several "
                                     "as 'name + born'.")]
SchemaFile = Annotated[Path | None, typer.Option(help="The schema file that all parties agreed on.")]
MappingFile = Annotated[Path | None, typer.Option(help="What your table calls, measures or codes otherwise; tequio "
                                                       "party check proposes one.")]
Ignore = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column of yours to leave out.")]
Kind = Annotated[list[str] | None, typer.Option(metavar="COLUMN=KIND", help="Without a schema: what a column holds "
                                                "where it is not what it looks like.")]
MinimumCount = Annotated[int, typer.Option(min=1, help="Without a schema: let others hear of no category or class of "
                                                       "fewer rows.")]
Missing = Annotated[str, typer.Option(help="Of missing values: error, drop, keep, median or category.")]
Prepare = Annotated[list[str] | None, typer.Option(help="Steps that your rows go through by themselves.")]
Partition = Annotated[Path | None, typer.Option(help="With catalogue:NAME, the config that deals it.")]
Share = Annotated[str, typer.Option(help="With catalogue:NAME, whose share it is.")]
_HOME = Path("party")
_SHARE = "catalogue:"


@app.command()
def join(
    token: Annotated[str, typer.Argument(help="The join token, or a file that holds it.")],
    data: Data,
    name: Annotated[str, typer.Option(help="What this party is called.")] = "",
    home: Home = _HOME,
    query: Query = "",
    target: Target = "",
    id: Id = "",
    schema: SchemaFile = None,
    mapping: MappingFile = None,
    ignore: Ignore = None,
    kind: Kind = None,
    minimum_count: MinimumCount = 10,
    missing: Missing = "error",
    prepare: Prepare = None,
    partition: Partition = None,
    party: Share = "",
) -> None:
    """Enrol with a join token. The token is used up; the key that is made here never leaves this folder."""
    from tequio.engines.network.enrolment import join as enrol
    from tequio.engines.network.homes import read_token

    facts = data_facts(data, target, id, schema, missing, prepare, partition, query, mapping, ignore, minimum_count,
                       kind)
    called, holding = look_at(name or party, facts)  # what is wrong is said before the token is used up
    pinned = enrol(home, read_token(token), called, {"data": facts})
    typer.echo(f"party         {called}, {holding.rows} rows\nfolder        {home}\ncoordinator   {pinned}\n\n"
               f"Next: write a policy in {home / 'policy.toml'} if you want one, then: tequio party run --home {home}")


@app.command()
def check(
    data: Annotated[Path, typer.Option(metavar="FILE", help="Your table (CSV or Parquet).")],
    schema: Annotated[Path, typer.Option(help="The schema file that all parties agreed on.")],
    mapping: MappingFile = None,
    propose: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a mapping to start from.")] = None,
    quantiles: Annotated[Path | None, typer.Option(help="A run of the algorithm 'statistics' over all parties, or its "
                                                        "table as JSON: units are compared with it.")] = None,
    id: Id = "",
    ignore: Ignore = None,
    as_json: Json = False,
) -> None:
    """Compare your table with a schema, column by column. Nothing is sent anywhere, and the table stays as it is."""
    from tequio.experiments.deploying.checking import check_table
    from tequio.experiments.showing.checking import check_document, show_check, write_proposal

    if propose is not None and mapping is not None:
        raise ConfigError("--propose writes a whole mapping, and --mapping says that you have one",
                          remedy="leave out --mapping or --propose")
    checked = check_table(data, schema, mapping, quantiles, id, ignore or [])
    if propose is not None and checked.found.differences:
        write_proposal(checked, propose)
    if as_json:
        typer.echo(json.dumps(check_document(checked)))
    else:
        from rich.console import Console

        show_check(Console(), checked, data, propose)
    if checked.found.differences:
        raise typer.Exit(3)


@app.command()
def run(
    home: Home = _HOME,
    patience: Annotated[int, typer.Option(help="Give up after so many attempts to dial (0: never).")] = 0,
) -> None:
    """Dial the coordinator, and answer its tasks next to your rows until you press Ctrl-C. Logs JSON lines."""
    from tequio.experiments.deploying.deploying import serve_party

    serve_party(home, patience)


@app.command()
def bring(
    run: Annotated[str, typer.Argument(help="The run whose model is asked: its name at the coordinator.")],
    data: Annotated[Path, typer.Option(metavar="FILE", help="New rows (CSV or Parquet) with your columns and their "
                                       "ids; no target is needed.")],
    home: Home = _HOME,
    id: Annotated[str, typer.Option(metavar="COLUMN", help="The column of ids (default: as when you joined).")] = "",
    unseen: Annotated[str, typer.Option(help="Values that the model cannot use: error, fill or skip.")] = "error",
    tell: Annotated[str, typer.Option(metavar="NAME", help="As label holder: let this party, or 'coordinator', be told "
                                      "the predictions instead of you.")] = "",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where predictions go if you are told (default: "
                                             "predictions/RUN.csv in your folder).")] = None,
) -> None:
    """Bring new rows to a model that you hold a part of. They stay here, and are good for one answer.

    When the coordinator asks (tequio coordinator predict RUN), the party that holds the labels gets the predictions.
    """
    from tequio.engines.network.homes import PartyHome
    from tequio.experiments.deploying.holdings import open_holding
    from tequio.experiments.deploying.predicting import Brought

    place = PartyHome(home)
    holding = open_holding(place.facts["name"], place.facts["data"])
    rows = Brought(place, holding).bring(run, data, id=id, unseen=unseen, tell=tell, out=out)
    typer.echo(f"{rows.rows} rows for the model of '{run}'. Next, at the coordinator: tequio coordinator predict {run}")


@app.command()
def runs(run: Annotated[str, typer.Argument(help="Only this run (empty: all).")] = "", home: Home = _HOME,
         as_json: Json = False) -> None:
    """Show the runs that asked for approval: what is asked, what it reveals and costs, and what was decided."""
    from tequio.engines.network.approving import as_text, asked, note_shown, spent_and_left

    place = _place(home)
    found = {name: each for name, each in asked(place).items() if run in ("", name)}
    note_shown(place, found.values())
    if as_json:
        return typer.echo(json.dumps({name: each.to_plain() for name, each in found.items()}))
    for each in found.values():
        typer.echo("\n".join(as_text(each, whole=bool(run) or not each.decision)) + "\n")
    if any(not each.decision for each in found.values()):
        spent, left = spent_and_left(place)
        typer.echo(f"spent on these rows so far: {spent}; left: {left}\n"
                   f"Next: tequio party approve RUN --home {home}\n  or: tequio party deny RUN --home {home}")
    return None


Note = Annotated[str, typer.Option(help="Why, for the history of decisions.")]


@app.command()
def approve(run: Run, home: Home = _HOME, note: Note = "") -> None:
    """Let a run take place here, as it was shown; refused if its announcement has changed since you looked."""
    _decide(run, home, note, approved=True)
    typer.echo(f"'{run}' is approved.")


@app.command()
def deny(run: Run, home: Home = _HOME, note: Note = "") -> None:
    """Refuse a run."""
    _decide(run, home, note, approved=False)
    typer.echo(f"'{run}' is denied.")


def _decide(run: str, home: Path, note: str, *, approved: bool) -> None:
    """Decide about what this person saw last; what they have not seen is shown now."""
    from tequio.engines.network.approving import as_text, asked, decide, last_shown, this_user

    place = _place(home)
    shown = last_shown(place, run)
    if not shown and (waiting := asked(place).get(run)) is not None:
        typer.echo("\n".join(as_text(waiting)))
        shown = waiting.hash
    decide(place, run, approved=approved, shown=shown, by=this_user(), note=note)


@app.command()
def ui(home: Home = _HOME,
       port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on (0: a free one).")] = 0) -> None:
    """Open a page on this machine to read what is asked, approve or decline it, and see what was decided before.

    Only this machine can connect, and only the browser that opens the printed link first is let in.
    """
    import secrets

    try:
        import jinja2  # noqa: F401
        import uvicorn

        from tequio.cli.ui import open_door
        from tequio.views.party_page import make_party_app
        from tequio.views.web.guard import Settings
    except ImportError as cause:
        raise MissingExtra(str(cause.name or "starlette").partition(".")[0], "ui", "the party's page") from cause
    place = _place(home)
    door = open_door("127.0.0.1", port)
    settings = Settings(home, port=door.getsockname()[1], token=secrets.token_urlsafe(24))
    typer.echo(f"The page of party '{place.facts['name']}' is at {settings.address}\n"
               "The link works once, in one browser. Press Ctrl-C to close the page.")
    # Without a log config of its own: setting one up closes the handlers of other libraries, and what they write to.
    server = uvicorn.Server(uvicorn.Config(make_party_app(place, settings), log_level="warning", log_config=None,
                                           access_log=False, timeout_graceful_shutdown=1, server_header=False))
    server.run([door])


@app.command()
def audit(home: Home = _HOME, as_json: Json = False) -> None:
    """Check that nobody changed the audit log, and show its last entries."""
    from tequio.cli.coordinator import show_audit

    show_audit(home / "audit.jsonl", as_json)


@app.command()
def clean(
    home: Home = _HOME,
    older_than: Annotated[float, typer.Option(min=0, metavar="DAYS",
                                              help="Only runs that ended, or were asked for, so long ago.")] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    as_json: Json = False,
) -> None:
    """Delete journals, states and approvals of runs that are over, or that were asked for and never did any work here.
    Runs that may go on, ledgers, audit logs and the history of decisions stay.

    What is deleted of a run includes your own part of its model, if it kept one here.
    """
    import time

    from tequio.engines.network import journal

    old, left = journal.clean(_place(home), older_than, time.time(), delete=not dry_run)
    freed = sum(run.bytes for run in old)
    going = [run.run for run in left if run.days is None]
    if as_json:
        return typer.echo(json.dumps({"deleted": [] if dry_run else [run.run for run in old], "bytes": freed,
                                      "old": [run.run for run in old], "not_over": going}))
    for run in old:
        typer.echo(f"{run.run}: over for {run.days:.0f} days, {run.bytes / 1e6:.2f} MB")
    typer.echo(f"{'Would free' if dry_run else 'Freed'} {freed / 1e6:.2f} MB of {len(old)} runs.")
    if going:
        typer.echo(f"Not over, and left as they are: {', '.join(going)}")
    return None


@app.command()
def ledger(home: Home = _HOME, as_json: Json = False) -> None:
    """Show what was released about your rows: in which runs, for whom and when, and what is left of the budget."""
    from tequio.gate.policy import read_policy

    place = _place(home)
    budget = read_policy(place.policy).budget
    delta = 1e-5 if budget is None else budget.delta
    found = [{"rows": rows.path.stem, "delta": delta, "epsilon": rows.epsilon(delta),
              "budget": None if budget is None else budget.epsilon,
              "left": None if budget is None else rows.left(budget.epsilon, delta),
              "runs": rows.lines(delta)} for rows in place.ledgers()]
    if as_json:
        return typer.echo(json.dumps(found))
    if not found:
        typer.echo("Nothing is counted: the party's policy has no budget." if budget is None else
                   "Nothing was released under the budget so far.")
    for one in found:
        _show_ledger(one)
    return None


def _show_ledger(found: Plain) -> None:
    """The ledger of one table, in 80 columns."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tequio.engines.network.approving import visible

    console, budget = Console(), found["budget"]
    left = "the policy has no budget" if budget is None else f"{found['left']:.4g} of a budget of {budget:g}"
    console.print(f"rows      {found['rows'][:12]}\nspent     epsilon {found['epsilon']:.4g} at delta "
                  f"{found['delta']:g}, over all runs\nleft      {left}", highlight=False)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in ("run", "asked by", "released", "under", "epsilon", "last"):
        table.add_column(column, justify="right" if column in ("released", "epsilon") else "left", overflow="fold")
    for line in found["runs"]:
        alone = "none" if line["epsilon"] is None else f"{line['epsilon']:.4g}"
        cells = [line["run"], line["by"][:12], f"{line['releases']:,}", ", ".join([line["mechanism"], *line["tasks"]]),
                 alone, line["last"][:10]]
        table.add_row(*(Text(visible(cell)) for cell in cells))
    console.print(table)


def data_facts(data: str, target: str, id: str, schema: Path | None, missing: str, prepare: list[str] | None,
               partition: Path | None, query: str = "", mapping: Path | None = None, ignore: list[str] | None = None,
               minimum_count: int = 10, kind: list[str] | None = None) -> Plain:
    """What a party notes about its data when it joins."""
    from tequio.cli.data import pairs

    return _share(data, partition) if data.startswith(_SHARE) else {
        **_table(data, query), "target": target or None, "id": id or None, "missing": missing, "prepare": prepare or [],
        "schema_path": str(schema.resolve()) if schema is not None else None,
        "mapping_path": str(mapping.resolve()) if mapping is not None else None, "ignore": ignore or [],
        "minimum_count": minimum_count, "columns": dict(pairs("kind", kind)) or None}


def _table(data: str, query: str) -> Plain:
    """Where a party's rows are: in a file, or in a database, whose password is not kept."""
    from tequio.data.catalogue.sql import beside, is_connection, only_reads, without_password
    from tequio.experiments.deploying.holdings import NO_DATA

    if is_connection(data) or "://" in data:
        if not query:
            raise ConfigError("nothing says which rows of the database are yours", remedy="add --query \"SELECT ...\"")
        return {"connection": beside(without_password(data), Path.cwd()), "query": only_reads(query)}
    if query:
        raise ConfigError("a query is for a database, and --data names none",
                          remedy="write --data sqlite:///FILE, duckdb:///FILE or postgresql://USER@HOST/NAME")
    return {"path": data if data == NO_DATA else str(Path(data).resolve())}


def look_at(name: str, facts: Plain) -> tuple[str, Holding]:
    """The party's name and its data, if both can be used; what its columns were taken for is said."""
    from tequio.engines.network.holding import OwnRows
    from tequio.experiments.deploying.holdings import open_holding

    if not name:
        raise ConfigError("this party has no name", remedy="give it one: --name NAME")
    try:
        holding = open_holding(name, facts)
    except DataError as cause:
        raise DataError(cause.message, remedy=as_options(cause.remedy), column=cause.column) from cause
    for note in holding.notes if isinstance(holding, OwnRows) else ():
        typer.echo(f"note: {as_options(note)}", err=True)
    return name, holding


def _share(data: str, partition: Path | None) -> Plain:
    from tequio.experiments.config.complete import load_config

    if partition is None:
        raise ConfigError("a simulated share needs the config that deals it", remedy="give it: --partition FILE.toml")
    config = load_config(partition)
    if config.data.name != data.removeprefix(_SHARE):
        raise ConfigError(f"'{partition}' deals '{config.data.name}' and not '{data.removeprefix(_SHARE)}'",
                          remedy=f"type --data {_SHARE}{config.data.name}")
    return {"config": str(partition.resolve())}


def _place(home: Path) -> PartyHome:
    from tequio.engines.network.homes import PartyHome

    place = PartyHome(home)
    _ = place.facts
    return place
