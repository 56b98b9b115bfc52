"""Do the tests bite? Small faults are put into the code, one at a time; the tests should notice nearly all of them.

    make mutants                                         # fifty faults; fails if fewer than 45 are noticed
    .venv/bin/python tests/mutants.py --count 10 --seed 3

Faults go into `federation/`, `algorithms/horizontal/` and what those train and average with, in copies of the tree.
Each fault first meets the quickest tests that call the function it is in: a map of who calls what is made once. Map
and results are kept in build/mutants.json, so that a stopped check goes on where it was; code that changed is tried
again. Left alone are places where a fault changes no behaviour: annotations, messages of errors, what is only
written down.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "mutants.json"
MUTATED = ("src/tequio/federation/**/*.py", "src/tequio/algorithms/horizontal/*.py", "src/tequio/algorithms/*.py")
TESTS = ("tests/federation", "tests/algorithms", "tests/contracts", "tests/privacy", "tests/attacks",
         "tests/experiments")
EQUIVALENT = {("consenting", "never"): "a chance of 0 draws nobody anyway",
              ("SummingStage", "constant"): "a default of an abstract method: whoever is called has its own"}
"""Faults, by function and kind, that change nothing, and why."""

WHAT_CLASSES_SAY = ["tests/contracts/test_numbers.py::test_defaults_are_what_they_were",
                    "tests/contracts/test_numbers.py::test_components_say_of_themselves_what_they_said"]
"""Tests that read fields of classes and call nothing in their files, so that the map does not know them."""

WANTED = 0.9
BATCH_SECONDS, LIMIT_SECONDS = 15.0, 150.0
"""Tests of so many seconds are tried together; a fault that is not noticed after so long has survived."""

SWAPPED = {ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "/"), ast.Div: ("/", "*"),
           ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
           ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: (r"\bin\b", "not in"), ast.NotIn: (r"not\s+in", "in"),
           ast.Is: (r"\bis\b", "is not"), ast.IsNot: (r"is\s+not", "is"), ast.And: (r"\band\b", "or"),
           ast.Or: (r"\bor\b", "and")}
WRITTEN_DOWN = {"record", "note", "event", "__repr__", "__str__", "nearest"}
WITHOUT_EFFECT = {"strict", "copy", "maxsize", "remedy", "indent", "dtype"}  # keywords
WEIGHTS = {"swap arguments": 0.1}
"""Most such faults end in a TypeError, which says little about the tests."""

SYMMETRIC = {"isinstance", "issubclass", "max", "min", "zip", "maximum", "minimum", "isclose", "array_equal", "dot"}


@dataclass(frozen=True)
class Mutant:
    """One fault: the bytes from `start` to `end` of a file are replaced."""

    file: str
    function: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    @property
    def key(self) -> str:
        """What tells it apart, as long as its file stays the same."""
        content = hashlib.sha256((ROOT / self.file).read_bytes()).hexdigest()[:12]
        return f"{self.file}:{self.line} {self.kind} {self.start} {content}"

    def apply(self, source: bytes) -> bytes:
        return source[:self.start] + self.text.encode() + source[self.end:]

    def difference(self) -> str:
        before = (ROOT / self.file).read_bytes()
        lines = difflib.unified_diff(before.decode().splitlines(), self.apply(before).decode().splitlines(), n=0,
                                     lineterm="")
        return "\n".join(f"    {line}" for line in list(lines)[3:])


class Finder(ast.NodeVisitor):
    """All faults that a file can have."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source, self.found = file, source, list[Mutant]()
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.names: list[str] = []
        self.visit(ast.parse(source))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node.name, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in WRITTEN_DOWN or any("overload" in ast.dump(one) for one in node.decorator_list):
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._inside(node.name, node.body, "<locals>")

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is for readers."""

    visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Raise

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.dump(node.test):
            return
        if not node.orelse and isinstance(node.body[-1], ast.Return | ast.Continue | ast.Raise | ast.Break):
            self._add(node.test, "never", "False")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not self.names:
            return  # what a module defines besides classes and functions: types, and how fast rather than what
        if not all(isinstance(target, ast.Name | ast.Tuple) for target in node.targets):
            self._add(node, "delete", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "delete", "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and _called(node.value) not in WRITTEN_DOWN:
            self._add(node, "delete", "pass")
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _called(node) in WRITTEN_DOWN:
            return
        first, *rest = node.args or [None]
        if rest and _called(node) not in SYMMETRIC and not any(isinstance(one, ast.Starred) for one in node.args[:2]):
            one, other = (self._text(argument) for argument in node.args[:2])
            if one != other:
                between = self.source[self._end(first):self._start(rest[0])].decode()
                self._span(self._start(first), self._end(rest[0]), node.lineno, "swap arguments",
                           f"{other}{between}{one}")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in WITHOUT_EFFECT:
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "constant", str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, "constant", str({0: 1, 1: 0}.get(node.value, node.value + 1)))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not isinstance(node.left, ast.JoinedStr):
            self._operator(node.op, node.left, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._operator(node.op, node.values[0], node.values[1])
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._operator(node.ops[0], node.left, node.comparators[0])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._span(self._start(node), self._start(node) + 4, node.lineno, "drop not", "")
        self.generic_visit(node)

    def _inside(self, name: str, body: list[ast.stmt], *inner: str) -> None:
        outer, self.names = self.names, [*self.names, name, *inner]
        for part in body:
            self.visit(part)
        self.names = outer

    def _operator(self, operator: Any, left: ast.expr, right: ast.expr) -> None:
        pattern, other = SWAPPED.get(type(operator), ("", ""))
        start = self._end(left)
        found = re.search(pattern.encode(), self.source[start:self._start(right)]) if pattern else None
        if found:
            self._span(start + found.start(), start + found.end(), left.lineno, "operator", other)

    def _add(self, node: Any, kind: str, text: str) -> None:
        self._span(self._start(node), self._end(node), node.lineno, kind, text)

    def _span(self, start: int, end: int, line: int, kind: str, text: str) -> None:
        names = self.names[:-1] if self.names[-1:] == ["<locals>"] else self.names
        mutant = Mutant(self.file, ".".join(names), line, kind, start, end, text)
        if (mutant.function, kind) in EQUIVALENT:
            return
        try:
            ast.parse(mutant.apply(self.source))
        except SyntaxError:
            return
        self.found.append(mutant)

    def _start(self, node: Any) -> int:
        return self.starts[node.lineno - 1] + int(node.col_offset)

    def _end(self, node: Any) -> int:
        return self.starts[node.end_lineno - 1] + int(node.end_col_offset)

    def _text(self, node: Any) -> str:
        return self.source[self._start(node):self._end(node)].decode()


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def chosen(count: int, seed: int) -> list[Mutant]:
    """Some faults, each in another function."""
    files = sorted({path for pattern in MUTATED for path in ROOT.glob(pattern)})
    every = [mutant for path in files for mutant in Finder(str(path.relative_to(ROOT)), path.read_bytes()).found]
    by_place = defaultdict(list)
    for mutant in every:
        by_place[mutant.file, mutant.function].append(mutant)
    draw = random.Random(seed)
    places = draw.sample(sorted(by_place), min(count, len(by_place)))
    return [draw.choices(by_place[place], [WEIGHTS.get(mutant.kind, 1.0) for mutant in by_place[place]])[0]
            for place in places]


# --- who calls what: this file is also a plugin of pytest, which writes down the functions that each test calls ---

_MAP = "TEQUIO_MUTANTS_MAP"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    called: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    started = time.perf_counter()
    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        source = str(Path(os.environ[_MAP]).parent / "src")
        functions = [f"src{file[len(source):]}:{name.split('.<locals>.<')[0]}" for file, name in called
                     if file.startswith(source)]
        with Path(os.environ[_MAP]).open("a", encoding="utf-8") as kept:
            kept.write(json.dumps([item.nodeid, time.perf_counter() - started, sorted(set(functions))]) + "\n")


def calls(tree: Path) -> dict[str, Any]:
    """By function the tests that call it, and by test its seconds."""
    print("making the map of who calls what, once", flush=True)
    place = tree / "calls.jsonl"
    _pytest(tree, [*TESTS, "-p", "mutants", "-n", "2"], limit=3600, more={_MAP: str(place)})
    who: dict[str, list[str]] = defaultdict(list)
    seconds = {}
    for line in place.read_text(encoding="utf-8").splitlines():
        test, took, functions = json.loads(line)
        seconds[test] = took
        for function in functions:
            who[function].append(test)
    return {"who": who, "seconds": seconds}


def _pytest(tree: Path, arguments: list[str], limit: float, more: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code (-1: out of time) and output of pytest in a copy of the tree."""
    paths = os.pathsep.join([str(tree / "src"), str(tree / "tests")])
    settings = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                **(more or {})}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=60", "-m",
               "not data and not slow and not network", *arguments]
    with subprocess.Popen(command, cwd=tree, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True) as process:
        try:
            said = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return -1, ""
        return process.returncode, said


def copy_of_the_tree(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("src", "tests", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".envs"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def noticed_by(mutant: Mutant, tree: Path, known: dict[str, Any]) -> str:
    """The test that fails, or nothing."""
    path = tree / mutant.file
    original = path.read_bytes()
    path.write_bytes(mutant.apply(original))
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        for batch in batches(mutant, known):
            if time.monotonic() > deadline:
                break
            usual = sum(known["seconds"].get(test, LIMIT_SECONDS) for test in batch)
            code, said = _pytest(tree, ["-x", *batch], limit=LIMIT_SECONDS + 4 * usual)
            if code == -1:
                return "out of time: it does not end"
            if code:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
                return failed[1] if failed else said.strip().splitlines()[-1]
        return ""
    finally:
        path.write_bytes(original)


def batches(mutant: Mutant, known: dict[str, Any]) -> Iterator[list[str]]:
    """Tests that call the function (or anything in the file, for what stands outside of functions), quickest first."""
    who, seconds = known["who"], known["seconds"]
    own = who.get(f"{mutant.file}:{mutant.function}", [])
    near = [test for name, tests in who.items() if name.startswith(f"{mutant.file}:") for test in tests]
    ordered = sorted(set(own or near), key=lambda test: (_is_own_test(mutant, test), seconds[test])) or list(TESTS)
    batch, spent = list[str](), 0.0
    for test in ordered if own else [*WHAT_CLASSES_SAY, *ordered]:
        batch.append(test)
        spent += seconds.get(test, BATCH_SECONDS) / 2  # watching took about half of the time
        if spent > BATCH_SECONDS or len(batch) >= 400:
            yield batch
            batch, spent = [], 0.0
    if batch:
        yield batch


def _is_own_test(mutant: Mutant, test: str) -> bool:
    """False, which comes first, for the test file that is named after the mutated one."""
    return f"test_{Path(mutant.file).stem}" not in test


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {"results": {}}
    mutants = chosen(given.count, given.seed)
    with tempfile.TemporaryDirectory() as folder:
        trees: Queue[Path] = Queue()
        writing = Lock()
        for number in range(given.jobs):
            trees.put(copy_of_the_tree(Path(folder) / str(number)))
        content = b"".join(path.read_bytes() for path in sorted((ROOT / "tests").rglob("*.py")))
        tests = hashlib.sha256(content).hexdigest()
        if kept.get("tests") != tests:
            kept |= {"tests": tests, "calls": calls(trees.queue[0]),
                     "results": {key: result for key, result in kept["results"].items() if result}}
            _keep(kept)

        def attempt(mutant: Mutant) -> None:
            if mutant.key in kept["results"]:
                return
            tree = trees.get()
            try:
                result = noticed_by(mutant, tree, kept["calls"])
            finally:
                trees.put(tree)
            with writing:
                kept["results"][mutant.key] = result
                _keep(kept)
            print(f"{mutant.file}:{mutant.line} {mutant.kind}: {result or 'SURVIVES'}", flush=True)

        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(attempt, mutants))
    return report(mutants, kept["results"])


def _keep(kept: dict[str, Any]) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    partial = KEPT.with_suffix(".partial")
    partial.write_text(json.dumps(dict(kept)), encoding="utf-8")
    partial.replace(KEPT)


def report(mutants: list[Mutant], results: dict[str, str]) -> int:
    """Print who noticed what and what survived; 0 if enough was noticed."""
    survivors = [mutant for mutant in mutants if not results[mutant.key]]
    print(f"\n{'fault':58} noticed by")
    for mutant in sorted(mutants, key=lambda one: (one.file, one.line)):
        place = f"{mutant.file.removeprefix('src/tequio/')}:{mutant.line} {mutant.kind}"
        print(f"{place:58} {results[mutant.key] or '-'}")
    for mutant in survivors:
        print(f"\n{mutant.file}:{mutant.line} ({mutant.function}) survives:\n{mutant.difference()}")
    print(f"\n{len(mutants) - len(survivors)} of {len(mutants)} faults are noticed")
    return 0 if len(mutants) - len(survivors) >= WANTED * len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
