"""What the sources conclude, and how it fared: a mark a claim."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tequio.studies.answered import claims_of, kept_studies

from .drawing import Picture

STUDIES = Path(__file__).resolve().parents[2] / "studies"
_FATES = ("confirmed", "refuted", "open")


def claims() -> Picture:
    """A line a source: confirmed claims are filled squares, refuted ones crosses, open ones rings."""
    fates: dict[str, list[str]] = {}
    for source, claim in claims_of([one for one, _ in kept_studies(STUDIES)]):
        fates.setdefault(source, []).append(claim.fate)
    counted = {source: Counter(found) for source, found in fates.items()}
    picture = Picture(66 + 54 * len(fates), "Claims of the sources, and how they fared", ". ".join(
        f"{source}: " + ", ".join(f"{counts[fate]} {fate}" for fate in _FATES) for source, counts in counted.items()))
    for number, fate in enumerate(_FATES):
        _mark(picture, 26 + 120 * number, 28, fate)
        picture.text(40 + 120 * number, 33, fate, "s", anchor="start")
    for line, (source, found) in enumerate(fates.items()):
        top = 70 + 54 * line
        picture.text(18, top, source, "b", anchor="start")
        picture.text(582, top, ", ".join(f"{counted[source][fate]} {fate}" for fate in _FATES), "sm", anchor="end")
        for number, fate in enumerate(sorted(found, key=_FATES.index)):
            _mark(picture, 26 + 22 * number, top + 18, fate)
    return picture


def _mark(picture: Picture, x: float, y: float, fate: str) -> None:
    if fate == "confirmed":
        picture.bar(x - 7, y - 7, 14, 14, kind="party", solid=True)
    elif fate == "refuted":
        picture.cross(x, y, 6)
    else:
        picture.dot(x, y, 6, kind="plain", hollow=True)


PICTURES = {"claims": claims}
