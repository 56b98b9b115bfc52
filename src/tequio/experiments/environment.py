"""Where a run took place: versions and machine, for the record."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import tequio

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pydantic", "msgspec", "safetensors")


def describe_environment() -> dict[str, Any]:
    """Versions of what takes part in the numbers, and the machine."""
    return {"tequio": tequio.__version__, "python": platform.python_version(), "platform": platform.platform(),
            "processor": platform.machine(), "cores": os.cpu_count(),
            "packages": {name: found for name in _PACKAGES if (found := installed_version(name))}}


def installed_version(package: str) -> str:
    """The version of an installed package; empty where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
