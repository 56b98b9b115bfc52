"""Runs the blocks of a page in order, in a working folder that looks like a checkout."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import warm
from .blocks import ROOT, Block
from .matching import difference

_SESSION = Path(__file__).with_name("session.py")
_COPIED = ("Makefile", "pyproject.toml", "constraints.txt")
_NOT_TEQUIO = ("pyproject.toml", "map.toml", "gates.toml")
_NOT_INHERITED = ("TEQUIO_", "PIP_", "PYTEST_", "MAKE", "MFLAGS")


class PageFailure(AssertionError):
    """A block that does not do what its page says."""


@dataclass
class Outcome:
    """What a block printed (for console blocks, each command with what it printed), if it ended as it should."""

    block: Block
    transcript: str


@dataclass
class PageRun:
    """One reader who works through one page. `socket` leads to a warm Python, if there is one."""

    folder: Path
    socket: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    _session: subprocess.Popen[str] | None = None
    _printed: str = ""

    def __post_init__(self) -> None:
        for name in _COPIED:
            shutil.copy(ROOT / name, self.folder / name)
        leftovers = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(ROOT / "examples", self.folder / "examples", ignore=leftovers)
        (self.folder / "studies").symlink_to(ROOT / "studies")
        # `make` finds the environment that these tests run in, ready made.
        (self.folder / ".venv").mkdir()
        (self.folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
        (self.folder / ".venv" / ".ready").touch()
        (self.folder / ".bin").mkdir()
        if self.socket:
            command = self.folder / ".bin" / "tequio"
            command.write_text(f'#!/bin/sh\nexec {shlex.join(warm.command(self.socket))} "$@"\n')
            command.chmod(0o755)

    def run(self, block: Block) -> str:
        """Run one block; what differs from what the page shows, or nothing."""
        if block.file:
            return self._write(block)
        if block.printed:
            self.outcomes.append(Outcome(block, self._printed))
            return difference(block.content, self._printed, varies=block.varies)
        if block.language == "toml":
            return self._python(_check_config(block.content), block.place)
        if block.language == "python":
            return self._python(block.content, block.place)
        if block.language == "bash":
            done = self._shell(block.content)
            return "" if done.returncode == block.exit_code else f"exit code {done.returncode}\n{done.stderr}"
        return self._console(block)

    def close(self) -> None:
        """End the Python session."""
        if self._session is not None:
            with self._session:  # closes its pipes, which ends it, and waits
                self._session = None

    def _write(self, block: Block) -> str:
        path = self.folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.content, encoding="utf-8")
        if path.suffix == ".toml" and path.name not in _NOT_TEQUIO:
            return self._python(_check_file(block.file), block.place)
        return ""

    def _console(self, block: Block) -> str:
        parts, problems, failed = [], [], False
        for command, shown in commands_of(block.content):
            done = self._shell(command)
            if "pip install" in command:
                self.close()  # a Python that runs already does not see what was installed since
            output = done.stdout + (done.stderr if block.exit_code else "")
            parts.append("$ " + command + "\n" + _tidy(output))
            if done.returncode != block.exit_code:
                failed = True
                problems.append(f"$ {command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
            elif not block.free and (differs := difference(shown, output, varies=block.varies)):
                problems.append(f"$ {command}\n{differs}")
        if not failed:
            self.outcomes.append(Outcome(block, "".join(parts)))
        return "\n".join(problems)

    def _shell(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-ec", command], cwd=self.folder, env=self._environment(), text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, check=False)

    def _python(self, code: str, place: str) -> str:
        if self._session is None:
            start = [*warm.command(self.socket), "session"] if self.socket else [sys.executable, str(_SESSION)]
            self._session = subprocess.Popen(start, cwd=self.folder, text=True, env=self._environment(),
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._session.stdin is not None
        assert self._session.stdout is not None
        self._session.stdin.write(json.dumps({"code": code, "place": place}) + "\n")
        self._session.stdin.flush()
        answer = json.loads(self._session.stdout.readline())
        self._printed = answer["printed"]
        return str(answer["error"])

    def _environment(self) -> dict[str, str]:
        """A user without datasets, whose `pip install` goes to a folder of the page instead of into our environment."""
        installed = str(self.folder / ".installed")
        paths = os.pathsep.join(filter(None, [installed, os.environ.get("PYTHONPATH")]))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_INHERITED)}
        return kept | {
            "PATH": os.pathsep.join([str(self.folder / ".bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": paths,
            "PIP_TARGET": installed, "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore",
            "TEQUIO_CACHE": str(self.folder / ".cache"), "COLUMNS": "90", "NO_COLOR": "1", "TERM": "dumb",
            "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", "PYTHONWARNINGS": "default"}


def run_page(blocks: list[Block], folder: Path, socket: str = "", *, slow: bool = False) -> PageRun:
    """Run all blocks of a page that are not skipped; the first one that goes wrong ends it."""
    page = PageRun(folder, socket)
    try:
        for block in blocks:
            if not is_run(block) or (block.slow and not slow):
                continue
            problem = page.run(block)
            if problem:
                raise PageFailure(f"{block.place} ({block.language}):\n{problem}")
    finally:
        page.close()
    return page


def is_run(block: Block) -> bool:
    """Whether a block is something to run, write or compare."""
    return not block.skip and (block.language in ("python", "console", "bash", "toml") or block.printed
                               or bool(block.file))


def commands_of(content: str) -> list[tuple[str, str]]:
    """The commands of a console block (lines that start with '$ ') and what is shown after each."""
    found: list[tuple[str, str]] = []
    for line in content.rstrip("\n").split("\n"):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", "")
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def _tidy(output: str) -> str:
    lines = [line.rstrip() for line in output.strip("\n").split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""


def _check_config(text: str) -> str:
    return ("import tomllib\nfrom tequio.experiments.config.complete import complete\n"
            f"complete(tomllib.loads({text!r}), source='this block')")


def _check_file(name: str) -> str:
    return f"from tequio.experiments.config.complete import load_config\nload_config({name!r})"
