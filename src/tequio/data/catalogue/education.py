"""Public sets on how students learn, and made-up enrolments to try a study out where no real set may be had."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval, Len

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.manifest import data_file
from tequio.data.catalogue.xuetangx import ACTIONS
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.inputs import from_columns, read
from tequio.data.inputs.column import Column, column_of
from tequio.data.inputs.tables import columns_from_file
from tequio.errors import ConfigError, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns


_CC_BY = "CC BY 4.0"
_STUDENT_CODES = ("Marital status", "Application mode", "Course", "Previous qualification", "Nacionality",
                  "Mother's qualification", "Father's qualification", "Mother's occupation", "Father's occupation")
_OULAD_FEATURES = ("gender", "region", "highest_education", "imd_band", "age_band", "num_of_prev_attempts",
                   "studied_credits", "disability")


@register("dataset", "kddcup2015", paper="Feng et al., 2019")
@dataclass(frozen=True)
class KddCup2015:
    """Whether a student drops out of an online course, by what they did on its site (31 of 39 courses).

    Parameters:
        by_day: counts of each event on each of 30 days (210 features) instead of its total (7 features)
    """

    facts: ClassVar[Facts] = Facts(57_366, 7, "2 classes", "none stated (research)", "Feng, Tang, Liu 2019",
                                   "repository KowsarTLB/Courses_datasets", groups="course",
                                   files=("kddcup2015/kddcup2015_31courses.npz",))
    by_day: bool = False

    def load(self) -> Loaded:
        """All enrolments; groups are courses, ids are enrolments."""
        with np.load(data_file("kddcup2015/kddcup2015_31courses.npz"), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        counts, names = arrays["counts"], [str(event) for event in arrays["events"]]
        if self.by_day:
            names = [f"{name}_day{day:02}" for day in range(1, counts.shape[1] + 1) for name in names]
        values = counts.reshape(len(counts), -1) if self.by_day else counts.sum(axis=1)
        schema = Schema.of_numbers(names, Target("classes", ("stayed", "dropped out"), "dropout"))
        return Loaded(Dataset.of(schema, values.astype(np.float32), arrays["dropout"].astype(np.int64),
                                 ids=arrays["enrollment_id"], groups=arrays["course_names"][arrays["course"]],
                                 name="kddcup2015"))


@register("dataset", "oulad", paper="Kuzilek et al., 2017")
@dataclass(frozen=True)
class Oulad:
    """How a student of the Open University ends a course, by who they are and how they began.

    Parameters:
        day: marks of work handed in until this day of the course count as known
        binary: predict whether a student withdraws ('dropped out' or 'stayed') instead of four results
        enrolled: leave out students who had withdrawn by that day, whom nobody has to warn of any more
        groups: whose row it is: that of a presentation (a module in a term), of a module, or of a student
        later: a term, such as 2014J, whose enrolments are the test rows, as students who came after training
    """

    facts: ClassVar[Facts] = Facts(
        32_593, 12, "4 classes", _CC_BY, "Kuzilek, Hlosta, Zdrahal 2017", "repository jakubkuzilek/oulad",
        groups="presentation (a course in a term)",
        files=tuple(f"oulad/{table}.csv.gz" for table in ("student", "student_registration", "course", "assessment",
                                                          "student_assessment")))
    day: Annotated[int, Ge(0)] = 30
    binary: bool = False
    enrolled: bool = False
    groups: Literal["presentation", "module", "student"] = "presentation"
    later: str = ""

    def load(self) -> Loaded:
        """All enrolments; ids are students.

        Two numbers come from other tables' rows of the student (marks handed in, their mean, 0 without marks); the
        45 unknown days of registration are set to the median.
        """
        student = _oulad_table("student")
        places = _presentations(student)
        keys = list(zip(places, student["id_student"].values, strict=True))
        columns = self._columns(student, places, keys)
        dataset = from_columns(columns, ["final_result"], target_kind="classes", id="id_student",
                               group=self.groups, missing="category", categorical=(), schema=None, name="oulad")
        dataset = _who_left(dataset, "Withdrawn") if self.binary else dataset
        here = ~_withdrawn_by(self.day, keys) if self.enrolled else np.ones(len(keys), dtype=bool)
        return _with_later_term(dataset, here, student["code_presentation"].values, self.later)

    def _columns(self, student: Columns, places: list[str], keys: list[tuple[str, Any]]) -> Columns:
        marks = _marks(self.day)
        owner = {"presentation": np.array(places, dtype=object), "module": student["code_module"].values,
                 "student": student["id_student"].values.astype(np.int64).astype(str).astype(object)}
        extra = {
            "date_registration": _registration_days(keys),
            "presentation_days": _lengths(places),
            "marks": np.array([len(marks.get(key, ())) for key in keys]),
            "mean_mark": np.array([sum(marks[key]) / len(marks[key]) if key in marks else 0.0 for key in keys]),
            self.groups: owner[self.groups],
        }
        columns: Columns = {name: student[name] for name in (*_OULAD_FEATURES, "id_student", "final_result")}
        return columns | {name: column_of(name, values) for name, values in extra.items()}


@register("dataset", "student-dropout", paper="Realinho et al., 2021")
@dataclass(frozen=True)
class StudentDropout:
    """Whether a student of a Portuguese university drops out, is still enrolled, or graduates.

    Parameters:
        binary: predict whether a student drops out ('dropped out' or 'stayed') instead of three outcomes
    """

    facts: ClassVar[Facts] = Facts(4424, 36, "3 classes", _CC_BY, "Realinho et al. 2021",
                                   "repository attilammagyar/math-modeling-practice", groups="degree course",
                                   files=("student_dropout/data.csv.gz",))
    binary: bool = False

    def load(self) -> Loaded:
        """All rows; columns of codes are categories; groups are degree courses."""
        dataset = read(data_file("student_dropout/data.csv.gz"), target="Target", categorical=_STUDENT_CODES,
                       name="student-dropout")
        course = dataset.schema.column("Course")
        names = np.array(dataset.schema.features[course].domain)
        source = replace(dataset.source, groups=names[dataset.features[:, course].astype(np.int64)])
        dataset = replace(dataset, source=source)
        return Loaded(_who_left(dataset, "Dropout") if self.binary else dataset)


@register("dataset", "student-performance", paper="Cortez and Silva, 2008")
@dataclass(frozen=True)
class StudentPerformance:
    """The final mark (0 to 20) of students of two Portuguese schools, a number to predict.

    Parameters:
        subject: mat (mathematics, 395 students) or por (Portuguese, 649 students)
        earlier_marks: keep the marks of the first two terms, G1 and G2, as features
    """

    facts: ClassVar[Facts] = Facts(
        395, 32, "a number", _CC_BY, "Cortez, Silva 2008",
        "repositories thduvivier/glm-students and huuluan186/DataMining_UCI_Machine_Learning", groups="school",
        files=("student_performance/student-mat.csv.gz", "student_performance/student-por.csv.gz"))
    subject: Literal["mat", "por"] = "mat"
    earlier_marks: bool = True

    def load(self) -> Loaded:
        """All rows; groups are schools."""
        columns = columns_from_file(data_file(f"student_performance/student-{self.subject}.csv.gz"))
        if not self.earlier_marks:
            columns = {name: column for name, column in columns.items() if name not in ("G1", "G2")}
        dataset = from_columns(columns, ["G3"], target_kind="number", id=None, group=None, missing="error",
                               categorical=(), schema=None, name="student-performance")
        return Loaded(replace(dataset, source=replace(dataset.source, groups=columns["school"].values.astype(str))))


def _who_left(dataset: Dataset, left: str) -> Dataset:
    """The same rows with two classes: one result stands for leaving, all others for staying."""
    target = dataset.schema.target
    has_left = (dataset.target == target.names.index(left)).astype(np.int64)
    schema = replace(dataset.schema, target=Target("classes", ("stayed", "dropped out"), target.name))
    return replace(dataset, schema=schema, source=replace(dataset.source, target=has_left))


def _oulad_table(name: str) -> Columns:
    return columns_from_file(data_file(f"oulad/{name}.csv.gz"))


def _presentations(table: Columns) -> list[str]:
    parts = zip(table["code_module"].values, table["code_presentation"].values, strict=True)
    return [f"{module}-{presentation}" for module, presentation in parts]


def _registration_days(keys: list[tuple[str, Any]]) -> NDArray[np.float64]:
    table = _oulad_table("student_registration")
    known: Column = table["date_registration"]
    by_key = dict(zip(zip(_presentations(table), table["id_student"].values, strict=True), known.values, strict=True))
    days = np.array([by_key[key] for key in keys])
    return np.where(np.isnan(days), np.median(known.present), days)


def _withdrawn_by(day: int, keys: list[tuple[str, Any]]) -> NDArray[np.bool_]:
    """Who of these had unregistered by that day."""
    table = _oulad_table("student_registration")
    days: Column = table["date_unregistration"]
    gone = ~days.missing & (days.values <= day)
    left = {key for key, is_gone in zip(zip(_presentations(table), table["id_student"].values, strict=True), gone,
                                        strict=True) if is_gone}
    return np.array([key in left for key in keys])


def _with_later_term(dataset: Dataset, here: NDArray[np.bool_], terms: Array, later: str) -> Loaded:
    """The rows that count, those of the later term apart as test rows."""
    if not later:
        return Loaded(dataset if here.all() else dataset.take(here))
    if later not in terms:
        raise ConfigError(f"there is no term '{later}' in the data", remedy=nearest(later, sorted(set(terms))))
    return Loaded(dataset.take(here & (terms != later)), dataset.take(here & (terms == later)))


def _lengths(places: list[str]) -> NDArray[np.float64]:
    table = _oulad_table("course")
    lengths = dict(zip(_presentations(table), table["module_presentation_length"].values, strict=True))
    return np.array([lengths[place] for place in places])


def _marks(until_day: int) -> dict[tuple[str, Any], list[float]]:
    """Marks of each (presentation, student) for work handed in by that day."""
    assessments, results = _oulad_table("assessment"), _oulad_table("student_assessment")
    place_of = dict(zip(assessments["id_assessment"].values, _presentations(assessments), strict=True))
    score = results["score"]
    in_time = ~score.missing & (results["date_submitted"].values <= until_day)
    marks: dict[tuple[str, Any], list[float]] = defaultdict(list)
    columns = (results[name].values[in_time] for name in ("id_assessment", "id_student", "score"))
    for assessment, student, mark in zip(*columns, strict=True):
        marks[place_of[assessment], student].append(mark)
    return dict(marks)


MOST_ENROLMENTS = 5


@register("dataset", "made-up-students")
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
                                 groups=owner, name="made-up-students"))

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
