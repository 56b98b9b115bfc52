"""Made-up patients of some hospitals, to try a clinical study out where no real table may be had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Interval, Len

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.registry import register

_FEATURES = (Feature("age"), Feature("sex", ("female", "male")), Feature("stage", ("I", "II", "III", "IV")),
             Feature("crp"), Feature("treatment", ("standard", "new")), Feature("months"), Feature("died"))
_USUAL_AGE, _USUAL_CRP = 64.0, 8.0


@register("dataset", "made-up-patients")
@dataclass(frozen=True)
class MadeUpPatients:
    """Made-up patients of some hospitals: who got a new treatment, who came back, and who died when; not real data.

    Nobody drew lots: the young and the ill get the new treatment more often, and hospitals differ in how often they
    give it, in how ill their patients are, and in how these fare. In truth its log odds ratio of readmission and its
    log hazard ratio of death are both -0.6. Laboratory values (crp) are missing at random; each patient was watched
    for 6 to 60 months.

    Parameters:
        patients: how many patients
        hospitals: their names, the largest first
        missing: share of the laboratory values that are missing
        seed: the same seed gives the same rows
    """

    facts: ClassVar[Facts] = Facts(None, len(_FEATURES), "2 classes", "Apache-2.0", "", "synthetic: drawn at random, "
                                   "not real data", groups="hospital")
    patients: Annotated[int, Ge(1)] = 6000
    hospitals: Annotated[list[str], Len(1)] = field(
        default_factory=lambda: ["Northfield", "St Mary", "Eastgate", "Lakeside", "Westbrook"])
    missing: Annotated[float, Interval(ge=0, lt=1)] = 0.05
    seed: Annotated[int, Ge(0)] = 0

    def load(self) -> Loaded:
        """All patients, in no order; each hospital has about 85 % of the patients of the one before it."""
        rng, rows = np.random.default_rng(self.seed), self.patients
        share = 0.85 ** np.arange(len(self.hospitals))
        hospital = rng.choice(len(self.hospitals), rows, p=share / share.sum())
        severity, habit, quality = rng.normal(0.0, [[0.3], [0.6], [0.3]], (3, len(self.hospitals)))
        age = rng.normal(_USUAL_AGE + 5 * severity[hospital], 11.0).round().clip(18, 99)
        sex = rng.random(rows) < 0.48
        stage = np.digitize(rng.logistic(0.02 * (age - _USUAL_AGE) + severity[hospital]), [-0.8, 0.6, 1.8])
        crp = (_USUAL_CRP * np.exp(rng.normal(0.3 * (stage - 1), 0.8))).round(1).clip(0.1)
        ill = 0.03 * (age - _USUAL_AGE) + 0.4 * (stage - 1) + 0.3 * np.log(crp / _USUAL_CRP)
        new = rng.random(rows) < _chance(habit[hospital] - 0.04 * (age - _USUAL_AGE) + 0.3 * (stage - 1))
        readmitted = rng.random(rows) < _chance(quality[hospital] - 0.9 + ill + 0.2 * sex - 0.6 * new)
        due = rng.exponential(45.0 * np.exp(-(quality[hospital] + ill + 0.2 * sex - 0.6 * new)))
        watched = rng.uniform(6.0, 60.0, rows)
        gap = rng.random(rows) < self.missing
        columns = [age, sex, stage, np.where(gap, np.nan, crp), new, np.ceil(np.minimum(due, watched)), due <= watched]
        return Loaded(Dataset.of(Schema(_FEATURES, Target("classes", ("no", "yes"), "readmitted")),
                                 np.column_stack(columns).astype(np.float64), readmitted.astype(np.int64),
                                 ids=np.arange(rows), groups=np.array(self.hospitals)[hospital], missing="keep",
                                 name="made-up-patients"))


def _chance(odds: np.ndarray) -> np.ndarray:
    chance: np.ndarray = 1 / (1 + np.exp(-odds))
    return chance
