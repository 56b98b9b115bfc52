"""A program that starts one process a party, each with its rows open: python -m flower.staying HOME HOME ...

All imports happen once, before the processes part.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tequio import registry
from tequio.experiments.deploying import flower_party


def main(homes: list[str]) -> None:
    registry.load_everything()
    import sklearn.datasets  # noqa: F401
    import torch  # noqa: F401

    for home in homes:
        if not os.fork():
            flower_party.serve(Path(home))
    os.wait()


main(sys.argv[1:])
