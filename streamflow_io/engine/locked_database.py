"""The messages when another run holds StreamFlow's database."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamflow.log_handler import logger
from streamflow.persistence.sqlite import DEFAULT_SQLITE_CONNECTION, IN_MEMORY_SQLITE_CONNECTION

from streamflow_io.loop_connection import is_locked, says_locked

# Seconds. Runs with the plugin's scheduler hold the database only for moments.
_LOCKED_SECONDS = 1.0
WHAT_TO_DO = (
    "run one after the other, or add a database of its own to the StreamFlow file: "
    "`database: {type: default, config: {connection: FILE}}`"
)


class LockedDatabase(logging.Filter):
    """Lets only one message about a locked database pass, in words and without a stack trace.

    Plain StreamFlow writes to its database in one transaction, from the first step of a run to its end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.connection: str = DEFAULT_SQLITE_CONNECTION
        self._is_told = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not _is_of_lock(error):
            return True
        if self._is_told:
            return False
        self._is_told = True
        record.msg, record.args, record.exc_info, record.exc_text = held(self.connection), (), None, None
        return True


_FILTER = LockedDatabase()


def explain_locked_database(config: Mapping[str, Any]) -> None:
    """Explain the error in words if the database of a StreamFlow file is locked, also after the end of the run.

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


def _is_of_lock(error: BaseException | None) -> bool:
    while error is not None:
        if says_locked(error):
            return True
        error = error.__cause__ or error.__context__
    return False
