"""The grammar of questions: what `tequio ask` takes, and nothing else.

    ask      = measures [ ["group"] "by" keys ] [ "where" cond ]          (the last two in either order)
    measures = measure { "," measure }
    measure  = "count" [ "(" "*" ")" ] | ("sum" | "mean" | "sd" | "median") "(" column ")"
             | "share" "(" cond ")" | "quantile" "(" column "," number ")"
    keys     = key { "," key }          key = column | "bin" "(" column { "," number } ")"
    cond     = all { "or" all }         all = one { "and" one }
    one      = [ "not" ] ( "(" cond ")" | column op value | column "in" "(" value { "," value } ")" )
    op       = "=" | "!=" | "<>" | "<" | "<=" | ">" | ">="

A column with a space or a sign in its name stands in double quotes, a text in single ones. A question is sent as this
text, so that a person reads what is asked, and every party parses it for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

Kind = Literal["count", "sum", "mean", "sd", "median", "quantile", "share"]
Op = Literal["=", "!=", "<", "<=", ">", ">="]
Value = float | str

MOST_LETTERS, MOST_COMPARISONS, MOST_KEYS = 2_000, 8, 3
_DEEPEST = 16
_WORDS = frozenset({"by", "group", "where", "and", "or", "not", "in"})
_OF_COLUMN: tuple[Kind, ...] = ("sum", "mean", "sd", "median")
_TOKEN = re.compile(r"""\s*(?: (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    | (?P<word>[^\W\d]\w*(?:[.-]\w+)*) | "(?P<name>[^"]+)" | '(?P<text>(?:[^']|'')*)'
    | (?P<op><=|>=|!=|<>|=|<|>) | (?P<sign>[(),*]) )""", re.VERBOSE)


@dataclass(frozen=True)
class Compare:
    """A column beside a value; `=` of several values is "in"."""

    column: str
    op: Op
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Not:
    """The rows of which a condition does not hold."""

    one: Condition


@dataclass(frozen=True)
class Both:
    """The rows of which all conditions hold, or any."""

    how: Literal["and", "or"]
    parts: tuple[Condition, ...]


Condition = Compare | Not | Both


@dataclass(frozen=True)
class Measure:
    """What is asked of each cell: `at` is the share of a quantile, `holds` the condition of a share."""

    kind: Kind
    column: str = ""
    at: float = 0.5
    holds: Condition | None = None
    text: str = ""


@dataclass(frozen=True)
class Key:
    """A column that cells are made by; `edges` cut numbers into cells from one edge up to below the next."""

    column: str
    edges: tuple[float, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question as it was parsed."""

    measures: tuple[Measure, ...]
    keys: tuple[Key, ...] = ()
    where: Condition | None = None

    @property
    def conditions(self) -> list[Condition]:
        """All conditions of the question."""
        return [one for one in (self.where, *(measure.holds for measure in self.measures)) if one is not None]


def comparisons(condition: Condition) -> list[Compare]:
    """The comparisons that a condition is made of."""
    if isinstance(condition, Compare):
        return [condition]
    parts = (condition.one,) if isinstance(condition, Not) else condition.parts
    return [found for part in parts for found in comparisons(part)]


def parse(text: str) -> Question:
    """The question of a text, or a refusal that says what was expected and where."""
    if len(text) > MOST_LETTERS:
        raise ConfigError(f"the question has {len(text)} characters, and {MOST_LETTERS} are the most",
                          remedy="ask in several questions")
    return _Parser(text).question()


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


class _Parser:
    """One function per rule of the grammar, each of which takes the tokens that are its own."""

    def __init__(self, text: str) -> None:
        self._text, self._place, self._depth = text, 0, 0
        self._tokens: list[_Token] = []
        start, end = 0, len(text.rstrip())
        while start < end:
            found = _TOKEN.match(text, start)
            if found is None or found.lastgroup is None:
                begins = start + len(text[start:]) - len(text[start:].lstrip())
                raise ConfigError(f"the question cannot be read from character {begins + 1} on: {text[begins:][:20]!r}",
                                  remedy="write texts in single quotes and unusual column names in double quotes")
            kind = found.lastgroup
            self._tokens.append(_Token(kind, found[kind], found.start(kind)))
            start = found.end()

    def question(self) -> Question:
        measures, keys, where = self._several(self._measure), tuple[Key, ...](), None
        while self._place < len(self._tokens):
            if self._takes("where") and where is None:
                where = self._condition()
            elif not keys and (self._takes("by") or (self._takes("group") and self._needs("by"))):
                keys = self._several(self._key)
            else:
                self._place -= self._tokens[self._place - 1].text.lower() == "where"
                self._fails("',', 'by' or 'where', each of the last two once")
        question = Question(measures, keys, where)
        if len(keys) > MOST_KEYS:
            raise ConfigError(f"the question has {len(keys)} keys, and {MOST_KEYS} are the most",
                              remedy="ask in several questions, each with fewer columns after 'by'")
        number = sum(len(comparisons(one)) for one in question.conditions)
        if number > MOST_COMPARISONS:
            raise ConfigError(f"the question has {number} comparisons, and {MOST_COMPARISONS} are the most",
                              remedy="compare less, or list values: column in ('a', 'b')")
        return question

    def _measure(self) -> Measure:
        start = self._place
        word = self._next("word", "a measure such as count or mean(column)").text.lower()
        kind = "mean" if word == "avg" else word
        column, at, holds = "", 0.5, None
        if kind == "count":
            if self._takes("("):
                self._needs("*")
                self._needs(")")
        elif kind in (*_OF_COLUMN, "quantile", "share"):
            self._needs("(")
            if kind == "share":
                holds = self._condition()
            else:
                column = self._column()
            if kind == "quantile":
                self._needs(",")
                at = self._number()
                if not 0 < at < 1:
                    raise ConfigError(f"a quantile is at a share between 0 and 1, not at {at:g}",
                                      remedy="such as quantile(age, 0.9)")
            self._needs(")")
        else:
            self._place = start
            self._fails("count, sum, mean, sd, median, quantile or share")
        last = self._tokens[self._place - 1]
        words = self._text[self._tokens[start].start:last.start + len(last.text)].split()
        return Measure(kind, column, at, holds, " ".join(words))  # type: ignore[arg-type]

    def _key(self) -> Key:
        at_bin = self._peek("word") == "bin" and self._place + 1 < len(self._tokens) \
            and self._tokens[self._place + 1].text == "("
        if not at_bin:
            return Key(self._column())
        self._place += 2
        column, edges = self._column(), list[float]()
        while self._takes(","):
            edges.append(self._number())
        self._needs(")")
        if edges != sorted(set(edges)):
            raise ConfigError(f"the edges of bin({column}, ...) have to rise", remedy="such as bin(age, 40, 60)")
        return Key(column, tuple(edges))

    def _condition(self) -> Condition:
        return self._joined("or", lambda: self._joined("and", self._one))

    def _joined(self, how: Literal["and", "or"], part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._takes(how):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Both(how, tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConfigError(f"the conditions of the question lie in one another more than {_DEEPEST} times",
                              remedy="write them with fewer brackets and fewer 'not'")
        found: Condition
        if self._takes("not"):
            found = Not(self._one())
        elif self._takes("("):
            found = self._condition()
            self._needs(")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Compare:
        column = self._column()
        if self._takes("not"):
            self._fails("'not' before the column, as in: not column in (...)", back=1)
        if self._takes("in"):
            self._needs("(")
            values = self._several(self._value)
            self._needs(")")
            return Compare(column, "=", values)
        op = self._next("op", "one of = != < <= > >= in").text
        return Compare(column, "!=" if op == "<>" else op, (self._value(),))  # type: ignore[arg-type]

    def _value(self) -> Value:
        if self._peek("number"):
            return self._number()
        token = self._tokens[self._place] if self._place < len(self._tokens) else None
        if token is None or token.kind not in ("text", "word") or (
                token.kind == "word" and token.text.lower() in _WORDS):
            self._fails("a number, or a text in single quotes")
        self._place += 1
        return token.text.replace("''", "'") if token.kind == "text" else token.text

    def _number(self) -> float:
        value = float(self._next("number", "a number").text)
        if not isfinite(value):
            self._fails("a number that is finite", back=1)
        return value

    def _column(self) -> str:
        token = self._tokens[self._place] if self._place < len(self._tokens) else None
        if token is None or not (token.kind == "name" or (
                token.kind == "word" and token.text.lower() not in _WORDS)):
            self._fails("the name of a column")
        self._place += 1
        return token.text

    def _several(self, part: Callable[[], T]) -> tuple[T, ...]:
        parts = [part()]
        while self._takes(","):
            parts.append(part())
        return tuple(parts)

    def _peek(self, kind: str) -> str:
        """The next token's text in small letters, if it is of that kind."""
        token = self._tokens[self._place] if self._place < len(self._tokens) else None
        return token.text.lower() if token is not None and token.kind == kind else ""

    def _takes(self, text: str) -> bool:
        kind = "word" if text in _WORDS else "sign"
        found = self._peek(kind) == text
        self._place += found
        return found

    def _needs(self, text: str) -> bool:
        return self._takes(text) or self._fails(f"'{text}'")

    def _next(self, kind: str, wanted: str) -> _Token:
        if not self._peek(kind):
            self._fails(wanted)
        self._place += 1
        return self._tokens[self._place - 1]

    def _fails(self, wanted: str, *, back: int = 0) -> NoReturn:
        place = self._place - back
        there = f"found '{self._tokens[place].text}' at character {self._tokens[place].start + 1}" \
            if place < len(self._tokens) else "the question ends"
        raise ConfigError(f"the question is not clear: expected {wanted}, but {there}",
                          remedy="such as: mean(age), count by sex where city = 'Oaxaca'")
