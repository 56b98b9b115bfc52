"""What a party tells about its validation rows after every round, and when a federation stops because of it.

Two readings of the stop rule. As printed: both the mean loss and the mean accuracy over parties got worse in two rounds
in a row. As the author's numbers imply: the same of means over all rounds so far, from round 10 on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies

Reading = Literal["off", "rounds", "cumulative"]
Accuracy = Literal["subset_accuracy", "argmax_agreement"]

WORSE = "worse"
"""The stop reason of this rule."""


@dataclass(frozen=True)
class EarlyStopping:
    """When to stop a federation by its parties' validation rows.

    Parameters:
        reading: off; means of each round (as printed); or means over all rounds so far (as in the author's code)
        minimum_rounds: earliest round to stop after
    """

    reading: Reading = "rounds"
    minimum_rounds: Annotated[int, Ge(3)] = 10

    def remembered(self, history: Mapping[str, Sequence[float]], replies: Replies) -> dict[str, list[float]]:
        """The history with this round's means over the parties that have validation rows."""
        told = [payload for payload in replies.payloads if "validation_loss" in payload]
        if not told:
            return {name: list(values) for name, values in history.items()}
        means = {name: float(np.mean([payload[f"validation_{name}"] for payload in told]))
                 for name in ("loss", "accuracy")}
        return {name: [*history.get(name, ()), mean] for name, mean in means.items()}

    def reason(self, history: Mapping[str, Sequence[float]]) -> str:
        """Why to stop after the last round of the history; empty to go on."""
        losses, accuracies = history.get("loss", ()), history.get("accuracy", ())
        if self.reading == "off" or len(losses) < self.minimum_rounds:
            return ""
        if self.reading == "cumulative":
            losses, accuracies = _running_means(losses), _running_means(accuracies)
        worse = losses[-1] > losses[-2] > losses[-3] and accuracies[-1] < accuracies[-2] < accuracies[-3]
        return WORSE if worse else ""


def validated(scores: NDArray[Any], truth: NDArray[Any], accuracy: Accuracy) -> Payload:
    """Mean binary cross-entropy and accuracy of some rows; nothing where there are none."""
    if not len(truth):
        return {}
    actual = truth.astype(bool)
    likely = np.clip(np.where(actual, scores, 1.0 - scores).astype(np.float64), 1e-7, 1.0)
    if accuracy == "subset_accuracy" or actual.shape[1] == 1:
        right = ((scores > 0.5) == actual).all(axis=1)
    else:
        right = scores.argmax(axis=1) == actual.argmax(axis=1)
    return {"validation_loss": float(-np.log(likely).mean()), "validation_accuracy": float(right.mean())}


def _running_means(values: Sequence[float]) -> list[float]:
    means: NDArray[np.float64] = np.cumsum(values) / np.arange(1, len(values) + 1)
    return [float(mean) for mean in means[-3:]]
