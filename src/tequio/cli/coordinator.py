"""`tequio coordinator`: a federation between machines, seen from where the parties dial in."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from tequio.engines.network.homes import CoordinatorHome
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain

app = typer.Typer(help="Run a federation between machines: parties dial in here.", no_args_is_help=True)

Home = Annotated[Path, typer.Option(help="The coordinator's folder: keys, tokens, who is enrolled.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the config.")]
Bind = Annotated[str, typer.Option(metavar="ADDRESS", help="The address of this machine to listen on, kept for the "
                                   "next start (default: loopback if parties dial a loopback address, else all).")]
As = Annotated[Path | None, typer.Option("--as", metavar="FILE", help="Ask with the token in this file (-: stdin) "
                                         "rather than as one who can read the coordinator's folder.")]
MetricsPort = Annotated[int, typer.Option(help="Serve Prometheus metrics on this port (0: do not).")]
_HOME = Path("coordinator")
_SOON = 90


@app.command()
def init(
    home: Home = _HOME,
    name: Annotated[str, typer.Option(help="What the federation is called.")] = "federation",
    address: Annotated[str, typer.Option(help="Host name or IP address that parties dial.")] = "localhost",
    port: Annotated[int, typer.Option(help="Port of the parties' links.")] = 8470,
    enrolment_port: Annotated[int, typer.Option(help="Port for joining (0: the next one).")] = 0,
    bind: Bind = "",
) -> None:
    """Make a certificate authority and the coordinator's own certificate."""
    from tequio.engines.network.certificates import fingerprint
    from tequio.engines.network.homes import CoordinatorHome

    made = CoordinatorHome.create(home, name, address, port, enrolment_port or port + 1, bind)
    typer.echo(f"coordinator   {home}\nparties dial  {address}:{port} (to join: port {enrolment_port or port + 1})\n"
               f"listens on    {where(made.bind)}\n"
               f"fingerprint   {fingerprint(made.identity('authority').certificate)}\n\n"
               "Next: tequio coordinator token NAME, once for each party.")


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="The party that it is for (empty: whoever holds it).")] = "",
    home: Home = _HOME,
    hours: Annotated[float, typer.Option(help="How long it may be used.")] = 24.0,
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead.")] = None,
    aggregator: Annotated[str, typer.Option(metavar="HOST:PORT", help="For an aggregator that is dialled there.")] = "",
    via: Annotated[str, typer.Option(metavar="AGGREGATOR", help="For a party that dials this aggregator.")] = "",
    asker: As = None,
) -> None:
    """Make a join token. It is good for one party, once: send it over a channel that you trust."""
    from tequio.engines.network.files import write_private

    if aggregator and (not name or not aggregator.rpartition(":")[2].isdigit()):
        raise ConfigError("an aggregator needs a name and an address with a port",
                          remedy="type: tequio coordinator token NAME --aggregator HOST:PORT")
    text = _home(home).new_token(name, hours, aggregator=aggregator, via=via).to_text() if asker is None else \
        _asked(home, asker, "token", name=name, hours=hours, aggregator=aggregator, via=via)["token"]
    if out is None:
        return typer.echo(text)
    write_private(out, text.encode() + b"\n")
    return typer.echo(f"The token is in {out}.")


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="A config (not needed with --resume).",
                                                show_default=False)] = None,
    home: Home = _HOME,
    settings: Settings = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with a stopped run.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where run folders go (default: runs).")] = None,
    metrics_port: MetricsPort = 0,
    bind: Bind = "",
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no tables.")] = False,
) -> None:
    """Run a config with the parties that dial in; the rows stay with them.

    Where `tequio coordinator serve` runs in the same folder, it does the work and this command follows it.
    """
    from tequio.cli.run import printing, refuse_diverged, shown_progress
    from tequio.engines.network.homes import EVERYWHERE
    from tequio.experiments.deploying.deploying import run_here_or_there

    if file is None and resume is None:
        raise ConfigError("there is nothing to run", remedy="type: tequio coordinator run FILE.toml")
    place = _home(home)
    place.listen_on(bind)
    if not quiet and place.bind in EVERYWHERE:
        typer.echo(f"Listens on {where(place.bind)}.", err=True)
    overrides = [*(settings or []), *([f"output.folder={out}"] if out is not None else [])]
    with printing(as_json) as write, shown_progress(quiet, "tequio coordinator run --resume") as listen:
        result = run_here_or_there(home, file, overrides, resume, listen, metrics_port)
        if as_json:
            write(json.dumps(result.to_dict()))
    if not as_json and not quiet:
        _show(result)
    refuse_diverged(result.summary)


@app.command()
def ready(
    file: Annotated[Path, typer.Argument(help="A config with data.name = 'parties'.")],
    home: Home = _HOME,
    settings: Settings = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the parties.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Rehearse a run: who would take part, and what it would cost in bytes, seconds and privacy.

    Parties answer on rows that they make up from the agreed schema, each through its own policy. Ends with code 1 if a
    party would not take part.
    """
    from tequio.cli.run import printing
    from tequio.experiments.deploying.deploying import rehearsed_here_or_there

    with printing(as_json) as write:
        found = rehearsed_here_or_there(home, file, settings or [], wait=wait, listen=_noted)
        if as_json:
            write(json.dumps(found))
    if not as_json:
        _show_rehearsal(found)
    if not found["ready"]:
        raise typer.Exit(1)


@app.command()
def predict(
    run: Annotated[str, typer.Argument(help="A finished run with real parties of which each has some columns.")],
    home: Home = _HOME,
    tell: Annotated[str, typer.Option(metavar="PARTY", help="Who is told, if the label holder agrees (default: the "
                                      "label holder itself).")] = "",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Be told yourself, if the label holder agrees: write "
                                             "the predictions as CSV.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the parties.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Let parties predict the new rows that they brought (tequio party bring). The label holder gets the answers.

    The parties match their rows by private set intersection. All of them are needed; those who are missing are named.
    """
    from tequio.experiments.deploying.deploying import predict_here_or_there
    from tequio.experiments.running.store import find_folder, write_whole

    found = predict_here_or_there(home, find_folder(run), tell="coordinator" if out is not None else tell, wait=wait)
    if out is not None:
        write_whole(out, found.pop("table").encode())
    if as_json:
        return typer.echo(json.dumps(found))
    return typer.echo(f"{found['rows']} rows that all parties hold are predicted. " + (
        f"They are in {out}." if out is not None else f"The predictions are with {tell or 'the label holder'}."))


@app.command()
def serve(home: Home = _HOME, bind: Bind = "", metrics_port: MetricsPort = 0,
          metrics_address: Annotated[str, typer.Option(help="Where the metrics are served.")] = "127.0.0.1") -> None:
    """Stay up: keep the parties' links, and do the runs that `tequio coordinator run` hands over. Logs JSON lines."""
    from tequio.experiments.deploying.deploying import serve_forever

    _home(home).listen_on(bind)
    serve_forever(home, metrics_port, metrics_address)


@app.command()
def status(home: Home = _HOME, as_json: Json = False) -> None:
    """Say who is enrolled, who is connected, and which runs wait for whom."""
    from tequio.engines.network.control import ask

    place = _home(home)
    live = ask(home, "status")
    enrolled = {name: {**{mark: bool(facts.get(mark)) for mark in ("revoked", "pending")},
                       "days_left": _days(facts["certificate"].encode()),
                       **{role: facts[role] for role in ("aggregator", "via") if role in facts}}
                for name, facts in place.parties().items()}
    found = {"running": live is not None, "enrolled": enrolled,
             "days_left": {stem: _days(place.identity(stem).certificate) for stem in ("authority", "coordinator")},
             "tokens": len(list(place.tokens.waiting())), **(live or {"parties": {}, "runs": {}, "aggregators": {}})}
    typer.echo(json.dumps(found) if as_json else _status_text(found))


@app.command()
def revoke(name: Annotated[str, typer.Argument(help="The party.")], home: Home = _HOME, token: As = None) -> None:
    """Never let a party in again with the certificate that it has; if it is connected, its link ends.

    A new token for the name lets a party join under it again.
    """
    from tequio.engines.network.control import ask

    if token is not None:
        _asked(home, token, "revoke", name=name)
    else:
        _home(home).revoke(name)
        ask(home, "drop", name=name)
    typer.echo(f"The certificate of '{name}' is revoked. To let a party join under this name again: tequio coordinator "
               f"token '{name}'")


@app.command()
def publish(run: Annotated[str, typer.Argument(help="A finished run or a model: its folder, its name, or 'last'.")],
            out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the signed model goes.")],
            home: Home = _HOME) -> None:
    """Sign a run's model, so that members of the federation know it again. Parties' own models stay with them."""
    from tequio.experiments.running.store import find_folder
    from tequio.models.publishing import publish as signed

    place = Path(run) if Path(run).is_dir() else find_folder(run)
    sha256 = signed(place, out, _home(home).identity("coordinator"))
    typer.echo(f"model         {out}\nsha256        {sha256}\n\nA party checks it with: tequio predict {out} --home "
               "PARTY --data FILE")


@app.command()
def audit(home: Home = _HOME, token: As = None, as_json: Json = False) -> None:
    """Check that nobody changed the audit log, and show its last entries."""
    if token is None:
        return show_audit(home / "audit.jsonl", as_json)
    found = _asked(home, token, "audit")
    if as_json:
        typer.echo(json.dumps({"entries": found["entries"], "intact": not found["changed"]}))
    else:
        show_entries(found["entries"])
        typer.echo(found["changed"] or f"{found['count']} entries, unchanged since they were written")
    if found["changed"]:
        raise typer.Exit(1)
    return None


people = typer.Typer(help="Who may ask this coordinator for what, besides those who can read its folder.",
                     no_args_is_help=True)
app.add_typer(people, name="people")


@people.command()
def add(
    name: Annotated[str, typer.Argument(help="What the person is called, in the audit log too.")],
    role: Annotated[str, typer.Option(help="owner (everything), researcher (proposes runs, sees their results) or "
                                           "auditor (reads the audit log, the ledgers and who decided what).")],
    home: Home = _HOME,
    days: Annotated[float, typer.Option(help="How long the token may be used.")] = 90.0,
    starts: Annotated[bool, typer.Option("--starts", help="Of a researcher: proposals start by themselves once all "
                                         "parties have approved.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the token to this file instead.")] = None,
    token: As = None,
) -> None:
    """Make a token for a person on this machine. Send it over a channel that you trust; only a hash of it is kept."""
    from tequio.engines.network.files import write_private

    text = _asked(home, token, "add person", name=name, role=role, days=days, starts=starts)["token"]
    if out is None:
        return typer.echo(text)
    write_private(out, text.encode() + b"\n")
    return typer.echo(f"The token is in {out}.")


@people.command("list")
def every(home: Home = _HOME, token: As = None, as_json: Json = False) -> None:
    """Show who there is, in which role, and whose token is good for how long."""
    found = _asked(home, token, "people")["people"]
    if as_json:
        return typer.echo(json.dumps(found))
    for known in found:
        days = (known["expires"] - time.time()) / 86400
        ends = "revoked" if known["revoked"] else f"for {days:.0f} more days" if days > 0 else "expired"
        typer.echo(f"{known['name']:<20} {known['role']:<10} {ends}, added by {known['by']}"
                   f"{', starts runs' if known['starts'] else ''}")
    return None


@people.command("revoke")
def dismiss(name: Annotated[str, typer.Argument(help="The person.")], home: Home = _HOME, token: As = None) -> None:
    """Never accept that person's token again."""
    _asked(home, token, "revoke person", name=name)
    typer.echo(f"The token of '{name}' is revoked.")


@app.command()
def propose(file: Annotated[Path, typer.Argument(help="A config with data.name = 'parties'.")], home: Home = _HOME,
            token: As = None, as_json: Json = False) -> None:
    """Ask for a run. It is checked now, and waits for an owner of the coordinator."""
    from tequio.engines.network.files import read_required

    text = read_required(file, "give the path of a config").decode(errors="replace")
    made = _asked(home, token, "propose", config=text)
    typer.echo(json.dumps(made) if as_json else f"proposal {made['id']}: {made['name']} ({made['state']})")


Number = Annotated[str, typer.Argument(help="The number of the proposal; see: tequio coordinator proposals")]
Note = Annotated[str, typer.Option(help="Why, for the history of decisions.")]


@app.command()
def proposals(number: Annotated[str, typer.Argument(help="Only this one, with its config (empty: all).")] = "",
              home: Home = _HOME, token: As = None, as_json: Json = False) -> None:
    """Show the runs that people proposed, who decided about them, and how far they are."""
    found = [each for each in _asked(home, token, "proposals")["proposals"] if number in ("", each["id"])]
    if as_json:
        return typer.echo(json.dumps(found))
    for each in found:
        typer.echo(_visible(f"{each['id']:>3}  {each['name']}: {each.get('state', each['decision'] or 'waits')}"))
        typer.echo(_visible(f"     by {each['by']} at {each['at']}"))
        if each["decision"]:
            typer.echo(_visible(f"     {each['decision']} by {each['decided_by']} at {each['decided_at']}"
                                f"{': ' if each['note'] else ''}{each['note']}"))
        if number and "config" in each:
            typer.echo("\n".join(f"     | {_visible(line)}" for line in each["config"].splitlines()))
    return None


@app.command()
def accept(number: Number, home: Home = _HOME, note: Note = "", token: As = None) -> None:
    """Start a proposed run."""
    found = _asked(home, token, "accept", id=number, note=note)
    typer.echo(f"proposal {number} is accepted: run {found['run']}")


@app.command()
def decline(number: Number, home: Home = _HOME, note: Note = "", token: As = None) -> None:
    """Let a proposed run not take place."""
    _asked(home, token, "decline", id=number, note=note)
    typer.echo(f"proposal {number} is declined.")


@app.command()
def result(number: Number, home: Home = _HOME, token: As = None) -> None:
    """Print the summary of a proposed run that is finished, as JSON."""
    typer.echo(json.dumps(_asked(home, token, "result", id=number), indent=1))


@app.command()
def ledgers(home: Home = _HOME, token: As = None, as_json: Json = False) -> None:
    """Show what each finished run states about its privacy loss."""
    found = _asked(home, token, "ledgers")["ledgers"]
    if as_json:
        return typer.echo(json.dumps(found))
    for run, stated in found.items():
        typer.echo(f"{run}: {_visible(stated['words']) if stated else 'no privacy mechanism'}")
    return None


def _asked(home: Path, token: Path | None, question: str, **facts: object) -> Plain:
    """The coordinator's answer to the person with that token, or to the operator."""
    from tequio.engines.network.people import PREFIX, ask_as, read_person_token
    from tequio.experiments.deploying.deploying import asked_of

    if token is None:
        return asked_of(home, question, **facts)
    if str(token).startswith(PREFIX):
        raise ConfigError("a token does not belong on the command line, where others on this machine can read it",
                          remedy="put it into a file of your own, and type: --as FILE")
    try:
        text = sys.stdin.readline() if str(token) == "-" else token.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"the token's file cannot be read: {type(cause).__name__}",
                          remedy="type: --as FILE, or --as - and the token on stdin") from None
    return ask_as(read_person_token(text), question, **facts)


def _visible(text: str) -> str:
    from tequio.engines.network.approving import visible

    return visible(text)


def show_audit(path: Path, as_json: bool) -> None:
    """Verify an audit log and print it."""
    from tequio.engines.network.telemetry import entries, verify

    count, found = verify(path), entries(path)
    if as_json:
        return typer.echo(json.dumps({"entries": found, "intact": True}))
    show_entries(found)
    return typer.echo(f"{count} entries, unchanged since they were written")


def show_entries(found: list[Plain]) -> None:
    """Print the last entries of an audit log."""
    for entry in found[-20:]:
        facts = {key: value for key, value in entry.items() if key not in ("number", "time", "event", "hash",
                                                                           "previous")}
        typer.echo(f"{entry['time']}  {entry['event']:<18} {json.dumps(facts)}")


def _home(folder: Path) -> CoordinatorHome:
    from tequio.engines.network.homes import CoordinatorHome

    home = CoordinatorHome(folder)
    _ = home.facts
    return home


def where(bind: str) -> str:
    """An address to listen on, in words."""
    from tequio.engines.network.homes import EVERYWHERE

    return "all addresses of this machine (for one of them: --bind ADDRESS)" if bind in EVERYWHERE else bind


def _days(certificate: bytes) -> int:
    from tequio.engines.network.certificates import days_left

    return int(days_left(certificate))


def _ending(days: int, what: str) -> str:
    """A warning for a certificate that ends soon, and what to do."""
    if days >= _SOON:
        return ""
    return f"certificate ended, {what}" if days < 0 else f"certificate ends in {days} days: {what}"


def _status_text(found: Plain) -> str:
    lines = [f"coordinator   {'running' if found['running'] else 'not running'}, {found['tokens']} unused tokens",
             f"certificates  authority for {found['days_left']['authority']} days, coordinator for "
             f"{found['days_left']['coordinator']} days"]
    ending = _ending(found["days_left"]["authority"], "all have to join a new coordinator before that")
    lines += [f"authority     {ending}"] if ending else []
    for name, facts in found["enrolled"].items():
        told = "revoked" if facts["revoked"] else _presence(found, name, facts)
        ending = "" if facts["revoked"] else _ending(facts["days_left"], "it is renewed when the party dials" if
                                                     facts["days_left"] >= 0 else "the party has to join anew")
        lines.append(f"{name:<13} {told}{'; ' if ending else ''}{ending}")
    for name, facts in found["runs"].items():
        lines.append(f"run {name}: {facts['parties']} parties, waiting for {', '.join(facts['owing']) or 'nobody'}")
        lines += [f"  {party}: {cause}" for party, cause in facts["waiting"].items()]
    return "\n".join(lines)


def _presence(found: Plain, name: str, facts: Plain) -> str:
    """Whether an enrolled party or aggregator is there."""
    if "aggregator" in facts:
        there = found["aggregators"].get(name)
        return f"aggregator at {facts['aggregator']}, " + (
            "not connected" if there is None else f"connected with {len(there)} parties")
    live = found["parties"].get(name)
    if facts["pending"]:
        return "has not finished joining; its token can be used again"
    if live is None or not live["connected"]:
        return "not connected"
    via = f" through {facts['via']}" if "via" in facts else ""
    return f"connected{via} for {live['seconds']:.0f} s, {live['rows']} rows, tequio {live['version']}"


def _noted(kind: str, facts: Plain) -> None:
    typer.echo(f"{kind}: {facts['message']}", err=True)


def _show_rehearsal(found: Plain) -> None:
    from rich.console import Console

    from tequio.experiments.showing.rehearsal import rehearsal_lines, rehearsal_table, task_table

    console = Console()
    for table in (rehearsal_table(found), *([task_table(found)] if found["tasks"] else [])):
        console.print()
        console.print(table)
    for line in rehearsal_lines(found):
        console.print(line, markup=False, highlight=False)


def _show(result: Result) -> None:
    from tequio.cli.run import show_run

    show_run(result)
