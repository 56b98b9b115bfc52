"""`tequio ui`: a dashboard of the runs in a folder, for a browser on this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from tequio.errors import ConfigError, MissingExtra


def ui(
    runs: Annotated[Path, typer.Argument(help="The folder of the runs.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8765,
    host_name: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A name under which browsers may ask for "
                         "this machine (repeat for more).")] = None,
    models: Annotated[Path, typer.Option(help="The folder of the models in use.")] = Path("models"),
    plugin: Annotated[list[str] | None, typer.Option(metavar="FILE", help="A plugin, for runs and forms that need it "
                      "(repeat for more).")] = None,
) -> None:
    """Show runs in a browser: live curves, comparisons, partitions, trees, and a form that starts runs.

    Nothing leaves this machine, and runs go on when the dashboard is closed. The link that is printed lets a browser
    in; without its token other users of this machine see nothing.
    """
    from tequio import registry

    try:
        import jinja2  # noqa: F401
        import uvicorn

        from tequio.views.web.app import make_app
        from tequio.views.web.guard import Settings, is_loopback
    except ImportError as cause:
        raise MissingExtra(str(cause.name or "starlette").partition(".")[0], "ui", "the dashboard") from cause
    registry.load_plugins(plugin or ())
    if runs.exists() and not runs.is_dir():
        raise ConfigError(f"'{runs}' is not a folder", remedy="give the folder that holds the run folders")
    settings = Settings(runs, host, port, host_names=tuple(host_name or ()), plugins=tuple(plugin or ()), models=models)
    door = open_door(host, port)
    typer.echo(f"The dashboard of '{runs}' opens at {settings.address}\nThe link lets a browser in: share it with no "
               "one else. Press Ctrl-C to close the dashboard; runs go on.")
    if not is_loopback(host):
        typer.echo("Others can reach it, and what is sent is not encrypted: rather use ssh -L, or a network you trust.",
                   err=True)
    # Without a log config of its own: setting one up closes the handlers of other libraries, and what they write to.
    server = uvicorn.Server(uvicorn.Config(make_app(settings), log_level="warning", log_config=None,
                                           timeout_graceful_shutdown=1, server_header=False))
    server.run([door])


def open_door(host: str, port: int) -> socket.socket:
    """The socket to listen on, before anything is said about it."""
    try:
        door = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        # Connections inherit it. asyncio sets it only for sockets that it made itself, and without it every answer of
        # two writes waits 40 ms for the other side.
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return door
    except OSError as cause:
        raise ConfigError(f"port {port} of '{host}' cannot be listened on: {cause.strerror or cause}",
                          remedy="choose another with --port, or close what uses it") from cause
