"""Reads telemetry files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from streamflow_io.hints.errors import HintErrors

from .records import RECORD, VERSION, Record, RunRecord


def read_records(path: Path) -> Iterator[Record]:
    """The records of a telemetry file, in the order in which they were written; the first is a :class:`RunRecord`.

    The last line is ignored if it has no end: the run was killed, or is still writing it. Unknown fields are ignored.

    :raises HintErrors: if the file cannot be read or holds something else; names the line
    """
    try:
        with path.open("rb") as file:
            whole = (line for line in file if line.endswith(b"\n"))
            number = 0
            for number, line in enumerate(whole, 1):
                record = parse_record(path, number, line)
                if isinstance(record, RunRecord) is not (number == 1):
                    raise HintErrors.one(
                        path, "event", "this is no telemetry of one run", "`run` first, and only there", line=number
                    )
                yield record
            if number == 0:
                raise HintErrors.one(path, "file", "nothing was recorded yet", "the telemetry file of a run")
    except OSError as error:
        raise HintErrors.one(path, "file", f"cannot be read: {error.strerror}", "the telemetry file of a run") from None


def parse_record(path: Path, number: int, line: bytes) -> Record:
    """A line of a telemetry file.

    :raises HintErrors: if it holds something else; names the line
    """
    try:
        return RECORD.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "line"
        allowed = f"a record of a telemetry file, version {VERSION}"
        raise HintErrors.one(path, field, first["msg"], allowed, line=number) from None
