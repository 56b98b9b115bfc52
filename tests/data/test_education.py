"""Sets on how students learn, built from small files in the raw formats."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tequio.data.catalogue import education, xuetangx
from tequio.data.catalogue.xuetangx import ACTIONS
from tequio.data.partitions.groups import Bands
from tequio.errors import ConfigError, DataError
from tequio.registry import build

if TYPE_CHECKING:
    from tequio.data.catalogue.entry import Loaded

LOG = """enroll_id,username,course_id,session_id,action,object,time
7,ana,algebra,s1,play_video,,2016-01-01T10:00:00
7,ana,algebra,s1,play_video,,2016-01-01T10:01:00
7,ana,algebra,s1,close_courseware,,2016-01-01T10:02:00
3,beto,algebra,s2,problem_get,,2016-01-01T10:00:00
3,beto,algebra,s2,an action that is not counted,,2016-01-01T10:00:00
99,caro,botany,s3,play_video,,2016-01-01T10:00:00
"""
LATER = """enroll_id,username,course_id,session_id,action,object,time
5,ana,botany,s4,seek_video,,2016-02-01T10:00:00
3,beto,algebra,s5,problem_get,,2016-02-01T10:00:00
"""

OULAD = {
    "student": "code_module,code_presentation,id_student,gender,region,highest_education,imd_band,age_band,"
               "num_of_prev_attempts,studied_credits,disability,final_result\n"
               "AAA,2013J,1,M,Wales,HE Qualification,90-100%,55<=,0,240,N,Pass\n"
               "AAA,2014J,2,F,Wales,A Level or Equivalent,20-30%,0-35,0,60,N,Withdrawn\n"
               "BBB,2013J,1,M,Wales,HE Qualification,90-100%,55<=,1,60,N,Withdrawn\n"
               "BBB,2013J,3,F,Ireland,A Level or Equivalent,,0-35,0,120,Y,Fail\n",
    "student_registration": "code_module,code_presentation,id_student,date_registration,date_unregistration\n"
                            "AAA,2013J,1,-159,\nAAA,2014J,2,-53,12\nBBB,2013J,1,-92,100\nBBB,2013J,3,,\n",
    "course": "code_module,code_presentation,module_presentation_length\nAAA,2013J,268\nAAA,2014J,269\nBBB,2013J,240\n",
    "assessment": "code_module,code_presentation,id_assessment,assessment_type,date,weight\n"
                  "AAA,2013J,11,TMA,19,10\nAAA,2014J,12,TMA,19,10\nBBB,2013J,13,TMA,19,10\n",
    "student_assessment": "id_assessment,id_student,date_submitted,is_banked,score\n"
                          "11,1,18,0,78\n11,1,40,0,90\n13,1,20,0,60\n13,1,22,0,80\n12,2,30,0,\n",
}


def load(name: str, **parameters: Any) -> Loaded:
    loaded: Loaded = build("dataset", name, parameters).load()
    return loaded


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A raw log of three enrolments with an outcome, and one without."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TEQUIO_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "prediction_log"
    folder.mkdir()
    (folder / "train_log.csv").write_text(LOG)
    with gzip.open(folder / "test_log.csv.gz", "wt") as file:
        file.write(LATER)
    (folder / "train_truth.csv").write_text("enroll_id,truth\n7,1\n3,0\n4,1\n")
    (folder / "test_truth.csv").write_text("enroll_id,truth\n5,0\n")
    return folder


@pytest.fixture
def oulad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def place(name: str) -> Path:
        path = tmp_path / Path(name).name.removesuffix(".gz")
        path.write_text(OULAD[path.stem])
        return path

    monkeypatch.setattr(education, "data_file", place)


# --- XuetangX --------------------------------------------------------------------------------------------------------

def test_a_log_becomes_counts_of_actions_by_enrolment(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xuetangx, "LINES_AT_ONCE", 2)  # so that an enrolment is spread over pieces
    rows = load("xuetangx", path=str(log)).train
    assert rows.schema.names == ACTIONS
    assert rows.features.shape == (3, 21)
    counts = [{name: int(value) for name, value in zip(ACTIONS, row, strict=True) if value} for row in rows.features]
    assert rows.ids.tolist() == [3, 5, 7]
    assert counts == [{"problem_get": 2}, {"seek_video": 1}, {"play_video": 2, "close_courseware": 1}]
    assert [rows.schema.target.names[code] for code in rows.target] == ["stayed", "stayed", "dropped out"]
    assert rows.groups.tolist() == ["beto", "ana", "ana"]
    assert load("xuetangx", path=str(log), groups="course").train.groups.tolist() == ["algebra", "botany", "algebra"]


def test_the_official_test_enrolments_can_be_kept_apart(log: Path) -> None:
    loaded = load("xuetangx", path=str(log), official_test=True)
    assert loaded.train.ids.tolist() == [3, 7]
    assert loaded.test is not None
    assert loaded.test.ids.tolist() == [5]


def test_students_of_a_log_fall_into_bands(log: Path) -> None:
    partition = Bands(groups_per_party=1).deal(load("xuetangx", path=str(log)).train, np.random.default_rng(0))
    assert partition.categories == ("low", "medium")  # beto stayed once, ana dropped out of one of two


def test_counts_are_kept_and_made_anew_when_a_file_changes(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load("xuetangx", path=str(log))
    with monkeypatch.context() as patched:
        patched.setattr(xuetangx, "_counted", lambda folder: pytest.fail("the log was read again"))
        assert len(load("xuetangx", path=str(log)).train) == 3
    (log / "train_log.csv").write_text(LOG + "4,dora,botany,s9,stop_video,,2016-01-02T10:00:00\n")
    assert len(load("xuetangx", path=str(log)).train) == 4


@pytest.mark.parametrize(("file", "text", "complaint"), [
    ("train_truth.csv", "enroll_id,truth\n7,1\n5,1\n", "an enrolment has two outcomes"),
    ("train_log.csv", "who,what\n1,2\n", "first line should name the columns enroll_id, username"),
    ("train_truth.csv", "enroll_id,truth\n7,perhaps\n", "cannot be read"),
])
def test_a_wrong_file_is_refused_by_name(log: Path, file: str, text: str, complaint: str) -> None:
    (log / file).write_text(text)
    with pytest.raises(DataError, match=complaint):
        load("xuetangx", path=str(log))


def test_a_missing_file_says_what_belongs_there(log: Path) -> None:
    (log / "train_truth.csv").unlink()
    with pytest.raises(DataError, match=r"put train_log\.csv, test_log\.csv"):
        load("xuetangx", path=str(log))


# --- OULAD -----------------------------------------------------------------------------------------------------------

def test_marks_known_on_the_day_are_joined_to_the_enrolment(oulad: None) -> None:
    rows = load("oulad", day=30).train
    numbers = rows.features[:, [rows.schema.column(name) for name in ("date_registration", "marks", "mean_mark")]]
    assert numbers.tolist() == [[-159, 1, 78], [-53, 0, 0], [-92, 2, 70], [-92, 0, 0]]
    assert rows.groups.tolist() == ["AAA-2013J", "AAA-2014J", "BBB-2013J", "BBB-2013J"]
    assert rows.schema.target.names == ("Fail", "Pass", "Withdrawn")


def test_who_withdraws_as_two_classes(oulad: None) -> None:
    rows = load("oulad", binary=True).train
    assert rows.schema.target.names == ("stayed", "dropped out")
    assert rows.target.tolist() == [0, 1, 1, 0]


def test_students_who_are_gone_already_can_be_left_out(oulad: None) -> None:
    assert load("oulad", enrolled=True, day=11).train.ids.tolist() == [1, 2, 1, 3]
    assert load("oulad", enrolled=True, day=12).train.ids.tolist() == [1, 1, 3]


def test_rows_belong_to_modules_or_students(oulad: None) -> None:
    assert load("oulad", groups="module").train.groups.tolist() == ["AAA", "AAA", "BBB", "BBB"]
    by_student = load("oulad", groups="student", binary=True).train
    assert by_student.groups.tolist() == ["1", "2", "1", "3"]
    partition = Bands(positive="dropped out", groups_per_party=1).deal(by_student, np.random.default_rng(0))
    assert sorted(partition.categories or ()) == ["high", "low", "medium"]


def test_a_later_term_makes_the_test_rows(oulad: None) -> None:
    loaded = load("oulad", later="2014J", groups="module")
    assert loaded.train.ids.tolist() == [1, 1, 3]
    assert loaded.test is not None
    assert loaded.test.ids.tolist() == [2]
    with pytest.raises(ConfigError, match="no term '2014X' in the data; did you mean '2014J'"):
        load("oulad", later="2014X")


# --- the real files --------------------------------------------------------------------------------------------------

@pytest.mark.data
def test_the_real_sets_keep_their_counts() -> None:
    binary = load("student-dropout", binary=True).train
    assert np.bincount(binary.target).tolist() == [4424 - 1421, 1421]
    assert len(set(binary.groups)) == 17
    later = load("oulad", binary=True, groups="module", later="2014J")
    assert later.test is not None
    assert len(later.test) == 11_260
    assert int(later.train.target.sum() + later.test.target.sum()) == 10_156
    assert "".join(sorted(set(later.train.groups))) == "AAABBBCCCDDDEEEFFFGGG"


# --- made-up students ------------------------------------------------------------------------------------------------

def test_made_up_students_have_the_bands_that_were_asked_for() -> None:
    rows = load("made-up-students", students=600, low=0.65, medium=0.05).train
    assert rows.schema.names == ACTIONS
    partition = Bands(groups_per_party=20).deal(rows, np.random.default_rng(0))
    assert [list(partition.categories or ()).count(band) for band in ("low", "medium", "high")] == [20, 2, 9]


def test_made_up_students_follow_the_seed_and_who_stays_does_more() -> None:
    first, again, other = (load("made-up-students", seed=seed).train for seed in (1, 1, 2))
    assert np.array_equal(first.features, again.features)
    assert len(first) != len(other) or not np.array_equal(first.features, other.features)
    assert first.features[first.target == 0].mean() > 2 * first.features[first.target == 1].mean()


def test_made_up_courses_have_the_names_that_were_given() -> None:
    rows = load("made-up-students", courses=["AAA", "BBB"], groups="course").train
    assert set(rows.groups) == {"AAA", "BBB"}
    with pytest.raises(ConfigError, match="more than all of them"):
        load("made-up-students", low=0.6, medium=0.6)
