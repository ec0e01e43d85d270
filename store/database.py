"""A SQLite file that several processes share and that nobody depends on."""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from store.tally import Tally

logger = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
_PRIVATE = Path(":memory:")

Statement = tuple[str, Iterable[Sequence[Any]]]
"""SQL and the parameters of each of its executions."""


class Database:
    """Reads and writes that never raise because of the file: a failure is counted and reads as nothing.

    A damaged file, or one of another schema version, is replaced by an empty one; a place that cannot be written gets a
    private database in memory.
    """

    def __init__(
        self, path: Path, schema: Sequence[str], version: int, functions: Mapping[str, Callable[..., Any]], tally: Tally
    ) -> None:
        self._path = path
        self._schema = schema
        self._version = version
        self._functions = functions
        self._tally = tally
        self._lock = threading.RLock()
        self._left_to_parents: list[sqlite3.Connection] = []
        self._fresh = False
        self._open()

    @property
    def private(self) -> bool:
        """True when the file could not be used and no other process sees what is written."""
        return self._path == _PRIVATE

    def take_fresh(self) -> bool:
        """Whether an empty file was begun since the last call: its content has to be gathered anew."""
        fresh, self._fresh = self._fresh, False
        return fresh

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query; none when it fails."""
        with self._lock:
            try:
                return self._current().execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                self._failed(error)
                return []

    def write(self, *statements: Statement) -> bool:
        """Run all statements in one transaction; False when it failed and changed nothing."""
        with self._lock:
            try:
                with _transaction(self._current()) as connection:
                    for sql, rows in statements:
                        connection.executemany(sql, rows)
            except sqlite3.Error as error:
                self._failed(error)
                return False
            return True

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _open(self) -> None:
        for attempt in (self._path, self._path, _PRIVATE):
            try:
                self._connect(attempt)
                return
            except sqlite3.DatabaseError as error:
                logger.warning("index %s cannot be used: %s", attempt, error)
                self._tally.add("index_errors")
                if not isinstance(error, sqlite3.OperationalError):
                    self._discard_file()

    def _connect(self, path: Path) -> None:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            with contextlib.suppress(sqlite3.OperationalError):  # locked: another process is changing the mode
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            for name, function in self._functions.items():
                connection.create_function(name, -1, function, deterministic=True)
            with _transaction(connection):
                self._fresh = self._prepare(connection) or self._fresh
        except BaseException:
            connection.close()
            raise
        self._connection, self._path, self._pid, self._inode = connection, path, os.getpid(), _inode(path)

    def _prepare(self, connection: sqlite3.Connection) -> bool:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        if version == self._version:
            return False
        if version:
            raise sqlite3.DatabaseError(f"schema version {version}, expected {self._version}")
        for statement in self._schema:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {self._version}")
        return True

    def _current(self) -> sqlite3.Connection:
        """The connection, opened again in a forked child and when the file was removed or replaced."""
        if os.getpid() != self._pid:
            self._left_to_parents.append(self._connection)  # closing it here would end the parent's locks
            self._open()
        elif _inode(self._path) != self._inode:
            self._connection.close()
            self._open()
        return self._connection

    def _failed(self, error: sqlite3.Error) -> None:
        logger.warning("index %s: %s", self._path, error)
        self._tally.add("index_errors")
        if type(error) is sqlite3.DatabaseError:  # damaged; a locked or full one is a subclass
            self._connection.close()
            self._discard_file()
            self._open()

    def _discard_file(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._path}{suffix}")


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Any:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _inode(path: Path) -> int:
    if path == _PRIVATE:
        return 0
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1
