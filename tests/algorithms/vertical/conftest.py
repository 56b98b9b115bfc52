"""Puts this folder on the path, to import `joint`, and that of all tests, to import `contracts.transcripts`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
