"""The messages when StreamFlow's database cannot be used: another run holds it, or its disk is full."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamflow.log_handler import logger
from streamflow.persistence.sqlite import DEFAULT_SQLITE_CONNECTION, IN_MEMORY_SQLITE_CONNECTION

from streamflow_io.loop_connection import is_locked, says_locked

# Seconds. Runs with the plugin's scheduler hold the database only for moments.
_LOCKED_SECONDS = 1.0
OWN_DATABASE = (
    "add a database of its own to the StreamFlow file: `database: {type: default, config: {connection: FILE}}`"
)
WHAT_TO_DO = f"run one after the other, or {OWN_DATABASE}"


class DatabaseMessages(logging.Filter):
    """Lets only one message about errors of the database pass, in words and without a stack trace.

    Plain StreamFlow writes to its database in one transaction, from the first step of a run to its end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.connection: str = DEFAULT_SQLITE_CONNECTION
        self._is_told = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = _database_error(record.exc_info[1] if record.exc_info else None)
        if error is None:
            return True
        if self._is_told:
            return False
        self._is_told = True
        message = held(self.connection) if says_locked(error) else unusable(self.connection, error)
        record.msg, record.args, record.exc_info, record.exc_text = message, (), None, None
        return True


_FILTER = DatabaseMessages()


def explain_database_errors(config: Mapping[str, Any]) -> None:
    """Explain errors of the database of a StreamFlow file in words, also after the end of the run.

    :param config: the StreamFlow file
    """
    _FILTER.connection = _connection(config)
    logger.addFilter(_FILTER)


def say_locked() -> None:
    """Log that the run waits for the database."""
    logger.warning(f"This run waits for StreamFlow's database. {held(_FILTER.connection)}")


def held(connection: str) -> str:
    """The message that a database is locked, by what, and what to do."""
    return (
        f"The database {connection} is locked by another program, as by a run of plain StreamFlow, which holds it to "
        f"its end: {WHAT_TO_DO}"
    )


def unusable(connection: str, error: sqlite3.Error) -> str:
    """The message that a database cannot be read or written, and what to do."""
    return f"StreamFlow's database {connection} cannot be used: {error}. Mend this, or {OWN_DATABASE}"


def locked_now(config: Mapping[str, Any], directory: Path) -> str | None:
    """The database of a StreamFlow file, if another program holds it now; None: no program does. Creates no database.

    :param config: the StreamFlow file; empty: StreamFlow's default
    :param directory: of the StreamFlow file
    """
    connection = _connection(config)
    if config.get("database", {}).get("type", "default") != "default" or connection == IN_MEMORY_SQLITE_CONNECTION:
        return None
    return connection if is_locked(directory / connection, _LOCKED_SECONDS) else None


def _connection(config: Mapping[str, Any]) -> str:
    return str(config.get("database", {}).get("config", {}).get("connection", DEFAULT_SQLITE_CONNECTION))


def _database_error(error: BaseException | None) -> sqlite3.Error | None:
    while error is not None:
        if isinstance(error, sqlite3.Error):
            return error
        error = error.__cause__ or error.__context__
    return None
