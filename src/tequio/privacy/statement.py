"""What a ledger says, in plain words and as data: in a run's summary and in its report."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tequio.privacy.ledger import Ledger

_HIDDEN = {"party": "whether any one party took part, or what it holds",
           "row": "whether any one row was among a party's data",
           "label": "what the label of any one row was"}


def statement(ledger: Ledger) -> dict[str, Any]:
    """Epsilon and all that it hangs on."""
    terms, epsilon = ledger.terms, ledger.epsilon()
    return {"epsilon": epsilon if isfinite(epsilon) else None, "delta": terms.delta, "accountant": terms.accountant,
            "budget": terms.epsilon or None, "unit": ledger.mechanism.unit, "noise": ledger.mechanism.noise,
            "releases": len(ledger.entries), "sampling": ledger.context.sampling,
            "voids": list(ledger.voids), "caveats": list(ledger.caveats), "words": in_words(ledger, epsilon)}


def in_words(ledger: Ledger, epsilon: float) -> str:
    """The same for a reader who has to decide whether that is enough."""
    if ledger.voids:
        return "This run is not private, whatever noise it adds: " + "; ".join(ledger.voids) + "."
    mechanism = ledger.mechanism
    if not isfinite(epsilon):
        return f"This run is not private: no noise was added. {mechanism.words(ledger.context)}"
    terms = ledger.terms
    budget = f" of a budget of {terms.epsilon:g}" if terms.epsilon else ""
    parts = [f"Epsilon {epsilon:.3g}{budget} at delta {terms.delta:g}, by {len(ledger.entries)} releases "
             f"({terms.accountant.upper()} accountant): whoever sees all of them can hardly tell "
             f"{_HIDDEN[mechanism.unit]}.", mechanism.words(ledger.context)]
    if not getattr(mechanism, "secret", False):
        whom = "" if mechanism.place == "coordinator" else ", from the coordinator too"
        parts.append(f"Noise and choices follow from the seed, which must stay secret{whom}.")
    if ledger.caveats:
        parts.append("Not covered: " + "; ".join(ledger.caveats) + ".")
    return " ".join(parts)
