"""LiRA and RMIA once more, row by row as their papers define them, to compare with."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm


def lira_of_the_paper(shadows, *, online, per_row):
    """Algorithm 1 of Carlini et al., row by row; deviations of all rows together where shadows are few."""
    rows = range(shadows.answers.shape[1])
    sides = {side: [shadows.answers[shadows.inside[:, row] == side, row] for row in rows] for side in (True, False)}
    spread = {}
    for side, samples in sides.items():
        residuals = np.concatenate([sample - sample.mean() for sample in samples])
        pooled = np.sqrt((residuals**2).sum() / (len(residuals) - len(samples)))
        spread[side] = [sample.std(ddof=1) if per_row else pooled for sample in samples]
    out = [norm(sides[False][row].mean(), spread[False][row]) for row in rows]
    if not online:
        return np.array([out[row].cdf(shadows.seen[row]) for row in rows])
    with_row = [norm(sides[True][row].mean(), spread[True][row]) for row in rows]
    return np.array([with_row[row].logpdf(shadows.seen[row]) - out[row].logpdf(shadows.seen[row]) for row in rows])


def rmia_of_the_paper(shadows, gamma, slope=None):
    """Equation 4 of Zarifzadeh et al., pair by pair; with a slope it is the offline form."""
    def chance(odds):
        return 1 / (1 + np.exp(-odds))

    ratios = []
    for row in range(shadows.answers.shape[1]):
        answers = chance(shadows.answers[:, row])
        out = answers[~shadows.inside[:, row]].mean()
        usual = (answers[shadows.inside[:, row]].mean() + out) / 2 if slope is None else \
            ((1 + slope) * out + 1 - slope) / 2
        ratios.append(chance(shadows.seen[row]) / usual)
    return np.array([np.mean([ratio / other >= gamma for other in ratios]) for ratio in ratios])
