"""The house has rooms: few files to open for one idea, typed seams, contracts that are declared."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tequio

ROOT = Path(__file__).parents[1]
SOURCE = Path(tequio.__file__).parent

# Objects of other packages are known by what they can do: data frames, images, messages, errors of the command line.
FOREIGN_OBJECTS_IN = ("data/inputs/", "engines/flower/", "cli/errors.py", "models/sources.py")
FOREIGN_NAMES = {"shape"}  # of arrays


@cache
def sources():
    return {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}


@cache
def trees():
    return {file: ast.parse(text) for file, text in sources().items()}


@pytest.mark.parametrize(("case", "most"), [("fedavg", 25), ("fedavg with secure-sum", 37)])
def test_a_round_crosses_few_files(case, most):
    assert int(re.search(rf"^{case}: (\d+) files", counted(), re.MULTILINE)[1]) <= most


@cache
def counted():
    """In a process of its own: what another test has run is not called again."""
    script = ROOT / "benchmarks" / "files_crossed.py"
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout


def test_files_are_rooms_and_not_too_many():
    """A file is read from top to bottom: 150 lines on average, not 70, and no more files than there are ideas."""
    assert len(sources()) <= 610
    assert sum(text.count("\n") for text in sources().values()) >= 150 * len(sources())


def test_seams_are_typed():
    """`Any` stands where nothing is known of a value: nine times in a thousand lines at most, imports not counted."""
    names = [node.id for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Name)]
    lines = sum(text.count("\n") for text in sources().values())
    assert 1000 * names.count("Any") <= 9 * lines


def test_contracts_are_declared_rather_than_found_by_name():
    """No `hasattr` or `getattr` for something that a class of ours has: a contract says it, or a default does."""
    own = {name for tree in trees().values() for name in declared(tree)}
    assert [f"{file}:{line}: {call}" for file, tree in trees().items() if not file.startswith(FOREIGN_OBJECTS_IN)
            for line, call, name in asked_by_name(tree) if name in own - FOREIGN_NAMES] == []


def test_no_modules_import_each_other_in_a_circle():
    """So any of them may be imported first. Imports inside of functions come when all modules are there."""
    modules = {module_name(file): tree for file, tree in trees().items()}
    graph = {name: set(imported(tree.body, modules)) for name, tree in modules.items()}
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("tequio.errors") < order.index("tequio.registry") < order.index("tequio.experiments.api")


def module_name(file):
    return ".".join(["tequio", *Path(file).with_suffix("").parts]).removesuffix(".__init__")


def imported(statements, modules):
    """Those of these modules that a module imports while it is imported itself."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name in modules)
        elif isinstance(statement, ast.ImportFrom):
            named = {f"{statement.module}.{alias.name}" for alias in statement.names}
            yield from (named & modules.keys()) or ({statement.module} & modules.keys())
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from imported(statement.orelse, modules)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported([part for part in ast.iter_child_nodes(statement)
                                 if isinstance(part, ast.stmt | ast.ExceptHandler)], modules)


def declared(tree):
    """Names of the methods and fields of a module's classes."""
    for owner in ast.walk(tree):
        for part in owner.body if isinstance(owner, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                yield part.name
            elif isinstance(part, ast.AnnAssign | ast.Assign):
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def asked_by_name(tree):
    """Calls of hasattr and getattr with a name that is written out."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("hasattr", "getattr") \
                and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            yield call.lineno, ast.unparse(call), call.args[1].value
