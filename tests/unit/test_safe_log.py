"""Names, commands and errors of others in the log."""

from __future__ import annotations

import logging
import sys

from streamflow_io.jobs.failure import SafeLog

TITLE = "\x1b]0;title\x07\x1b[2J\u202etxt.exe"
SHOWN = "\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[2J"
SHOWN += "\N{REPLACEMENT CHARACTER}txt.exe"


def logged(message: str, *arguments: object, error: BaseException | None = None) -> str:
    information = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("streamflow", logging.ERROR, __file__, 1, message, arguments, information)
    assert SafeLog().filter(record)
    return logging.Formatter().format(record)


def test_a_terminal_obeys_colours_alone() -> None:
    assert logged("\x1b[31;1mFAILED\x1b[0m step %s\n\tls %d%%", TITLE, 3) == (
        f"\x1b[31;1mFAILED\x1b[0m step {SHOWN}\n\tls 3%"
    )
    assert logged("done %s") == "done %s"


def test_errors_are_shown_without_what_a_terminal_would_obey() -> None:
    try:
        raise ValueError(TITLE)
    except ValueError as error:
        shown = logged("it fails", error=error)
    assert shown.startswith("it fails\nTraceback")
    assert shown.endswith(f"ValueError: {SHOWN}")
    assert sys.exc_info() == (None, None, None)
