"""A Python process that runs the blocks of one page in one namespace: JSON lines in, JSON lines out."""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from contextlib import redirect_stdout


def main() -> None:
    """Answer each block with what it printed and, where it failed, the trace."""
    sys.path[0] = ""  # as in a Python that was started in the page's folder
    answers = os.dup(1)
    os.dup2(2, 1)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line in sys.stdin:
        asked = json.loads(line)
        printed, error = io.StringIO(), ""
        with redirect_stdout(printed):
            try:
                exec(compile(asked["code"], asked["place"], "exec"), namespace)
            except BaseException:
                error = traceback.format_exc()
        os.write(answers, (json.dumps({"printed": printed.getvalue(), "error": error}) + "\n").encode())


if __name__ == "__main__":
    main()
