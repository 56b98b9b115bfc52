"""The log of what students did on an online platform, turned into counts of each kind of action."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.fetch import decoded
from tequio.errors import DataError, MissingExtra
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator


ACTIONS = ("seek_video", "play_video", "pause_video", "stop_video", "load_video", "problem_get", "problem_check",
           "problem_save", "reset_problem", "problem_check_correct", "problem_check_incorrect", "create_thread",
           "create_comment", "delete_thread", "delete_comment", "click_info", "click_courseware", "click_about",
           "click_forum", "click_progress", "close_courseware")
"""The kinds of action that are counted, one a column; the log has others, which are left out."""

PARTS = ("train", "test")
LINES_AT_ONCE = 1_000_000
_LOG = ("enroll_id", "username", "course_id", "action")
_TRUTH = ("enroll_id", "truth")
_AUTHORS = "the authors' page at moocdata.cn (prediction_data.tar.gz), read from your own copy"


@register("dataset", "xuetangx", paper="Feng et al., 2019")
@dataclass(frozen=True)
class Xuetangx:
    """Whether students drop out of online courses, by counts of 21 actions in the platform's raw log; your own copy.

    The folder holds `train_log.csv` and `test_log.csv` (a line an action, with at least the columns enroll_id,
    username, course_id and action) and `train_truth.csv` and `test_truth.csv` (enroll_id and 1 for who dropped out). A
    row is an enrolment, one student in one course. The logs are read in pieces, so that memory holds the counts only;
    these are kept in the cache.

    Parameters:
        path: the folder with the four files
        groups: whose row it is: the student's, for institutions made of students, or the course's
        official_test: keep the enrolments of the test files as test rows instead of putting all together
    """

    facts: ClassVar[Facts] = Facts(None, len(ACTIONS), "2 classes", "none stated (research)", "Feng, Tang, Liu 2019",
                                   f"to get by hand: {_AUTHORS}", groups="student or course")
    path: str
    groups: Literal["student", "course"] = "student"
    official_test: bool = False

    def load(self) -> Loaded:
        """All enrolments that have at least one line in a log; ids are enrolments."""
        kept = decoded("xuetangx", _fingerprint(Path(self.path)), lambda: _counted(Path(self.path)))
        schema = Schema.of_numbers(ACTIONS, Target("classes", ("stayed", "dropped out"), "dropout"))
        whole = Dataset.of(schema, kept["counts"].astype(np.float32), kept["dropout"], ids=kept["enrolment"],
                           groups=kept[self.groups], name="xuetangx")
        if not self.official_test:
            return Loaded(whole)
        return Loaded(whole.take(~kept["is_test"]), whole.take(kept["is_test"]))


def _fingerprint(folder: Path) -> str:
    """Tells copies apart without reading gigabytes: names, sizes and times of the files."""
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in _files(folder).values()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _files(folder: Path) -> dict[tuple[str, str], Path]:
    """Where each part's log and truth are, gzipped or not."""
    found = {}
    for part in PARTS:
        for kind in ("log", "truth"):
            places = [folder / f"{part}_{kind}.csv", folder / f"{part}_{kind}.csv.gz"]
            path = next((place for place in places if place.is_file()), None)
            if path is None:
                raise DataError(f"there is no file '{places[0]}'",
                                remedy=f"put train_log.csv, test_log.csv, train_truth.csv and test_truth.csv in one "
                                       f"folder and name it in data.path; source: {_AUTHORS}")
            found[part, kind] = path
    return found


def _counted(folder: Path) -> dict[str, Any]:
    """Counts, outcome, student and course of all enrolments with a known outcome and a line in a log, by number."""
    files = _files(folder)
    outcomes = [_truth(files[part, "truth"]) for part in PARTS]
    numbers = np.concatenate([outcome["enroll_id"] for outcome in outcomes])
    dropout = np.concatenate([outcome["truth"] for outcome in outcomes]).astype(np.int64)
    is_test = np.repeat([False, True], [len(outcome) for outcome in outcomes])
    order = np.argsort(numbers, kind="stable")
    numbers, dropout, is_test = numbers[order], dropout[order], is_test[order]
    if not len(numbers) or (numbers[1:] == numbers[:-1]).any():
        raise DataError(f"'{folder}': {'an enrolment has two outcomes' if len(numbers) else 'there is no enrolment'}",
                        remedy="check the two truth files")
    counts, owners = _tallied([files[part, "log"] for part in PARTS], numbers)
    seen = owners["student"] != ""
    return {"counts": counts[seen], "enrolment": numbers[seen], "dropout": dropout[seen], "is_test": is_test[seen],
            **{name: values[seen] for name, values in owners.items()}}


def _tallied(logs: list[Path], numbers: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """How often each enrolment did each action, and whose it is (empty where no log names it)."""
    import pandas as pd

    actions = pd.Index(ACTIONS)
    counts = np.zeros(len(numbers) * len(ACTIONS), dtype=np.int64)
    owners = {name: np.full(len(numbers), "", dtype=object) for name in ("student", "course")}
    for path in logs:
        for lines in _pieces(path):
            places = np.searchsorted(numbers, lines["enroll_id"]).clip(max=len(numbers) - 1)
            known = numbers[places] == lines["enroll_id"].to_numpy()
            for name, column in (("student", "username"), ("course", "course_id")):
                owners[name][places[known]] = lines[column].to_numpy()[known]
            kinds = actions.get_indexer(lines["action"])
            counted = known & (kinds >= 0)
            cells = places[counted] * len(ACTIONS) + kinds[counted]
            counts += np.bincount(cells, minlength=len(counts))
    return counts.reshape(-1, len(ACTIONS)), {name: values.astype(str) for name, values in owners.items()}


def _pieces(path: Path) -> Iterator[Any]:
    """A log's columns that are needed, some lines at a time."""
    with _explained(path, _LOG):
        yield from _frames(path, _LOG, chunksize=LINES_AT_ONCE)


def _truth(path: Path) -> Any:
    with _explained(path, _TRUTH):
        return _frames(path, _TRUTH)


def _frames(path: Path, columns: tuple[str, ...], **options: Any) -> Any:
    try:
        import pandas as pd
    except ImportError as cause:
        raise MissingExtra("pandas", "frames", f"reading '{path.name}'") from cause
    texts = dict.fromkeys(("username", "course_id", "action"), str)
    return pd.read_csv(path, usecols=list(columns), dtype={name: texts.get(name, np.int64) for name in columns},
                       **options)


@contextmanager
def _explained(path: Path, columns: tuple[str, ...]) -> Iterator[None]:
    try:
        yield
    except ValueError as cause:  # pandas' own errors are of this kind too
        raise DataError(f"'{path}' cannot be read: {cause}",
                        remedy=f"its first line should name the columns {', '.join(columns)}") from cause
