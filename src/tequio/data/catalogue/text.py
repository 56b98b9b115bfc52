"""Public sets of texts, as numbers that need no shared vocabulary: words are hashed, the same way at every party."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge
from scipy import sparse

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.manifest import FILES, data_file
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.fetch import decoded
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Matrix


_PATH = "sentiment140/sentiment140_100k.csv.gz"
_WORD = re.compile(r"[a-z0-9@#']+")


@register("dataset", "sentiment140", paper="Go et al., 2009")
@dataclass(frozen=True)
class Sentiment140:
    """Tweets of 2009, negative or positive (100 000 of 1 600 000; real tweets, some with rough language).

    Parameters:
        representation: words (sparse counts of hashed words) or tokens (the hashed words in order, for embeddings)
        width: columns that words are hashed to, for words
        ngrams: count runs of up to this many words, for words
        vocabulary: numbers that words are hashed to, for tokens; 0 fills up short tweets
        length: words a tweet, for tokens; longer tweets are cut
    """

    facts: ClassVar[Facts] = Facts(100_000, None, "2 classes", "none stated (academic use)", "Go, Bhayani, Huang 2009",
                                   "repository geraldzakwan/iykra-sentiment-analysis", files=(_PATH,))
    representation: Literal["words", "tokens"] = "words"
    width: Annotated[int, Ge(2)] = 2**14
    ngrams: Annotated[int, Ge(1)] = 1
    vocabulary: Annotated[int, Ge(2)] = 10_000
    length: Annotated[int, Ge(1)] = 32

    def load(self) -> Loaded:
        """All rows."""
        words = self.representation == "words"
        variant = f"words_{self.width}_{self.ngrams}" if words else f"tokens_{self.vocabulary}_{self.length}"
        kept = decoded(f"sentiment140_{variant}", FILES[_PATH].sha256, self._represent)
        target = Target("classes", ("negative", "positive"), "sentiment")
        if words:
            shape = (len(kept["target"]), self.width)
            features: Matrix = sparse.csr_matrix((kept["data"], kept["indices"], kept["indptr"]), shape=shape)
            schema = Schema.of_numbers((f"hash_{column}" for column in range(self.width)), target)
        else:
            features, numbers = kept["tokens"], tuple(str(number) for number in range(self.vocabulary))
            schema = Schema(tuple(Feature(f"word_{place}", numbers) for place in range(self.length)), target)
        return Loaded(Dataset.of(schema, features, kept["target"], name="sentiment140"))

    def _represent(self) -> dict[str, Any]:
        with gzip.open(data_file(_PATH), "rt", encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))[1:]
        target = np.array([int(label) for label, _ in rows])
        texts = [text for _, text in rows]
        if self.representation == "tokens":
            return {"target": target, "tokens": hashed_tokens(texts, self.vocabulary, self.length)}
        counts = hashed_counts(texts, self.width, self.ngrams)
        return {"target": target, "data": counts.data, "indices": counts.indices, "indptr": counts.indptr}


def hashed_counts(texts: Sequence[str], width: int, ngrams: int) -> Matrix:
    """A CSR matrix of how often each hashed run of words occurs in each text."""
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(n_features=width, ngram_range=(1, ngrams), alternate_sign=False, norm=None,
                                   dtype=np.float32, token_pattern=None, tokenizer=_words, lowercase=False)
    return vectorizer.transform(texts)


def hashed_tokens(texts: Sequence[str], vocabulary: int, length: int) -> NDArray[np.int32]:
    """Each text's first words as numbers 1 to vocabulary - 1, filled up with 0."""
    tokens = np.zeros((len(texts), length), dtype=np.int32)
    for row, text in enumerate(texts):
        numbers = [zlib.crc32(word.encode()) % (vocabulary - 1) + 1 for word in _words(text)[:length]]
        tokens[row, :len(numbers)] = numbers
    return tokens


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
