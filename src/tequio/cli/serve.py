"""`tequio serve`: a model as a service that answers rows over HTTP."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tequio.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from tequio.views.serving.versions import Source, Versions

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def serve(
    model: Annotated[str, typer.Argument(help="A model or a run: its folder, its name under runs/, or 'last'; or a "
                                         "registered model such as models/NAME, whose promotions are followed.")],
    candidate: Annotated[str, typer.Option(metavar="MODEL", help="Another model that answers a share of the "
                                           "ids.")] = "",
    share: Annotated[float | None, typer.Option(help="The candidate's share of ids, 0 to 1.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; others than this machine's need a "
                                      "token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8080,
    host_name: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A name under which this machine may be "
                         "asked without a token (repeat for more).")] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Ask for a token, of which this file holds "
                          "the hash. A file that is not there is made, and the token printed once.")] = None,
    log: Annotated[Path | None, typer.Option(metavar="PATH", help="Log answers here: a file, or a folder for "
                   "answers.jsonl. A registered model logs to its own folder.")] = None,
    log_size: Annotated[str, typer.Option(help="Begin a new log file at this size.")] = "100MB",
    largest_request: Annotated[str, typer.Option(help="Refuse larger requests.")] = "1MB",
    rows: Annotated[int, typer.Option(min=1, help="Refuse requests with more rows.")] = 1000,
    waiting: Annotated[int, typer.Option(min=1, help="Let at most this many requests wait; others are told to come "
                       "again.")] = 256,
    seconds: Annotated[float, typer.Option(min=0.1, help="Give up on a request after this time.")] = 10.0,
    plugin: Annotated[list[str] | None, typer.Option(metavar="FILE", help="A plugin that the model needs (repeat for "
                      "more).")] = None,
) -> None:
    """Answer rows over HTTP: POST /predict, and /docs says how.

    Every answer is logged with its id and the version of the model that gave it, never with the row itself.
    """
    from tequio import registry

    try:
        import jinja2  # noqa: F401
        import uvicorn  # noqa: F401

        from tequio.views.serving.access import Access, tokens_of
        from tequio.views.serving.app import Limits, Service, make_app
        from tequio.views.serving.server import server_for
        from tequio.views.web.guard import is_loopback
    except ImportError as cause:
        raise MissingExtra(str(cause.name or "starlette").partition(".")[0], "ui", "serving a model") from cause
    from tequio.cli.ui import open_door
    from tequio.models.answers_log import FILE, AnswersLog

    registry.load_plugins(plugin or ())
    limits = Limits(_bytes(largest_request, "--largest-request"), rows, waiting, seconds)
    log_bytes = _bytes(log_size, "--log-size")
    versions, source = _versions(model, candidate, share)
    hashes, token = tokens_of(token_file) if token_file else ((), "")
    access = Access(host, hashes, tuple(host_name or ()))
    if log is None and source is not None:
        log = source.registry.answers
    elif log is not None and (log.is_dir() or not log.suffix):
        log = log / FILE
    door = open_door(host, port)
    answers = AnswersLog(log, log_bytes) if log else None
    for one in versions.all:
        number = f"version {one.number}, " if one.number else ""
        typer.echo(f"{one.role:<11} {number}{one.sha256[:12]}"
                   + (f" for {versions.share:.4g} of the ids" if one is versions.candidate else ""))
    typer.echo(f"answers     {f'are logged in {log}' if log else 'are not logged; to compare outcomes: --log FILE'}")
    if token:
        typer.echo(f"token       {token}\n            It is shown only now; '{token_file}' holds its hash.")
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"how to ask  http://{shown}:{port}/docs\nPress Ctrl-C to stop; requests on their way are answered.")
    if not is_loopback(host):
        typer.echo("Others can reach it, and what is sent is not encrypted: put a proxy with TLS before it.", err=True)
    server_for(make_app(Service(versions, access, limits, answers, source)), limits.seconds).run([door])


def _versions(model: str, candidate: str, share: float | None) -> tuple[Versions, Source | None]:
    from tequio import load
    from tequio.views.serving.versions import Served, Source, Versions, registry_at

    registry = registry_at(Path(model))
    if registry is None:
        if share is not None and not candidate:
            raise ConfigError("--share is for a candidate, and there is none", remedy="name one: --candidate MODEL")
        production = Served(load(model), "production")
        if not candidate:
            return Versions(production), None
        return Versions(production, Served(load(candidate), "candidate"), 0.1 if share is None else share), None
    if candidate or share is not None:
        raise ConfigError(f"'{model}' is a registered model, whose registry names the candidate and its share",
                          remedy=f"type: tequio models split {registry.name} SHARE")
    source = Source(registry)
    source.has_changed()
    return source.load(), source


def _bytes(text: str, option: str) -> int:
    found = re.fullmatch(r"(\d{1,15}) ?([A-Z]*)", text.strip().upper())
    if not found or found[2] not in _UNITS or not int(found[1]):
        raise ConfigError(f"'{text}' is no size", remedy=f"type a number and a unit, such as {option} 10MB")
    return int(found[1]) * _UNITS[found[2]]
