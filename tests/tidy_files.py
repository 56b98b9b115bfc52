"""Reports files that should not be committed as they are: `python tests/tidy_files.py FILE...`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

LARGEST_BYTES = 1_000_000
_MERGE_MARK = re.compile(rb"^(<{7} |={7}$|>{7} )", re.MULTILINE)


def complaint(path: Path) -> str:
    """What is wrong with a file; empty if nothing is."""
    content = path.read_bytes()
    if len(content) > LARGEST_BYTES:
        return f"has {len(content):,} bytes, more than {LARGEST_BYTES:,}"
    if not content or b"\0" in content:
        return ""
    if not content.endswith(b"\n") or content.endswith(b"\n\n"):
        return "does not end with exactly one newline"
    return "contains a merge conflict" if _MERGE_MARK.search(content) else ""


if __name__ == "__main__":
    found = {name: problem for name in sys.argv[1:] if (problem := complaint(Path(name)))}
    for name, problem in found.items():
        print(f"{name}: {problem}")
    sys.exit(bool(found))
