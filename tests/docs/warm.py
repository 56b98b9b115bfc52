"""A Python that has imported the heavy libraries and tequio once: commands and blocks of the pages run in forks of it.

Starting Python and importing torch, scikit-learn and tequio takes longer than everything a page does. A fork starts
with them, and with the arguments, environment, folder and streams that the shell gave it. Plugins and modules of the
page are imported in the fork. That tequio can be imported in any order, whatever came first here, has its own test.

    python warm.py serve SOCKET          accept requests until it is killed
    python warm.py ask SOCKET WORDS...   what the page's shell finds under the name `tequio`; the words may be
                                         `session`, `kernel WORDS...` (of Jupyter) or `-c CODE WORDS...` as well
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEAVY = ("torch", "sklearn.datasets", "sklearn.linear_model", "scipy.stats", "matplotlib.figure",
         "matplotlib.backends.backend_agg", "pandas", "pydantic", "typer", "rich.table", "rich.progress")
AVAILABLE = sys.platform == "linux"


def command(place: str) -> list[str]:
    """What to type to have words run by the server at that socket."""
    return [sys.executable, "-I", "-S", __file__, "ask", place]


@contextmanager
def warmed_up() -> Iterator[str]:
    """The socket of a server that ends with the block; empty where forks are not to be trusted."""
    if not AVAILABLE:
        yield ""
        return
    with TemporaryDirectory() as folder:
        place = str(Path(folder) / "socket")
        server = subprocess.Popen([sys.executable, __file__, "serve", place], stdout=subprocess.PIPE,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert server.stdout is not None
        with server.stdout:
            server.stdout.readline()  # it says when it is ready
        try:
            yield place
        finally:
            server.kill()
            server.wait()


def ask(place: str, words: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> socket.socket:
    """Have words run in a fork with these three streams; the exit code comes through the socket when it ends."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
    request = json.dumps({"words": words, "folder": folder, "environment": environment}).encode()
    socket.send_fds(connection, [len(request).to_bytes(4, "little")], streams)
    connection.sendall(request)
    return connection


def exit_code(connection: socket.socket) -> int:
    """Wait for the end of a fork."""
    with connection:
        told = connection.recv(1)
    return told[0] if told else 1


def serve(place: str) -> None:
    """Fork for every request."""
    for name in (*HEAVY, *_modules()):
        import_module(name)
    gc.collect()
    gc.freeze()  # what is shared with the forks is not looked through, and so not copied, in each of them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(place)
        door.listen()
        print("ready", flush=True)
        while True:
            connection, _ = door.accept()
            if os.fork() == 0:
                door.close()
                _become(connection)
            connection.close()


def _modules() -> list[str]:
    """Every module of tequio, without those that run when they are imported."""
    import tequio

    found = [module.name for module in pkgutil.walk_packages(tequio.__path__, "tequio.")]
    return [name for name in found if not name.endswith("__main__")]


def _become(connection: socket.socket) -> NoReturn:
    code = 1
    try:
        length, streams, _, _ = socket.recv_fds(connection, 4, 3)
        request = json.loads(_exactly(connection, int.from_bytes(length, "little")))
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
            os.close(stream)
        _dress(request)
        code = _run(_program(request["words"]))
    finally:
        connection.sendall(bytes([code % 256]))
        os._exit(code % 256)


def _dress(request: dict[str, object]) -> None:
    """What the interpreter would have made of the environment and the command line."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[arg-type]
    os.chdir(str(request["folder"]))
    sys.argv = ["tequio", *request["words"]]  # type: ignore[misc]
    sys.path[0:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _program(words: list[str]) -> Callable[[], None]:
    if words == ["session"]:
        sys.path.insert(0, str(Path(__file__).parent))
        from session import main as session

        return session
    if words[:1] == ["-c"]:
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        return lambda: exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    if words[:1] == ["kernel"]:
        sys.argv = ["kernel", *words[1:]]
        sys.path.insert(0, "")
        os.environ["JPY_PARENT_PID"] = str(os.getppid())  # a kernel ends with its parent, which is the server
        from ipykernel.kernelapp import launch_new_instance

        return launch_new_instance
    from tequio.cli.main import main

    return main


def _run(program: Callable[[], None]) -> int:
    try:
        program()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _exactly(connection: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        received += connection.recv(length - len(received))
    return received


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    sys.exit(exit_code(ask(sys.argv[2], sys.argv[3:], os.getcwd(), dict(os.environ), [0, 1, 2])))
