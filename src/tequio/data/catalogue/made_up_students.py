"""Made-up enrolments in online courses, for trying a study on students out where no real set may be had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval, Len

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.xuetangx import ACTIONS
from tequio.data.dataset import Dataset
from tequio.data.schema import Schema, Target
from tequio.errors import ConfigError
from tequio.registry import register

MOST_ENROLMENTS = 5


@register("dataset", "made_up_students")
@dataclass(frozen=True)
class MadeUpStudents:
    """Made-up students of an online platform: counts of 21 actions, and who drops out; not real data.

    As many columns, and the same classes, as the dataset 'xuetangx'. A student takes one to five courses and drops out
    of none of them (low), of about half (medium, two courses at least) or of all (high). Counts are heavy-tailed; who
    stays does more. Numbers learnt from it say nothing about real students.

    Parameters:
        students: how many students
        courses: the names of the courses
        low: share of the students who drop out of nothing
        medium: share of the students who drop out of about half of their courses
        groups: whose row it is: the student's or the course's
        seed: the same seed gives the same rows
    """

    facts: ClassVar[Facts] = Facts(None, len(ACTIONS), "2 classes", "Apache-2.0", "", "synthetic: drawn at random, not "
                                   "real data", groups="student or course")
    students: Annotated[int, Ge(1)] = 1000
    courses: Annotated[list[str], Len(1)] = field(default_factory=lambda: ["algebra", "botany", "chemistry"])
    low: Annotated[float, Interval(ge=0, le=1)] = 0.12
    medium: Annotated[float, Interval(ge=0, le=1)] = 0.28
    groups: Literal["student", "course"] = "student"
    seed: Annotated[int, Ge(0)] = 0

    def load(self) -> Loaded:
        """All enrolments, those of a student one after the other."""
        if self.low + self.medium > 1:
            raise ConfigError(f"shares of {self.low} and {self.medium} of the students are more than all of them",
                              remedy="lower data.low or data.medium")
        rng = np.random.default_rng(self.seed)
        student, dropout = self._enrolments(rng)
        course = rng.integers(len(self.courses), size=len(student))
        schema = Schema.of_numbers(ACTIONS, Target("classes", ("stayed", "dropped out"), "dropout"))
        owner = np.array(self.courses)[course] if self.groups == "course" else student.astype(str)
        return Loaded(Dataset.of(schema, self._counts(course, dropout, rng), dropout, ids=np.arange(len(student)),
                                 groups=owner, name="made_up_students"))

    def _enrolments(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Whose enrolment it is, and whether it ends in dropout; the bands' shares are exact."""
        low, medium = round(self.low * self.students), round(self.medium * self.students)
        band = rng.permutation(np.repeat([0, 1, 2], [low, medium, self.students - low - medium]))
        taken = np.minimum(rng.geometric(0.4, self.students), MOST_ENROLMENTS)
        taken[band == 1] = np.maximum(taken[band == 1], 2)
        student = np.repeat(np.arange(self.students), taken)
        turn = np.arange(len(student)) - np.repeat(np.cumsum(taken) - taken, taken)
        dropout = np.select([band[student] == 0, band[student] == 1], [0, turn % 2], 1)
        return student, dropout.astype(np.int64)

    def _counts(self, course: np.ndarray, dropout: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Actions of each kind: some courses use a kind more than others, and so do students who stay."""
        usual = rng.normal(0.0, 1.0, (len(self.courses), len(ACTIONS)))
        zeal = rng.normal(1.2 - 1.2 * dropout, 1.0)
        counts: np.ndarray = rng.poisson(np.exp(np.minimum(usual[course] + zeal[:, None], 7.0)))
        return counts.astype(np.float32)
