"""The public surface: sorted, resolvable, and light to import."""

from __future__ import annotations

import subprocess
import sys

import tequio


def test_public_names_are_sorted_and_resolve():
    assert sorted(tequio.__all__) == tequio.__all__
    assert set(tequio.__all__) == {*tequio._HOMES, "__version__"}
    for name in tequio.__all__:
        assert getattr(tequio, name) is not None


def test_importing_tequio_loads_nothing_heavy():
    code = "import sys, tequio; print(sorted({'numpy', 'torch', 'sklearn', 'pydantic', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_knowing_every_component_loads_no_learning_library():
    code = ("import sys; from tequio import registry; registry.load_everything(); "
            "print(sorted({'torch', 'sklearn', 'xgboost', 'matplotlib', 'pandas'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
