"""A party's part of a split network, completed by rows with labels and rows without.

Fu, Zhang, Ji et al.: Label inference attacks against vertical federated learning, USENIX Security 2022: a layer on top
of the own part makes a classifier, and all of it is trained further by MixMatch. Berthelot, Carlini, Goodfellow et al.:
MixMatch: A holistic approach to semi-supervised learning, NeurIPS 2019: rows without labels get the sharpened mean of
what the model says of noised copies of them, and it learns from mixtures of two rows and their labels. Images there are
shifted and mirrored; columns of a table get Gaussian noise instead. Two classes have one output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.dense import Memory, backward, forward, fresh_stack, stepped
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.learners.batched_layers import Activation
    from tequio.learners.learner import Arrays

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MixMatch:
    """How the completed model is trained: the numbers of its paper, in fewer steps.

    `weight` is that of rows without labels, reached at the end; `jitter` the noise on columns in their deviations.
    """

    steps: int = 2000
    batch: int = 64
    rate: float = 0.002
    copies: int = 2
    temperature: float = 0.5
    alpha: float = 0.75
    weight: float = 75.0
    jitter: float = 0.1

    def scores(self, part: Arrays, activation: Activation, rows: NDArray[np.floating], positive: NDArray[np.bool_],
               known: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
        """How likely each row is positive, by the party's own part and the labels of the known rows."""
        head, layer = fresh_stack((part[f"bias{len(part) // 2}"].size, 1), rng), len(part) // 2 + 1
        model = {**part, f"weight{layer}": head["weight1"], f"bias{layer}": head["bias1"]}
        memory, training = Memory(), LocalTraining(optimizer="adam", learning_rate=self.rate)
        labelled, others, spread = np.flatnonzero(known), np.flatnonzero(~known), self.jitter * rows.std(axis=0)

        def noised(which: NDArray[np.int64]) -> Floats:
            found: Floats = rows[which] + spread * rng.standard_normal((len(which), rows.shape[1]))
            return found

        for step in range(self.steps):
            given, guessed = rng.choice(labelled, self.batch), rng.choice(others, self.batch)
            copies = [noised(guessed) for _ in range(self.copies)]
            said = np.mean([_chances(forward(model, copy, activation).output) for copy in copies], axis=0)
            inputs = np.concatenate([noised(given), *copies])
            wanted = np.concatenate([positive[given], *[sharpened(said, self.temperature)] * self.copies])
            inputs, wanted = self.mixed(inputs, wanted, rng)
            passed = forward(model, inputs, activation)
            delta = deltas(_chances(passed.output), wanted, self.batch, self.weight * step / self.steps)
            gradients, _ = backward(model, passed, delta[:, None], activation)
            model, memory = stepped(model, gradients, memory, training, self.rate)
        return _chances(forward(model, rows, activation).output)

    def mixed(self, inputs: Floats, wanted: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Each row with another one and its label, of which it keeps the larger share."""
        share = rng.beta(self.alpha, self.alpha, len(inputs))
        share, other = np.maximum(share, 1 - share), rng.permutation(len(inputs))
        return (share[:, None] * inputs + (1 - share[:, None]) * inputs[other],
                share * wanted + (1 - share) * wanted[other])


def sharpened(chances: Floats, temperature: float) -> Floats:
    """Chances moved away from a half: of two classes, both raised to one over the temperature."""
    positive, negative = chances ** (1 / temperature), (1 - chances) ** (1 / temperature)
    found: Floats = positive / (positive + negative)
    return found


def deltas(chances: Floats, wanted: Floats, labelled: int, weight: float) -> Floats:
    """Gradient by the outputs of the mean cross-entropy of the first rows, which have labels, plus `weight` times the
    mean squared distance of the chances of the others from what was guessed."""
    off = chances - wanted
    guessed = 2 * weight * off * chances * (1 - chances) / max(len(off) - labelled, 1)
    return np.where(np.arange(len(off)) < labelled, off / labelled, guessed)


def _chances(outputs: NDArray[np.floating]) -> Floats:
    from scipy.special import expit

    found: Floats = expit(outputs[:, 0].astype(np.float64))
    return found
