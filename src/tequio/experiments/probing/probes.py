"""The attacks on privacy by name, and how they do against a finished run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from tequio.errors import ConfigError, nearest
from tequio.experiments.probing.models import class_reconstruction, membership_inference
from tequio.experiments.probing.target import View, probed
from tequio.experiments.probing.updates import gradient_inversion, property_inference
from tequio.experiments.store import PROBES as FILE
from tequio.experiments.store import write_json
from tequio.experiments.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tequio.experiments.probing.target import Probed
    from tequio.experiments.results import Result


@dataclass(frozen=True)
class Probe:
    """An attack: what it does to a run at a view (numbers by name, `success` and `guess` among them), and its source.

    Attacks on updates look different from each view; those on the final model do not.
    """

    attempt: Callable[[Probed, View], dict[str, float]]
    paper: str
    looks_at: str

    @property
    def views(self) -> tuple[View, ...]:
        """From where it makes a difference to look."""
        return get_args(View) if self.looks_at == "updates" else ("released",)


PROBES = {
    "gradient-inversion": Probe(gradient_inversion, "Zhu et al., 2019; Geiping et al., 2020", "updates"),
    "membership-inference": Probe(membership_inference, "Yeom et al., 2018; Carlini et al., 2022", "model"),
    "property-inference": Probe(property_inference, "Melis et al., 2019", "updates"),
    "class-reconstruction": Probe(class_reconstruction, "Fredrikson et al., 2015", "model"),
}
"""By the name under which they are asked for."""


def probe(result: Result, attack: str, view: View = "released") -> dict[str, float]:
    """How an attack does against a run. It is kept in the run's folder, because it always comes out the same."""
    if attack not in PROBES:
        raise ConfigError(f"there is no attack on privacy called '{attack}'", remedy=nearest(attack, PROBES))
    path, key = result.folder / FILE, f"{attack} {view}"
    sha = result.summary["model_sha256"]
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept = kept if kept.get("model_sha256") == sha else {"model_sha256": sha}
    if key not in kept:
        kept[key] = PROBES[attack].attempt(probed(result), view)
        write_json(path, kept)
    found: dict[str, float] = kept[key]
    return found


def probe_table(results: Sequence[Result], attacks: Sequence[str] = ()) -> Table:
    """One line a run, attack and view."""
    table = Table()
    for result in results:
        for attack in attacks or PROBES:
            views = PROBES[attack].views if attack in PROBES else ("released",)
            for view in views:
                found = probe(result, attack, view)
                table.add({"run": result.folder.name, "attack": attack,
                           "seen by": "coordinator" if view == "coordinator" else "everybody",
                           "success": found["success"], "guess": found["guess"],
                           "attempts": int(found["attempts"]), "more": _more(found)})
    return table


def _more(found: dict[str, float]) -> str:
    """The other measures, in short."""
    shown = ("psnr", "ssim", "labels_told", "advantage", "area", "shadow_area")
    return ", ".join(f"{name.replace('_', ' ')} {found[name]:.2f}" for name in shown if name in found)
