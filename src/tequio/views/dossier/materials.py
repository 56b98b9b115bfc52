"""The bill of materials: tequio and the packages that it needs, with versions and licences, as CycloneDX 1.6.

Versions are those that the run recorded, and of packages that it did not record, those that are installed when the
dossier is made; a property of each component says which.
"""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import TYPE_CHECKING
from uuid import UUID

import tequio
from tequio.experiments.running.store import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.running.store import Plain

_RECORDED, _INSTALLED = f"recorded in {ENVIRONMENT}", "installed when the dossier was made"


def bill_of_materials(environment: Mapping[str, object], made: str) -> Plain:
    """The document, by what a run's environment.json says."""
    packages = environment.get("packages", {})
    recorded = dict(packages) if isinstance(packages, dict) else {}
    installed, needs = _closure(["tequio", *recorded])
    recorded["tequio"] = str(environment.get("tequio", tequio.__version__))
    components = [_component(name, str(recorded.get(name) or installed[name].version), installed.get(name),
                             _RECORDED if name in recorded else _INSTALLED)
                  for name in sorted({*recorded, *installed})]
    references = {one["name"]: one["bom-ref"] for one in components}
    links = [{"ref": references[name], "dependsOn": sorted(references[other] for other in needs.get(name, ())
                                                           if other in references)} for name in sorted(references)]
    identity = sha256("\n".join(references.values()).encode() + made.encode()).digest()[:16]
    main = next(one for one in components if one["name"] == "tequio")
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "serialNumber": f"urn:uuid:{UUID(bytes=identity, version=5)}",
            "metadata": {"timestamp": made, "component": main, "tools": {"components": [
                {"type": "application", "name": "tequio", "version": tequio.__version__}]}},
            "components": [one for one in components if one is not main], "dependencies": links}


def _closure(names: list[str]) -> tuple[dict[str, Distribution], dict[str, set[str]]]:
    """The installed packages among these and among what they need, and who needs whom."""
    found: dict[str, Distribution] = {}
    needs: dict[str, set[str]] = {}
    waiting = [_plain(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        needs[name] = set(_needed(found[name]))
        waiting += needs[name]
    return found, needs


def _needed(package: Distribution) -> list[str]:
    """Names of what a package needs without any extra."""
    texts = [text.partition(";") for text in package.requires or ()]
    return [_plain(found[0]) for text, _, marker in texts if "extra" not in marker
            and (found := re.match(r"[A-Za-z0-9._-]+", text))]


def _component(name: str, version: str, package: Distribution | None, origin: str) -> Plain:
    facts: Plain = {"type": "library" if name != "tequio" else "application", "bom-ref": f"pkg:pypi/{name}@{version}",
                    "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    licence = "" if package is None else _licence(package)
    if licence:
        facts["licenses"] = [{"license": {"name": licence}}]
    return facts | {"properties": [{"name": "tequio:version", "value": origin}]}


def _licence(package: Distribution) -> str:
    """What a package says of its licence: the expression, the classifiers, or the first line of the text."""
    def said(key: str) -> list[str]:
        return [str(text) for text in package.metadata.get_all(key) or ()]

    classifiers = [text.rpartition(" :: ")[2] for text in said("Classifier") if text.startswith("License ::")]
    text = next(iter(said("License")), "").strip().split("\n")[0]
    return next(iter(said("License-Expression")), "") or ", ".join(classifiers) or text[:100]


def _plain(name: str) -> str:
    """A package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()
