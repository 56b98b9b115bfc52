"""Texts that were released for federated learning: what characters of Shakespeare say, and posts on Stack Overflow.

Read from your own copy; speakers and authors are the rows' groups.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge
from scipy import sparse

from tequio.data.catalogue.by_user import hdf5_users, leaf_users
from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.released import TFF, Release, released_files
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tequio.data.dataset import Array

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The characters that have a number of their own, as in LEAF."""

FILL, OTHER = "fill", "other"
_CODES = {letter: place for place, letter in enumerate((FILL, *LETTERS, OTHER))}
_NAMES = (FILL, *(letter.encode("unicode_escape").decode() for letter in LETTERS), OTHER)
_DEFAULT_LENGTH = 80


@register("dataset", "shakespeare", paper="McMahan et al., 2017")
@dataclass(frozen=True)
class Shakespeare:
    """The next character of a line in Shakespeare's plays, by who speaks; your own copy.

    `path` holds `shakespeare_train.h5` and `shakespeare_test.h5` of TensorFlow Federated, or is the archive they come
    in, whose checksum is compared: every text is cut into pieces of `length` characters, each with the character that
    follows, and the last piece ends one before the end of the text. Or it holds `train` and `test` with the JSON files
    of LEAF, which are cut already. A column is a character; those before the beginning are filled up.

    Parameters:
        path: the folder, or the archive
        length: characters that come before the one to predict; of LEAF's 80, the last
        users: how many speakers are read, the first by name (0: all)
    """

    facts: ClassVar[Facts] = Facts(None, _DEFAULT_LENGTH, "81 characters", "public domain",
                                   "Shakespeare; Caldas et al. 2018",
                                   f"to get by hand: {TFF}/shakespeare.tar.bz2, or LEAF's data/shakespeare",
                                   groups="speaker")
    path: str
    length: Annotated[int, Ge(1)] = _DEFAULT_LENGTH
    users: Annotated[int, Ge(0)] = 0

    def load(self) -> Loaded:
        """Training and test pieces of every speaker."""
        folder, parts = Path(self.path), ("train", "test")
        if (folder / "train").is_dir():
            pieces = [list(_of_leaf(folder / part, self.users)) for part in parts]
        else:
            files = released_files(self.path, [f"shakespeare_{part}.h5" for part in parts], _SHAKESPEARE)
            pieces = [list(self._of_hdf5(path)) for path in files.values()]
        return Loaded(*(self._dataset(found) for found in pieces))

    def _of_hdf5(self, path: Path) -> Iterator[tuple[str, str, str]]:
        for speaker, columns in hdf5_users(path, ("snippets",), self.users):
            for text in _texts(columns["snippets"], path):
                ends = [*range(self.length, len(text) - 1, self.length), len(text) - 1]
                yield from ((speaker, text[max(0, end - self.length):end], text[end]) for end in ends if end > 0)

    def _dataset(self, pieces: Sequence[tuple[str, str, str]]) -> Dataset:
        other = _CODES[OTHER]
        features = np.zeros((len(pieces), self.length), dtype=np.int32)
        for row, (_, before, _) in enumerate(pieces):
            codes = [_CODES.get(letter, other) for letter in before[-self.length:]]
            features[row, self.length - len(codes):] = codes
        target = np.array([_CODES.get(after, other) - 1 for *_, after in pieces], dtype=np.int64)
        columns = tuple(Feature(f"character_{place}", _NAMES) for place in range(self.length))
        schema = Schema(columns, Target("classes", _NAMES[1:], "next character"))
        return Dataset.of(schema, features, target, groups=np.array([speaker for speaker, *_ in pieces]),
                          name="shakespeare")


_SHAKESPEARE = Release("shakespeare.tar.bz2", "sha256",
                       "0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707", f"{TFF}/shakespeare.tar.bz2")


def _of_leaf(folder: Path, users: int) -> Iterator[tuple[str, str, str]]:
    for speaker, x, y in leaf_users(folder, users):
        for before, after in zip(x, y, strict=True):
            if not (isinstance(before, str) and isinstance(after, str) and len(after) == 1):
                raise DataError(f"'{folder}': speaker '{speaker}' has something else than texts and one character each",
                                remedy="make the files again with LEAF's preprocess.sh")
            yield speaker, before, after


@register("dataset", "stack-overflow", paper="Reddi et al., 2021")
@dataclass(frozen=True)
class StackOverflow:
    """The tags of posts on Stack Overflow by their words, by author; your own copy.

    `path` holds `stackoverflow_train.h5` and `stackoverflow_test.h5` of TensorFlow Federated, or is the archive they
    come in, whose checksum is compared. The words and tags with a column or label of their own are the most frequent
    of `stackoverflow.word_count` and `stackoverflow.tag_count`, where these lie beside the files, and else of the
    training rows that are read. A row counts the words of a post and its title; it may have none of the tags.

    Parameters:
        path: the folder, or the archive
        words: how many words have a column
        tags: how many tags are labels
        users: how many authors are read, the first by name (0: all 342 477)
    """

    facts: ClassVar[Facts] = Facts(None, 10_000, "500 labels", "CC BY-SA 3.0", "Stack Exchange; Reddi et al. 2021",
                                   f"to get by hand: {TFF}/stackoverflow.tar.bz2", groups="author")
    path: str
    words: Annotated[int, Ge(1)] = 10_000
    tags: Annotated[int, Ge(1)] = 500
    users: Annotated[int, Ge(0)] = 100

    def load(self) -> Loaded:
        """Training and test posts; they have other authors."""
        files = released_files(self.path, [f"stackoverflow_{part}.h5" for part in ("train", "test")], _STACK_OVERFLOW)
        train, test = (list(self._posts(path)) for path in files.values())
        folder = next(iter(files.values())).parent
        words = _most_frequent(_counted_words(folder / "stackoverflow.word_count"), (post.words for post in train),
                               self.words)
        tags = _most_frequent(_counted_tags(folder / "stackoverflow.tag_count"), (post.tags for post in train),
                              self.tags)
        return Loaded(*(_dataset(posts, words, tags) for posts in (train, test)))

    def _posts(self, path: Path) -> Iterator[Post]:
        for author, columns in hdf5_users(path, ("tokens", "title", "tags"), self.users):
            tokens, titles, tags = (_texts(columns[name], path) for name in ("tokens", "title", "tags"))
            for text, title, named in zip(tokens, titles, tags, strict=True):
                yield Post(author, f"{text} {title}".split(), [tag for tag in named.split("|") if tag])


@dataclass(frozen=True)
class Post:
    """A post: whose it is, its words and those of its title, and its tags."""

    author: str
    words: list[str]
    tags: list[str]


_STACK_OVERFLOW = Release("stackoverflow.tar.bz2", "sha256",
                          "99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
                          f"{TFF}/stackoverflow.tar.bz2")


def _dataset(posts: Sequence[Post], words: dict[str, int], tags: dict[str, int]) -> Dataset:
    counts = [Counter(words[word] for word in post.words if word in words) for post in posts]
    starts = np.concatenate([[0], np.cumsum([len(count) for count in counts])])
    columns = np.array([column for count in counts for column in count], dtype=np.int32)
    values = np.array([value for count in counts for value in count.values()], dtype=np.float32)
    features = sparse.csr_matrix((values, columns, starts), shape=(len(posts), len(words)))
    features.sort_indices()
    labels = np.zeros((len(posts), len(tags)), dtype=np.int8)
    for row, post in enumerate(posts):
        labels[row, [tags[tag] for tag in post.tags if tag in tags]] = 1
    schema = Schema.of_numbers(words, Target("multilabel", tuple(tags), "tags"))
    return Dataset.of(schema, features, labels, groups=np.array([post.author for post in posts]), name="stack-overflow")


def _most_frequent(counted: list[str], found: Iterable[list[str]], most: int) -> dict[str, int]:
    """The place of each of the most frequent names; equally frequent ones by the alphabet."""
    if not counted:
        counts = Counter(name for names in found for name in names)
        counted = sorted(counts, key=lambda name: (-counts[name], name))
    if not counted:
        raise DataError("no post has any words or tags", remedy="raise data.users")
    return {name: place for place, name in enumerate(counted[:most])}


def _counted_words(path: Path) -> list[str]:
    """The words of the published count, a line each with its number, the most frequent first."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


def _counted_tags(path: Path) -> list[str]:
    """The tags of the published count, a dict in JSON, the most frequent first."""
    if not path.is_file():
        return []
    try:
        counts = dict(json.loads(path.read_text(encoding="utf-8")))
        return sorted(counts, key=lambda tag: (-int(counts[tag]), tag))
    except (ValueError, TypeError) as cause:
        raise DataError(f"'{path}' is no count of tags: {cause}", remedy="get it again, or take it out") from cause


def _texts(values: Array, path: Path) -> list[str]:
    """Strings as HDF5 files hold them: bytes of UTF-8."""
    try:
        return [_text(value) for value in values.tolist()]
    except (UnicodeDecodeError, TypeError) as cause:
        raise DataError(f"'{path}' has something else than texts: {cause}", remedy="get the file again") from cause


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, str):
        return value
    raise TypeError(f"{type(value).__name__} instead of a text")
