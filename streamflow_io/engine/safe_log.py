"""Keeps what a terminal would obey out of StreamFlow's log: names, commands and errors come from the CWL of others."""

from __future__ import annotations

import logging
import traceback

from streamflow_io.wording import displayed


class SafeLog(logging.Filter):
    """Lets each record pass, without control sequences. Colours stay, because StreamFlow sets colours itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (shown := displayed(message, colours=True)) != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_text is None:
            # A handler prints this text instead of the exception.
            record.exc_text = displayed("".join(traceback.format_exception(*record.exc_info))).rstrip("\n")
        return True
