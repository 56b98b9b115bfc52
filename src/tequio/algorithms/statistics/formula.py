"""Formulas as statisticians write them: `y ~ a + b + C(c, ref="x") + a:b + a*b + I(a**2) + log(a) + rcs(d, 4)`.

A parser of its own with a closed list of functions. Nothing is evaluated as code, so that a formula may come from the
coordinator: it is read again at each party.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Column = NDArray[np.float64]

LONGEST, DEEPEST = 5000, 40
FUNCTIONS: dict[str, Callable[[Column], Column]] = {
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "exp": np.exp, "sqrt": np.sqrt, "abs": np.abs}
_OPERATORS: dict[str, Callable[[Column, Column], Column]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power, "==": np.equal,
    "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
_BINDING = {"==": 1, "!=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "+": 2, "-": 2, "*": 3, "/": 3, "**": 5}
_TOKEN = re.compile(r"""\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<name>[^\W\d][\w.]*)|`(?P<quoted>[^`]+)`|"(?P<text>[^"]*)"|'(?P<single>[^']*)'
    |(?P<sign>\*\*|==|!=|<=|>=|[-+*/:~(),<>=\[\]]))""", re.VERBOSE)


@dataclass(frozen=True)
class Number:
    """A number in an expression."""

    value: float


@dataclass(frozen=True)
class Text:
    """A level of a factor in a comparison."""

    value: str


@dataclass(frozen=True)
class Name:
    """A column."""

    name: str


@dataclass(frozen=True)
class Applied:
    """A function or an operator, and what it is applied to."""

    what: str
    to: tuple[Expression, ...]


Expression = Number | Text | Name | Applied


@dataclass(frozen=True)
class Factor:
    """A part of a term: a number per row, the levels of a column, or the basis of a restricted cubic spline."""

    label: str
    of: Expression
    kind: Literal["plain", "levels", "spline"] = "plain"
    reference: str | float | None = None
    knots: int | tuple[float, ...] = 0

    @property
    def column(self) -> str:
        """The column that it reads, where it is one as it is."""
        return self.of.name if isinstance(self.of, Name) else ""


Term = tuple[Factor, ...]


@dataclass(frozen=True)
class Formula:
    """The outcome, the terms in order (main effects before interactions), whether there is a constant, and offsets."""

    outcome: Factor
    terms: tuple[Term, ...]
    constant: bool
    offsets: tuple[Expression, ...] = ()

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The outcome, and all parts of terms, each once."""
        return tuple(dict.fromkeys((self.outcome, *(factor for term in self.terms for factor in term))))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        read = [*(factor.of for factor in self.factors), *self.offsets]
        return tuple(dict.fromkeys(name for one in read for name in names_in(one)))


def names_in(expression: Expression) -> Iterator[str]:
    """The columns that an expression reads."""
    if isinstance(expression, Name):
        yield expression.name
    elif isinstance(expression, Applied):
        for one in expression.to:
            yield from names_in(one)


def numbers_in(expression: Expression) -> Iterator[str]:
    """The columns that an expression reckons with; one that is compared with a text is not among them."""
    match expression:
        case Name(name):
            yield name
        case Applied(_, (Name(), Text())):
            return
        case Applied(_, parts):
            for one in parts:
                yield from numbers_in(one)


def evaluated(expression: Expression, column: Callable[[str], Column], level: Callable[[str, str], float]) -> Column:
    """The values of an expression. `column` gives those of a column, `level` the code of a level of it."""
    match expression:
        case Number(value):
            return np.array(value)
        case Name(name):
            return column(name)
        case Applied("neg", (one,)):
            return -evaluated(one, column, level)
        case Applied(what, (Name(name), Text(text))) if what in ("==", "!="):
            return np.asarray(_OPERATORS[what](column(name), np.array(level(name, text))), dtype=np.float64)
        case Applied(what, (one,)):
            return FUNCTIONS[what](evaluated(one, column, level))
        case Applied(what, (left, right)):
            values = [evaluated(one, column, level) for one in (left, right)]
            return np.asarray(_OPERATORS[what](*values), dtype=np.float64)
    raise ConfigError("a text in a formula stands beside == or != and a column only")


@lru_cache(maxsize=64)
def read_formula(text: str) -> Formula:
    """The formula of a text; anything that is none is refused with the place of the fault."""
    return _Reader(text).formula()


class _Reader:
    """Recursive descent over the tokens of a formula."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._tokens: list[tuple[str, str, int]] = []
        if len(text) > LONGEST:
            raise ConfigError(f"a formula has at most {LONGEST} characters")
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._fault(f"'{text[place:].lstrip()[:1]}' stands for nothing", place)
            kind = str(found.lastgroup)
            self._tokens.append(({"quoted": "name", "single": "text"}.get(kind, kind), found[kind], found.start(kind)))
            place = found.end()

    def formula(self) -> Formula:
        start = self._at
        of = self._sum_of_numbers()
        outcome = Factor(self._said(start), of)
        self._expect("~")
        offsets: list[Expression] = []
        terms = self._terms(offsets)
        if self._at < len(self._tokens):
            raise self._fault(f"'{self._tokens[self._at][1]}' is not expected here", self._tokens[self._at][2])
        constant = () in terms
        real = sorted((term for term in terms if term), key=len)
        if not real and not constant:
            raise ConfigError(f"the formula '{self._text}' has no terms", remedy="write one, such as y ~ x")
        return Formula(outcome, tuple(real), constant, tuple(offsets))

    def _terms(self, offsets: list[Expression]) -> list[Term]:
        """Sums of products of interactions, with the constant as the empty term."""
        self._deeper()
        found: list[Term] = [()] if self._depth == 1 else []
        adds = True
        if self._peek("-") or self._peek("+"):
            adds = self._next()[1] == "+"
        while True:
            for term in self._product(offsets):
                if term is _NOTHING:
                    adds_here, term = not adds, ()
                else:
                    adds_here = adds
                same = [other for other in found if set(other) == set(term)]
                if adds_here and not same:
                    found.append(term)
                elif not adds_here:
                    found = [other for other in found if other not in same]
            if not (self._peek("+") or self._peek("-")):
                self._depth -= 1
                return found
            adds = self._next()[1] == "+"

    def _product(self, offsets: list[Expression]) -> list[Term]:
        parts = [self._interaction(offsets)]
        while self._peek("*"):
            self._next()
            parts.append(self._interaction(offsets))
        if len(parts) == 1:
            return parts[0]
        return [term for size in range(1, len(parts) + 1) for chosen in combinations(parts, size)
                for term in _crossed(list(chosen))]

    def _interaction(self, offsets: list[Expression]) -> list[Term]:
        parts = [self._atom(offsets)]
        while self._peek(":"):
            self._next()
            parts.append(self._atom(offsets))
        return _crossed(parts)

    def _atom(self, offsets: list[Expression]) -> list[Term]:
        if self._peek("("):
            self._next()
            inner = self._terms(offsets)
            self._expect(")")
            return inner
        kind, value, place = self._next()
        if kind == "number" and value in ("0", "1"):
            return [()] if value == "1" else [_NOTHING]
        if kind != "name":
            raise self._fault(f"'{value}' is no term", place)
        start = self._at - 1
        if not self._peek("("):
            return [(Factor(value, Name(value)),)]
        self._next()
        factor = self._called(value, place, start, offsets)
        return [] if factor is None else [(factor,)]

    def _called(self, name: str, place: int, start: int, offsets: list[Expression]) -> Factor | None:
        """After the opening bracket of a function among terms; nothing where it was an offset."""
        if name in ("C", "rcs"):
            column = self._column()
            reference: str | float | None = None
            knots: int | tuple[float, ...] = 0
            if self._peek(","):
                self._next()
                if name == "C":
                    self._keyword("ref")
                    kind, value, _ = self._next()
                    reference = float(value) if kind == "number" else value
                else:
                    knots = self._knots()
            self._expect(")")
            if name == "C":
                return Factor(f"C({column})", Name(column), "levels", reference)
            if not (3 <= (knots if isinstance(knots, int) else len(knots)) <= 7):
                raise self._fault("'rcs' has from 3 to 7 knots, as in rcs(age, 4)", place)
            return Factor(f"rcs({column})", Name(column), "spline", None, knots)
        if name not in ("I", "offset", *FUNCTIONS):
            raise self._fault(f"there is no function '{name}' ({nearest(name, ['C', 'I', 'rcs', 'offset', *FUNCTIONS])}"
                              ")", place)
        inner = self._sum_of_numbers()
        self._expect(")")
        if name == "offset":
            offsets.append(inner)
            return None
        label = self._said(start)
        return Factor(label, inner if name == "I" else Applied(name, (inner,)))

    def _column(self) -> str:
        kind, value, place = self._next()
        if kind != "name":
            raise self._fault("the name of a column is expected", place)
        return value

    def _knots(self) -> int | tuple[float, ...]:
        kind, value, place = self._next()
        if kind == "number" and value.isdigit():
            return int(value)
        if (kind, value) != ("name", "knots"):
            raise self._fault("a number of knots is expected, or knots = [...]", place)
        self._expect("=")
        self._expect("[")
        found = [self._number()]
        while self._peek(","):
            self._next()
            found.append(self._number())
        self._expect("]")
        if any(low >= high for low, high in pairwise(found)):
            raise self._fault("knots rise", place)
        return tuple(found)

    def _number(self) -> float:
        sign = -1.0 if self._peek("-") else 1.0
        if sign < 0:
            self._next()
        kind, value, place = self._next()
        if kind != "number":
            raise self._fault("a number is expected", place)
        return sign * float(value)

    def _keyword(self, word: str) -> None:
        kind, value, place = self._next()
        if (kind, value) != ("name", word):
            raise self._fault(f"'{word} = ...' is expected", place)
        self._expect("=")

    def _sum_of_numbers(self, binding: int = 0) -> Expression:
        """An expression, by the binding of its operators."""
        self._deeper()
        left = self._operand()
        while self._at < len(self._tokens) and self._tokens[self._at][0] == "sign":
            sign = self._tokens[self._at][1]
            if _BINDING.get(sign, 0) <= binding:
                break
            self._next()
            # A power binds to the right, everything else to the left.
            left = Applied(sign, (left, self._sum_of_numbers(_BINDING[sign] - (sign == "**"))))
        self._depth -= 1
        return left

    def _operand(self) -> Expression:
        kind, value, place = self._next()
        if kind == "number":
            return Number(float(value))
        if kind == "text":
            return Text(value)
        if value == "-" and kind == "sign":
            return Applied("neg", (self._sum_of_numbers(4),))
        if value == "(" and kind == "sign":
            inner = self._sum_of_numbers()
            self._expect(")")
            return inner
        if kind != "name":
            raise self._fault(f"'{value}' is not expected here", place)
        if not self._peek("("):
            return Name(value)
        if value not in ("I", *FUNCTIONS):
            raise self._fault(f"there is no function '{value}' ({nearest(value, ['I', *FUNCTIONS])})", place)
        self._next()
        inner = self._sum_of_numbers()
        self._expect(")")
        return inner if value == "I" else Applied(value, (inner,))

    def _said(self, start: int) -> str:
        """The tokens from one up to here, without spaces between them."""
        return "".join(f'"{value}"' if kind == "text" else value for kind, value, _ in self._tokens[start:self._at])

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ConfigError(f"a formula nests at most {DEEPEST} brackets deep")

    def _peek(self, sign: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at][:2] == ("sign", sign)

    def _next(self) -> tuple[str, str, int]:
        if self._at == len(self._tokens):
            raise self._fault("it ends too early", len(self._text))
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, sign: str) -> None:
        if not self._peek(sign):
            raise self._fault(f"'{sign}' is expected",
                              self._tokens[self._at][2] if self._at < len(self._tokens) else len(self._text))
        self._next()

    def _fault(self, what: str, place: int) -> ConfigError:
        return ConfigError(f"the formula '{self._text[:200]}' cannot be read at character {place + 1}: {what}",
                           remedy="write it as y ~ a + b + C(c, ref=\"x\") + a:b + log(d) + offset(log(t))")


_NOTHING: Term = (Factor("0", Number(0.0)),)
"""`+ 0` takes the constant away, as `- 1` does."""


def _crossed(parts: list[list[Term]]) -> list[Term]:
    """Every term of each part with every one of the others; a factor stands in a term once."""
    found: list[Term] = [()]
    for part in parts:
        found = [left if right is _NOTHING else tuple(dict.fromkeys((*left, *right))) for left in found
                 for right in part] if len(parts) > 1 else part
    return list(dict.fromkeys(found)) if len(parts) > 1 else found
