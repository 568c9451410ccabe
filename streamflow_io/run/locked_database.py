"""What is said when another run holds StreamFlow's database."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from typing import Any

from streamflow.log_handler import logger
from streamflow.persistence.sqlite import DEFAULT_SQLITE_CONNECTION


class LockedDatabase(logging.Filter):
    """Lets pass, of all that fails of a locked database, one message, in words and without a stack trace.

    StreamFlow writes to its database in one transaction, from the first step of a run to its end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.connection: str = DEFAULT_SQLITE_CONNECTION
        self._is_told = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not _is_locked(error):
            return True
        if self._is_told:
            return False
        self._is_told = True
        record.msg, record.args, record.exc_info, record.exc_text = self._message(), (), None, None
        return True

    def _message(self) -> str:
        return (
            f"The database {self.connection} is locked by another run, which holds it to its end: run one after the "
            "other, or give each a database, `database: {type: default, config: {connection: FILE}}` in the StreamFlow "
            "file"
        )


_FILTER = LockedDatabase()


def explain_locked_database(config: Mapping[str, Any]) -> None:
    """Say it in words if the database of a StreamFlow file is locked; also when the run has ended of it.

    :param config: the StreamFlow file
    """
    database = config.get("database", {}).get("config", {})
    _FILTER.connection = str(database.get("connection", DEFAULT_SQLITE_CONNECTION))
    logger.addFilter(_FILTER)


def _is_locked(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
