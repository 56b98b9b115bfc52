"""Draws the pictures of the docs: `python docs/draw.py` writes docs/images/*.svg."""

from __future__ import annotations

from pathlib import Path

from pictures import claims, methods, methods_personal, private, rounds, system

FOLDER = Path(__file__).parent / "images"
MODULES = (system, rounds, private, methods, methods_personal, claims)


def pictures() -> dict[str, str]:
    """Every picture by file name."""
    return {f"{name}.svg": draw().svg() for module in MODULES for name, draw in module.PICTURES.items()}


if __name__ == "__main__":
    for name, svg in pictures().items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
        print(name, len(svg))
