"""Rows of a database, read by a query: SQLite, DuckDB and PostgreSQL. Nothing is ever written there.

A database gives rows in any order, so they are sorted by all their columns: the same rows give the same run. Passwords
have no place in a connection, because configs are kept; libpq finds them in the environment and in its own files.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
from pydantic import AfterValidator

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.catalogue.own import OwnTable
from tequio.data.inputs.column import columns_of
from tequio.data.inputs.reading import refuse_twice
from tequio.data.inputs.tables import columns_from_arrow
from tequio.errors import ConfigError, DataError, MissingExtra
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.data.dataset import Dataset
    from tequio.data.inputs.column import Columns


_FORMS = "sqlite:///FILE, duckdb:///FILE or postgresql://USER@HOST/DATABASE"
_READS = ("select", "with", "from", "values", "table")
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_READ_ONLY = "-c default_transaction_read_only=on"


def is_connection(text: object) -> bool:
    """Whether this is written like a connection to a database that can be read."""
    return isinstance(text, str) and text.partition(":")[0] in _READERS


def without_password(connection: str) -> str:
    """The connection, if it can be kept. No part of it is ever quoted: it may hold a password in a wrong place."""
    if not is_connection(connection):
        raise ConfigError("data.connection is of no known kind", remedy=f"write it as {_FORMS}")
    try:
        parts = urlsplit(connection)
        secret = parts.password is not None or any("password" in key.lower() for key, _ in parse_qsl(parts.query))
        in_place = parts.scheme in _FILES or "@" not in parts.path + parts.query + parts.fragment
        _ = parts.port  # a password with a slash in it looks like a port that is no number, and is refused by this
    except ValueError:
        secret, in_place = False, False
    if secret or not in_place:
        raise ConfigError("data.connection holds a password, which would be kept in the run folder" if secret else
                          "data.connection cannot be read as an address", remedy="leave the password out, and set the "
                          "environment variable PGPASSWORD or write it into ~/.pgpass; the rest is written as "
                          f"{_FORMS.rpartition(' ')[2]}")
    return connection


def only_reads(query: str) -> str:
    """The query, if it asks for rows and for nothing else; the database is asked to refuse the rest too."""
    first = _COMMENTS.sub(" ", query).split(maxsplit=1)
    if not first or first[0].lower().strip("(") not in ("", *_READS):
        raise ConfigError("data.query has to read rows, and nothing else", remedy="write a query that begins with "
                          "SELECT, such as data.query = \"SELECT age, risk FROM patients\"")
    return query


@register("dataset", "sql", example='[data]\nname = "sql"\nconnection = "sqlite:///hospital.db"\n'
                                    'query = "SELECT age, ward, risk FROM patients"\ntarget = "risk"\n')
@dataclass(frozen=True)
class Sql(OwnTable):
    """Rows that a query finds in a database: SQLite, DuckDB or PostgreSQL, which are opened for reading only.

    Rows are sorted by all their columns, since a database may give them in any order.

    Parameters:
        connection: sqlite:///FILE, duckdb:///FILE or postgresql://USER@HOST/DATABASE, without a password: that belongs
            into the environment variable PGPASSWORD or into ~/.pgpass
        query: the SELECT that finds the rows
        test_query: a second query of the same columns for the test rows
    """

    facts: ClassVar[Facts] = Facts(None, None, "as you say", "yours", "", "a database")
    connection: Annotated[str, AfterValidator(without_password)] = field(kw_only=True)
    query: Annotated[str, AfterValidator(only_reads)] = field(kw_only=True)
    test_query: Annotated[str, AfterValidator(only_reads)] | None = field(default=None, kw_only=True)

    def load(self) -> Loaded:
        """The rows that the queries find; test rows have to follow the schema of the training rows."""
        train = self._found(self.query)
        return Loaded(train, None if self.test_query is None else self._found(self.test_query, train))

    def _found(self, query: str, like: Dataset | None = None) -> Dataset:
        found = self.read(columns_from_query(self.connection, query), like=like, name="query")
        note = _chance_of(query)
        return replace(found, source=replace(found.source, notes=(*found.source.notes, note))) if note else found


def columns_from_query(connection: str, query: str) -> Columns:
    """The columns that a query finds, their rows in the order of the values."""
    columns = _READERS[without_password(connection).partition(":")[0]](connection, only_reads(query))
    keys = [np.unique(column.values.astype(str) if column.is_text else column.values, return_inverse=True)[1]
            for column in columns.values()]
    if not keys or not len(keys[0]):
        raise DataError("the query finds no rows", remedy="check data.query in the database's own shell")
    order = np.lexsort(keys[::-1])
    return {name: column.take(order) for name, column in columns.items()}


def beside(connection: object, folder: Path) -> object:
    """A connection to a file of that folder by its whole path; others as they are."""
    if not is_connection(connection) or str(connection).partition(":")[0] not in _FILES:
        return connection
    scheme, path = str(connection).partition(":")[0], _file_of(str(connection))
    return f"{scheme}:///{(folder / path).resolve()}" if path and (folder / path).exists() else connection


def _chance_of(query: str) -> str:
    words = _COMMENTS.sub(" ", query).lower()
    if re.search(r"\blimit\b", words) is None or re.search(r"\border\s+by\b", words) is not None:
        return ""
    return "the query has a LIMIT and no ORDER BY, so that the database may find other rows each time"


def _file_of(connection: str) -> str:
    """The path of sqlite:///FILE; with a fourth slash it begins at the root. Empty for a database in memory."""
    return connection.partition(":")[2].removeprefix("//").removeprefix("/")


def _from_sqlite(connection: str, query: str) -> Columns:
    path = _existing(connection)
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
        try:
            cursor = database.execute(query)
            names, rows = [column[0] for column in cursor.description], cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning) as cause:
            raise _failed(cause) from None
    refuse_twice(names, "the query")
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    return columns_of({name: _objects(column) for name, column in zip(names, values, strict=True)})


def _from_duckdb(connection: str, query: str) -> Columns:
    try:
        import duckdb
    except ImportError as cause:
        raise MissingExtra("duckdb", "sql", "reading a DuckDB database") from cause
    path = str(_existing(connection)) if _file_of(connection) else ":memory:"
    try:
        with closing(duckdb.connect(path, read_only=path != ":memory:")) as database:
            kinds = [statement.type for statement in database.extract_statements(query)]
            if kinds != [duckdb.StatementType.SELECT]:
                raise ConfigError("data.query has to be one statement that reads", remedy="write one SELECT")
            table = database.sql(query).to_arrow_table()
    except duckdb.Error as cause:
        raise _failed(cause) from None
    return columns_from_arrow(table)


def _from_postgresql(connection: str, query: str) -> Columns:
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql.dbapi import connect
    except ImportError as cause:
        raise MissingExtra("adbc-driver-postgresql", "sql", "reading a PostgreSQL database") from cause
    try:
        with connect(_reading_only(connection)) as database, database.cursor() as cursor:
            cursor.execute(query)
            table = cursor.fetch_arrow_table()
    except Error as cause:
        raise _failed(cause) from None
    return columns_from_arrow(table)


def _reading_only(connection: str) -> str:
    """The same address with the option that makes every transaction read-only."""
    parts = urlsplit(connection)
    options = dict(parse_qsl(parts.query))
    options["options"] = f"{options.get('options', '')} {_READ_ONLY}".strip()
    return parts._replace(query=urlencode(options, quote_via=quote)).geturl()


def _existing(connection: str) -> Path:
    path = Path(_file_of(connection))
    if not path.is_file():
        raise DataError(f"there is no database '{path}'", remedy="check data.connection; four slashes begin at the "
                        "root: sqlite:////srv/hospital.db")
    return path


def _objects(values: tuple[Any, ...]) -> np.ndarray[Any, np.dtype[np.object_]]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _failed(cause: Exception) -> DataError:
    said = str(cause).strip().splitlines()[0]
    remedy = "set the environment variable PGPASSWORD, or write the password into ~/.pgpass" if "password" in said \
        else "check data.connection and data.query in the database's own shell"
    return DataError(f"the database refuses: {said}", remedy=remedy)


_FILES = ("sqlite", "duckdb")
_READERS: dict[str, Callable[[str, str], Columns]] = {
    "sqlite": _from_sqlite,
    "duckdb": _from_duckdb,
    "postgresql": _from_postgresql,
    "postgres": _from_postgresql,
}
